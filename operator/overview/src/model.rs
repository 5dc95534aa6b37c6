//! What `status` prints and `ui` shows. All times are RFC 3339 in UTC.

use std::collections::BTreeMap;

use knative_operator_shared::api::Condition;
use knative_operator_shared::api::fleet::RolloutRecord;
use serde::Serialize;

use super::advice::Advice;

/// State of a component, of a cluster (that of its worst component), or of a stage's cluster. From
/// good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum State {
    /// Everything works.
    Ready,
    /// Nothing is installed yet: the resource has no status, or its stage has not started.
    Pending,
    /// An installation or upgrade is in progress.
    Progressing,
    /// The resource is being deleted.
    Terminating,
    /// The component is installed, and a part of it is not available.
    Degraded,
    /// The cluster can't be reached, so its state is unknown.
    Unreachable,
    /// The installation failed.
    Failed,
}

impl State {
    /// All states, from bad to good.
    pub const WORST_FIRST: [Self; 7] = [
        Self::Failed,
        Self::Unreachable,
        Self::Degraded,
        Self::Terminating,
        Self::Progressing,
        Self::Pending,
        Self::Ready,
    ];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Pending => "Pending",
            Self::Progressing => "Progressing",
            Self::Terminating => "Terminating",
            Self::Degraded => "Degraded",
            Self::Unreachable => "Unreachable",
            Self::Failed => "Failed",
        }
    }
}

/// The state of a hub.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Overview {
    /// Whether everything is Ready.
    pub ready: bool,
    /// Number of clusters by state.
    pub clusters_by_state: BTreeMap<&'static str, usize>,
    /// Fleets, by namespace and name.
    pub fleets: Vec<FleetView>,
    /// All clusters with a resource, also those of fleets, by name.
    pub clusters: Vec<ClusterView>,
    /// What could not be read, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A `KnativeFleet`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetView {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Whether it is Ready.
    pub ready: bool,
    /// Reason of its most important condition.
    pub reason: String,
    /// Message of that condition.
    pub message: String,
    /// What to do, if somebody has to do something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<Advice>,
    /// Whether the rollout is paused, by its spec or by failures.
    pub paused: bool,
    /// The revision that was rolled out completely last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_revision: Option<String>,
    /// The revision of the spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_revision: Option<String>,
    /// The versions of its templates, by kind, as they are written. Absent for a template without
    /// one, and if overrides change it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub versions: BTreeMap<&'static str, String>,
    /// The last rollouts, oldest first, as they are stored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rollouts: Vec<RolloutRecord>,
    /// Stages, in order.
    pub stages: Vec<StageView>,
    /// Clusters that need attention, those that failed first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attention: Vec<AttentionView>,
    /// Conditions, as they are stored.
    pub conditions: Vec<Condition>,
    /// Recent events, newest first.
    pub events: Vec<EventView>,
}

/// A cluster that needs attention.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AttentionView {
    /// Identifier of the cluster; see [`ClusterView::id`].
    pub cluster: String,
    /// Reason.
    pub reason: String,
    /// Message.
    pub message: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<Advice>,
}

/// A stage of a rollout.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StageView {
    /// Name.
    pub name: String,
    /// State, such as `AwaitingApproval`.
    pub state: &'static str,
    /// Number of clusters.
    pub total: i32,
    /// Number of clusters with the update revision.
    pub updated: i32,
    /// Number of clusters that are being updated.
    pub updating: i32,
    /// Number of clusters that failed.
    pub failed: i32,
    /// Number of clusters that were not healthy when it was their turn.
    pub deferred: i32,
    /// The user who approved it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approved_by: Option<String>,
    /// What it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// When something changes, at the latest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Time of its start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// Time of its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
    /// Identifiers of its clusters; see [`ClusterView::id`].
    pub clusters: Vec<String>,
}

/// A cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterView {
    /// `namespace/name` of the ClusterProfile, or `local` for the hub itself.
    pub id: String,
    /// Its state: that of its worst component.
    pub state: State,
    /// `namespace/name` of its fleet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet: Option<String>,
    /// URL of its API server, if its ClusterProfile has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Names of its access providers, which the credentials come from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub providers: Vec<String>,
    /// The properties of its ClusterProfile that fleets select by.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
    /// What the operator knows about the connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<ConnectionView>,
    /// Its components.
    pub components: Vec<ComponentView>,
}

/// The connection to a spoke.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionView {
    /// Whether it works, if that is known.
    pub connected: Option<bool>,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
}

/// A `KnativeServing` or `KnativeEventing`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ComponentView {
    /// Kind.
    pub kind: &'static str,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// State.
    pub state: State,
    /// The installed version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The version in the spec, if it differs from the installed one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_version: Option<String>,
    /// Since when it is in this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The first condition that is not True.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
    /// What works, but probably not as its author expects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Conditions, as they are stored.
    pub conditions: Vec<Condition>,
    /// Recent events, newest first.
    pub events: Vec<EventView>,
}

/// Why a component is not Ready.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// Type of the condition.
    pub condition: String,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
    /// When Kubernetes gives up, if it ever does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<Advice>,
}

/// An event about a resource.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventView {
    /// Time of the last occurrence.
    pub at: String,
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub type_: String,
    /// Reason, such as `DriftRepaired`.
    pub reason: String,
    /// Message.
    pub message: String,
    /// Number of occurrences.
    pub count: i64,
}
