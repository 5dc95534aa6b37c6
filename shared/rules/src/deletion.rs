//! `operator.knative.dev/on-delete` and `operator.knative.dev/on-unreachable`: what a deletion
//! leaves.

use super::rule::{Example, Rule, Severity, Violation};
use knative_operator_shared::api::Knative;
use knative_operator_shared::label::{ON_DELETE, ON_UNREACHABLE, ORPHAN, WAIT};

/// Value of the annotation about unreachable clusters.
pub static UNREACHABLE: Rule = Rule {
    id: "on-unreachable",
    severity: Severity::Error,
    requirement: "The annotation `operator.knative.dev/on-unreachable` has the value `orphan`.",
    valid: Example::serving(
        r#"{"metadata": {"annotations": {"operator.knative.dev/on-unreachable": "orphan"}}, "spec": {}}"#,
    ),
    invalid: Example::serving(
        r#"{"metadata": {"annotations": {"operator.knative.dev/on-unreachable": "delete"}}, "spec": {}}"#,
    ),
};

/// Value of the annotation about deletions.
pub static DELETE: Rule = Rule {
    id: "on-delete",
    severity: Severity::Error,
    requirement: "The annotation `operator.knative.dev/on-delete` has the value `orphan` or `wait`.",
    valid: Example::serving(
        r#"{"metadata": {"annotations": {"operator.knative.dev/on-delete": "orphan"}}, "spec": {}}"#,
    ),
    invalid: Example::serving(
        r#"{"metadata": {"annotations": {"operator.knative.dev/on-delete": "keep"}}, "spec": {}}"#,
    ),
};

/// A resource that uninstalls nothing.
pub static ORPHANED: Rule = Rule {
    id: "on-delete-orphan",
    severity: Severity::Warning,
    requirement: "Without the annotation `operator.knative.dev/on-delete: orphan`, the deletion of a resource uninstalls what it installed.",
    valid: Example::serving(r#"{"spec": {}}"#),
    invalid: Example::serving(
        r#"{"metadata": {"annotations": {"operator.knative.dev/on-delete": "orphan"}}, "spec": {}}"#,
    ),
};

/// Checks the annotations: an unknown value would have no effect.
pub fn check(resource: &Knative, violations: &mut Vec<Violation>) {
    let otherwise = [
        (&UNREACHABLE, ON_UNREACHABLE, &[ORPHAN][..], "make a deletion wait until the cluster is reachable"),
        (&DELETE, ON_DELETE, &[ORPHAN, WAIT], "uninstall Knative with the resource"),
    ];
    for (rule, name, known, effect) in otherwise {
        if let Some(value) = resource.annotation(name).filter(|value| !known.contains(value)) {
            violations.push(rule.at(
                format!("metadata.annotations[{name}]"),
                format!("has the unknown value \"{value}\""),
                format!("set it to \"{}\", or remove it to {effect}", known.join("\" or \"")),
            ));
        }
    }
    if resource.annotation(ON_DELETE) == Some(ORPHAN) {
        violations.push(ORPHANED.at(
            format!("metadata.annotations[{ON_DELETE}]"),
            format!("the deletion of this resource leaves {} on its cluster", resource.component()),
            "remove the annotation to uninstall it with the resource",
        ));
    }
}
