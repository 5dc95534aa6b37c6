//! Derived names.

use crate::api::Component;

/// Maximum length of the name of a Kubernetes object in characters (DNS subdomain, RFC 1123).
pub const MAX_NAME: usize = 253;

/// Name of the anchor ConfigMap of a resource on its spoke: `{kind}-{cr-name}-root-owner`.
pub fn anchor(component: Component, cr_name: &str) -> String {
    format!("{}-{cr_name}-root-owner", component.kind().to_ascii_lowercase())
}

/// Name of the inventory ConfigMap of a resource for the local cluster.
pub fn inventory(component: Component, cr_name: &str) -> String {
    format!("{}-{cr_name}-inventory", component.kind().to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchor_name_has_kind_and_suffix() {
        assert_eq!(anchor(Component::Serving, "apac"), "knativeserving-apac-root-owner");
        assert_eq!(anchor(Component::Eventing, "apac"), "knativeeventing-apac-root-owner");
    }
}
