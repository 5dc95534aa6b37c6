//! Eventing's certificates by cert-manager: only where transport encryption asks for them.

use knative_operator_shared::api::Component;
use serde_json::Value;

use super::Context;
use crate::object::gvk;

/// `objects` without those of cert-manager and trust-manager, unless `spec.config.features` has
/// `transport-encryption` permissive or strict.
pub fn without_optional(mut objects: Vec<Value>, cx: &Context<'_>) -> Vec<Value> {
    if cx.resource.component() == Component::Eventing && !encrypted(cx) {
        objects.retain(|o| !matches!(gvk(o).group.as_str(), "cert-manager.io" | "trust.cert-manager.io"));
    }
    objects
}

fn encrypted(cx: &Context<'_>) -> bool {
    let config = &cx.resource.common().config;
    let features = config.get("features").or_else(|| config.get("config-features"));
    let mode = features.and_then(|f| f.iter().find(|(key, _)| key.trim() == "transport-encryption"));
    mode.is_some_and(|(_, mode)| ["permissive", "strict"].iter().any(|m| mode.eq_ignore_ascii_case(m)))
}
