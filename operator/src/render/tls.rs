//! Eventing's certificates by cert-manager: only where transport encryption asks for them.

use knative_operator_shared::api::Component;
use serde_json::Value;

use super::Context;
use crate::object::text;

/// Whether `object` is installed: those of cert-manager and trust-manager only where `spec.config.features` has
/// `transport-encryption` permissive or strict.
pub fn wanted(object: &Value, cx: &Context<'_>) -> bool {
    let optional = cx.resource.component() == Component::Eventing
        && matches!(text(object, "/apiVersion").split_once('/'), Some(("cert-manager.io" | "trust.cert-manager.io", _)));
    !optional || encrypted(cx)
}

fn encrypted(cx: &Context<'_>) -> bool {
    let config = &cx.resource.common().config;
    let features = config.get("features").or_else(|| config.get("config-features"));
    let mode = features.and_then(|f| f.iter().find(|(key, _)| key.trim() == "transport-encryption"));
    mode.is_some_and(|(_, mode)| ["permissive", "strict"].iter().any(|m| mode.eq_ignore_ascii_case(m)))
}
