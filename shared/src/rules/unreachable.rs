//! `operator.knative.dev/on-unreachable`: what becomes of a resource whose cluster can't be reached when it is deleted.

use super::{Example, Problem, Rule, Severity};
use crate::api::Knative;
use crate::label::{ON_UNREACHABLE, ORPHAN};

/// Its value.
pub static ANNOTATION: Rule = Rule {
    id: "on-unreachable",
    severity: Severity::Error,
    says: "The annotation `operator.knative.dev/on-unreachable` has the value `orphan`.",
    kept: Example::serving(
        r#"{"metadata": {"annotations": {"operator.knative.dev/on-unreachable": "orphan"}}, "spec": {}}"#,
    ),
    broken: Example::serving(
        r#"{"metadata": {"annotations": {"operator.knative.dev/on-unreachable": "delete"}}, "spec": {}}"#,
    ),
};

/// The annotation has one value: another one would be taken for a promise.
pub fn check(resource: &Knative, found: &mut Vec<Problem>) {
    let annotations = resource.meta().annotations.as_ref();
    let Some(value) = annotations.and_then(|a| a.get(ON_UNREACHABLE)).filter(|v| *v != ORPHAN) else { return };
    found.push(ANNOTATION.at(
        format!("metadata.annotations[{ON_UNREACHABLE}]"),
        format!("has the unknown value \"{value}\""),
        format!("set it to \"{ORPHAN}\", or remove it to have a deletion wait until the cluster can be reached"),
    ));
}
