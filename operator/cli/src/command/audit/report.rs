//! The output of `audit`. Pure.

use std::collections::BTreeSet;
use std::fmt::Write;

use knative_operator_shared::text::one_line;

use super::check::Finding;

/// The text about `findings` among `total` resources.
pub fn text(findings: &[Finding], total: usize) -> String {
    if findings.is_empty() {
        return match total {
            0 => "There are no resources.\n".to_owned(),
            1 => "The webhook would refuse nothing: 1 resource is permitted.\n".to_owned(),
            total => format!("The webhook would refuse nothing: {total} resources are permitted.\n"),
        };
    }
    let mut text = findings.iter().map(block).collect::<Vec<_>>().join("\n");
    let noun = if total == 1 { "resource" } else { "resources" };
    // Writing to a String can't fail.
    let _ = writeln!(
        text,
        "\nThe webhook would refuse {} of {total} {noun}. Delete them, or permit them by a binding of",
        findings.len()
    );
    for (role, binding) in bindings(findings) {
        let _ = writeln!(text, "  ClusterRole {role}: {}", one_line(&binding));
    }
    text
}

/// A resource, what is lacking, and who lacks it. Names of fields and users are on one line, so
/// that they can't look like another resource.
fn block(finding: &Finding) -> String {
    let resource = &finding.resource;
    let mut text = format!("{} {}/{}\n", resource.kind.name(), resource.namespace, resource.name);
    for (question, who) in &finding.lacking {
        let who: Vec<String> = who.iter().map(ToString::to_string).collect();
        let need = format!("{}: {}", question.field, question.permission.action());
        let _ = writeln!(text, "  {}\n    not permitted to {}", one_line(&need), one_line(&who.join(", ")));
    }
    text
}

/// The ClusterRoles that grant what is lacking, and how to bind them.
fn bindings(findings: &[Finding]) -> BTreeSet<(&'static str, String)> {
    let lacking = findings.iter().flat_map(|finding| &finding.lacking);
    lacking.map(|(question, _)| (question.permission.role(), question.permission.binding())).collect()
}

#[cfg(test)]
mod tests {
    use knative_operator_rules::authorization::permission::Permission;
    use knative_operator_rules::authorization::questions::Question;
    use knative_operator_shared::api::{Component, Kind};

    use super::*;
    use crate::command::audit::stored::{Stored, StoredKind};
    use crate::command::audit::subject::Subject;

    fn finding(kind: Kind, name: &str, lacking: Vec<(Question, Vec<Subject>)>) -> Finding {
        let questions = lacking.iter().map(|(question, _)| question.clone()).collect();
        Finding {
            resource: Stored {
                kind: StoredKind::Resource(kind),
                namespace: "team".into(),
                name: name.into(),
                questions,
                author: None,
            },
            lacking,
        }
    }

    #[test]
    fn findings_name_field_permission_subject_and_role() {
        let jane = Subject::user("jane\nKnativeServing team/forged", &[]);
        let customize = Permission::to_customize("knativeservings", "team");
        let findings = [
            finding(
                Kind::Component(Component::Serving),
                "a",
                vec![
                    (Question::new("spec.clusterProfileRef", Permission::to_use_local()), vec![jane.clone()]),
                    (Question::new("spec.patches", customize.clone()), vec![Subject::group("sre"), jane.clone()]),
                ],
            ),
            finding(Kind::Fleet, "b", vec![(Question::new("spec.serving.spec.patches", customize), vec![jane])]),
        ];
        let expected = r#"KnativeServing team/a
  spec.clusterProfileRef: install on this cluster itself
    not permitted to user "jane KnativeServing team/forged"
  spec.patches: customize knativeservings in namespace "team"
    not permitted to group "sre", user "jane KnativeServing team/forged"

KnativeFleet team/b
  spec.serving.spec.patches: customize knativeservings in namespace "team"
    not permitted to user "jane KnativeServing team/forged"

The webhook would refuse 2 of 3 resources. Delete them, or permit them by a binding of
  ClusterRole knative-operator-customizer: RoleBinding in namespace "team"
  ClusterRole knative-operator-local-user: ClusterRoleBinding
"#;
        assert_eq!(text(&findings, 3), expected);
        assert_eq!(text(&[], 2), "The webhook would refuse nothing: 2 resources are permitted.\n");
        assert_eq!(text(&[], 0), "There are no resources.\n");
    }
}
