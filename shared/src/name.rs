//! Names that follow rules.

use crate::api::Component;

/// Longest name of a Kubernetes object, in characters (DNS subdomain, RFC 1123).
pub const MAX_NAME: usize = 253;

/// The name of the anchor ConfigMap of a resource on its spoke: `{kind}-{cr-name}-root-owner`.
pub fn anchor(component: Component, cr_name: &str) -> String {
    format!("{}-{cr_name}-root-owner", component.kind().to_ascii_lowercase())
}

/// The name of the inventory ConfigMap of a resource that is installed locally.
pub fn inventory(component: Component, cr_name: &str) -> String {
    format!("{}-{cr_name}-inventory", component.kind().to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchor_is_named_as_users_know_it() {
        assert_eq!(anchor(Component::Serving, "apac"), "knativeserving-apac-root-owner");
        assert_eq!(anchor(Component::Eventing, "apac"), "knativeeventing-apac-root-owner");
    }
}
