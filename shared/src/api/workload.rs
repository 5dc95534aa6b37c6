//! Overrides of released objects, matched by name.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, EnvVar, ResourceClaim, Toleration, TopologySpreadConstraint, VolumeMount};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Name that stands for all workloads, or all containers of them. No object can have it.
const ALL: &str = "*";

/// Overrides of a Deployment, StatefulSet or Job. Values of Kubernetes types are kept as given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadOverride {
    /// Name of the workload, or `*` for all workloads.
    pub name: String,
    /// Labels to add to the workload and its Pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations to add to the workload and its Pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Number of replicas; sets that of the autoscaler, if the workload has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>")]
    pub replicas: Option<i64>,
    /// Node selector of the Pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Topology spread constraints of the Pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<TopologySpreadConstraint>")]
    pub topology_spread_constraints: Vec<Value>,
    /// Tolerations of the Pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Toleration>")]
    pub tolerations: Vec<Value>,
    /// Affinity of the Pods.
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
    /// Whether Pods use the host network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_network: Option<bool>,
    /// Has no effect; for compatibility with the Go operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Has no effect; for compatibility with the Go operator.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<VolumeMount>")]
    pub volume_mounts: Vec<Value>,
}

impl WorkloadOverride {
    /// Whether it has defaults for all workloads.
    pub fn is_for_all(&self) -> bool {
        self.name == ALL
    }
}

impl ContainerResources {
    /// Whether it is for all containers, which is possible in defaults for all workloads.
    pub fn is_for_all(&self) -> bool {
        self.container == ALL
    }
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

/// Settings of a container's probe; its handler is unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerProbe {
    /// Name of the container.
    pub container: String,
    /// Seconds before the first probe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>")]
    pub initial_delay_seconds: Option<i64>,
    /// Timeout of a probe in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>")]
    pub timeout_seconds: Option<i64>,
    /// Seconds between probes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>")]
    pub period_seconds: Option<i64>,
    /// Consecutive successes after which the probe succeeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>")]
    pub success_threshold: Option<i64>,
    /// Consecutive failures after which the probe fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>")]
    pub failure_threshold: Option<i64>,
    /// Termination grace period of the Pod in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination_grace_period_seconds: Option<i64>,
}

/// Overrides of a Service.
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

/// Overrides of a PodDisruptionBudget.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodDisruptionBudgetOverride {
    /// Name of the PodDisruptionBudget.
    pub name: String,
    /// Minimum number or percentage of available Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<IntOrString>")]
    pub min_available: Option<Value>,
    /// Maximum number or percentage of unavailable Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<IntOrString>")]
    pub max_unavailable: Option<Value>,
    /// Has no effect; for compatibility with the Go operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<LabelSelector>")]
    pub selector: Option<Value>,
    /// Has no effect; for compatibility with the Go operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhealthy_pod_eviction_policy: Option<String>,
}

/// Resource requirements of one container, by its name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerResources {
    /// Name of the container; `*` for all, only in the entry `*` of `workloads`.
    pub container: String,
    /// Maximum resources of the container.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, Quantity>")]
    pub limits: BTreeMap<String, Value>,
    /// Minimum resources of the container.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, Quantity>")]
    pub requests: BTreeMap<String, Value>,
    /// Claims of dynamic resources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ResourceClaim>")]
    pub claims: Vec<Value>,
}
