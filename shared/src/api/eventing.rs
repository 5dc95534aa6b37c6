//! `KnativeEventing`.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CommonSpec, KnativeStatus};

/// What to install as Knative Eventing, and where.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "operator.knative.dev",
    version = "v1beta1",
    kind = "KnativeEventing",
    plural = "knativeeventings",
    namespaced,
    derive = "PartialEq",
    derive = "Default",
    status = "KnativeStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct KnativeEventingSpec {
    /// What both kinds share.
    #[serde(flatten)]
    pub common: CommonSpec,
    /// Broker class for brokers that name none; `MTChannelBasedBroker` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_broker_class: Option<String>,
    /// `exclusion` (default) or `inclusion`: which namespaces SinkBinding looks at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sink_binding_selection_mode: Option<String>,
    /// Which event sources come along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceConfigs>,
}

/// The event sources. A spec may leave some out; the stored form has all of them.
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
    /// Whether it is installed.
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
