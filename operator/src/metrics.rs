//! Metrics of the operator. The label `cluster` is `namespace/name` of a ClusterProfile, and empty
//! for the operator's own cluster. Series of a resource end with it, those of a cluster with its
//! last resource, which bounds their number.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use knative_operator_shared::api::{ClusterProfileReference, Component, Knative};
use knative_operator_shared::condition::{State, States, ready};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::fleet_metrics::FleetMetrics;
use crate::lasting_counter::LastingCounter;
use knative_operator_cluster_access::ClusterMetrics;
use knative_operator_objects::ResourceKey;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcileLabels {
    kind: &'static str,
    cluster: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabels {
    kind: &'static str,
    cluster: String,
    cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ComponentLabels {
    kind: &'static str,
    cluster: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClusterLabels {
    cluster: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CredentialLabels {
    cluster: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProviderLabels {
    provider: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabels {
    kind: &'static str,
    namespace: String,
    name: String,
    cluster: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResolvedLabels {
    kind: &'static str,
    namespace: String,
    name: String,
    cluster: String,
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ObjectLabels {
    kind: &'static str,
    namespace: String,
    name: String,
    cluster: String,
    state: &'static str,
}

/// Numbers of objects of an installation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectCounts {
    /// In the plan.
    pub planned: usize,
    /// Refused by the API server.
    pub refused: usize,
    /// Workloads that are not available.
    pub unavailable: usize,
    /// Still to be applied or deleted.
    pub pending: usize,
}

impl ObjectCounts {
    /// Each with its value of the label `state`.
    fn by_state(self) -> [(&'static str, usize); 4] {
        let Self { planned, refused, unavailable, pending } = self;
        [("planned", planned), ("refused", refused), ("unavailable", unavailable), ("pending", pending)]
    }
}

/// Kind of fleets.
const FLEET: &str = "KnativeFleet";
const SUCCESS: &str = "success";
const ERROR: &str = "error";
const PLAN: &str = "plan";
const DRIFT: &str = "drift";

/// The operator's metrics.
#[derive(Clone)]
pub struct Metrics {
    reconciles: Family<ReconcileLabels, Counter>,
    durations: Family<ComponentLabels, Histogram, fn() -> Histogram>,
    queued: Gauge,
    running: Gauge,
    writes: Family<WriteLabels, Counter>,
    objects: Family<ObjectLabels, Gauge>,
    panics: Family<KindLabels, Counter>,
    orphaned: LastingCounter,
    objects_left: LastingCounter,
    ready: Family<ResourceLabels, Gauge>,
    resolved: Family<ResolvedLabels, Gauge>,
    connected: Family<ClusterLabels, Gauge>,
    credentials: Family<CredentialLabels, Counter>,
    credential_durations: Family<ProviderLabels, Histogram, fn() -> Histogram>,
    provider_file: Gauge,
    leading: Gauge<f64, AtomicU64>,
    shards: Gauge,
    /// Fleets.
    pub fleets: FleetMetrics,
    /// Current labels of `target_cluster_resolved` of each resource.
    resolved_labels: Arc<Mutex<HashMap<ResourceKey, ResolvedLabels>>>,
}

impl Metrics {
    /// The metrics, and the registry that exports them.
    pub fn registered() -> (Self, Registry) {
        // 1 ms to 16 s
        let coarse: fn() -> Histogram = || Histogram::new(exponential_buckets(0.001, 4.0, 8));
        let metrics = Self {
            reconciles: Family::default(),
            durations: Family::new_with_constructor(coarse),
            queued: Gauge::default(),
            running: Gauge::default(),
            writes: Family::default(),
            objects: Family::default(),
            panics: Family::default(),
            orphaned: LastingCounter::default(),
            objects_left: LastingCounter::default(),
            ready: Family::default(),
            resolved: Family::default(),
            connected: Family::default(),
            credentials: Family::default(),
            credential_durations: Family::new_with_constructor(coarse),
            provider_file: Gauge::default(),
            leading: Gauge::default(),
            shards: Gauge::default(),
            fleets: FleetMetrics::default(),
            resolved_labels: Arc::default(),
        };
        let mut registry = Registry::with_prefix("knative_operator");
        let m = &metrics;
        registry.register("reconciles", "Reconciles of custom resources, by outcome", m.reconciles.clone());
        registry.register_with_unit("reconcile_duration", "Duration of reconciles", Unit::Seconds, m.durations.clone());
        registry.register("reconciles_queued", "Reconciles that wait for a permit", m.queued.clone());
        registry.register("reconciles_running", "Reconciles in progress", m.running.clone());
        registry.register("objects_written", "Objects applied, by cause: plan or drift", m.writes.clone());
        registry.register(
            "objects",
            "Objects of an installation: planned, refused, unavailable, pending",
            m.objects.clone(),
        );
        registry.register("reconcile_panics", "Reconciles that panicked", m.panics.clone());
        // Exported from the start, since an alert on increase needs a zero.
        let kinds = Component::ALL.into_iter().map(Component::kind).chain([FLEET]);
        kinds.for_each(|kind| drop(m.panics.get_or_create(&KindLabels { kind })));
        registry.register(
            "orphaned",
            "Custom resources that were deleted with their objects left on the cluster",
            m.orphaned.family(),
        );
        registry.register(
            "objects_left",
            "Objects in inventories that were not deleted, since they are not part of the installation",
            m.objects_left.family(),
        );
        registry.register("ready", "Whether a custom resource is ready", m.ready.clone());
        let help = "Whether the target cluster of a custom resource is resolved, and the reason if not";
        registry.register("target_cluster_resolved", help, m.resolved.clone());
        registry.register(
            "target_cluster_connected",
            "Whether the API server of a spoke answered the last request",
            m.connected.clone(),
        );
        registry.register("credential_requests", "Requests for credentials, by outcome", m.credentials.clone());
        registry.register_with_unit(
            "credential_request_duration",
            "Duration of requests for credentials",
            Unit::Seconds,
            m.credential_durations.clone(),
        );
        registry.register(
            "provider_file_valid",
            "Whether the access provider configuration is valid",
            m.provider_file.clone(),
        );
        registry.register("leader", "Whether this replica holds a Lease", m.leading.clone());
        registry.register("shards_held", "Shards of the fleet that this replica manages", m.shards.clone());
        m.fleets.register(&mut registry);
        (metrics, registry)
    }

    /// Counts a reconcile that waits for a permit, until the result is dropped.
    pub fn queued(&self) -> GaugeGuard {
        GaugeGuard::raised(&self.queued)
    }

    /// Counts a reconcile in progress, until the result is dropped.
    pub fn running(&self) -> GaugeGuard {
        GaugeGuard::raised(&self.running)
    }

    /// Numbers of reconciles that wait for a permit, and that are in progress.
    pub fn waiting_and_running(&self) -> (i64, i64) {
        (self.queued.get(), self.running.get())
    }

    /// Records a finished reconcile.
    pub fn reconciled(&self, resource: &Knative, duration: Duration, failed: bool) {
        let (kind, cluster) = (resource.component().kind(), cluster(resource));
        self.durations
            .get_or_create(&ComponentLabels { kind, cluster: cluster.clone() })
            .observe(duration.as_secs_f64());
        let outcome = if failed { ERROR } else { SUCCESS };
        self.reconciles.get_or_create(&ReconcileLabels { kind, cluster, outcome }).inc();
    }

    /// Records a reconcile that panicked.
    pub fn panicked(&self, component: Component) {
        self.panics.get_or_create(&KindLabels { kind: component.kind() }).inc();
    }

    /// Records a pass over a fleet, or over all, that panicked.
    pub fn fleet_panicked(&self) {
        self.panics.get_or_create(&KindLabels { kind: FLEET }).inc();
    }

    /// Records written objects.
    pub fn objects_written(&self, resource: &Knative, planned: usize, repaired: usize) {
        for (cause, count) in [(PLAN, planned), (DRIFT, repaired)].into_iter().filter(|(_, count)| *count > 0) {
            let labels = WriteLabels { kind: resource.component().kind(), cluster: cluster(resource), cause };
            self.writes.get_or_create(&labels).inc_by(count as u64);
        }
    }

    /// Sets the numbers of objects of `resource`.
    pub fn set_objects(&self, resource: &Knative, counts: ObjectCounts) {
        let of = ResourceKey::of(resource);
        for (state, count) in counts.by_state() {
            let labels = object_labels(&of, cluster(resource), state);
            self.objects.get_or_create(&labels).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Records a resource that was deleted with its objects left behind.
    pub fn orphaned(&self, resource: &Knative) {
        self.orphaned.add(resource.component().kind(), cluster(resource), 1);
    }

    /// Records `count` objects that were not deleted with the installation of `resource`.
    pub fn objects_left(&self, resource: &Knative, count: usize) {
        self.objects_left.add(resource.component().kind(), cluster(resource), count);
    }

    /// Sets the series of the states of a resource.
    pub fn set_states(&self, resource: &Knative, states: &States) {
        let (key, cluster) = (ResourceKey::of(resource), cluster(resource));
        self.ready.get_or_create(&resource_labels(&key, cluster.clone())).set((ready(states) == State::True).into());
        let reason = match &states.resolved {
            State::True => String::new(),
            State::False { reason, .. } | State::Unknown { reason, .. } => reason.clone(),
        };
        let resolved = ResolvedLabels {
            kind: key.component.kind(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            cluster,
            reason,
        };
        let before = self.resolved_labels.lock().unwrap_or_else(PoisonError::into_inner).insert(key, resolved.clone());
        if let Some(before) = before.filter(|before| *before != resolved) {
            self.resolved.remove(&before);
        }
        self.resolved.get_or_create(&resolved).set((states.resolved == State::True).into());
    }

    /// Sets whether the provider file is valid.
    pub fn provider_file(&self, valid: bool) {
        self.provider_file.set(valid.into());
    }

    /// Removes the series of a resource. `last`: it was the last one on its cluster.
    pub fn remove(&self, key: &ResourceKey, last: bool) {
        let Some(labels) = self.resolved_labels.lock().unwrap_or_else(PoisonError::into_inner).remove(key) else {
            return;
        };
        let (kind, cluster) = (labels.kind, labels.cluster.clone());
        self.resolved.remove(&labels);
        self.ready.remove(&resource_labels(key, cluster.clone()));
        for (state, _) in ObjectCounts::default().by_state() {
            self.objects.remove(&object_labels(key, cluster.clone(), state));
        }
        if !last {
            return;
        }
        self.durations.remove(&ComponentLabels { kind, cluster: cluster.clone() });
        for outcome in [SUCCESS, ERROR] {
            self.reconciles.remove(&ReconcileLabels { kind, cluster: cluster.clone(), outcome });
            self.credentials.remove(&CredentialLabels { cluster: cluster.clone(), outcome });
        }
        for cause in [PLAN, DRIFT] {
            self.writes.remove(&WriteLabels { kind, cluster: cluster.clone(), cause });
        }
    }

    /// Sets the number of shards of this replica.
    pub fn set_shards(&self, shards: usize) {
        self.leading.set(f64::from(u8::from(shards > 0)));
        self.shards.set(i64::try_from(shards).unwrap_or(i64::MAX));
    }
}

impl ClusterMetrics for Metrics {
    fn set_connected(&self, cluster: &ClusterProfileReference, connected: bool) {
        self.connected.get_or_create(&ClusterLabels { cluster: cluster.to_string() }).set(connected.into());
    }

    fn remove_connection(&self, cluster: &ClusterProfileReference) {
        self.connected.remove(&ClusterLabels { cluster: cluster.to_string() });
    }

    fn credential_requested(
        &self,
        cluster: &ClusterProfileReference,
        provider: &str,
        duration: Duration,
        succeeded: bool,
    ) {
        let outcome = if succeeded { SUCCESS } else { ERROR };
        self.credentials.get_or_create(&CredentialLabels { cluster: cluster.to_string(), outcome }).inc();
        let provider = ProviderLabels { provider: provider.to_owned() };
        self.credential_durations.get_or_create(&provider).observe(duration.as_secs_f64());
    }
}

/// A gauge that is raised until this value is dropped.
pub struct GaugeGuard(Gauge);

impl GaugeGuard {
    fn raised(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn cluster(resource: &Knative) -> String {
    resource.common().cluster_profile_ref.as_ref().map(ToString::to_string).unwrap_or_default()
}

fn resource_labels(key: &ResourceKey, cluster: String) -> ResourceLabels {
    ResourceLabels { kind: key.component.kind(), namespace: key.namespace.clone(), name: key.name.clone(), cluster }
}

fn object_labels(key: &ResourceKey, cluster: String, state: &'static str) -> ObjectLabels {
    let ResourceLabels { kind, namespace, name, cluster } = resource_labels(key, cluster);
    ObjectLabels { kind, namespace, name, cluster, state }
}

#[cfg(test)]
mod tests;
