//! A Pod and an event about it, as far as they tell why a workload is not available. Pure.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::identity::Id;

/// A list of Pods; the other fields of lists and Pods are not read.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct PodList {
    /// The list's metadata.
    #[serde(default)]
    pub metadata: ListMetadata,
    /// The Pods.
    #[serde(default)]
    pub items: Vec<Pod>,
}

/// Metadata of a list.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ListMetadata {
    /// Set if there are more objects.
    #[serde(rename = "continue", default)]
    pub more: String,
}

/// A Pod.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Pod {
    /// Its metadata.
    pub metadata: Metadata,
    /// Its spec.
    #[serde(default)]
    pub spec: Spec,
    /// Its status.
    #[serde(default)]
    pub status: Status,
}

/// Metadata of a Pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Owners.
    pub owner_references: Vec<OwnerReference>,
    /// Time of creation (RFC 3339).
    pub creation_timestamp: String,
    /// When its grace period ends (RFC 3339), if it is being deleted.
    pub deletion_timestamp: Option<String>,
}

/// A reference to an owner.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct OwnerReference {
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// Whether it controls the Pod.
    pub controller: bool,
}

/// Spec of a Pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// Its node.
    pub node_name: String,
    /// Containers.
    pub containers: Vec<Container>,
    /// Init containers.
    pub init_containers: Vec<Container>,
    /// When its containers are restarted: `Always`, `OnFailure` or `Never`.
    pub restart_policy: String,
}

/// A container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Container {
    /// Name.
    pub name: String,
    /// Image.
    pub image: String,
    /// Resources.
    pub resources: Resources,
}

/// Resources of a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// Limits.
    pub limits: BTreeMap<String, String>,
}

/// Status of a Pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// Phase.
    pub phase: String,
    /// Why it is in this phase.
    pub reason: String,
    /// The same, for people.
    pub message: String,
    /// Its address.
    #[serde(rename = "podIP")]
    pub pod_ip: String,
    /// When its node accepted it (RFC 3339).
    pub start_time: Option<String>,
    /// Conditions.
    pub conditions: Vec<PodCondition>,
    /// Containers.
    pub container_statuses: Vec<ContainerStatus>,
    /// Init containers.
    pub init_container_statuses: Vec<ContainerStatus>,
}

/// A condition of a Pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodCondition {
    /// Type.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Reason.
    pub reason: String,
    /// Message.
    pub message: String,
    /// Since when (RFC 3339).
    pub last_transition_time: Option<String>,
}

/// Status of a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// Name.
    pub name: String,
    /// Whether it is Ready.
    pub ready: bool,
    /// How often it was restarted.
    pub restart_count: i64,
    /// Its state.
    pub state: State,
    /// Its state before the last restart.
    pub last_state: State,
}

/// State of a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct State {
    /// It waits.
    pub waiting: Option<Waiting>,
    /// It runs.
    pub running: Option<Running>,
    /// It ended.
    pub terminated: Option<Terminated>,
}

/// A container that waits.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Waiting {
    /// Reason.
    pub reason: String,
    /// Message.
    pub message: String,
}

/// A container that runs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Running {
    /// Since when (RFC 3339).
    pub started_at: Option<String>,
}

/// A container that ended.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Terminated {
    /// Exit code.
    pub exit_code: i64,
    /// Reason.
    pub reason: String,
    /// Message: the end of its log, if its termination message policy says so.
    pub message: String,
}

/// A list of events.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct EventList {
    /// The events.
    #[serde(default)]
    pub items: Vec<PodEvent>,
}

/// An event about a Pod or a workload.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodEvent {
    /// Reason.
    pub reason: String,
    /// Message.
    pub message: String,
    /// When it was recorded first or last (RFC 3339): writers set one of these.
    pub event_time: Option<String>,
    /// See `event_time`.
    pub last_timestamp: Option<String>,
    /// Repetitions.
    pub series: Option<Series>,
}

/// Repetitions of an event.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Series {
    /// The last one (RFC 3339).
    pub last_observed_time: Option<String>,
}

impl PodEvent {
    /// When it was recorded last (RFC 3339).
    pub fn time(&self) -> &str {
        let series = self.series.as_ref().and_then(|series| series.last_observed_time.as_deref());
        series.or(self.last_timestamp.as_deref()).or(self.event_time.as_deref()).unwrap_or_default()
    }
}

impl Pod {
    /// The owner that controls it.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.metadata.owner_references.iter().find(|owner| owner.controller)
    }

    /// Whether the workload `id` created it, in the same namespace. A ReplicaSet is called as its
    /// Deployment, with the hash of its template.
    pub fn is_of(&self, id: &Id) -> bool {
        self.controller().is_some_and(|owner| match id.kind.as_str() {
            "Deployment" => {
                let hash = self.metadata.labels.get("pod-template-hash");
                let name = hash.and_then(|hash| owner.name.strip_suffix(hash.as_str())?.strip_suffix('-'));
                owner.kind == "ReplicaSet" && name == Some(id.name.as_str())
            }
            kind => owner.kind == kind && owner.name == id.name,
        })
    }

    /// The condition `type_`, if its status is `status`.
    pub fn condition(&self, type_: &str, status: &str) -> Option<&PodCondition> {
        self.status.conditions.iter().find(|condition| condition.type_ == type_ && condition.status == status)
    }

    /// Image of the container `name`.
    pub fn image(&self, name: &str) -> &str {
        self.container(name).map_or("", |container| container.image.as_str())
    }

    /// Memory limit of the container `name`.
    pub fn memory_limit(&self, name: &str) -> Option<&str> {
        self.container(name)?.resources.limits.get("memory").map(String::as_str)
    }

    fn container(&self, name: &str) -> Option<&Container> {
        self.spec.init_containers.iter().chain(&self.spec.containers).find(|container| container.name == name)
    }
}
