//! `spec.high-availability`: how many replicas there are at least.

use serde_json::{Value, json};

use super::Context;
use super::autoscaling::{is_autoscaler, raise, scaled};
use crate::object::text;

/// Deployments that must not run more than once.
const ALONE: &str = "pingsource-mt-adapter";

/// Sets the replicas of Deployments, and raises those of autoscalers. An override of the workload's own replicas wins.
pub fn replicas(object: &mut Value, cx: &Context<'_>) -> Result<(), String> {
    let common = cx.resource.common();
    let Some(replicas) = common.high_availability.as_ref().and_then(|h| h.replicas) else { return Ok(()) };
    let name = text(object, "/metadata/name");
    if common.overrides().any(|(_, workload)| workload.name == name && workload.replicas.is_some()) {
        return Ok(());
    }
    if text(object, "/kind") == "Deployment" && name != ALONE && !scaled(name) {
        object["spec"]["replicas"] = json!(replicas);
    } else if is_autoscaler(object) {
        raise(object, replicas)?;
    }
    Ok(())
}
