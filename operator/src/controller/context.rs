//! What all actors share.

use std::time::Duration;

use kube::Client;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::concurrency::ReconcilePermits;
use super::events::Events;
use super::profiles::ClusterProfiles;
use super::registry::Registry;
use super::render_cache::RenderCache;
use crate::cluster::connections::Connections;
use crate::cluster::provider::ProviderFile;
use crate::metrics::Metrics;
use crate::release::Library;
use crate::render::Settings;
use crate::startup::go_operator::GoOperator;

/// What all actors share.
pub struct Context {
    /// Client of the hub, the cluster that the operator runs in.
    pub hub: Client,
    /// Sources of releases.
    pub library: Library,
    /// Settings of rendering.
    pub settings: Settings,
    /// The provider file; `None` if multi-cluster support is disabled.
    pub providers: Option<ProviderFile>,
    /// Rendered objects in use.
    pub rendered: RenderCache,
    /// The ClusterProfiles.
    pub profiles: ClusterProfiles,
    /// Connections to spokes.
    pub connections: Connections,
    /// All custom resources.
    pub registry: Registry,
    /// Whether to manage KnativeFleets.
    pub manages_fleets: bool,
    /// Notified after each event of the watches on the hub, for the fleets.
    pub hub_changed: Notify,
    /// State of the Go operator in the same namespace.
    pub go_operator: GoOperator,
    /// Publishes events.
    pub events: Events,
    /// Metrics.
    pub metrics: Metrics,
    /// Interval of checks where no watch is allowed.
    pub poll_interval: Duration,
    /// Number of shards of the fleet.
    pub shards: u32,
    /// Limits concurrent reconciles.
    pub reconcile_permits: ReconcilePermits,
    /// Cancelled when the operator stops.
    pub stop: CancellationToken,
}
