//! The cluster that a resource is for: its ClusterProfile, and that nobody else of its kind is there.

use super::{Example, Problem, Profile, Rule, Severity, Surroundings};
use crate::api::Knative;
use crate::label::SHARED_TARGET;

/// The ClusterProfile is there.
pub static PROFILE: Rule = Rule {
    id: "cluster-profile-missing",
    severity: Severity::Warning,
    says: "The ClusterProfile that `spec.clusterProfileRef` names is there.",
    kept: Example::serving(r#"{"clusterProfileRef": {"name": "healthy", "namespace": "rules-fleet"}}"#),
    broken: Example::serving(r#"{"clusterProfileRef": {"name": "missing", "namespace": "rules-fleet"}}"#),
};

/// The ClusterProfile is healthy.
pub static HEALTHY: Rule = Rule {
    id: "cluster-profile-unhealthy",
    severity: Severity::Warning,
    says: "The ClusterProfile that `spec.clusterProfileRef` names has `ControlPlaneHealthy=True`.",
    kept: Example::serving(r#"{"clusterProfileRef": {"name": "healthy", "namespace": "rules-fleet"}}"#),
    broken: Example::serving(r#"{"clusterProfileRef": {"name": "unhealthy", "namespace": "rules-fleet"}}"#),
};

/// One of a kind a cluster.
pub static ONE: Rule = Rule {
    id: "one-target",
    severity: Severity::Error,
    says: "No other resource of the same kind is for the same cluster, unless it is annotated `operator.knative.dev/shared-target: \"true\"` to take over when that one is gone.",
    kept: Example::serving(
        r#"{"metadata": {"annotations": {"operator.knative.dev/shared-target": "true"}}, "spec": {"clusterProfileRef": {"name": "taken", "namespace": "rules-fleet"}}}"#,
    ),
    broken: Example::serving(r#"{"clusterProfileRef": {"name": "taken", "namespace": "rules-fleet"}}"#),
};

const FIELD: &str = "spec.clusterProfileRef";

pub fn profile(resource: &Knative, around: &Surroundings<'_>, found: &mut Vec<Problem>) {
    let Some(reference) = &resource.common().cluster_profile_ref else { return };
    match around.profile {
        Some(Profile::Missing) => {
            let fix = "create it, or nothing is installed; the resource goes on by itself as soon as it is there";
            found.push(PROFILE.at(FIELD, format!("there is no ClusterProfile {reference}"), fix));
        }
        Some(Profile::Unhealthy) => {
            let fix = "nothing is installed before its cluster manager says so";
            found.push(HEALTHY.at(
                FIELD,
                format!("ClusterProfile {reference} has no condition ControlPlaneHealthy=True"),
                fix,
            ));
        }
        Some(Profile::Healthy) | None => {}
    }
}

/// Whether `resource`, which is new, is alone on its cluster.
pub fn one(resource: &Knative, around: &Surroundings<'_>) -> Option<Problem> {
    let rival = around.rival?;
    if resource.meta().annotations.as_ref().is_some_and(|a| a.get(SHARED_TARGET).is_some_and(|v| v == "true")) {
        return None;
    }
    let cluster = resource
        .common()
        .cluster_profile_ref
        .as_ref()
        .map_or_else(|| "the local cluster".to_owned(), |r| format!("ClusterProfile {r}"));
    Some(ONE.at(
        FIELD,
        format!("{cluster} has a {} already: {rival}", resource.component()),
        format!("change that one, delete it first, or, to have this one take over as soon as that one is gone, annotate it with {SHARED_TARGET}=true"),
    ))
}
