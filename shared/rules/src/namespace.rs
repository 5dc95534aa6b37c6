//! `spec.namespaceConfiguration` and `spec.namespace`, two names of the same settings.

use super::rule::{Example, Rule, Severity, Violation};
use knative_operator_shared::api::{Knative, NamespaceConfiguration};

/// The two names don't contradict each other.
pub static ONE_MEANING: Rule = Rule {
    id: "namespace-settings-one-meaning",
    severity: Severity::Error,
    requirement: "`spec.namespace` and `spec.namespaceConfiguration`, two names for the same, don't contradict each other.",
    valid: Example::serving(r#"{"namespace": {"labels": {"a": "1"}}}"#),
    invalid: Example::serving(
        r#"{"namespace": {"labels": {"a": "1"}}, "namespaceConfiguration": {"labels": {"a": "2"}}}"#,
    ),
};

/// Both names may be given only with equal values. An empty block counts as not given.
pub fn check(resource: &Knative, violations: &mut Vec<Violation>) {
    let common = resource.common();
    let (Some(documented), Some(go)) = (&common.namespace_configuration, &common.namespace) else { return };
    let empty = NamespaceConfiguration::default();
    if documented != go && *documented != empty && *go != empty {
        violations.push(ONE_MEANING.at(
            "spec.namespaceConfiguration",
            "contradicts spec.namespace, which has the same meaning",
            "keep spec.namespaceConfiguration and remove spec.namespace",
        ));
    }
}
