//! What both kinds have in common: the shared part of the spec, and the status.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{LocalObjectReference, ResourceClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{PodDisruptionBudgetOverride, ServiceOverride, WorkloadOverride};

/// The part of the spec that `KnativeServing` and `KnativeEventing` share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommonSpec {
    /// Version of the component to install: `1.22.1`, `1.22` (its newest patch), `latest`; newest when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// The cluster to install on: a ClusterProfile on this hub. Left out: the cluster that the operator runs in.
    /// Immutable: delete the resource and create it again to move it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_profile_ref: Option<ClusterProfileReference>,

    /// Labels and annotations for the namespace of the component, as the Go operator's CRD spells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<NamespaceConfiguration>,

    /// Labels and annotations for the namespace of the component, as its documentation spells it. Same meaning as `namespace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_configuration: Option<NamespaceConfiguration>,

    /// Entries that override those of the component's ConfigMaps: ConfigMap name (with or without `config-`) to key to value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, BTreeMap<String, String>>,

    /// Where images are pulled from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry: Option<Registry>,

    /// How many replicas the component's Deployments have at least.
    #[serde(rename = "high-availability", default, skip_serializing_if = "Option::is_none")]
    pub high_availability: Option<HighAvailability>,

    /// Manifests to install instead of the release bundle's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub manifests: Vec<ManifestSource>,

    /// Manifests to install besides the release bundle's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub additional_manifests: Vec<ManifestSource>,

    /// Overrides for Deployments, StatefulSets and Jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<WorkloadOverride>,

    /// Deprecated: use `workloads`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deployments: Vec<WorkloadOverride>,

    /// Deprecated: use `workloads[].resources`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<ContainerResources>,

    /// Overrides for Services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceOverride>,

    /// Overrides for PodDisruptionBudgets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pod_disruption_budgets: Vec<PodDisruptionBudgetOverride>,
}

/// Names a ClusterProfile (KEP-4322).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct ClusterProfileReference {
    /// Name of the ClusterProfile.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Namespace of the ClusterProfile.
    #[schemars(length(min = 1))]
    pub namespace: String,
}

impl std::fmt::Display for ClusterProfileReference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Labels and annotations that a namespace gets when the operator creates it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NamespaceConfiguration {
    /// Labels to add.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations to add.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Where images are pulled from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Registry {
    /// Image reference for every container, with `${NAME}` standing for the image's base name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Container name, `deployment/container` or environment variable name to image reference.
    #[serde(rename = "override", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub overrides: BTreeMap<String, String>,
    /// Secrets that image pulls use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<LocalObjectReference>")]
    pub image_pull_secrets: Vec<Value>,
}

/// How many replicas there are at least.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HighAvailability {
    /// Number of replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>")]
    pub replicas: Option<i64>,
}

/// Where a manifest comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ManifestSource {
    /// URL or path; `${VERSION}` stands for the version.
    #[serde(rename = "URL")]
    pub url: String,
}

/// Resource requirements of one container, by its name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerResources {
    /// Name of the container.
    pub container: String,
    /// Resources that the container may use at most.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, Quantity>")]
    pub limits: BTreeMap<String, Value>,
    /// Resources that the container gets at least.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, Quantity>")]
    pub requests: BTreeMap<String, Value>,
    /// Claims of dynamic resources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ResourceClaim>")]
    pub claims: Vec<Value>,
}

/// What the operator says about a component.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KnativeStatus {
    /// The generation of the spec that the conditions are about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What is so, and since when. Sorted by type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Free annotations, kept for users of the Go operator.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Version that was installed successfully last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Where the installed manifests came from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub manifests: Vec<String>,
}

/// One condition, in Knative's form (`knative.dev/pkg/apis.Condition`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What the condition is about.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// How bad `False` is; empty means error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<String>,
    /// When `status` changed last (RFC 3339, seconds).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
    /// Why, as one word for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, as a sentence for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl Condition {
    /// When `status` changed last, if it is readable.
    pub fn since(&self) -> Option<Timestamp> {
        self.last_transition_time.as_deref()?.parse().ok()
    }
}

impl CommonSpec {
    /// The overrides of workloads with the path of each, in the order in which they are applied: the deprecated ones first.
    pub fn overrides(&self) -> impl Iterator<Item = (String, &WorkloadOverride)> {
        let listed = |field, list: &'_ [WorkloadOverride]| (0..list.len()).map(move |i| format!("spec.{field}[{i}]"));
        let paths = listed("deployments", &self.deployments).chain(listed("workloads", &self.workloads));
        paths.zip(self.deployments.iter().chain(&self.workloads))
    }

    /// The settings for the component's namespace, under whichever of the two names they were given. An empty block gives none.
    pub fn namespace_settings(&self) -> Option<&NamespaceConfiguration> {
        let given = [&self.namespace_configuration, &self.namespace].into_iter().flatten();
        given.into_iter().find(|settings| **settings != NamespaceConfiguration::default())
    }
}
