//! What all actors share.

use jiff::Timestamp;
use knative_operator_shared::api::{Component, Knative};
use knative_operator_shared::time::truncate;
use kube::Client;
use tokio_util::sync::CancellationToken;

use super::author::Authors;
use super::concurrency::ReconcilePermits;
use super::events::Events;
use super::hub_changes::HubChanges;
use super::registry::Registry;
use super::render_cache::RenderCache;
use super::state::Cluster;
use crate::diagnostics::{Diagnostics, Live};
use crate::metrics::Metrics;
use crate::startup::go_operator::GoOperator;
use knative_operator_apply::observer::Watching;
use knative_operator_apply::places::Names;
use knative_operator_cluster_access::connections::Connections;
use knative_operator_cluster_access::profiles::ClusterProfiles;
use knative_operator_cluster_access::provider::ProviderFile;
use knative_operator_objects::{Hub, InstallationOwner};
use knative_operator_release::Library;
use knative_operator_render::Settings;

/// Kind of the watch of ClusterProfiles.
pub const PROFILES: &str = "ClusterProfile";

/// What all actors share.
#[allow(clippy::struct_excessive_bools)] // Each is a flag.
pub struct Context {
    /// Client of the hub, the cluster that the operator runs in.
    pub hub: Client,
    /// Who the hub is.
    pub hub_identity: Hub,
    /// Sources of releases.
    pub library: Library,
    /// Settings of rendering.
    pub settings: Settings,
    /// The provider file; `None` if multi-cluster support is disabled.
    pub providers: Option<ProviderFile>,
    /// Namespaces whose ClusterProfiles may be used; empty for all.
    pub profile_namespaces: Vec<String>,
    /// Whether ClusterProfiles may have servers without TLS.
    pub allows_http_servers: bool,
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
    /// Whether to install on the hub itself.
    pub installs_locally: bool,
    /// Whether to refuse namespaces of spokes that others use.
    pub refuses_used_namespaces: bool,
    /// Whose permissions to ask about before an installation begins; `None` asks nobody.
    pub authors: Option<Authors>,
    /// What the watches on the hub reported, for the fleets.
    pub hub_changes: HubChanges,
    /// State of the Go operator in the same namespace.
    pub go_operator: GoOperator,
    /// Publishes events.
    pub events: Events,
    /// Metrics.
    pub metrics: Metrics,
    /// What `/debug` shows.
    pub diagnostics: Diagnostics,
    /// How clusters are watched.
    pub watching: Watching,
    /// Number of shards of the fleet.
    pub shards: u32,
    /// Limits concurrent reconciles.
    pub reconcile_permits: ReconcilePermits,
    /// Canceled when the operator stops.
    pub stop: CancellationToken,
}

impl Context {
    /// The ConfigMaps with the inventories of the resources of `component` that install on
    /// `cluster`, if it may be the hub itself.
    pub fn local_inventories(&self, component: Component, cluster: &Cluster) -> Names {
        let is_hub = cluster.uid.as_deref().is_none_or(|uid| uid == self.hub_identity.uid);
        if is_hub { self.registry.local_inventories(component) } else { Names::new() }
    }

    /// What is asked for when `/debug` is.
    pub fn live(&self) -> Live {
        let resources = Component::ALL.map(|component| (component.kind(), self.registry.count(component)));
        let profiles = self.profiles.all().map_or(0, |(_, all)| all.len());
        Live {
            reconciles: self.reconcile_permits.report(&self.metrics),
            connections: self.connections.report(),
            objects: resources.into_iter().chain([(PROFILES, profiles)]).collect(),
        }
    }

    /// `resource` as an owner, since now.
    pub fn owner(&self, resource: &Knative) -> InstallationOwner {
        InstallationOwner::of(resource, &self.hub_identity, truncate(Timestamp::now()).to_string())
    }
}
