//! Overrides for objects of the release, matched by name.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, EnvVar, Toleration, TopologySpreadConstraint, VolumeMount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::common::ContainerResources;

/// Overrides for a Deployment, StatefulSet or Job. Parts of Kubernetes' own types are kept as they were written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadOverride {
    /// Name of the workload.
    pub name: String,
    /// Labels to add to the workload and its pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations to add to the workload and its pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Number of replicas; goes to the autoscaler where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>")]
    pub replicas: Option<i64>,
    /// Node labels that pods need.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// How pods are spread.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<TopologySpreadConstraint>")]
    pub topology_spread_constraints: Vec<Value>,
    /// Taints that pods tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Toleration>")]
    pub tolerations: Vec<Value>,
    /// Where pods like to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Affinity>")]
    pub affinity: Option<Value>,
    /// Resource requirements by container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<ContainerResources>,
    /// Environment variables by container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<ContainerEnv>,
    /// Readiness probe settings by container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub readiness_probes: Vec<ContainerProbe>,
    /// Liveness probe settings by container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub liveness_probes: Vec<ContainerProbe>,
    /// Whether pods use the node's network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_network: Option<bool>,
    /// Has no effect; kept for users of the Go operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Has no effect; kept for users of the Go operator.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<VolumeMount>")]
    pub volume_mounts: Vec<Value>,
}

/// Environment variables of one container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerEnv {
    /// Name of the container.
    pub container: String,
    /// Variables to set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<EnvVar>")]
    pub env_vars: Vec<Value>,
}

/// Settings of one container's probe; its handler stays as released.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerProbe {
    /// Name of the container.
    pub container: String,
    /// Seconds before the first probe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>")]
    pub initial_delay_seconds: Option<i64>,
    /// Seconds after which a probe fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>")]
    pub timeout_seconds: Option<i64>,
    /// Seconds between probes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>")]
    pub period_seconds: Option<i64>,
    /// Successes in a row after which the probe succeeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>")]
    pub success_threshold: Option<i64>,
    /// Failures in a row after which the probe fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>")]
    pub failure_threshold: Option<i64>,
    /// Seconds that the pod has to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination_grace_period_seconds: Option<i64>,
}

/// Overrides for a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceOverride {
    /// Name of the Service.
    pub name: String,
    /// Labels to add.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations to add.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Selector entries to add.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub selector: BTreeMap<String, String>,
}

/// Overrides for a PodDisruptionBudget.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodDisruptionBudgetOverride {
    /// Name of the PodDisruptionBudget.
    pub name: String,
    /// Number or percentage of pods that must stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<IntOrString>")]
    pub min_available: Option<Value>,
    /// Number or percentage of pods that may go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<IntOrString>")]
    pub max_unavailable: Option<Value>,
    /// Has no effect; kept for users of the Go operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<LabelSelector>")]
    pub selector: Option<Value>,
    /// Has no effect; kept for users of the Go operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhealthy_pod_eviction_policy: Option<String>,
}
