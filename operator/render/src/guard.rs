//! `spec.security.securityGuard`: settings of Serving that the guard needs.

use serde_json::{Value, json};

use super::context::Context;
use super::error::TransformError;
use knative_operator_objects::text;

/// Allows queue-proxy to mount pod information for the guard.
pub fn allow_podinfo(object: &mut Value, cx: &Context<'_>) -> Result<(), TransformError> {
    let is_features = text(object, "/kind") == "ConfigMap" && text(object, "/metadata/name") == "config-features";
    if is_features && cx.resource.has_guard() {
        object["data"]["queueproxy.mount-podinfo"] = json!("allowed");
    }
    Ok(())
}
