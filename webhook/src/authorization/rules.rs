//! Violations by users without permission.

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

/// Maximum number of clusters that a message names.
const MAX_NAMED: usize = 10;

/// The violations of `question` by `user`, who lacks the permissions `lacking`.
pub fn violations(user: &UserInfo, question: &Question, lacking: &[(Permission, Answer)]) -> Vec<Violation> {
    let named = lacking.iter().take(MAX_NAMED);
    let mut violations: Vec<Violation> =
        named.map(|(permission, answer)| violation(user, question, permission, *answer)).collect();
    if let (Some(last), further @ 1..) = (violations.last_mut(), lacking.len().saturating_sub(MAX_NAMED)) {
        last.message = format!("{}, and {further} others", last.message);
    }
    violations
}

fn violation(user: &UserInfo, question: &Question, permission: &Permission, answer: Answer) -> Violation {
    let (name, action) = (&user.username, permission.action());
    if answer == Answer::Unknown {
        let message =
            format!("cannot check whether user \"{name}\" is allowed to {action}: the API server did not answer");
        return UNKNOWN.at(&question.field, message, "try again");
    }
    let message = format!("user \"{name}\" is not allowed to {action}");
    let place = if permission.namespace.is_empty() {
        "ClusterRoleBinding".to_owned()
    } else {
        format!("RoleBinding in namespace \"{}\"", permission.namespace)
    };
    let (rule, role) = if permission.verb == CUSTOMIZE { (&CUSTOMIZATION, "customizer") } else { (&USE, "user") };
    let fix = format!(
        "ask an administrator for the verb \"{}\" on {}.{}, such as a {place} for ClusterRole knative-operator-{role}",
        permission.verb, permission.resource, permission.group
    );
    rule.at(&question.field, message, fix)
}

/// Turns an error into a warning.
pub fn warn(violation: &mut Violation) {
    violation.severity = Severity::Warning;
    violation.fix.push_str(" (once authorization is enforced, the webhook refuses this request)");
}
