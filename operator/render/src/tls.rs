//! Eventing's certificates by cert-manager, for transport encryption.

use super::context::Context;
use knative_operator_objects::CompactObject;
use knative_operator_shared::api::Component;

/// Whether `object` is installed: objects of cert-manager and trust-manager only if
/// `transport-encryption` in `spec.config.features` is permissive or strict.
pub fn is_wanted(object: &CompactObject, cx: &Context<'_>) -> bool {
    let optional = cx.resource.component() == Component::Eventing
        && matches!(object.gvk().group.as_str(), "cert-manager.io" | "trust.cert-manager.io");
    !optional || is_encryption_enabled(cx)
}

fn is_encryption_enabled(cx: &Context<'_>) -> bool {
    let config = &cx.resource.common().config;
    let features = config.get("features").or_else(|| config.get("config-features"));
    let mode = features.and_then(|f| f.iter().find(|(key, _)| key.trim() == "transport-encryption"));
    mode.is_some_and(|(_, mode)| ["permissive", "strict"].iter().any(|m| mode.eq_ignore_ascii_case(m)))
}
