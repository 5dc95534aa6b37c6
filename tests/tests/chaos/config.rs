//! What a resource declares.

use fastrand::Rng;
use knative_operator_shared::api::Component;
use knative_operator_tests::product::FLEET;
use serde_json::{Value, json};

/// Label of the ClusterProfiles that the fleet selects.
pub const FLEET_LABEL: &str = "chaos=fleet";

/// What a resource declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    pub component: Component,
    pub version: &'static str,
    kourier: bool,
    value: u8,
}

impl Config {
    pub fn random(component: Component, random: &mut Rng) -> Self {
        let is_serving = component == Component::Serving;
        let version = if is_serving && random.bool() { "1.0.0" } else { "1.1.0" };
        Self { component, version, kourier: is_serving && random.bool(), value: random.u8(..2) }
    }

    /// All configurations.
    pub fn all() -> impl Iterator<Item = Self> {
        let serving = (0..8).map(|bits| Self {
            component: Component::Serving,
            version: if bits & 1 == 0 { "1.0.0" } else { "1.1.0" },
            kourier: bits & 2 == 0,
            value: bits >> 2,
        });
        let eventing =
            (0..2).map(|value| Self { component: Component::Eventing, version: "1.1.0", kourier: false, value });
        eventing.chain(serving)
    }

    fn spec(self) -> Value {
        let mut spec = json!({"version": self.version});
        if self.component == Component::Serving {
            spec["ingress"] =
                if self.kourier { json!({"kourier": {"enabled": true}}) } else { json!({"istio": {"enabled": false}}) };
            spec["config"] = json!({"network": {"ingress-class": "somebody.example/ingress"},
                "defaults": {"revision-timeout-seconds": format!("30{}", self.value)}});
        } else {
            spec["config"] = json!({"br-defaults": {"default-br-config": format!("value: {}", self.value)}});
        }
        spec
    }

    /// The resource `name` in `namespace` for the cluster of `profile`.
    pub fn resource(self, namespace: &str, name: &str, profile: &str) -> Value {
        let mut spec = self.spec();
        spec["clusterProfileRef"] = json!({"name": profile, "namespace": FLEET});
        json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": self.component.kind(),
            "metadata": {"name": name, "namespace": namespace}, "spec": spec})
    }

    /// A fleet in `namespace` for the clusters with [`FLEET_LABEL`].
    pub fn fleet(self, namespace: &str) -> Value {
        let (key, value) = FLEET_LABEL.split_once('=').unwrap();
        let mut object = json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet",
        "metadata": {"name": "one", "namespace": namespace}, "spec": {
            "placement": {"clusterSelector": {"matchLabels": {key: value}}, "namespaces": [FLEET]},
            "rollout": {"stages": [{"name": "all", "maxConcurrent": "100%"}]},
            "removal": {"maxAtOnce": "100%"},
        }});
        object["spec"][self.component.kind().trim_start_matches("Knative").to_lowercase()] =
            json!({"spec": self.spec()});
        object
    }
}
