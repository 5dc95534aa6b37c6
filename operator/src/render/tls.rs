//! Eventing's certificates by cert-manager: only where transport encryption asks for them.

use super::Context;
use crate::packed::Packed;
use knative_operator_shared::api::Component;

/// Whether `object` is installed: those of cert-manager and trust-manager only where `spec.config.features` has
/// `transport-encryption` permissive or strict.
pub fn wanted(object: &Packed, cx: &Context<'_>) -> bool {
    let optional = cx.resource.component() == Component::Eventing
        && matches!(object.gvk().group.as_str(), "cert-manager.io" | "trust.cert-manager.io");
    !optional || encrypted(cx)
}

fn encrypted(cx: &Context<'_>) -> bool {
    let config = &cx.resource.common().config;
    let features = config.get("features").or_else(|| config.get("config-features"));
    let mode = features.and_then(|f| f.iter().find(|(key, _)| key.trim() == "transport-encryption"));
    mode.is_some_and(|(_, mode)| ["permissive", "strict"].iter().any(|m| mode.eq_ignore_ascii_case(m)))
}
