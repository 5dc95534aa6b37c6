//! Aggregated ClusterRoles: the control plane writes their rules.

use serde_json::Value;

use super::context::Context;
use super::error::TransformError;
use knative_operator_objects::text;

/// Removes the rules, so that the operator and the control plane don't overwrite each other.
pub fn remove_rules(object: &mut Value, _: &Context<'_>) -> Result<(), TransformError> {
    let aggregated =
        text(object, "/kind") == "ClusterRole" && object.get("aggregationRule").is_some_and(|r| !r.is_null());
    if let Some(fields) = object.as_object_mut().filter(|_| aggregated) {
        fields.remove("rules");
    }
    Ok(())
}
