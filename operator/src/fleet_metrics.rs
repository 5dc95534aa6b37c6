//! Metrics of fleets. Series of a fleet end with it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use knative_operator_shared::api::{Condition, KnativeFleet, KnativeFleetStatus};
use knative_operator_shared::condition::STALLED;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use knative_operator_fleet::gates::Answer;
use knative_operator_fleet::transitions::{ENDS, RolloutEnd};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FleetLabels {
    namespace: String,
    name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    namespace: String,
    name: String,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
struct StageLabels {
    namespace: String,
    name: String,
    stage: String,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConditionLabels {
    namespace: String,
    name: String,
    condition: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MeasurementLabels {
    gate_type: &'static str,
    result: &'static str,
}

const STATES: [&str; 5] = ["updated", "updating", "pending", "deferred", "failed"];
const CONDITIONS: [&str; 6] = ["Ready", "Progressing", "Paused", "RemovalPending", "RemovalBlocked", STALLED];

/// The metrics of fleets.
#[derive(Clone)]
pub struct FleetMetrics {
    clusters: Family<StateLabels, Gauge>,
    clusters_known: Family<FleetLabels, Gauge>,
    stages: Family<StageLabels, Gauge>,
    conditions: Family<ConditionLabels, Gauge>,
    rollouts: Family<OutcomeLabels, Counter>,
    durations: Histogram,
    measurements: Family<MeasurementLabels, Counter>,
    /// Current labels of stages.
    current: Arc<Mutex<BTreeSet<StageLabels>>>,
}

impl Default for FleetMetrics {
    fn default() -> Self {
        Self {
            clusters: Family::default(),
            clusters_known: Family::default(),
            stages: Family::default(),
            conditions: Family::default(),
            rollouts: Family::default(),
            // 10 s to 45 hours
            durations: Histogram::new(exponential_buckets(10.0, 4.0, 8)),
            measurements: Family::default(),
            current: Arc::default(),
        }
    }
}

impl FleetMetrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "fleet_clusters",
            "Clusters of a fleet: updated, updating, pending, deferred, failed",
            self.clusters.clone(),
        );
        registry.register(
            "fleet_clusters_known",
            "Whether it is known which clusters a fleet has",
            self.clusters_known.clone(),
        );
        registry.register("fleet_stage", "1 for the state of a stage of a fleet", self.stages.clone());
        registry.register("fleet_condition", "Whether a condition of a fleet is true", self.conditions.clone());
        registry.register(
            "fleet_rollouts",
            "Rollouts that ended, by outcome: complete, failed, superseded",
            self.rollouts.clone(),
        );
        registry.register_with_unit(
            "fleet_rollout_duration",
            "Duration of complete rollouts",
            Unit::Seconds,
            self.durations.clone(),
        );
        registry.register(
            "fleet_gate_measurements",
            "Measurements of gates, by type: http, event, job; and by result: success, failure, unknown",
            self.measurements.clone(),
        );
        // Exported from the start, since an alert on increase needs a zero.
        for end in ENDS {
            drop(self.rollouts.get_or_create(&OutcomeLabels { outcome: end.as_str() }));
        }
    }

    /// Sets the series of `fleet` with `status`.
    pub fn set(&self, fleet: &KnativeFleet, status: &KnativeFleetStatus) {
        let (namespace, name) = key(fleet);
        let updating: i64 = status.stages.iter().map(|stage| i64::from(stage.updating)).sum();
        let counts = [status.clusters, status.updated, status.deferred, status.failed];
        let [clusters, updated, deferred, failed] = counts.map(i64::from);
        let pending = clusters - updated - updating - deferred - failed;
        let counts = [updated, updating, pending.max(0), deferred, failed];
        for (state, count) in STATES.into_iter().zip(counts) {
            let labels = StateLabels { namespace: namespace.clone(), name: name.clone(), state };
            self.clusters.get_or_create(&labels).set(count);
        }
        let is_unknown = |c: &Condition| c.type_ == "Ready" && c.reason.as_deref() == Some("ClustersUnknown");
        let is_known = !status.conditions.iter().any(is_unknown);
        let labels = FleetLabels { namespace: namespace.clone(), name: name.clone() };
        self.clusters_known.get_or_create(&labels).set(is_known.into());
        for condition in CONDITIONS {
            let is_true = status.conditions.iter().any(|c| c.type_ == condition && c.status == "True");
            let labels = ConditionLabels { namespace: namespace.clone(), name: name.clone(), condition };
            self.conditions.get_or_create(&labels).set(is_true.into());
        }
        let stages = status.stages.iter().map(|stage| StageLabels {
            namespace: namespace.clone(),
            name: name.clone(),
            stage: stage.name.clone(),
            state: stage.state.as_str(),
        });
        self.set_stages(&namespace, &name, stages.collect());
    }

    /// Records that a rollout ended, after `duration`.
    pub fn ended(&self, end: RolloutEnd, duration: Duration) {
        self.rollouts.get_or_create(&OutcomeLabels { outcome: end.as_str() }).inc();
        if end == RolloutEnd::Complete {
            self.durations.observe(duration.as_secs_f64());
        }
    }

    /// Counts a measurement of a gate.
    pub fn measured(&self, gate_type: &'static str, answer: &Answer) {
        self.measurements.get_or_create(&MeasurementLabels { gate_type, result: answer.as_str() }).inc();
    }

    /// Removes the series of a fleet.
    pub fn remove(&self, namespace: &str, name: &str) {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        self.clusters_known.remove(&FleetLabels { namespace: namespace.clone(), name: name.clone() });
        for state in STATES {
            self.clusters.remove(&StateLabels { namespace: namespace.clone(), name: name.clone(), state });
        }
        for condition in CONDITIONS {
            self.conditions.remove(&ConditionLabels { namespace: namespace.clone(), name: name.clone(), condition });
        }
        self.set_stages(&namespace, &name, BTreeSet::new());
    }

    /// Removes the series of all fleets: another replica manages them.
    pub fn clear(&self) {
        self.clusters.clear();
        self.clusters_known.clear();
        self.conditions.clear();
        self.stages.clear();
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn set_stages(&self, namespace: &str, name: &str, new: BTreeSet<StageLabels>) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.retain(|labels| {
            let is_obsolete = labels.namespace == namespace && labels.name == name && !new.contains(labels);
            if is_obsolete {
                self.stages.remove(labels);
            }
            !is_obsolete
        });
        for labels in new {
            self.stages.get_or_create(&labels).set(1);
            current.insert(labels);
        }
    }
}

fn key(fleet: &KnativeFleet) -> (String, String) {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    (text(&fleet.metadata.namespace), text(&fleet.metadata.name))
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use serde_json::json;

    use super::*;

    #[test]
    fn series_of_a_fleet_are_replaced_and_removed() {
        let (metrics, mut registry) = (FleetMetrics::default(), Registry::default());
        metrics.register(&mut registry);
        let fleet: KnativeFleet =
            serde_json::from_value(json!({"metadata": {"name": "f", "namespace": "n"}, "spec": {"placement": {}}}))
                .unwrap();
        let status = |state: &str| -> KnativeFleetStatus {
            serde_json::from_value(json!({"clusters": 5, "updated": 2, "failed": 1, "stages": [{"name": "s", "state": state, "updating": 1}],
                "conditions": [{"type": "Ready", "status": "True"}]}))
            .unwrap()
        };
        let output = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            text
        };
        metrics.set(&fleet, &status("Progressing"));
        metrics.set(&fleet, &status("Complete"));
        let text = output();
        for line in [
            r#"fleet_clusters_known{namespace="n",name="f"} 1"#,
            r#"fleet_condition{namespace="n",name="f",condition="Stalled"} 0"#,
            r#"fleet_clusters{namespace="n",name="f",state="updated"} 2"#,
            r#"fleet_clusters{namespace="n",name="f",state="pending"} 1"#,
            r#"fleet_stage{namespace="n",name="f",stage="s",state="Complete"} 1"#,
            r#"fleet_condition{namespace="n",name="f",condition="Ready"} 1"#,
            r#"fleet_rollouts_total{outcome="failed"} 0"#,
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(!text.contains(r#"state="Progressing""#));
        let conditions = json!([{"type": "Ready", "status": "False", "reason": "ClustersUnknown"}, {"type": "Stalled", "status": "True"}]);
        metrics.set(&fleet, &serde_json::from_value(json!({"conditions": conditions})).unwrap());
        let text = output();
        assert!(text.contains(r#"fleet_clusters_known{namespace="n",name="f"} 0"#), "{text}");
        assert!(text.contains(r#"fleet_condition{namespace="n",name="f",condition="Stalled"} 1"#), "{text}");
        // One that somebody else wrote.
        let stage = |name: &str| json!({"name": name, "state": "Complete", "updating": i32::MAX});
        let large = json!({"clusters": i32::MIN, "updated": i32::MAX, "stages": [stage("s"), stage("t")]});
        metrics.set(&fleet, &serde_json::from_value(large).unwrap());
        let text = output();
        assert!(text.contains(r#"fleet_clusters{namespace="n",name="f",state="updating"} 4294967294"#), "{text}");
        metrics.ended(RolloutEnd::Complete, Duration::from_secs(30));
        metrics.remove("n", "f");
        let text = output();
        assert!(!text.contains(r#"name="f""#) && text.contains(r#"outcome="complete"} 1"#), "{text}");
        metrics.set(&fleet, &status("Progressing"));
        metrics.clear();
        let text = output();
        assert!(!text.contains(r#"name="f""#) && text.contains(r#"outcome="complete"} 1"#), "{text}");
    }
}
