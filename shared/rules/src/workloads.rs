//! Lists of overrides: names and replicas.

use std::collections::BTreeSet;
use std::fmt::Arguments;

use super::rule::{Example, Rule, Severity, Violation};
use knative_operator_shared::api::Knative;
use knative_operator_shared::syntax::MAX_INT32;

/// Names are set.
pub static NAME: Rule = Rule {
    id: "override-name",
    severity: Severity::Error,
    requirement: "Each override has a name: of a workload, a Service, a PodDisruptionBudget or a container.",
    valid: Example::serving(r#"{"workloads": [{"name": "activator", "replicas": 2}]}"#),
    invalid: Example::serving(r#"{"workloads": [{"name": "", "replicas": 2}]}"#),
};

/// Names are unique.
pub static TWICE: Rule = Rule {
    id: "override-twice",
    severity: Severity::Error,
    requirement: "A list of overrides has one entry for each name.",
    valid: Example::serving(r#"{"services": [{"name": "activator-service"}, {"name": "autoscaler"}]}"#),
    invalid: Example::serving(r#"{"services": [{"name": "autoscaler"}, {"name": "autoscaler"}]}"#),
};

/// Replicas are not negative.
pub static REPLICAS: Rule = Rule {
    id: "replicas",
    severity: Severity::Error,
    requirement: "`replicas` of a workload is not negative.",
    valid: Example::serving(r#"{"workloads": [{"name": "webhook", "replicas": 3}]}"#),
    invalid: Example::serving(r#"{"workloads": [{"name": "webhook", "replicas": -1}]}"#),
};

pub fn check(resource: &Knative, violations: &mut Vec<Violation>) {
    let common = resource.common();
    let (deployments, workloads) =
        (common.deployments.iter().map(|w| w.name.as_str()), common.workloads.iter().map(|w| w.name.as_str()));
    check_names(format_args!("spec.deployments"), "name", deployments, violations);
    check_names(format_args!("spec.workloads"), "name", workloads, violations);
    check_names(format_args!("spec.services"), "name", common.services.iter().map(|s| s.name.as_str()), violations);
    check_names(
        format_args!("spec.podDisruptionBudgets"),
        "name",
        common.pod_disruption_budgets.iter().map(|b| b.name.as_str()),
        violations,
    );
    check_names(
        format_args!("spec.resources"),
        "container",
        common.resources.iter().map(|r| r.container.as_str()),
        violations,
    );
    for (path, workload) in common.overrides() {
        check_names(
            format_args!("{path}.resources"),
            "container",
            workload.resources.iter().map(|r| r.container.as_str()),
            violations,
        );
        check_names(
            format_args!("{path}.env"),
            "container",
            workload.env.iter().map(|e| e.container.as_str()),
            violations,
        );
        check_names(
            format_args!("{path}.readinessProbes"),
            "container",
            workload.readiness_probes.iter().map(|p| p.container.as_str()),
            violations,
        );
        check_names(
            format_args!("{path}.livenessProbes"),
            "container",
            workload.liveness_probes.iter().map(|p| p.container.as_str()),
            violations,
        );
        if let Some(replicas) = workload.replicas.filter(|r| *r < 0) {
            violations.push(REPLICAS.at(
                format!("{path}.replicas"),
                format!("{replicas} is negative"),
                "set it to 0 or more",
            ));
        }
        if let Some(replicas) = workload.replicas.filter(|r| *r > MAX_INT32) {
            violations.push(REPLICAS.at(
                format!("{path}.replicas"),
                format!("{replicas} is more than {MAX_INT32}"),
                "set it to a smaller number",
            ));
        }
    }
}

/// Checks the `names` in `field` of the entries of the list at `path`.
fn check_names<'n>(
    path: Arguments<'_>,
    field: &str,
    names: impl Iterator<Item = &'n str>,
    violations: &mut Vec<Violation>,
) {
    let mut known = BTreeSet::new();
    for (index, name) in names.enumerate() {
        let field_path = || format!("{path}[{index}].{field}");
        if name.trim().is_empty() {
            violations.push(NAME.at(field_path(), "is empty", "set the name, or remove the entry"));
        } else if !known.insert(name) {
            violations.push(TWICE.at(
                field_path(),
                format!("\"{name}\" is not unique"),
                "merge the entries with this name",
            ));
        }
    }
}
