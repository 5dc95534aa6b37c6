//! What the operator counts. `cluster` is `namespace/name` of a ClusterProfile, and empty for the operator's own cluster. Series that
//! name a resource end with it, those that name a cluster with the last resource on it: there are never more than resources and clusters.

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

use crate::controller::siblings::Key;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Pass {
    kind: &'static str,
    cluster: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Write {
    kind: &'static str,
    cluster: String,
    cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct On {
    kind: &'static str,
    cluster: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Cluster {
    cluster: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Run {
    cluster: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Provider {
    provider: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Resource {
    kind: &'static str,
    namespace: String,
    name: String,
    cluster: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Resolved {
    kind: &'static str,
    namespace: String,
    name: String,
    cluster: String,
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Objects {
    kind: &'static str,
    namespace: String,
    name: String,
    cluster: String,
    state: &'static str,
}

/// How many objects of an installation are how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Part of it.
    pub planned: usize,
    /// Refused by the API server.
    pub refused: usize,
    /// Workloads that aren't available.
    pub unavailable: usize,
    /// Still to come, or to go.
    pub pending: usize,
}

const STATES: [&str; 4] = ["planned", "refused", "unavailable", "pending"];
const OUTCOMES: [&str; 2] = ["success", "error"];
const CAUSES: [&str; 2] = ["plan", "drift"];

/// The operator's metrics.
#[derive(Clone)]
pub struct Metrics {
    passes: Family<Pass, Counter>,
    durations: Family<On, Histogram, fn() -> Histogram>,
    queued: Gauge,
    running: Gauge,
    writes: Family<Write, Counter>,
    objects: Family<Objects, Gauge>,
    panics: Family<Kind, Counter>,
    orphaned: Family<On, Counter>,
    ready: Family<Resource, Gauge>,
    resolved: Family<Resolved, Gauge>,
    connected: Family<Cluster, Gauge>,
    credentials: Family<Run, Counter>,
    credential_durations: Family<Provider, Histogram, fn() -> Histogram>,
    provider_file: Gauge,
    leading: Gauge<f64, AtomicU64>,
    shards: Gauge,
    /// What is told of each resource: its series end with it.
    told: Arc<Mutex<HashMap<Key, Resolved>>>,
}

impl Metrics {
    /// The metrics, and the registry that tells them.
    pub fn registered() -> (Self, Registry) {
        // 1 ms to 16 s
        let coarse: fn() -> Histogram = || Histogram::new(exponential_buckets(0.001, 4.0, 8));
        let metrics = Self {
            passes: Family::default(),
            durations: Family::new_with_constructor(coarse),
            queued: Gauge::default(),
            running: Gauge::default(),
            writes: Family::default(),
            objects: Family::default(),
            panics: Family::default(),
            orphaned: Family::default(),
            ready: Family::default(),
            resolved: Family::default(),
            connected: Family::default(),
            credentials: Family::default(),
            credential_durations: Family::new_with_constructor(coarse),
            provider_file: Gauge::default(),
            leading: Gauge::default(),
            shards: Gauge::default(),
            told: Arc::default(),
        };
        let mut registry = Registry::with_prefix("knative_operator");
        let m = &metrics;
        registry.register("reconciles", "Passes over a custom resource, by how they ended", m.passes.clone());
        registry.register_with_unit("reconcile_duration", "How long passes took", Unit::Seconds, m.durations.clone());
        registry.register("reconciles_queued", "Passes that wait for their turn", m.queued.clone());
        registry.register("reconciles_running", "Passes that are made now", m.running.clone());
        registry.register("objects_written", "Objects applied, by cause: plan or drift", m.writes.clone());
        registry.register(
            "objects",
            "Objects of an installation: planned, refused, unavailable, pending",
            m.objects.clone(),
        );
        registry.register("reconcile_panics", "Passes that panicked", m.panics.clone());
        // From the start: an alert needs a zero to see an increase.
        Component::ALL.iter().for_each(|component| drop(m.panics.get_or_create(&Kind { kind: component.kind() })));
        registry.register(
            "orphaned",
            "Custom resources that were let go with everything left on their cluster",
            m.orphaned.clone(),
        );
        registry.register("ready", "Whether a custom resource is ready", m.ready.clone());
        let told = "Whether the target cluster of a custom resource is resolved, and the reason if not";
        registry.register("target_cluster_resolved", told, m.resolved.clone());
        registry.register(
            "target_cluster_connected",
            "Whether the API server of a spoke answered when it was asked last",
            m.connected.clone(),
        );
        registry.register("credential_requests", "Credentials asked for, by how that ended", m.credentials.clone());
        registry.register_with_unit(
            "credential_request_duration",
            "How long that took",
            Unit::Seconds,
            m.credential_durations.clone(),
        );
        registry.register(
            "provider_file_valid",
            "Whether the access provider configuration could be read last",
            m.provider_file.clone(),
        );
        registry.register("leader", "Whether this replica leads", m.leading.clone());
        registry.register("shards_held", "Shards of the fleet that this replica looks after", m.shards.clone());
        (metrics, registry)
    }

    /// A pass waits for its turn; drop it when it is over.
    pub fn queued(&self) -> Level {
        Level::raised(&self.queued)
    }

    /// A pass is made; drop it when it is over.
    pub fn running(&self) -> Level {
        Level::raised(&self.running)
    }

    /// A pass ended.
    pub fn passed(&self, resource: &Knative, took: Duration, failed: bool) {
        let (kind, cluster) = (resource.component().kind(), cluster(resource));
        self.durations.get_or_create(&On { kind, cluster: cluster.clone() }).observe(took.as_secs_f64());
        self.passes.get_or_create(&Pass { kind, cluster, outcome: OUTCOMES[usize::from(failed)] }).inc();
    }

    /// A pass panicked.
    pub fn panicked(&self, component: Component) {
        self.panics.get_or_create(&Kind { kind: component.kind() }).inc();
    }

    /// Objects were written.
    pub fn wrote(&self, resource: &Knative, planned: usize, repaired: usize) {
        for (cause, count) in CAUSES.into_iter().zip([planned, repaired]).filter(|(_, count)| *count > 0) {
            let labels = Write { kind: resource.component().kind(), cluster: cluster(resource), cause };
            self.writes.get_or_create(&labels).inc_by(count as u64);
        }
    }

    /// How many objects of `resource` are how.
    pub fn counted(&self, resource: &Knative, counts: Counts) {
        let of = Key::of(resource);
        for (state, count) in
            STATES.into_iter().zip([counts.planned, counts.refused, counts.unavailable, counts.pending])
        {
            let labels = objects(&of, cluster(resource), state);
            self.objects.get_or_create(&labels).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// A resource was let go with everything left behind.
    pub fn orphaned(&self, resource: &Knative) {
        self.orphaned.get_or_create(&On { kind: resource.component().kind(), cluster: cluster(resource) }).inc();
    }

    /// The states of a resource were told.
    pub fn told(&self, resource: &Knative, states: &States) {
        let (key, cluster) = (Key::of(resource), cluster(resource));
        self.ready.get_or_create(&labels(&key, cluster.clone())).set((ready(states) == State::True).into());
        let reason = match &states[1] {
            State::True => String::new(),
            State::False { reason, .. } | State::Unknown { reason, .. } => reason.clone(),
        };
        let resolved = Resolved {
            kind: key.component.kind(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            cluster,
            reason,
        };
        let before = self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(key, resolved.clone());
        if let Some(before) = before.filter(|before| *before != resolved) {
            self.resolved.remove(&before);
        }
        self.resolved.get_or_create(&resolved).set((states[1] == State::True).into());
    }

    /// Whether the API server of a spoke answered.
    pub fn connected(&self, reference: &ClusterProfileReference, connected: bool) {
        self.connected.get_or_create(&Cluster { cluster: reference.to_string() }).set(connected.into());
    }

    /// There is no connection to a spoke any more.
    pub fn disconnected(&self, reference: &ClusterProfileReference) {
        self.connected.remove(&Cluster { cluster: reference.to_string() });
    }

    /// A credential was asked for.
    pub fn credential(&self, reference: &ClusterProfileReference, provider: &str, took: Duration, had: bool) {
        self.credentials
            .get_or_create(&Run { cluster: reference.to_string(), outcome: OUTCOMES[usize::from(!had)] })
            .inc();
        self.credential_durations
            .get_or_create(&Provider { provider: provider.to_owned() })
            .observe(took.as_secs_f64());
    }

    /// Whether the provider file could be read.
    pub fn provider_file(&self, valid: bool) {
        self.provider_file.set(valid.into());
    }

    /// A resource is gone. `last`: whether it was the last one on its cluster.
    pub fn forget(&self, key: &Key, last: bool) {
        let Some(told) = self.told.lock().unwrap_or_else(PoisonError::into_inner).remove(key) else { return };
        let (kind, cluster) = (told.kind, told.cluster.clone());
        self.resolved.remove(&told);
        self.ready.remove(&labels(key, cluster.clone()));
        for state in STATES {
            self.objects.remove(&objects(key, cluster.clone(), state));
        }
        if !last {
            return;
        }
        self.durations.remove(&On { kind, cluster: cluster.clone() });
        for (outcome, cause) in OUTCOMES.into_iter().zip(CAUSES) {
            self.passes.remove(&Pass { kind, cluster: cluster.clone(), outcome });
            self.writes.remove(&Write { kind, cluster: cluster.clone(), cause });
            self.credentials.remove(&Run { cluster: cluster.clone(), outcome });
        }
    }

    /// This replica leads, or doesn't, and holds so many shards.
    pub fn leads(&self, shards: usize) {
        self.leading.set(f64::from(u8::from(shards > 0)));
        self.shards.set(i64::try_from(shards).unwrap_or(i64::MAX));
    }
}

/// Raises a gauge while it is held.
pub struct Level(Gauge);

impl Level {
    fn raised(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn cluster(resource: &Knative) -> String {
    resource.common().cluster_profile_ref.as_ref().map(ToString::to_string).unwrap_or_default()
}

fn labels(key: &Key, cluster: String) -> Resource {
    Resource { kind: key.component.kind(), namespace: key.namespace.clone(), name: key.name.clone(), cluster }
}

fn objects(key: &Key, cluster: String, state: &'static str) -> Objects {
    Objects { kind: key.component.kind(), namespace: key.namespace.clone(), name: key.name.clone(), cluster, state }
}
