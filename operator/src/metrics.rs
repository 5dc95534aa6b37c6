//! What the operator counts.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use knative_operator_shared::api::{Component, Knative};
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
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Write {
    kind: &'static str,
    cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Resource {
    kind: &'static str,
    namespace: String,
    name: String,
}

/// The operator's metrics. Series with a resource's name end with the resource.
#[derive(Clone)]
pub struct Metrics {
    passes: Family<Pass, Counter>,
    durations: Family<Kind, Histogram>,
    writes: Family<Write, Counter>,
    panics: Family<Kind, Counter>,
    ready: Family<Resource, Gauge<i64>>,
    resolved: Family<Resource, Gauge<i64>>,
    leading: Gauge<f64, AtomicU64>,
}

impl Metrics {
    /// The metrics, and the registry that tells them.
    pub fn registered() -> (Self, Registry) {
        let metrics = Self {
            passes: Family::default(),
            // 1 ms to 65 s
            durations: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 4.0, 9))),
            writes: Family::default(),
            panics: Family::default(),
            ready: Family::default(),
            resolved: Family::default(),
            leading: Gauge::default(),
        };
        let mut registry = Registry::with_prefix("knative_operator");
        registry.register("reconciles", "Passes over a custom resource, by how they ended", metrics.passes.clone());
        registry.register_with_unit("reconcile_duration", "How long passes took", Unit::Seconds, metrics.durations.clone());
        registry.register("objects_written", "Objects applied, by cause: plan or drift", metrics.writes.clone());
        registry.register("reconcile_panics", "Passes that panicked", metrics.panics.clone());
        registry.register("ready", "Whether a custom resource is ready", metrics.ready.clone());
        registry.register(
            "target_cluster_resolved",
            "Whether the target cluster of a custom resource is resolved",
            metrics.resolved.clone(),
        );
        registry.register("leader", "Whether this replica leads", metrics.leading.clone());
        (metrics, registry)
    }

    /// A pass ended.
    pub fn passed(&self, component: Component, took: Duration, failed: bool) {
        let (kind, outcome) = (component.kind(), if failed { "error" } else { "success" });
        self.passes.get_or_create(&Pass { kind, outcome }).inc();
        self.durations.get_or_create(&Kind { kind }).observe(took.as_secs_f64());
    }

    /// A pass panicked.
    pub fn panicked(&self, component: Component) {
        self.panics.get_or_create(&Kind { kind: component.kind() }).inc();
    }

    /// Objects were written.
    pub fn wrote(&self, component: Component, planned: usize, repaired: usize) {
        for (cause, count) in [("plan", planned), ("drift", repaired)] {
            self.writes.get_or_create(&Write { kind: component.kind(), cause }).inc_by(count as u64);
        }
    }

    /// The states of a resource were told.
    pub fn told(&self, resource: &Knative, states: &States) {
        let labels = labels(&Key::of(resource));
        self.ready.get_or_create(&labels).set((ready(states) == State::True).into());
        self.resolved.get_or_create(&labels).set((states[1] == State::True).into());
    }

    /// A resource is gone.
    pub fn forget(&self, key: &Key) {
        self.ready.remove(&labels(key));
        self.resolved.remove(&labels(key));
    }

    /// This replica leads, or doesn't.
    pub fn leads(&self, leads: bool) {
        self.leading.set(f64::from(u8::from(leads)));
    }
}

fn labels(key: &Key) -> Resource {
    Resource { kind: key.component.kind(), namespace: key.namespace.clone(), name: key.name.clone() }
}
