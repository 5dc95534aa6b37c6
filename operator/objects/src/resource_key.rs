//! Key of a custom resource.

use knative_operator_shared::api::{Component, Knative};

/// Kind, namespace and name of a custom resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceKey {
    /// Kind.
    pub component: Component,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ResourceKey {
    /// The key of `resource`.
    pub fn of(resource: &Knative) -> Self {
        Self {
            component: resource.component(),
            namespace: resource.namespace().to_owned(),
            name: resource.name().to_owned(),
        }
    }
}
