//! The clusters that a fleet selects, in their order and as a set.

use std::collections::HashSet;

use knative_operator_shared::api::ClusterProfileReference;

/// Clusters that a fleet selects.
#[derive(Debug, Default)]
pub struct Selected {
    /// In their order.
    pub clusters: Vec<ClusterProfileReference>,
    /// The same: a pass asks about each cluster.
    pub set: HashSet<ClusterProfileReference>,
}

impl From<Vec<ClusterProfileReference>> for Selected {
    fn from(clusters: Vec<ClusterProfileReference>) -> Self {
        let set = clusters.iter().cloned().collect();
        Self { clusters, set }
    }
}
