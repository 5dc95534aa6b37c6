//! Deprecated fields.

use serde_json::json;

use super::rule::{Example, Rule, Severity, Violation};
use knative_operator_shared::api::Knative;

/// Deprecated fields.
pub static FIELD: Rule = Rule {
    id: "deprecated-field",
    severity: Severity::Warning,
    requirement: "The spec uses `spec.workloads` instead of the deprecated `spec.deployments` and `spec.resources`.",
    valid: Example::serving(
        r#"{"workloads": [{"name": "activator", "resources": [{"container": "activator", "limits": {"cpu": "1"}}]}]}"#,
    ),
    invalid: Example::serving(r#"{"deployments": [{"name": "activator", "replicas": 2}]}"#),
};

pub fn check(resource: &Knative, violations: &mut Vec<Violation>) {
    let common = resource.common();
    if !common.deployments.is_empty() {
        violations.push(FIELD.at(
            "spec.deployments",
            "is deprecated",
            "rename it to spec.workloads, whose entries have the same form",
        ));
    }
    if let Some(first) = common.resources.first() {
        let mut entry = json!({"container": first.container});
        for (field, values) in [("limits", &first.limits), ("requests", &first.requests)] {
            if !values.is_empty() {
                entry[field] = json!(values);
            }
        }
        let moved = json!({"workloads": [{"name": "<name of the Deployment>", "resources": [entry]}]});
        violations.push(FIELD.at(
            "spec.resources",
            "is deprecated",
            format!("move it to the workload of the container: {moved}"),
        ));
    }
}
