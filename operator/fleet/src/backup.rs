//! Backups of a hub of the model.

use std::collections::{BTreeMap, BTreeSet};

use knative_operator_shared::api::Component;
use knative_operator_shared::version::Version;

use super::absence::Gone;
use super::approval::Approved;
use super::member::Member;
use super::truth::Truth;

/// The revision of a former fleet: its name follows from the uid, so no other fleet knows it.
pub const FORMER: &str = "former";

/// How a hub is restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restored {
    /// Its etcd: all objects have their uid and their status.
    Snapshot,
    /// The objects are created again, without a status. The fleet adopts its resources.
    Adopted,
    /// The same, but the garbage collector deletes the resources, since their fleet is gone.
    Collected,
}

/// What a backup has.
#[derive(Clone, Debug)]
pub struct Backup {
    /// The clusters.
    pub members: Vec<Member>,
    /// What is true of each, as it was then.
    pub truth: Vec<Truth>,
    /// Clusters that were not selected.
    pub gone: BTreeMap<usize, Gone>,
    /// Clusters with other labels.
    pub relabeled: BTreeSet<String>,
    /// The revision before.
    pub current: Option<String>,
    /// The update.
    pub update: &'static str,
    /// Revisions that failed.
    pub failed: BTreeSet<&'static str>,
    /// Whether the rollout was paused.
    pub paused: bool,
    /// Approvals.
    pub approvals: Approved,
    /// Stages that had clusters.
    pub had_clusters: BTreeSet<String>,
    /// The generation of the fleet.
    pub generation: i64,
}

/// The versions that clusters have.
pub type Installed = BTreeMap<(usize, Component), Version>;
