//! `spec.namespaceConfiguration` and `spec.namespace`: two names, one meaning.

use super::{Example, Problem, Rule, Severity};
use crate::api::{Knative, NamespaceConfiguration};

/// Both say the same.
pub static ONE_MEANING: Rule = Rule {
    id: "namespace-settings-one-meaning",
    severity: Severity::Error,
    says: "`spec.namespace` and `spec.namespaceConfiguration`, two names for the same, don't contradict each other.",
    kept: Example::serving(r#"{"namespace": {"labels": {"a": "1"}}}"#),
    broken: Example::serving(
        r#"{"namespace": {"labels": {"a": "1"}}, "namespaceConfiguration": {"labels": {"a": "2"}}}"#,
    ),
};

/// Both names may be given only if they say the same. An empty block says nothing.
pub fn check(resource: &Knative, found: &mut Vec<Problem>) {
    let common = resource.common();
    let (Some(documented), Some(go)) = (&common.namespace_configuration, &common.namespace) else { return };
    let empty = NamespaceConfiguration::default();
    if documented != go && *documented != empty && *go != empty {
        found.push(ONE_MEANING.at(
            "spec.namespaceConfiguration",
            "says something else than spec.namespace, which has the same meaning",
            "keep spec.namespaceConfiguration and remove spec.namespace",
        ));
    }
}
