//! The parts of spec and status that both kinds share.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::LocalObjectReference;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cluster_profile::ClusterProfileReference;
use super::patch::ResourcePatch;
use super::workload::{ContainerResources, PodDisruptionBudgetOverride, ServiceOverride, WorkloadOverride};

/// The part of the spec that `KnativeServing` and `KnativeEventing` share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommonSpec {
    /// Version of the component to install: `1.22.1`, `1.22` (its newest patch) or `latest`.
    /// Defaults to the newest version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// The cluster to install on: a ClusterProfile on this hub. Defaults to the cluster that the
    /// operator runs in. Immutable: to move the installation, delete the resource and create it
    /// again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_profile_ref: Option<ClusterProfileReference>,

    /// Labels and annotations of the component's namespace, under the name in the Go operator's
    /// CRD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<NamespaceConfiguration>,

    /// Labels and annotations of the component's namespace, under the name in Knative's
    /// documentation. Same meaning as `namespace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_configuration: Option<NamespaceConfiguration>,

    /// Entries that override those of the component's ConfigMaps: ConfigMap name (with or without
    /// `config-`) to key to value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, BTreeMap<String, String>>,

    /// Source of images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry: Option<Registry>,

    /// Minimum number of replicas of the component's Deployments.
    #[serde(rename = "high-availability", default, skip_serializing_if = "Option::is_none")]
    pub high_availability: Option<HighAvailability>,

    /// Manifests to install instead of those of the release bundle.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub manifests: Vec<ManifestSource>,

    /// Manifests to install in addition to those of the release bundle.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub additional_manifests: Vec<ManifestSource>,

    /// Overrides of Deployments, StatefulSets and Jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<WorkloadOverride>,

    /// Deprecated: use `workloads`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deployments: Vec<WorkloadOverride>,

    /// Deprecated: use `workloads[].resources`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<ContainerResources>,

    /// Overrides of Services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceOverride>,

    /// Overrides of PodDisruptionBudgets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pod_disruption_budgets: Vec<PodDisruptionBudgetOverride>,

    /// Patches of objects, for settings that no other field has. The operator applies them in
    /// order, after all other settings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<ResourcePatch>,
}

/// Labels and annotations of the namespace that the operator creates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NamespaceConfiguration {
    /// Labels to add.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations to add.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Source of images.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Registry {
    /// Image reference for every container; `${NAME}` is replaced with the base name of the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Container name, `deployment/container` or environment variable name to image reference.
    #[serde(rename = "override", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub overrides: BTreeMap<String, String>,
    /// Secrets for image pulls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<LocalObjectReference>")]
    pub image_pull_secrets: Vec<Value>,
}

/// Minimum number of replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HighAvailability {
    /// Number of replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>")]
    pub replicas: Option<i64>,
}

/// Source of a manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ManifestSource {
    /// URL or path; `${VERSION}` is replaced with the version.
    #[serde(rename = "URL")]
    pub url: String,
}

/// Status of a component.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KnativeStatus {
    /// Generation of the spec that the conditions describe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions, sorted by type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Annotations, for compatibility with the Go operator.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Version that was installed successfully last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Sources of the installed manifests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub manifests: Vec<String>,
}

/// A condition, in Knative's form (`knative.dev/pkg/apis.Condition`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Generation of the spec that it describes. Only conditions of fleets have it: Knative's form
    /// does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub observed_generation: Option<i64>,
    /// Severity of `False`; empty means error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<String>,
    /// Time of the last change of `status` (RFC 3339, seconds).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
    /// Reason, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Message, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl Condition {
    /// Time of the last change of `status`, if it parses.
    pub fn since(&self) -> Option<Timestamp> {
        self.last_transition_time.as_deref()?.parse().ok()
    }
}

impl CommonSpec {
    /// Overrides of workloads with their paths, in the order in which they are applied: the
    /// deprecated ones first.
    pub fn overrides(&self) -> impl Iterator<Item = (String, &WorkloadOverride)> {
        let listed = |field, list: &'_ [WorkloadOverride]| (0..list.len()).map(move |i| format!("spec.{field}[{i}]"));
        let paths = listed("deployments", &self.deployments).chain(listed("workloads", &self.workloads));
        paths.zip(self.deployments.iter().chain(&self.workloads))
    }

    /// Settings of the component's namespace under either name. An empty block counts as not given.
    pub fn namespace_settings(&self) -> Option<&NamespaceConfiguration> {
        let given = [&self.namespace_configuration, &self.namespace].into_iter().flatten();
        given.into_iter().find(|settings| **settings != NamespaceConfiguration::default())
    }
}
