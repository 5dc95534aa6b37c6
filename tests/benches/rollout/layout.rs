//! The fleets of the bench, and their clusters: which cluster is in which fleet and stage, which
//! fail, and which are unreachable.

use knative_operator_tests::product::{FLEET, HUB_USER};
use serde_json::{Value, json};

/// Maximum number of stages of a fleet.
const STAGES: usize = 20;
/// Minimum number of clusters of a stage: among fewer, one that is unreachable stops the rollout.
const STAGE: usize = 5;
/// Minimum number of clusters of a fleet, for the same reason.
const SIZE: usize = 10;
/// Maximum number of unreachable clusters.
const UNREACHABLE: usize = 10;

/// A change of all fleets.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// Value of a key in a ConfigMap.
    pub key: Option<String>,
    /// `maxConcurrent` of a stage with all clusters; `None` for many stages, each at once.
    pub max_concurrent: Option<Value>,
    /// Whether one cluster of a hundred fails with it.
    pub fails: bool,
}

impl Change {
    /// A change of the key, in many stages.
    pub fn key(value: &str) -> Self {
        Self { key: Some(value.to_owned()), ..Self::default() }
    }
}

/// Clusters, and fleets that share them.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Number of clusters.
    pub clusters: usize,
    /// Number of fleets.
    pub fleets: usize,
}

impl Layout {
    /// `clusters` in `fleets`, or in fewer if they were too small.
    pub fn new(clusters: usize, fleets: usize) -> Self {
        Self { clusters, fleets: fleets.clamp(1, (clusters / SIZE).max(1)) }
    }

    /// Number of clusters of `fleet`.
    pub fn size(self, fleet: usize) -> usize {
        self.clusters.saturating_sub(fleet).div_ceil(self.fleets)
    }

    /// Number of stages of each fleet.
    pub fn stages(self) -> usize {
        STAGES.min(self.size(0) / STAGE).max(1)
    }

    /// Number of clusters of each fleet that are updated at a time with `maxConcurrent: 10%`.
    pub fn tenth(self) -> usize {
        (self.size(0) / 10).max(1)
    }

    /// Labels of cluster `number`.
    pub fn labels(self, number: usize) -> Value {
        let (fleet, place) = (number % self.fleets, number / self.fleets);
        let stage = place / self.size(0).div_ceil(self.stages());
        let fails = if Self::fails(number) { "yes" } else { "no" };
        json!({"fleet": fleet.to_string(), "stage": stage.to_string(), "fails": fails})
    }

    fn fails(number: usize) -> bool {
        number % 100 == 50
    }

    /// The clusters that become unreachable: at most one of a stage.
    pub fn unreachable(self) -> Vec<usize> {
        (0..UNREACHABLE.min(self.clusters / 10)).map(|n| n * (self.clusters / UNREACHABLE) + n).collect()
    }

    /// Number of clusters of `fleet` that are not updated: they fail, or are unreachable.
    pub fn left(self, fleet: usize) -> usize {
        let unreachable = self.unreachable();
        let own = (0..self.clusters).filter(|number| number % self.fleets == fleet);
        own.filter(|number| Self::fails(*number) || unreachable.contains(number)).count()
    }

    /// The fleet `number` after `change`, with `version` of Serving.
    pub fn fleet(self, number: usize, version: &str, change: &Change) -> Value {
        let mut serving = json!({"version": version, "ingress": {"kourier": {"enabled": true}}});
        if let Some(key) = &change.key {
            serving["config"] = json!({"features": {"bench": key}});
        }
        let stage = |number: usize| {
            json!({"name": format!("stage-{number}"), "clusterSelector": {"matchLabels": {"stage": number.to_string()}},
                "maxConcurrent": "100%", "maxFailures": "50%", "progressDeadlineSeconds": 8})
        };
        let stages: Vec<Value> = match &change.max_concurrent {
            Some(limit) => vec![json!({"name": "all", "maxConcurrent": limit})],
            None => (0..self.stages()).map(stage).collect(),
        };
        let broken = json!({"spec": {"additionalManifests": [{"URL": "none/there.yaml"}]}});
        let overrides = json!([{"clusterSelector": {"matchLabels": {"fails": "yes"}}, "serving": broken}]);
        json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet",
        "metadata": {"name": name(number), "namespace": "fleet"},
        "spec": {
            "placement": {"clusterSelector": {"matchLabels": {"fleet": number.to_string()}}, "namespaces": [FLEET]},
            "serving": {"spec": serving},
            "overrides": if change.fails { overrides } else { json!([]) },
            "rollout": {"stages": stages},
        }})
    }
}

/// Name of the fleet `number`.
pub fn name(number: usize) -> String {
    format!("bench-{number}")
}

/// A priority level of the API server that serves few requests of the operator at a time, and
/// refuses the others.
pub fn refusal() -> Value {
    let api = "flowcontrol.apiserver.k8s.io/v1";
    let limited = json!({"nominalConcurrencyShares": 1, "lendablePercent": 0, "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Reject"}});
    let all =
        json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true}]);
    let (namespace, name) = HUB_USER.trim_start_matches("system:serviceaccount:").split_once(':').unwrap_or_default();
    let who = json!([{"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": name}}]);
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": api, "kind": "PriorityLevelConfiguration", "metadata": {"name": "bench"},
            "spec": {"type": "Limited", "limited": limited}},
        {"apiVersion": api, "kind": "FlowSchema", "metadata": {"name": "bench"}, "spec": {
            "priorityLevelConfiguration": {"name": "bench"}, "matchingPrecedence": 10,
            "rules": [{"subjects": who, "resourceRules": all}]}},
    ]})
}
