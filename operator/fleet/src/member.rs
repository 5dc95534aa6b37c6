//! The state of one cluster of a fleet, and the next writes toward a revision.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use jiff::Timestamp;
use knative_operator_shared::api::{ClusterProfileReference, Component};
use knative_operator_shared::version::Version;

use super::absence::Gone;
use super::copy_on_write::CopyOnWrite;
use super::gates::Gates;
use super::outcome::Outcome;
use super::timer::{Elapsed, Phase};

/// A cluster of a fleet.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its ClusterProfile.
    pub cluster: ClusterProfileReference,
    /// Index of its stage.
    pub stage: usize,
    /// Its place in the order of the clusters of its stage.
    pub place: u64,
    /// Why it is not part of the fleet any more, if it is not.
    pub gone: Option<Gone>,
    /// Whether its cluster manager says that it is healthy. Otherwise, the connection decides.
    pub is_vouched_for: bool,
    /// Whether the rollout leaves it as it is.
    pub is_skipped: bool,
    /// Why it can't be updated now: its ClusterProfile is not healthy, or it is unreachable.
    pub unavailable: Option<String>,
    /// The fault of the hub that hides its state, such as a credential plugin that fails.
    pub hub_fault: Option<HubFault>,
    /// How long it has been in its state.
    pub elapsed: Elapsed,
    /// Why the API server refused a write for a revision.
    pub refused: Option<Refused>,
    /// Why the API server refused to record what came of its update.
    pub unrecorded: Option<String>,
    /// What its gates say about the update.
    pub gates: Gates,
    /// Its resources, one for each component that any revision in use has.
    pub children: CopyOnWrite<Vec<Child>>,
}

/// A fault of the hub that hides the state of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubFault {
    /// What is wrong.
    pub message: String,
    /// Whether it is a fault of the hub for all clusters, such as a credential plugin that fails,
    /// and not of one ClusterProfile or its credential.
    pub is_common: bool,
}

/// A write that the API server refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The revision that was written.
    pub revision: String,
    /// Why it was refused.
    pub message: String,
    /// Whether it is tried again now.
    pub is_due: bool,
}

/// A resource of a fleet for a cluster.
#[derive(Clone, Debug)]
pub struct Child {
    /// Its component.
    pub component: Component,
    /// Another resource for the cluster, which is not part of the fleet.
    pub conflict: Option<String>,
    /// The stored resource, if there is one.
    pub applied: Option<Applied>,
}

/// What the operator has reported of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reported {
    /// Nothing. It was just created, or has lost its status, as in a backup.
    Nothing,
    /// The state of an earlier generation.
    Earlier,
    /// The state of its generation.
    Current,
}

/// A stored resource of a fleet.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The revision that it was applied for.
    pub revision: String,
    /// The last revision before that was installed successfully.
    pub previous: Option<String>,
    /// Name of its stage at that time.
    pub stage: Option<String>,
    /// What came of the update to the revision; `None` if an earlier version wrote it.
    pub outcome: Option<Outcome>,
    /// Time of the last apply of another revision or step.
    pub since: Timestamp,
    /// Digest of its content, apart from the version.
    pub content: u128,
    /// Its `spec.version`.
    pub version: Option<String>,
    /// The installed version.
    pub installed: Option<Version>,
    /// Since when it is Ready in its current generation; or reason and message.
    pub ready: Result<Timestamp, (String, String)>,
    /// Whether somebody else changed it.
    pub has_drifted: bool,
    /// Whether it is being deleted.
    pub is_terminating: bool,
    /// What the operator has reported of its state.
    pub reported: Reported,
    /// The rollout that leaves its cluster as it is.
    pub skipped: Option<String>,
}

/// Content of a resource in a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Digest of the content, apart from the version.
    pub content: u128,
    /// `spec.version`.
    pub version: Option<String>,
}

/// The contents of revisions.
pub trait Contents {
    /// Content of the resource of `component` for `cluster` in `revision`; `None` if the revision
    /// has none. It is asked for many times in a decision.
    fn of(&self, revision: &str, cluster: &ClusterProfileReference, component: Component) -> Option<Arc<Wanted>>;
    /// Whether `revision` is known. An unknown one has no resources either, but nothing may be
    /// deleted for that reason.
    fn knows(&self, revision: &str) -> bool;
    /// Whether the content of `revision` for `cluster` is known: not if it depends on properties
    /// that the cluster doesn't have. Those of the revision of the spec are known.
    fn is_known(&self, revision: &str, cluster: &ClusterProfileReference) -> bool;
    /// The versions in the release bundle.
    fn versions(&self, component: Component) -> &[Version];
}

/// A write of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The cluster.
    pub cluster: ClusterProfileReference,
    /// The component.
    pub component: Component,
    /// What is written.
    pub change: Change,
}

/// What is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Applies the content of a revision.
    Apply {
        /// The revision.
        revision: String,
        /// The last revision before that was installed successfully.
        previous: Option<String>,
        /// `spec.version` of this step.
        version: Option<String>,
        /// What is recorded about the update.
        outcome: Outcome,
    },
    /// Records what came of the update.
    Record(Outcome),
    /// Repairs a resource that somebody else changed: applies what it had.
    Repair {
        /// Its revision.
        revision: String,
        /// Its `spec.version`.
        version: Option<String>,
    },
    /// Deletes the resource.
    Delete,
}

impl Write {
    /// What is written: the resource of this component for this cluster.
    pub fn key(&self) -> (ClusterProfileReference, Component) {
        (self.cluster.clone(), self.component)
    }
}

impl Applied {
    /// Whether the operator has lost what it knew about it: neither whether it is Ready nor its
    /// version is known, and it was not just created.
    pub fn is_lost(&self) -> bool {
        let is_in_progress = matches!(self.outcome, Some(Outcome::Progressing { .. }));
        self.reported == Reported::Nothing && !(is_in_progress && self.previous.is_none())
    }

    /// The reason for which the update failed, if it did.
    pub fn failure(&self) -> Option<&str> {
        match &self.outcome {
            Some(Outcome::Failed { reason, .. }) => Some(reason),
            _ => None,
        }
    }

    /// The last revision before `revision` that was installed successfully.
    pub(super) fn before(&self, revision: &str) -> Option<String> {
        match self.outcome {
            Some(Outcome::Succeeded) | None if self.revision != revision => Some(self.revision.clone()),
            _ => self.previous.clone(),
        }
    }
}

impl Child {
    /// Whether it has the content of `wanted`, in its final version.
    pub(super) fn has(&self, wanted: Option<&Wanted>) -> bool {
        match (&self.applied, wanted) {
            (None, None) => true,
            (Some(applied), Some(wanted)) => {
                !applied.is_terminating && applied.content == wanted.content && applied.version == wanted.version
            }
            _ => false,
        }
    }

    /// Whether it was applied for `revision`.
    fn is_of(&self, revision: &str) -> bool {
        self.applied.as_ref().is_some_and(|applied| applied.revision == revision)
    }
}

impl Member {
    /// A healthy cluster in the first stage, of which nothing else is known.
    pub fn new(cluster: ClusterProfileReference, children: Vec<Child>) -> Self {
        Self {
            cluster,
            stage: 0,
            place: 0,
            gone: None,
            is_vouched_for: true,
            is_skipped: false,
            unavailable: None,
            hub_fault: None,
            elapsed: Elapsed::default(),
            refused: None,
            unrecorded: None,
            gates: Gates::Passed,
            children: children.into(),
        }
    }

    /// Its stored resources.
    pub fn applied(&self) -> impl Iterator<Item = &Applied> {
        self.children.iter().filter_map(|child| child.applied.as_ref())
    }

    pub(super) fn wanted(&self, child: &Child, revision: &str, contents: &impl Contents) -> Option<Arc<Wanted>> {
        contents.of(revision, &self.cluster, child.component)
    }

    /// Whether a resource was written for `revision` since `current` was rolled out. A member that
    /// has the content of `current` may have the name of an earlier revision.
    pub fn is_touched(&self, revision: &str, current: Option<&str>, contents: &impl Contents) -> bool {
        let other = current.filter(|current| *current != revision);
        self.children.iter().any(|child| child.is_of(revision)) && !other.is_some_and(|other| self.has(other, contents))
    }

    /// Whether the update to `revision` was started since `current` was rolled out. If the labels
    /// of a cluster change, and so its overrides, its content in the same revision has not been
    /// started, also if the content of its other component is the same.
    pub fn is_started(&self, revision: &str, current: Option<&str>, contents: &impl Contents) -> bool {
        let in_progress = |child: &Child| match child.applied.as_ref().and_then(|applied| applied.outcome.as_ref()) {
            Some(Outcome::Succeeded) => false,
            Some(_) => true,
            None => current != Some(revision),
        };
        let mut own = self.children.iter().filter(|child| child.is_of(revision));
        // A pass asks this about each cluster, several times: what costs less comes first.
        if !self.is_touched(revision, current, contents) || self.is_leaving(revision) {
            return false;
        }
        // After it succeeded, a resource that is missing again is another update.
        self.has_content(revision, contents) && (own.any(in_progress) || self.has(revision, contents))
    }

    /// Whether it gets another revision, and of `revision` are left only resources that are being
    /// deleted.
    fn is_leaving(&self, revision: &str) -> bool {
        let is_left = |applied: &Applied| applied.revision == revision && !applied.is_terminating;
        let in_progress = |applied: &Applied| matches!(applied.outcome, Some(Outcome::Progressing { .. }));
        let gets_other = |applied: &Applied| applied.revision != revision && in_progress(applied);
        !self.applied().any(is_left) && self.applied().any(gets_other)
    }

    /// Whether the resources of `revision` have its content, by the labels of the cluster now. What
    /// one that is being deleted has makes no difference, unless all of them are.
    pub fn has_content(&self, revision: &str, contents: &impl Contents) -> bool {
        let own = || self.children.iter().filter(|child| child.is_of(revision));
        let is_left = |child: &&Child| child.applied.as_ref().is_some_and(|applied| !applied.is_terminating);
        let are_some_left = own().any(|child| is_left(&child));
        own().filter(|child| is_left(child) || !are_some_left).all(|child| {
            let wanted = self.wanted(child, revision, contents);
            let content = child.applied.as_ref().map(|applied| applied.content);
            wanted.is_none_or(|wanted| Some(wanted.content) == content)
        })
    }

    /// Whether nothing is installed by the fleet.
    pub fn is_new(&self) -> bool {
        self.children.iter().all(|child| child.applied.is_none())
    }

    /// Whether everything is Ready.
    pub fn is_ready(&self) -> bool {
        !self.is_new() && self.applied().all(|applied| applied.ready.is_ok())
    }

    /// Whether all resources have the content of `revision`.
    pub fn has(&self, revision: &str, contents: &impl Contents) -> bool {
        self.children.iter().all(|child| child.has(self.wanted(child, revision, contents).as_deref()))
    }

    /// The revision that is being installed, unless the update to `update` was started: a new one
    /// replaced it, it is rolled back, the cluster is new, or its labels changed.
    pub fn other_in_progress(&self, update: &str, current: Option<&str>, contents: &impl Contents) -> Option<&str> {
        // Most clusters have none. The contents are asked about the others only.
        let other = self.applied().find(|applied| matches!(applied.outcome, Some(Outcome::Progressing { .. })))?;
        let is_replaced = self.is_started(update, current, contents) || self.has(update, contents);
        (!is_replaced).then_some(other.revision.as_str())
    }

    /// Whether what came of an update is recorded. An earlier version did not.
    pub fn is_recorded(&self) -> bool {
        self.applied().any(|applied| applied.outcome.is_some())
    }

    /// Whether it was Ready before each update that is in progress.
    pub fn was_all_ready(&self) -> bool {
        let not_ready = Some(Outcome::Progressing { was_ready: false });
        self.applied().all(|applied| applied.outcome != not_ready)
    }

    /// A digest of what was written last, in the rollout since `generation`. Each write is observed
    /// for itself; what failed is observed again in another rollout, and what was skipped once it
    /// isn't.
    pub fn written(&self, generation: i64) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.is_skipped.hash(&mut hasher);
        for applied in self.children.iter().map(|child| child.applied.as_ref()) {
            applied.map(|a| (&a.revision, a.since, a.content, &a.version, a.is_terminating)).hash(&mut hasher);
            if let Some(Outcome::Failed { generation: of, .. }) = applied.and_then(|a| a.outcome.as_ref()) {
                (generation, of).hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    /// The phase of the update to `revision`.
    pub fn phase(&self, revision: &str, contents: &impl Contents) -> Phase {
        match &self.hub_fault {
            Some(fault) if fault.is_common => return Phase::Unknown,
            Some(_) => return Phase::Hidden,
            None => {}
        }
        let is_reported = |applied: &Applied| applied.reported == Reported::Current;
        // What is known to be wrong is.
        let is_wrong = |applied: &Applied| is_reported(applied) && applied.ready.is_err();
        if !self.applied().all(is_reported) && !self.applied().any(is_wrong) {
            return Phase::Unobserved;
        }
        let is_ready = self.unavailable.is_none() && self.is_ready() && self.has(revision, contents);
        let since = self.applied().filter_map(|applied| applied.ready.as_ref().ok()).max().copied();
        since.filter(|_| is_ready).map_or(Phase::NotReady, Phase::Ready)
    }

    /// Writes that record `outcome` of the update to `revision`, where another one is recorded.
    pub fn records(&self, revision: &str, outcome: &Outcome) -> Vec<Write> {
        // A resource with the same content may have the name of an earlier revision.
        let is_own = |child: &&Child| {
            let recorded = child.applied.as_ref().and_then(|applied| applied.outcome.as_ref());
            let in_progress = matches!(recorded, Some(Outcome::Progressing { .. }));
            // What has the same content, and failed under its former name, is fine as well.
            let has_failed = matches!(recorded, Some(Outcome::Failed { .. }));
            child.is_of(revision) || in_progress || has_failed && *outcome == Outcome::Succeeded
        };
        let own = self.children.iter().filter(is_own);
        let differs = |child: &&Child| {
            child.applied.as_ref().is_some_and(|a| a.outcome.as_ref() != Some(outcome) && !a.is_terminating)
        };
        let write = |child: &Child| Write {
            cluster: self.cluster.clone(),
            component: child.component,
            change: Change::Record(outcome.clone()),
        };
        own.filter(differs).map(write).collect()
    }
}
