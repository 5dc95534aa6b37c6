//! What a measurement is about.

use std::sync::Arc;

use knative_operator_shared::api::{ClusterProfileReference, Knative};

/// What a measurement is about.
#[derive(Clone, Debug)]
pub struct Subject {
    /// A resource for the cluster.
    pub resource: Arc<Knative>,
    /// Name of the fleet.
    pub fleet: String,
    /// Uid of the fleet.
    pub fleet_uid: String,
    /// The cluster.
    pub cluster: ClusterProfileReference,
    /// Digest of the update and the gates.
    pub update: u64,
    /// Number of the measurement among those after the update.
    pub number: u32,
    /// Environment variables for Jobs.
    pub variables: Vec<(String, String)>,
}
