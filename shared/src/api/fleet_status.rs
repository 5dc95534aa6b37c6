//! Status of a `KnativeFleet`. Only the operator writes it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ClusterProfileReference;
use super::common::Condition;

/// Status of a fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KnativeFleetStatus {
    /// Generation of the spec that the status describes. While `Ready` has the reason
    /// `ClustersUnknown` or `InvalidSpec`, the numbers and the stages are those of the time before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions: `Ready`, `Progressing`, `Paused`, `RemovalPending` and `RemovalBlocked`; and
    /// `Stalled`, while nothing goes on until somebody acts.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The revision that was rolled out completely last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_revision: Option<String>,
    /// The revision that was rolled out completely before the current one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_revision: Option<String>,
    /// The revision of the spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_revision: Option<String>,
    /// The user who changed the templates or overrides to those of the update revision. Absent if
    /// nobody did, such as for another version in a newer release bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// Revisions whose rollout failed and was rolled back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_revisions: Option<Vec<String>>,
    /// The contents that the operator stored as revisions, by the names that it gives them now.
    /// Other ControllerRevisions are not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revisions: Option<Vec<String>>,
    /// Digest of what the fleet rolls out, and where. Approvals are for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout_digest: Option<String>,
    /// First generation with the digest. Earlier approvals don't count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout_generation: Option<i64>,
    /// The last rollouts, oldest first: at most 10. For people: the operator decides nothing by
    /// them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rollouts: Vec<RolloutRecord>,
    /// Removals of clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removals: Option<RemovalStatus>,
    /// The removal that the condition `RemovalBlocked` is about; absent if none is blocked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_removal: Option<BlockedRemoval>,
    /// Number of clusters.
    pub clusters: i32,
    /// Number of clusters with an installation, also of those that are not selected any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installed: Option<i32>,
    /// Number of clusters that are updated: they were Ready in the update revision for
    /// `minReadySeconds` and `soakSeconds`, and all gates passed.
    pub updated: i32,
    /// Number of clusters on which everything is Ready.
    pub ready: i32,
    /// Number of clusters that were not healthy when it was their turn, or are skipped.
    pub deferred: i32,
    /// Number of clusters that failed.
    pub failed: i32,
    /// The stage in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// Stages of the rollout.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageStatus>,
    /// Clusters that need attention, at most 20.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attention: Vec<ClusterAttention>,
}

/// A rollout of a revision, from its start to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutRecord {
    /// The revision.
    pub revision: String,
    /// The user who changed the templates or overrides to those of the revision. Absent if nobody
    /// did, such as for another version in a newer release bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// Time of its start (RFC 3339).
    pub started_at: String,
    /// Time of its end (RFC 3339). Absent while it is in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
    /// How it ended: `Complete`, `RolledBack`, or `Superseded` by another one. Absent while it is
    /// in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The approvals with which its stages started, at most 64. Also later ones, for clusters that
    /// joined after its end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<StageApproval>,
}

/// The approval of a stage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StageApproval {
    /// Name of the stage.
    pub stage: String,
    /// The user who approved it.
    pub username: String,
}

/// Removals of clusters from a fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RemovalStatus {
    /// Clusters that left at this time or before are part of a removal that was within the limit,
    /// or approved (RFC 3339).
    // Always serialized, like the others: in the merge patch of the status, null removes a former
    // one.
    pub allowed_until: Option<String>,
    /// Approved removals of which clusters are left, at most 16. Such a cluster needs no other
    /// approval after an outage.
    pub approved: Vec<ApprovedRemoval>,
    /// Whether that removal keeps the installations. Unless it is known that it doesn't, it allows
    /// nothing by another `spec.removal.policy`.
    pub orphans: Option<bool>,
    /// Removals of the last 24 hours in which the operator ran.
    pub recent: Vec<RecentRemoval>,
}

/// An approved removal of the clusters that left within a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApprovedRemoval {
    /// They left after this time (RFC 3339). Absent for the first removal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// They left at this time or before (RFC 3339).
    pub until: String,
}

/// Clusters that were removed within an hour.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RecentRemoval {
    /// Time of the last one (RFC 3339).
    pub time: String,
    /// Number of clusters.
    pub clusters: i32,
    /// Seconds since the last one for which the operator ran, recorded every 15 minutes. After 24
    /// hours, the removals count no longer.
    pub observed_seconds: i32,
}

/// Clusters that would leave a fleet, and are more than may within 24 hours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BlockedRemoval {
    /// `spec.revision` of a KnativeFleetApproval for these clusters, with the stage `removal`.
    /// Absent until it is recorded since when they left.
    // Always serialized: in the merge patch of the status, null removes a former one.
    pub name: Option<String>,
    /// Number of the clusters.
    pub clusters: i32,
    /// Number of clusters that may leave within 24 hours.
    pub limit: i32,
}

/// Status of a stage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StageStatus {
    /// Name of the stage.
    pub name: String,
    /// `Pending` (an earlier stage is in progress), `AwaitingApproval`, `Progressing`, `Paused` (by
    /// a person, or because too many clusters failed) or `Complete`.
    pub state: StageState,
    /// Number of clusters.
    pub clusters: i32,
    /// Number of clusters that are updated: they were Ready in the update revision for
    /// `minReadySeconds` and `soakSeconds`, and all gates passed.
    pub updated: i32,
    /// Number of clusters that are being updated, or soak.
    pub updating: i32,
    /// Number of clusters that failed.
    pub failed: i32,
    /// Number of clusters that were not healthy when it was their turn, or are skipped.
    pub deferred: i32,
    /// The user who approved it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approved_by: Option<String>,
    /// What it waits for; absent if it is complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// When the first of its clusters that are being updated has been Ready for `minReadySeconds`,
    /// or has failed, or the first one whose state is not known is deferred, if nothing changes
    /// before (RFC 3339; rounded up to a minute). Absent while gates are measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Time of its start (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// Time of its end (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
}

/// State of a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StageState {
    /// An earlier stage is in progress.
    #[default]
    Pending,
    /// It waits for an approval.
    AwaitingApproval,
    /// In progress.
    Progressing,
    /// Stopped, because too many clusters failed, or paused.
    Paused,
    /// All its clusters are updated, deferred, in conflict, or failed within the limit, and at
    /// least one is updated; or it never had a cluster.
    Complete,
}

/// A cluster that needs attention.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAttention {
    /// The ClusterProfile.
    pub cluster: ClusterProfileReference,
    /// Reason, for programs.
    pub reason: String,
    /// Message, for people.
    pub message: String,
}

impl StageState {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::AwaitingApproval => "AwaitingApproval",
            Self::Progressing => "Progressing",
            Self::Paused => "Paused",
            Self::Complete => "Complete",
        }
    }
}

impl KnativeFleetStatus {
    /// Whether the update revision failed, and its stages return, or have returned.
    pub fn is_rolled_back(&self) -> bool {
        let is_back = |reason: &str| matches!(reason, "RollingBack" | "RolledBack");
        self.conditions.iter().any(|c| c.type_ == "Progressing" && c.reason.as_deref().is_some_and(is_back))
    }

    /// What people read as the state of `stage`: one that has returned is complete without the
    /// update.
    pub fn shown_state(&self, stage: &StageStatus) -> &'static str {
        match stage.state {
            StageState::Complete if self.is_rolled_back() => "RolledBack",
            StageState::Progressing if self.is_rolled_back() => "RollingBack",
            state => state.as_str(),
        }
    }
}
