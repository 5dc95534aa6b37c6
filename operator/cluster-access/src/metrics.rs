//! What the connections to spokes report to the metrics.

use std::time::Duration;

use knative_operator_base::cluster_profile::ClusterProfileReference;

/// Receives measurements of connections and credentials.
pub trait ClusterMetrics: Send + Sync {
    /// Sets whether the API server of a spoke answered.
    fn set_connected(&self, cluster: &ClusterProfileReference, connected: bool);
    /// The connection to a spoke was dropped.
    fn remove_connection(&self, cluster: &ClusterProfileReference);
    /// A credential was requested from `provider`, which took `duration`.
    fn credential_requested(
        &self,
        cluster: &ClusterProfileReference,
        provider: &str,
        duration: Duration,
        succeeded: bool,
    );
}

/// Measures nothing: for a command, whose metrics nobody reads.
#[derive(Clone, Copy, Debug)]
pub struct Unmeasured;

impl ClusterMetrics for Unmeasured {
    fn set_connected(&self, _: &ClusterProfileReference, _: bool) {}

    fn remove_connection(&self, _: &ClusterProfileReference) {}

    fn credential_requested(&self, _: &ClusterProfileReference, _: &str, _: Duration, _: bool) {}
}
