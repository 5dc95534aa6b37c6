//! Fields that have a better successor.

use serde_json::json;

use super::{Example, Problem, Rule, Severity};
use crate::api::Knative;

/// Deprecated fields.
pub static FIELD: Rule = Rule {
    id: "deprecated-field",
    severity: Severity::Warning,
    says: "`spec.workloads` is used, and not the deprecated `spec.deployments` and `spec.resources`.",
    kept: Example::serving(
        r#"{"workloads": [{"name": "activator", "resources": [{"container": "activator", "limits": {"cpu": "1"}}]}]}"#,
    ),
    broken: Example::serving(r#"{"deployments": [{"name": "activator", "replicas": 2}]}"#),
};

pub fn check(resource: &Knative, found: &mut Vec<Problem>) {
    let common = resource.common();
    if let Some(first) = common.deployments.first() {
        let moved = json!({"workloads": [{"name": first.name}]});
        found.push(FIELD.at(
            "spec.deployments",
            "is deprecated",
            format!("rename it to spec.workloads, whose entries have the same form: {moved}"),
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
        found.push(FIELD.at(
            "spec.resources",
            "is deprecated",
            format!("move it to the workload that it is for: {moved}"),
        ));
    }
}
