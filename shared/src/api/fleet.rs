//! `KnativeFleet` and `KnativeFleetApproval` (`operator.knative.dev/v1alpha1`): one declaration for
//! many clusters, rolled out in stages.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Component;
pub use super::fleet_gate::{EventGate, Gate, GateBroker, GateService, HttpGate, JobGate};
pub use super::fleet_status::{
    ApprovedRemoval, BlockedRemoval, ClusterAttention, KnativeFleetStatus, RecentRemoval, RemovalStatus, RolloutRecord,
    StageApproval, StageState, StageStatus,
};

/// Spec of a fleet.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "operator.knative.dev",
    version = "v1alpha1",
    kind = "KnativeFleet",
    plural = "knativefleets",
    shortname = "kfleet",
    category = "knative",
    namespaced,
    derive = "PartialEq",
    status = "KnativeFleetStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct KnativeFleetSpec {
    /// The clusters of the fleet.
    pub placement: Placement,
    /// Template of the KnativeServing on each cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serving: Option<Template>,
    /// Template of the KnativeEventing on each cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eventing: Option<Template>,
    /// Changes of the templates for some clusters. The operator applies them in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<FleetOverride>,
    /// How changes reach the clusters.
    #[serde(default)]
    pub rollout: Rollout,
    /// What happens on clusters that leave the fleet.
    #[serde(default)]
    pub removal: Removal,
    /// Number of earlier revisions to keep. Defaults to 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub revision_history_limit: Option<i32>,
}

/// The clusters of a fleet: those that selectors select, or those of a decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// Selects ClusterProfiles by their labels. An empty selector selects all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_selector: Option<LabelSelector>,
    /// Selects ClusterProfiles by names and values in their `status.properties`, as a label
    /// selector does by labels. With `clusterSelector`, both must match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub property_selector: Option<LabelSelector>,
    /// Up to 256 namespaces of ClusterProfiles; `*` for all. Defaults to the fleet's own namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub namespaces: Vec<String>,
    /// Takes the clusters of a PlacementDecision (KEP-5313), which a scheduler writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<DecisionReference>,
}

/// Refers to all slices of a PlacementDecision by their key, or to one PlacementDecision by its
/// name. Exactly one of both is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DecisionReference {
    /// Value of the label `multicluster.x-k8s.io/decision-key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub key: Option<String>,
    /// Name of the PlacementDecision, if it has no such label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub name: Option<String>,
    /// Namespace of the PlacementDecisions. Defaults to the fleet's own namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Template of a KnativeServing or KnativeEventing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Template {
    /// Labels and annotations of the resource.
    #[serde(default)]
    pub metadata: TemplateMetadata,
    /// Spec of the resource, without `clusterProfileRef`.
    #[serde(default)]
    pub spec: Map<String, Value>,
}

/// Labels and annotations of a template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TemplateMetadata {
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Changes the templates for the clusters that it selects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetOverride {
    /// Selects clusters by the labels of their ClusterProfiles. An override has it,
    /// `propertySelector`, or both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_selector: Option<LabelSelector>,
    /// Selects clusters by the properties of their ClusterProfiles. With `clusterSelector`, both
    /// must match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub property_selector: Option<LabelSelector>,
    /// JSON merge patch (RFC 7386) of the template of the KnativeServing.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub serving: Map<String, Value>,
    /// JSON merge patch (RFC 7386) of the template of the KnativeEventing.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub eventing: Map<String, Value>,
}

/// How changes reach the clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// Stages, which run one after another, at most 64. A cluster belongs to the first stage that
    /// selects it. Clusters that no stage selects are a last stage.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub stages: Vec<Stage>,
    /// What happens if more clusters fail than a stage allows. `Pause` starts no further cluster.
    /// `Rollback` also returns each cluster that has the revision to the last one that was
    /// installed successfully on it. Defaults to `Pause`.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// Whether to start no further cluster and to remove nothing. Updates in progress are finished.
    #[serde(default)]
    pub paused: bool,
}

/// A stage of a rollout.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Stage {
    /// Name, unique in the fleet.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Selects clusters by the labels of their ClusterProfiles. Without it and `propertySelector`,
    /// all clusters that no earlier stage selects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_selector: Option<LabelSelector>,
    /// Selects clusters by the properties of their ClusterProfiles. With `clusterSelector`, both
    /// must match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub property_selector: Option<LabelSelector>,
    /// Key of a label of the ClusterProfiles. Clusters of the stage begin in the order of its
    /// value, an integer from 0; those without such a value come last. Clusters with the same value
    /// begin in the order of their namespaces and names, or of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317))]
    pub sorting_label_key: Option<String>,
    /// Maximum number (at least 1) or percentage of clusters that are being updated at the same
    /// time. A cluster counts until it was Ready for `minReadySeconds` and its gates passed, or has
    /// failed. Defaults to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrent: Option<IntOrString>,
    /// Maximum number or percentage of clusters that may fail before the rollout stops. Defaults to
    /// 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_failures: Option<IntOrString>,
    /// Seconds for which a cluster must be Ready to count as updated. Defaults to 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_ready_seconds: Option<i32>,
    /// Seconds for which each cluster of the stage must be Ready before its update has succeeded
    /// and a later stage starts. Unlike `minReadySeconds`, it keeps no other cluster of the stage
    /// from its turn. Defaults to 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub soak_seconds: Option<i32>,
    /// Seconds without interruption for which a cluster may be not Ready after its update began,
    /// before it has failed. Defaults to 900.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub progress_deadline_seconds: Option<i32>,
    /// `Required`: the stage waits for a KnativeFleetApproval. By default, it doesn't.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalPolicy>,
    /// What is measured on a cluster that was Ready for `minReadySeconds`, one gate after another,
    /// at most 16. It counts as updated when all passed, and has failed when one failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub gates: Vec<Gate>,
}

/// Whether a stage waits for an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ApprovalPolicy {
    /// It waits.
    Required,
}

/// What happens if too many clusters fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnFailure {
    /// No further cluster is started.
    #[default]
    Pause,
    /// Each cluster that has the revision returns to the last one that succeeded on it.
    Rollback,
}

/// What happens on clusters that leave the fleet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Removal {
    /// `Delete` uninstalls. `Orphan` leaves the resource and the installation, without the fleet.
    /// Not for components that the templates no longer have. Defaults to `Delete`.
    #[serde(default)]
    pub policy: RemovalPolicy,
    /// Maximum number or percentage of the clusters with an installation that leave within 24
    /// hours; one may always leave, unless it is the last. If more would leave, none does, until
    /// the removal is approved. A deletion of the fleet beyond it must be confirmed. Defaults to
    /// 10%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_at_once: Option<IntOrString>,
    /// Seconds for which a cluster must have left the fleet before its installation is removed.
    /// Defaults to 3600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub grace_period_seconds: Option<i32>,
}

/// Whether the installation is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RemovalPolicy {
    /// The resource is deleted, and with it the installation.
    #[default]
    Delete,
    /// The resource stays, without its fleet.
    Orphan,
}

/// Spec of an approval. Immutable.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "operator.knative.dev",
    version = "v1alpha1",
    kind = "KnativeFleetApproval",
    plural = "knativefleetapprovals",
    shortname = "kfapproval",
    category = "knative",
    namespaced,
    derive = "PartialEq"
)]
pub struct KnativeFleetApprovalSpec {
    /// Name of the fleet, in the same namespace.
    #[schemars(length(min = 1))]
    pub fleet: String,
    /// The revision that may be rolled out to the stage, or that of the removal.
    #[schemars(length(min = 1))]
    pub revision: String,
    /// Name of the stage, or `removal`.
    #[schemars(length(min = 1))]
    pub stage: String,
    /// The user who created the approval. The webhook sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// Uid of the fleet. The webhook sets it.
    #[serde(rename = "fleetUID", default, skip_serializing_if = "Option::is_none")]
    pub fleet_uid: Option<String>,
    /// Generation of the fleet. The webhook sets it.
    #[serde(rename = "fleetGeneration", default, skip_serializing_if = "Option::is_none")]
    pub fleet_generation: Option<i64>,
    /// Digest of what is approved, and where. The webhook sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

impl KnativeFleetSpec {
    /// The template of `component`.
    pub fn template(&self, component: Component) -> Option<&Template> {
        match component {
            Component::Serving => self.serving.as_ref(),
            Component::Eventing => self.eventing.as_ref(),
        }
    }

    /// The components that it has a template of.
    pub fn components(&self) -> impl Iterator<Item = Component> {
        Component::ALL.into_iter().filter(|component| self.template(*component).is_some())
    }

    /// The components that it has a template of, and `after` has none.
    pub fn dropped_by(&self, after: &Self) -> impl Iterator<Item = Component> {
        self.components().filter(|component| after.template(*component).is_none())
    }
}

/// What has the fields `clusterSelector` and `propertySelector`.
pub trait Selecting {
    /// Both, in this order.
    fn selectors(&self) -> [Option<&LabelSelector>; 2];

    /// Whether one of them is set. Otherwise, a placement and an override select nothing, and a
    /// stage has all clusters that no other selects.
    fn has_selector(&self) -> bool {
        self.selectors() != [None, None]
    }
}

impl Selecting for Placement {
    fn selectors(&self) -> [Option<&LabelSelector>; 2] {
        [self.cluster_selector.as_ref(), self.property_selector.as_ref()]
    }
}

impl Selecting for Stage {
    fn selectors(&self) -> [Option<&LabelSelector>; 2] {
        [self.cluster_selector.as_ref(), self.property_selector.as_ref()]
    }
}

impl Selecting for FleetOverride {
    fn selectors(&self) -> [Option<&LabelSelector>; 2] {
        [self.cluster_selector.as_ref(), self.property_selector.as_ref()]
    }
}

impl FleetOverride {
    /// The patch of the template of `component`.
    pub fn patch(&self, component: Component) -> &Map<String, Value> {
        match component {
            Component::Serving => &self.serving,
            Component::Eventing => &self.eventing,
        }
    }
}
