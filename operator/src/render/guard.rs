//! `spec.security.securityGuard`: settings of Serving that the guard needs.

use knative_operator_shared::api::Knative;
use serde_json::{Value, json};

use super::context::Context;
use crate::object::text;

/// Allows queue-proxy to mount pod information for the guard.
pub fn allow_podinfo(object: &mut Value, cx: &Context<'_>) -> Result<(), String> {
    let Knative::Serving(serving) = cx.resource else { return Ok(()) };
    let enabled = serving.spec.security.as_ref().is_some_and(|s| s.security_guard.enabled);
    if enabled && text(object, "/kind") == "ConfigMap" && text(object, "/metadata/name") == "config-features" {
        object["data"]["queueproxy.mount-podinfo"] = json!("allowed");
    }
    Ok(())
}
