//! The target cluster: its ClusterProfile, and other resources that use it.

use super::context::{Profile, RuleContext};
use super::rule::{Example, Rule, Severity, Violation};
use knative_operator_shared::api::Knative;
use knative_operator_shared::label::SHARED_TARGET;

/// The ClusterProfile exists.
pub static PROFILE: Rule = Rule {
    id: "cluster-profile-missing",
    severity: Severity::Warning,
    requirement: "The ClusterProfile that `spec.clusterProfileRef` names exists.",
    valid: Example::serving(r#"{"clusterProfileRef": {"name": "healthy", "namespace": "rules-fleet"}}"#),
    invalid: Example::serving(r#"{"clusterProfileRef": {"name": "missing", "namespace": "rules-fleet"}}"#),
};

/// The ClusterProfile is healthy.
pub static HEALTHY: Rule = Rule {
    id: "cluster-profile-unhealthy",
    severity: Severity::Warning,
    requirement: "The ClusterProfile that `spec.clusterProfileRef` names has `ControlPlaneHealthy=True`, or access providers and no such condition.",
    valid: Example::serving(r#"{"clusterProfileRef": {"name": "healthy", "namespace": "rules-fleet"}}"#),
    invalid: Example::serving(r#"{"clusterProfileRef": {"name": "unhealthy", "namespace": "rules-fleet"}}"#),
};

/// One resource of a kind per cluster.
pub static ONE: Rule = Rule {
    id: "one-target",
    severity: Severity::Error,
    requirement: "No other resource of the same kind has the same target cluster, unless the annotation `operator.knative.dev/shared-target: \"true\"` lets the new one wait for the deletion of the other.",
    valid: Example::serving(
        r#"{"metadata": {"annotations": {"operator.knative.dev/shared-target": "true"}}, "spec": {"clusterProfileRef": {"name": "taken", "namespace": "rules-fleet"}}}"#,
    ),
    invalid: Example::serving(r#"{"clusterProfileRef": {"name": "taken", "namespace": "rules-fleet"}}"#),
};

const FIELD: &str = "spec.clusterProfileRef";

pub fn profile(resource: &Knative, context: &RuleContext<'_>, violations: &mut Vec<Violation>) {
    let Some(reference) = &resource.common().cluster_profile_ref else { return };
    match context.profile {
        Some(Profile::Missing) => {
            let fix = "create it; the operator installs nothing until it exists";
            violations.push(PROFILE.at(FIELD, format!("ClusterProfile {reference} does not exist"), fix));
        }
        Some(Profile::Unhealthy) => {
            let fix = "the operator installs nothing until its cluster manager sets it";
            violations.push(HEALTHY.at(
                FIELD,
                format!("ClusterProfile {reference} has no condition ControlPlaneHealthy=True"),
                fix,
            ));
        }
        Some(Profile::Healthy) | None => {}
    }
}

/// The violation if another resource has the target cluster of the new `resource`.
pub fn check_competitor(resource: &Knative, context: &RuleContext<'_>) -> Option<Violation> {
    let competitor = context.competitor?;
    if resource.annotation(SHARED_TARGET) == Some("true") {
        return None;
    }
    let cluster = resource
        .common()
        .cluster_profile_ref
        .as_ref()
        .map_or_else(|| "the local cluster".to_owned(), |r| format!("ClusterProfile {r}"));
    Some(ONE.at(
        FIELD,
        format!("{cluster} already has a {}: {competitor}", resource.component()),
        format!("change or delete that resource, or annotate this one with {SHARED_TARGET}=true to install it after the deletion of the other"),
    ))
}
