//! `operator.knative.dev/on-unreachable`: deletion of a resource whose cluster is unreachable.

use super::rule::{Example, Rule, Severity, Violation};
use crate::api::Knative;
use crate::label::{ON_UNREACHABLE, ORPHAN};

/// Value of the annotation.
pub static ANNOTATION: Rule = Rule {
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

/// Checks the annotation: an unknown value would have no effect.
pub fn check(resource: &Knative, violations: &mut Vec<Violation>) {
    let annotations = resource.meta().annotations.as_ref();
    let Some(value) = annotations.and_then(|a| a.get(ON_UNREACHABLE)).filter(|v| *v != ORPHAN) else { return };
    violations.push(ANNOTATION.at(
        format!("metadata.annotations[{ON_UNREACHABLE}]"),
        format!("has the unknown value \"{value}\""),
        format!("set it to \"{ORPHAN}\", or remove it to make a deletion wait until the cluster is reachable"),
    ));
}
