//! Violations by users without permission.

use knative_operator_rules::authorization::permission::{CREATE, CUSTOMIZE};
use knative_operator_rules::authorization::questions::Question;
use knative_operator_rules::{Example, Rule, Severity, Violation};

use super::answer::Answer;
use knative_operator_rules::authorization::author::User;

/// The user may use the ClusterProfile.
pub static USE: Rule = Rule {
    id: "authorization-use",
    severity: Severity::Error,
    requirement: "The user has the verb `use` for each ClusterProfile that the resource can target, or for the local cluster.",
    valid: Example::serving("{}"),
    invalid: Example::serving(r#"{"clusterProfileRef": {"name": "healthy", "namespace": "rules-fleet"}}"#),
};

/// The user may set what not every user may.
pub static CUSTOMIZATION: Rule = Rule {
    id: "authorization-customize",
    severity: Severity::Error,
    requirement: "The user has the verb `customize` to set, change or remove fields that need it (docs/operate/permissions.md).",
    valid: Example::serving("{}"),
    invalid: Example::serving(r#"{"additionalManifests": [{"URL": "https://example.com/more.yaml"}]}"#),
};

/// The user may change what approvals protect.
pub static APPROVAL: Rule = Rule {
    id: "authorization-approve",
    severity: Severity::Error,
    requirement: "The user has the verb `create` for KnativeFleetApprovals to delete a fleet that has stages with an approval, or to change these stages, what they cover, or the state of a rollout in resources of a fleet.",
    valid: Example::serving("{}"),
    invalid: Example::serving(
        r#"{"metadata": {"annotations": {"operator.knative.dev/fleet-revision": "prod-1"}}, "spec": {}}"#,
    ),
};

/// The hub itself is a target.
pub static LOCAL: Rule = Rule {
    id: "local-installation",
    severity: Severity::Error,
    requirement: "The resource has a ClusterProfile, if the chart is installed with `localInstallation: false`.",
    valid: Example::serving(r#"{"clusterProfileRef": {"name": "healthy", "namespace": "rules-fleet"}}"#),
    invalid: Example::serving("{}"),
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
pub static ALL: [&Rule; 5] = [&USE, &CUSTOMIZATION, &APPROVAL, &LOCAL, &UNKNOWN];

/// The violation of `question` by `user`, who got `answer`; none if the permission is granted.
pub fn violation(user: &User, question: &Question, answer: Answer) -> Option<Violation> {
    match answer {
        Answer::Allowed => None,
        Answer::Denied => Some(denied(user, question)),
        Answer::Unknown => Some(unknown(user, question)),
    }
}

/// The violation of a resource for the hub itself, which is no target.
pub fn no_local_target() -> Violation {
    LOCAL.at(
        "spec.clusterProfileRef",
        "is missing, and nothing is installed on this cluster itself".to_owned(),
        "set it, or ask an administrator for the chart value knative_operator.localInstallation=true",
    )
}

fn denied(user: &User, question: &Question) -> Violation {
    let permission = &question.permission;
    let message = format!("user \"{}\" is not allowed to {}", user.username, permission.action());
    let rule = match permission.verb {
        CUSTOMIZE => &CUSTOMIZATION,
        CREATE => &APPROVAL,
        _ => &USE,
    };
    let fix = format!(
        "ask an administrator for the verb \"{}\" on {}.{}, such as a {} for ClusterRole {}",
        permission.verb,
        permission.resource,
        permission.group,
        permission.binding(),
        permission.role()
    );
    rule.at(&question.field, message, fix)
}

fn unknown(user: &User, question: &Question) -> Violation {
    let (name, action) = (&user.username, question.permission.action());
    let message = format!("cannot check whether user \"{name}\" is allowed to {action}: the API server did not answer");
    UNKNOWN.at(&question.field, message, "try again")
}

/// Turns an error into a warning.
pub fn warn(violation: &mut Violation) {
    violation.severity = Severity::Warning;
    violation.fix.push_str(" (once authorization is enforced, the webhook refuses this request)");
}

#[cfg(test)]
mod tests {
    use super::*;
    use knative_operator_rules::authorization::permission::Permission;

    #[test]
    fn message_has_action_and_role() {
        let user = User { username: "jane".into(), ..User::default() };
        let text = |permission: Permission, answer: Answer| {
            let violation = violation(&user, &Question::new("spec.placement", permission), answer);
            violation.map(|violation| violation.to_string())
        };
        let denied = |action: &str, verb: &str, place: &str, role: &str| {
            Some(format!(
                "spec.placement: user \"jane\" is not allowed to {action}; ask an administrator for the verb {verb}, such as a {place} for ClusterRole knative-operator-{role}"
            ))
        };
        let profiles = "\"use\" on clusterprofiles.multicluster.x-k8s.io";
        let decisions = "\"use\" on placementdecisions.multicluster.x-k8s.io";
        let approvals = "\"create\" on knativefleetapprovals.operator.knative.dev";
        let of_f = "RoleBinding in namespace \"f\"";
        for (permission, expected) in [
            (Permission::to_use("f", "a"), denied("use ClusterProfile \"f/a\"", profiles, of_f, "user")),
            (
                Permission::to_use("", ""),
                denied("use all ClusterProfiles in all namespaces", profiles, "ClusterRoleBinding", "user"),
            ),
            (
                Permission::to_use_decisions("f"),
                denied("use PlacementDecisions in namespace \"f\"", decisions, of_f, "user"),
            ),
            (Permission::to_approve("f"), denied("approve rollouts in namespace \"f\"", approvals, of_f, "approver")),
        ] {
            assert_eq!(text(permission.clone(), Answer::Denied), expected);
            assert_eq!(text(permission, Answer::Allowed), None);
        }
        assert_eq!(
            text(Permission::to_use("g", "c"), Answer::Unknown).as_deref(),
            Some(
                "spec.placement: cannot check whether user \"jane\" is allowed to use ClusterProfile \"g/c\": the API server did not answer; try again"
            )
        );
    }
}
