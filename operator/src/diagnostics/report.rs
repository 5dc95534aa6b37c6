//! The form of what `/debug` shows, in JSON. It has names, times and numbers: no credential, no
//! address, no field of an object, and no text that a cluster, a plugin or a user wrote.

use knative_operator_cluster_access::connection_report::ConnectionReport;
use knative_operator_runtime::watch_activity::WatchReport;
use serde::Serialize;

use super::leases::LeaseState;

/// Maximum number of entries in a list.
pub const MAX_ENTRIES: usize = 1000;

/// Entries of a list, the most interesting ones first.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Listed<T> {
    /// Number of all.
    pub total: usize,
    /// Those that are shown, at most [`MAX_ENTRIES`].
    pub items: Vec<T>,
}

impl<T> Listed<T> {
    /// The first of `all`.
    pub fn first(mut all: Vec<T>) -> Self {
        let total = all.len();
        all.truncate(MAX_ENTRIES);
        Self { total, items: all }
    }
}

/// What the process does.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Version of the operator.
    pub version: &'static str,
    /// Name of this replica.
    pub replica: String,
    /// When it started.
    pub started_at: String,
    /// The time by its clock.
    pub now: String,
    /// Leases.
    pub leases: Vec<LeaseState>,
    /// Whether writes pass: the Leases were renewed in time.
    pub writes_pass: bool,
    /// Limits of reconciles, once the replica has a Lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reconciles: Option<Reconciles>,
    /// The tasks of resources.
    pub actors: Listed<Actor>,
    /// Watches of the hub, and those on the clusters of the actors.
    pub watches: Listed<Watch>,
    /// Connections to spokes.
    pub connections: Listed<ConnectionReport>,
    /// Fleets.
    pub fleets: Listed<Fleet>,
}

/// Reconciles, and their limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reconciles {
    /// Those that wait for a permit.
    pub waiting: i64,
    /// Those that have one.
    pub running: i64,
    /// Number of permits.
    pub limit: usize,
    /// Number of permits for one spoke.
    pub limit_per_spoke: usize,
}

/// What an actor does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum ActorState {
    /// It reconciles, or waits for a permit to do so.
    Reconciling,
    /// It waits for a change, or until its requeue.
    Waiting,
}

/// The task of a resource.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Actor {
    /// The resource, as KIND NAMESPACE/NAME.
    pub resource: String,
    /// Its ClusterProfile, as NAMESPACE/NAME; none for the hub itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// What it does.
    pub state: ActorState,
    /// Since when.
    pub since: String,
    /// When it reconciles again without a change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue_at: Option<String>,
    /// How often it failed in a row.
    pub failures: u32,
    /// Whether the resource is being deleted.
    pub is_terminating: bool,
    /// Number of objects left to delete, during a deletion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects_to_delete: Option<usize>,
    /// Number of objects that the API server refused, and that wait for the next attempt.
    pub refused_objects: usize,
    /// Number of objects that somebody else keeps reverting, and that are left as they are for a
    /// while.
    pub contended_objects: usize,
}

/// A watch.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Watch {
    /// The resource that it is for, as KIND NAMESPACE/NAME; none for watches of the hub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Kind that it watches.
    pub kind: String,
    /// Namespace that it watches, if it watches one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name of the only object that it watches.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Number of objects that are known from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<usize>,
    /// What it did.
    #[serde(flatten)]
    pub activity: WatchReport,
}

/// The passes over a fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fleet {
    /// The fleet, as NAMESPACE/NAME.
    pub fleet: String,
    /// Number of passes of this process.
    pub passes: u64,
    /// When the last one ended.
    pub last_pass_at: String,
    /// Processor time of the last one, in milliseconds.
    pub last_pass_milliseconds: u64,
    /// Processor time of all, in milliseconds.
    pub all_passes_milliseconds: u64,
    /// Time from the end of the last one to the next one without a change, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_pass_in_milliseconds: Option<u64>,
}
