//! Errors of the store of inventories.

use super::error::is_namespace_terminating;
use super::inventory::MAX_OBJECTS;

/// Why the store can't be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The API server refused a request.
    #[error("{what}")]
    Api {
        /// What was tried.
        what: String,
        /// Its error.
        source: kube::Error,
    },
    /// A later look could not read the inventory.
    #[error(
        "the manifests and the installation have more than {MAX_OBJECTS} objects together; remove some from spec.manifests and spec.additionalManifests"
    )]
    TooLarge,
    /// The stored inventory can't be parsed.
    #[error(
        "cannot read the inventory in ConfigMap {0}; restore it, or delete its data key \"inventory\" to apply everything again"
    )]
    Unreadable(String, #[source] serde_json::Error),
}

impl StoreError {
    /// Whether the namespace is terminating.
    pub fn is_namespace_terminating(&self) -> bool {
        matches!(self, Self::Api { source, .. } if is_namespace_terminating(source))
    }

    /// Whether the ConfigMap changed after it was read: it must be read again.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Api { source: kube::Error::Api(status), .. } if matches!(status.code, 404 | 409))
    }
}
