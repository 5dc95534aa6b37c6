//! Violations by users without permission.

use std::collections::BTreeSet;

use knative_operator_shared::rules::{Example, Rule, Severity, Violation};

use super::permission::{Answer, CUSTOMIZE, Permission};
use super::questions::Question;
use crate::review::UserInfo;

/// The user may use the ClusterProfile.
pub static USE: Rule = Rule {
    id: "authorization-use",
    severity: Severity::Error,
    requirement: "The user has the verb `use` for each ClusterProfile that the resource targets.",
    valid: Example::serving("{}"),
    invalid: Example::serving(r#"{"clusterProfileRef": {"name": "healthy", "namespace": "rules-fleet"}}"#),
};

/// The user may bring content.
pub static CUSTOMIZATION: Rule = Rule {
    id: "authorization-customize",
    severity: Severity::Error,
    requirement: "The user has the verb `customize` for resources with manifests, patches, images, host network or volumes of their own.",
    valid: Example::serving("{}"),
    invalid: Example::serving(r#"{"additionalManifests": [{"URL": "https://example.com/more.yaml"}]}"#),
};

/// The API server answers.
pub static UNKNOWN: Rule = Rule {
    id: "authorization-unknown",
    severity: Severity::Error,
    requirement: "The API server answers whether the user has permission.",
    valid: Example::serving("{}"),
    invalid: Example::serving("{}"),
};

/// Rules about permissions.
pub static ALL: [&Rule; 3] = [&USE, &CUSTOMIZATION, &UNKNOWN];

/// Maximum number of clusters or namespaces that a message names.
const MAX_NAMED: usize = 10;

/// The violations of `question` by `user`, who lacks the permissions `lacking`: one for those that
/// are denied, and one for those that are not known.
pub fn violations(user: &UserInfo, question: &Question, lacking: &[(Permission, Answer)]) -> Vec<Violation> {
    let of = |wanted: Answer| -> Vec<&Permission> {
        lacking.iter().filter(|(_, answer)| *answer == wanted).map(|(permission, _)| permission).collect()
    };
    let denied = denied(user, question, &of(Answer::Denied));
    denied.into_iter().chain(unknown(user, question, &of(Answer::Unknown))).collect()
}

fn denied(user: &UserInfo, question: &Question, permissions: &[&Permission]) -> Option<Violation> {
    let first = permissions.first()?;
    let message = format!("user \"{}\" is not allowed to {}", user.username, actions(permissions));
    let namespaces: BTreeSet<&str> = permissions.iter().map(|permission| permission.namespace.as_str()).collect();
    let place = match namespaces.first() {
        None | Some(&"") => "ClusterRoleBinding".to_owned(),
        Some(namespace) if namespaces.len() == 1 => format!("RoleBinding in namespace \"{namespace}\""),
        Some(_) => format!("RoleBinding in each of the namespaces {}", list(namespaces.iter().copied())),
    };
    let (rule, role) = if first.verb == CUSTOMIZE { (&CUSTOMIZATION, "customizer") } else { (&USE, "user") };
    let fix = format!(
        "ask an administrator for the verb \"{}\" on {}.{}, such as a {place} for ClusterRole knative-operator-{role}",
        first.verb, first.resource, first.group
    );
    Some(rule.at(&question.field, message, fix))
}

fn unknown(user: &UserInfo, question: &Question, permissions: &[&Permission]) -> Option<Violation> {
    let (name, actions) = (&user.username, actions(permissions));
    let message =
        format!("cannot check whether user \"{name}\" is allowed to {actions}: the API server did not answer");
    (!permissions.is_empty()).then(|| UNKNOWN.at(&question.field, message, "try again"))
}

/// What `permissions` of the same kind permit together.
fn actions(permissions: &[&Permission]) -> String {
    match permissions {
        [one] => one.action(),
        all => {
            let names: Vec<String> = all.iter().map(|one| format!("{}/{}", one.namespace, one.name)).collect();
            format!("use ClusterProfiles {}", list(names.iter().map(String::as_str)))
        }
    }
}

/// `names` in quotes, with the number of those that are not named.
fn list<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<String> = names.map(|name| format!("\"{name}\"")).collect();
    let further = names.len().saturating_sub(MAX_NAMED);
    let named = names[..names.len() - further].join(", ");
    if further == 0 { named } else { format!("{named}, and {further} others") }
}

/// Turns an error into a warning.
pub fn warn(violation: &mut Violation) {
    violation.severity = Severity::Warning;
    violation.fix.push_str(" (once authorization is enforced, the webhook refuses this request)");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_are_named_together() {
        let user = UserInfo { username: "jane".into(), ..UserInfo::default() };
        let question =
            Question { field: "spec.placement".into(), permission: Permission::to_use("", ""), or_all_of: Vec::new() };
        let texts = |lacking: &[(Permission, Answer)]| -> Vec<String> {
            violations(&user, &question, lacking).iter().map(ToString::to_string).collect()
        };
        let to_use = |namespace: &str, name: &str| (Permission::to_use(namespace, name), Answer::Denied);
        let fix = "ask an administrator for the verb \"use\" on clusterprofiles.multicluster.x-k8s.io, such as a";
        let role = "for ClusterRole knative-operator-user";
        assert_eq!(
            texts(&[to_use("f", "a")]),
            [format!(
                "spec.placement: user \"jane\" is not allowed to use ClusterProfile \"f/a\"; {fix} RoleBinding in namespace \"f\" {role}"
            )]
        );
        assert_eq!(
            texts(&[to_use("f", "a"), to_use("g", "b"), (Permission::to_use("g", "c"), Answer::Unknown)]),
            [
                format!("spec.placement: user \"jane\" is not allowed to use ClusterProfiles \"f/a\", \"g/b\"; {fix} RoleBinding in each of the namespaces \"f\", \"g\" {role}"),
                "spec.placement: cannot check whether user \"jane\" is allowed to use ClusterProfile \"g/c\": the API server did not answer; try again".to_owned(),
            ]
        );
        assert_eq!(
            texts(&[to_use("", "")]),
            [format!(
                "spec.placement: user \"jane\" is not allowed to use all ClusterProfiles in all namespaces; {fix} ClusterRoleBinding {role}"
            )]
        );
        let many: Vec<_> = (0..25).map(|number| to_use("f", &number.to_string())).collect();
        assert!(texts(&many)[0].contains("\"f/9\", and 15 others; ask"), "{:?}", texts(&many));
        assert!(texts(&[]).is_empty());
    }
}
