//! The lists of overrides: each entry has a name, once, and no negative number of replicas.

use std::collections::BTreeSet;

use super::{Example, MAX_INT32, Problem, Rule, Severity};
use crate::api::Knative;

/// Names aren't empty.
pub static NAME: Rule = Rule {
    id: "override-name",
    severity: Severity::Error,
    says: "Each override names what it is for: the workload, the Service, the PodDisruptionBudget, and the container.",
    kept: Example::serving(r#"{"workloads": [{"name": "activator", "replicas": 2}]}"#),
    broken: Example::serving(r#"{"workloads": [{"name": "", "replicas": 2}]}"#),
};

/// Names are there once.
pub static TWICE: Rule = Rule {
    id: "override-twice",
    severity: Severity::Error,
    says: "A list of overrides has one entry for each name.",
    kept: Example::serving(r#"{"services": [{"name": "activator-service"}, {"name": "autoscaler"}]}"#),
    broken: Example::serving(r#"{"services": [{"name": "autoscaler"}, {"name": "autoscaler"}]}"#),
};

/// Replicas aren't negative.
pub static REPLICAS: Rule = Rule {
    id: "replicas",
    severity: Severity::Error,
    says: "`replicas` of a workload is not negative.",
    kept: Example::serving(r#"{"workloads": [{"name": "webhook", "replicas": 3}]}"#),
    broken: Example::serving(r#"{"workloads": [{"name": "webhook", "replicas": -1}]}"#),
};

pub fn check(resource: &Knative, found: &mut Vec<Problem>) {
    let common = resource.common();
    let (deployments, workloads) =
        (common.deployments.iter().map(|w| w.name.as_str()), common.workloads.iter().map(|w| w.name.as_str()));
    each("spec.deployments", "name", deployments, found);
    each("spec.workloads", "name", workloads, found);
    each("spec.services", "name", common.services.iter().map(|s| s.name.as_str()), found);
    each("spec.podDisruptionBudgets", "name", common.pod_disruption_budgets.iter().map(|b| b.name.as_str()), found);
    each("spec.resources", "container", common.resources.iter().map(|r| r.container.as_str()), found);
    for (path, workload) in common.overrides() {
        each(&format!("{path}.resources"), "container", workload.resources.iter().map(|r| r.container.as_str()), found);
        each(&format!("{path}.env"), "container", workload.env.iter().map(|e| e.container.as_str()), found);
        each(
            &format!("{path}.readinessProbes"),
            "container",
            workload.readiness_probes.iter().map(|p| p.container.as_str()),
            found,
        );
        each(
            &format!("{path}.livenessProbes"),
            "container",
            workload.liveness_probes.iter().map(|p| p.container.as_str()),
            found,
        );
        if let Some(replicas) = workload.replicas.filter(|r| *r < 0) {
            found.push(REPLICAS.at(
                format!("{path}.replicas"),
                format!("{replicas} is negative"),
                "set it to 0 or more",
            ));
        }
        if let Some(replicas) = workload.replicas.filter(|r| *r > MAX_INT32) {
            found.push(REPLICAS.at(
                format!("{path}.replicas"),
                format!("{replicas} is more than {MAX_INT32}"),
                "set it to a smaller number",
            ));
        }
    }
}

/// The `names` of the list at `path`, which have them in `field`.
fn each<'n>(path: &str, field: &str, names: impl Iterator<Item = &'n str>, found: &mut Vec<Problem>) {
    let mut known = BTreeSet::new();
    for (index, name) in names.enumerate() {
        let place = || format!("{path}[{index}].{field}");
        if name.trim().is_empty() {
            found.push(NAME.at(place(), "is empty", "name what the entry is for, or remove it"));
        } else if !known.insert(name) {
            found.push(TWICE.at(
                place(),
                format!("\"{name}\" is there already"),
                "put all that is for it into one entry",
            ));
        }
    }
}
