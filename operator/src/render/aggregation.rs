//! Aggregated ClusterRoles: their rules are the control plane's to write.

use serde_json::Value;

use super::Context;
use crate::object::text;

/// Leaves the rules out, so that two controllers don't fight over them.
pub fn leave_rules(object: &mut Value, _: &Context<'_>) -> Result<(), String> {
    let aggregated =
        text(object, "/kind") == "ClusterRole" && object.get("aggregationRule").is_some_and(|r| !r.is_null());
    if let Some(fields) = object.as_object_mut().filter(|_| aggregated) {
        fields.remove("rules");
    }
    Ok(())
}
