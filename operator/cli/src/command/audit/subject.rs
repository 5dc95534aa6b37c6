//! Users, groups and ServiceAccounts, as bindings name them and as the API server is asked. Pure.

use std::fmt;

use k8s_openapi::api::rbac::v1;
use knative_operator_rules::authorization::author::User;

/// Start of the name of a ServiceAccount as a user.
const ACCOUNT: &str = "system:serviceaccount:";
/// Group of all ServiceAccounts, and start of the groups of those of a namespace.
const ACCOUNTS: &str = "system:serviceaccounts";
/// Group of all users who have logged in.
const AUTHENTICATED: &str = "system:authenticated";
/// Group of all others.
const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The user who has not logged in.
const ANONYMOUS: &str = "system:anonymous";

/// A user, a group or a ServiceAccount.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Subject {
    /// Name of the user; `None` for a group.
    pub user: Option<String>,
    /// The groups, with those that the API server adds.
    pub groups: Vec<String>,
}

impl Subject {
    /// The user `name` in `groups`.
    pub fn user(name: &str, groups: &[String]) -> Self {
        let mut groups = groups.to_vec();
        if let Some((namespace, _)) = name.strip_prefix(ACCOUNT).and_then(|account| account.split_once(':')) {
            groups.extend([ACCOUNTS.to_owned(), format!("{ACCOUNTS}:{namespace}")]);
        }
        groups.push(if name == ANONYMOUS { UNAUTHENTICATED } else { AUTHENTICATED }.to_owned());
        Self { user: Some(name.to_owned()), groups }
    }

    /// The recorded author of a resource, with the groups that they had then.
    pub fn author(author: User) -> Self {
        Self { user: Some(author.username), groups: author.groups }
    }

    /// A member of the group `name` only.
    pub fn group(name: &str) -> Self {
        let mut groups = vec![name.to_owned()];
        if name.strip_prefix(ACCOUNTS).is_some_and(|rest| rest.starts_with(':')) {
            groups.push(ACCOUNTS.to_owned());
        }
        if ![AUTHENTICATED, UNAUTHENTICATED].contains(&name) {
            groups.push(AUTHENTICATED.to_owned());
        }
        Self { user: None, groups }
    }

    /// The ServiceAccount `name` in `namespace`.
    pub fn account(namespace: &str, name: &str) -> Self {
        Self::user(&format!("{ACCOUNT}{namespace}:{name}"), &[])
    }

    /// The subject that a binding in `namespace` names; `None` if its kind is unknown.
    pub fn of_binding(subject: &v1::Subject, namespace: &str) -> Option<Self> {
        match subject.kind.as_str() {
            "User" => Some(Self::user(&subject.name, &[])),
            "Group" => Some(Self::group(&subject.name)),
            "ServiceAccount" => Some(Self::account(subject.namespace.as_deref().unwrap_or(namespace), &subject.name)),
            _ => None,
        }
    }

    /// Whether it is a ServiceAccount with this name, in any namespace.
    pub fn is_account(&self, name: &str) -> bool {
        let account = self.user.as_deref().and_then(|user| user.strip_prefix(ACCOUNT)?.split_once(':'));
        account.is_some_and(|(_, account)| account == name)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = self.groups.first().map(String::as_str).unwrap_or_default();
        let Some(user) = &self.user else { return write!(f, "group \"{group}\"") };
        match user.strip_prefix(ACCOUNT).and_then(|account| account.split_once(':')) {
            Some((namespace, name)) => write!(f, "ServiceAccount {namespace}/{name}"),
            None => write!(f, "user \"{user}\""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_have_name_and_groups_of_the_api_server() {
        let named = |kind: &str, name: &str, namespace: Option<&str>| {
            let (kind, name, namespace) = (kind.to_owned(), name.to_owned(), namespace.map(str::to_owned));
            let subject = v1::Subject { kind, name, namespace, ..v1::Subject::default() };
            let subject = Subject::of_binding(&subject, "here")?;
            Some((subject.to_string(), subject.groups.join(" ")))
        };
        let expected = |text: &str, groups: &str| Some((text.to_owned(), groups.to_owned()));
        assert_eq!(named("User", "jane", None), expected("user \"jane\"", "system:authenticated"));
        assert_eq!(named("Group", "sre", None), expected("group \"sre\"", "sre system:authenticated"));
        assert_eq!(
            named("Group", "system:serviceaccounts:a", None),
            expected(
                "group \"system:serviceaccounts:a\"",
                "system:serviceaccounts:a system:serviceaccounts system:authenticated"
            )
        );
        assert_eq!(
            named("Group", "system:unauthenticated", None),
            expected("group \"system:unauthenticated\"", "system:unauthenticated")
        );
        assert_eq!(named("User", ANONYMOUS, None), expected("user \"system:anonymous\"", "system:unauthenticated"));
        let of_a = "system:serviceaccounts system:serviceaccounts:a system:authenticated";
        assert_eq!(named("ServiceAccount", "ci", Some("a")), expected("ServiceAccount a/ci", of_a));
        assert_eq!(named("User", "system:serviceaccount:a:ci", None), expected("ServiceAccount a/ci", of_a));
        assert_eq!(named("ServiceAccount", "ci", None).unwrap().0, "ServiceAccount here/ci");
        assert_eq!(named("Robot", "x", None), None);
        assert!(Subject::account("a", "ci").is_account("ci") && !Subject::user("ci", &[]).is_account("ci"));
        assert_eq!(Subject::user("jane", &["sre".to_owned()]).groups, ["sre", "system:authenticated"]);
    }
}
