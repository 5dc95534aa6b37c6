//! `spec.high-availability`: the minimum number of replicas.

use serde_json::{Value, json};

use super::autoscaling::{is_autoscaled, is_autoscaler, raise};
use super::context::Context;
use super::error::TransformError;
use knative_operator_objects::text;

/// The Deployment that must have one replica.
const SINGLETON: &str = "pingsource-mt-adapter";

/// Sets the replicas of Deployments, and raises those of autoscalers. An override of the workload's
/// replicas wins.
pub fn replicas(object: &mut Value, cx: &Context<'_>) -> Result<(), TransformError> {
    let common = cx.resource.common();
    let Some(replicas) = common.high_availability.as_ref().and_then(|h| h.replicas) else { return Ok(()) };
    let name = text(object, "/metadata/name");
    if common.overrides().any(|(_, workload)| workload.name == name && workload.replicas.is_some()) {
        return Ok(());
    }
    if text(object, "/kind") == "Deployment" && name != SINGLETON && !is_autoscaled(name) {
        object["spec"]["replicas"] = json!(replicas);
    } else if is_autoscaler(object) {
        raise(object, replicas)?;
    }
    Ok(())
}
