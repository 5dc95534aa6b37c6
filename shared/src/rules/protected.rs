//! `operator.knative.dev/protected`: a resource that is not to be deleted by accident.

use super::{Example, Problem, Rule, Severity};
use crate::api::Knative;
use crate::label::PROTECTED;

/// A protected resource is not deleted.
pub static DELETION: Rule = Rule {
    id: "protected",
    severity: Severity::Error,
    says: "A resource annotated `operator.knative.dev/protected: \"true\"` is not deleted.",
    kept: Example::deletion(
        r#"{"metadata": {"annotations": {"operator.knative.dev/protected": "false"}}, "spec": {}}"#,
    ),
    broken: Example::deletion(
        r#"{"metadata": {"annotations": {"operator.knative.dev/protected": "true"}}, "spec": {}}"#,
    ),
};

/// Whether `resource` may be deleted.
pub fn deletion(resource: &Knative) -> Option<Problem> {
    let protected = resource.meta().annotations.as_ref().is_some_and(|a| a.get(PROTECTED).is_some_and(|v| v == "true"));
    protected.then(|| {
        DELETION.at(
            format!("metadata.annotations[{PROTECTED}]"),
            "protects it from deletion",
            format!(
                "if it is really to go, remove the annotation first: kubectl annotate {} {} -n {} {PROTECTED}-",
                resource.component().kind().to_ascii_lowercase(),
                resource.name(),
                resource.namespace()
            ),
        )
    })
}
