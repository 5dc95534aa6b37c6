//! `operator.knative.dev/protected`: protection from accidental deletion.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::rule::{Example, Rule, Severity, Violation};
use knative_operator_shared::api::Knative;
use knative_operator_shared::label::PROTECTED;

/// A protected resource can't be deleted.
pub static DELETION: Rule = Rule {
    id: "protected",
    severity: Severity::Error,
    requirement: "A resource with the annotation `operator.knative.dev/protected: \"true\"` can't be deleted.",
    valid: Example::deletion(
        r#"{"metadata": {"annotations": {"operator.knative.dev/protected": "false"}}, "spec": {}}"#,
    ),
    invalid: Example::deletion(
        r#"{"metadata": {"annotations": {"operator.knative.dev/protected": "true"}}, "spec": {}}"#,
    ),
};

/// The violation if `resource` is protected from deletion.
pub fn validate_deletion(resource: &Knative) -> Option<Violation> {
    check(resource.component().kind(), resource.meta())
}

/// Whether the resource with `meta` is protected from deletion.
pub fn is_protected(meta: &ObjectMeta) -> bool {
    meta.annotations.as_ref().and_then(|all| all.get(PROTECTED)).is_some_and(|value| value == "true")
}

/// The violation if the resource of `kind` with `meta` is protected from deletion.
pub(super) fn check(kind: &str, meta: &ObjectMeta) -> Option<Violation> {
    is_protected(meta).then(|| {
        DELETION.at(
            format!("metadata.annotations[{PROTECTED}]"),
            "protects it from deletion",
            format!(
                "to delete the resource, remove the annotation first: kubectl annotate {} {} -n {} {PROTECTED}-",
                kind.to_ascii_lowercase(),
                meta.name.as_deref().unwrap_or_default(),
                meta.namespace.as_deref().unwrap_or_default()
            ),
        )
    })
}
