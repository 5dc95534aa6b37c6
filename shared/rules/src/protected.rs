//! `operator.knative.dev/protected`: protection from accidental deletion.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::names::NO_EFFECT;
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

/// Checks the value of the annotation in `meta`: another one than "true" protects nothing.
pub(super) fn check_value(meta: &ObjectMeta, violations: &mut Vec<Violation>) {
    let value = meta.annotations.as_ref().and_then(|all| all.get(PROTECTED));
    if let Some(value) = value.filter(|value| !["true", "false"].contains(&value.as_str())) {
        let field = format!("metadata.annotations[{PROTECTED}]");
        violations.push(NO_EFFECT.at(field, format!("\"{value}\" protects nothing"), "set it to \"true\""));
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_that_protects_nothing_is_a_warning() {
        let violations = |value: &str| {
            let annotations = Some([(PROTECTED.to_owned(), value.to_owned())].into());
            let mut violations = Vec::new();
            check_value(&ObjectMeta { annotations, ..ObjectMeta::default() }, &mut violations);
            violations
        };
        assert!(violations("true").is_empty() && violations("false").is_empty());
        for value in ["yes", "True", ""] {
            let found = violations(value);
            let expected =
                format!("metadata.annotations[{PROTECTED}]: \"{value}\" protects nothing; set it to \"true\"");
            assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
            assert!(!found[0].is_error());
        }
    }
}
