//! `KnativeEventing`.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CommonSpec, KnativeStatus};

/// Spec of an installation of Knative Eventing.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "operator.knative.dev",
    version = "v1beta1",
    kind = "KnativeEventing",
    plural = "knativeeventings",
    category = "knative",
    namespaced,
    derive = "PartialEq",
    derive = "Default",
    status = "KnativeStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct KnativeEventingSpec {
    /// The part that both kinds share.
    #[serde(flatten)]
    pub common: CommonSpec,
    /// Broker class of brokers that name none. Defaults to `MTChannelBasedBroker`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_broker_class: Option<String>,
    /// Namespaces that SinkBinding selects: `exclusion` (default) or `inclusion`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sink_binding_selection_mode: Option<String>,
    /// Event sources to install.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceConfigs>,
}

/// The event sources. A spec may omit some; the stored form has all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SourceConfigs {
    /// Ceph.
    pub ceph: Source,
    /// GitHub.
    pub github: Source,
    /// GitLab.
    pub gitlab: Source,
    /// Apache Kafka.
    pub kafka: Source,
    /// RabbitMQ.
    pub rabbitmq: Source,
    /// Redis.
    pub redis: Source,
}

/// One event source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Source {
    /// Whether to install it.
    pub enabled: bool,
}

impl SourceConfigs {
    /// Directory names, in the bundle, of the enabled sources, in the order of the Go operator.
    pub fn enabled(&self) -> Vec<&'static str> {
        [
            ("ceph", &self.ceph),
            ("github", &self.github),
            ("gitlab", &self.gitlab),
            ("kafka", &self.kafka),
            ("rabbitmq", &self.rabbitmq),
            ("redis", &self.redis),
        ]
        .into_iter()
        .filter_map(|(name, source)| source.enabled.then_some(name))
        .collect()
    }
}
