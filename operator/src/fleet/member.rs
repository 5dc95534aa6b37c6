//! The state of one cluster of a fleet, and its progress toward a revision.

use jiff::Timestamp;
use knative_operator_shared::api::{ClusterProfileReference, Component};
use knative_operator_shared::fleet::stage::StageSettings;
use knative_operator_shared::version::Version;

use super::walk;

/// A cluster of a fleet.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its ClusterProfile.
    pub cluster: ClusterProfileReference,
    /// Index of its stage.
    pub stage: usize,
    /// Why it can't be updated now: its ClusterProfile is not healthy, or it is unreachable.
    pub unavailable: Option<String>,
    /// Why the API server refused a write for a revision.
    pub refused: Option<Refused>,
    /// Its resources, one for each component that any revision in use has.
    pub children: Vec<Child>,
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

/// Reason of the progress of a cluster with a refused write.
const REFUSED: &str = "Refused";

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

/// A stored resource of a fleet.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The revision that it was applied for.
    pub revision: String,
    /// The revision that it had before.
    pub previous: Option<String>,
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
    /// has none.
    fn of(&self, revision: &str, cluster: &ClusterProfileReference, component: Component) -> Option<Wanted>;
    /// Whether `revision` is known. An unknown one has no resources either, but nothing may be
    /// deleted for that reason.
    fn knows(&self, revision: &str) -> bool;
    /// The versions in the release bundle.
    fn versions(&self, component: Component) -> &[Version];
}

/// Progress of a cluster toward a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It has another revision.
    Pending,
    /// It has another revision, or can't be observed, because it is unavailable for this reason.
    Deferred(String),
    /// The revision is being installed. Checked again at this time, if nothing changes before.
    Updating(Option<Timestamp>),
    /// It has the revision.
    Updated,
    /// It has the revision, and was not Ready in time: reason and message.
    Failed(String, String),
    /// Another resource, which is not part of the fleet, uses the cluster.
    Conflict(String),
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
        /// The revision before.
        previous: Option<String>,
        /// `spec.version` of this step.
        version: Option<String>,
    },
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

impl Progress {
    /// Whether the API server refused a write.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Failed(reason, _) if reason == REFUSED)
    }
}

impl Child {
    /// Whether it has the content of `wanted`, in its final version.
    fn has(&self, wanted: Option<&Wanted>) -> bool {
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
    fn wanted(&self, child: &Child, revision: &str, contents: &impl Contents) -> Option<Wanted> {
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
    /// started.
    pub fn is_started(&self, revision: &str, current: Option<&str>, contents: &impl Contents) -> bool {
        let has_content = |child: &Child| {
            let wanted = self.wanted(child, revision, contents);
            let content = child.applied.as_ref().map(|applied| applied.content);
            child.is_of(revision) && wanted.is_none_or(|wanted| Some(wanted.content) == content)
        };
        self.is_touched(revision, current, contents) && self.children.iter().any(has_content)
    }

    /// Whether nothing is installed by the fleet.
    pub fn is_new(&self) -> bool {
        self.children.iter().all(|child| child.applied.is_none())
    }

    /// Whether everything is Ready.
    pub fn is_ready(&self) -> bool {
        !self.is_new()
            && self.children.iter().filter_map(|child| child.applied.as_ref()).all(|applied| applied.ready.is_ok())
    }

    /// Whether all resources have the content of `revision`.
    pub fn has(&self, revision: &str, contents: &impl Contents) -> bool {
        self.children.iter().all(|child| child.has(self.wanted(child, revision, contents).as_ref()))
    }

    /// Progress toward `revision`, in its stage, after `current` was rolled out.
    pub fn progress(
        &self,
        revision: &str,
        current: Option<&str>,
        contents: &impl Contents,
        stage: &StageSettings,
        now: Timestamp,
    ) -> Progress {
        if let Some(other) = self.children.iter().find_map(|child| child.conflict.as_ref()) {
            return Progress::Conflict(other.clone());
        }
        let (has_all, is_started) = (self.has(revision, contents), self.is_started(revision, current, contents));
        let refused = self.refused.as_ref().filter(|refused| refused.revision == revision && !has_all);
        let refused = refused.map(|refused| Progress::Failed(REFUSED.to_owned(), refused.message.clone()));
        if !is_started {
            return match (&self.unavailable, has_all, refused) {
                (_, _, Some(refused)) => refused,
                (_, true, _) => Progress::Updated,
                (Some(why), false, _) => Progress::Deferred(why.clone()),
                (None, false, _) => Progress::Pending,
            };
        }
        let applied = || self.children.iter().filter_map(|child| child.applied.as_ref());
        let since = applied().filter(|a| a.revision == revision).map(|a| a.since).max().unwrap_or(now);
        let not_ready = applied().find_map(|applied| applied.ready.as_ref().err());
        if let Some((reason, message)) = not_ready {
            let deadline = later(since, stage.deadline);
            return match &self.unavailable {
                _ if now < deadline => Progress::Updating(Some(deadline)),
                Some(why) => Progress::Deferred(why.clone()),
                None => Progress::Failed(reason.clone(), message.clone()),
            };
        }
        if !has_all {
            // One of several resources, or a further step, may be refused.
            return refused.unwrap_or(Progress::Updating(None));
        }
        let ready_since = applied().filter_map(|applied| applied.ready.as_ref().ok()).max().copied();
        let ready_since = ready_since.unwrap_or(since).max(since);
        // A time in the future is that of a clock that was set back since.
        let done = if ready_since > now { now } else { later(ready_since, stage.min_ready) };
        if now < done { Progress::Updating(Some(done)) } else { Progress::Updated }
    }

    /// Whether a refused write of this member is tried again now.
    pub fn retries(&self, progress: &Progress) -> bool {
        progress.is_refused() && self.refused.as_ref().is_some_and(|refused| refused.is_due)
    }

    /// The next writes toward `revision`. A resource that is on its way between minor versions is
    /// written again once it is Ready.
    pub fn writes(&self, revision: &str, contents: &impl Contents) -> Vec<Write> {
        let mut writes = Vec::new();
        for child in &self.children {
            let wanted = self.wanted(child, revision, contents);
            if child.conflict.is_some() || child.has(wanted.as_ref()) {
                continue;
            }
            let change = match (&child.applied, wanted) {
                (Some(applied), _) if applied.is_terminating => continue,
                (Some(_), None) => Change::Delete,
                (None, None) => continue,
                (None, Some(wanted)) => {
                    Change::Apply { revision: revision.to_owned(), previous: None, version: wanted.version }
                }
                (Some(applied), Some(wanted)) => {
                    let is_step = applied.revision == revision && applied.content == wanted.content;
                    if is_step && applied.ready.is_err() {
                        continue;
                    }
                    let available = contents.versions(child.component);
                    let version = walk::next_step(applied.installed.as_ref(), wanted.version.as_deref(), available);
                    if is_step && applied.version == version {
                        continue;
                    }
                    let previous = if applied.revision == revision {
                        applied.previous.clone()
                    } else {
                        Some(applied.revision.clone())
                    };
                    Change::Apply { revision: revision.to_owned(), previous, version }
                }
            };
            writes.push(Write { cluster: self.cluster.clone(), component: child.component, change });
        }
        writes
    }

    /// Repairs of resources that somebody else changed.
    pub fn repairs(&self) -> impl Iterator<Item = Write> {
        let drifted = self.children.iter().filter_map(|child| Some((child, child.applied.as_ref()?)));
        drifted.filter(|(_, applied)| applied.has_drifted && !applied.is_terminating).map(|(child, applied)| {
            let (revision, version) = (applied.revision.clone(), applied.version.clone());
            Write {
                cluster: self.cluster.clone(),
                component: child.component,
                change: Change::Repair { revision, version },
            }
        })
    }
}

/// `time` and `duration` later.
pub fn later(time: Timestamp, duration: jiff::SignedDuration) -> Timestamp {
    time.saturating_add(duration).unwrap_or(Timestamp::MAX)
}
