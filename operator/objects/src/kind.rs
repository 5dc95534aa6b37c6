//! One kind, as the API server addresses it.

use kube::core::ApiResource;

/// How the API server addresses a kind: its resource name and scope.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kind {
    /// Group, version, kind and resource name.
    pub resource: ApiResource,
    /// Whether objects of the kind have a namespace.
    pub namespaced: bool,
}
