//! The progress of a cluster toward a revision. A cluster has failed if it was Ready before the
//! update, and is not after it: also if it is not reachable any more. What can't be observed
//! because of a fault of the hub has neither succeeded nor failed, nor has what gates can't
//! measure.

use jiff::SignedDuration;
use knative_operator_shared::fleet::stage::StageSettings;

use super::gates::{GATE_FAILED, Gates};
use super::member::{Applied, Child, Contents, HubFault, Member};
use super::outcome::Outcome;
use super::timer::Phase;

/// Reason of a cluster that a fault of the hub hides.
pub const HUB_FAULT: &str = "HubFault";
/// Reason of a cluster that a person lets the rollout skip.
pub const SKIPPED: &str = "Skipped";
/// Reason of a cluster of whose update the API server refuses to record what came.
pub const NOT_STORED: &str = "OutcomeNotStored";
/// Reason of a cluster at which the operator has not looked since the last change.
pub const NOT_OBSERVED: &str = "NotObserved";
/// Reason of a cluster with a refused write.
const REFUSED: &str = "Refused";
/// Why a cluster waits whose resources are deleted.
const TERMINATING: &str = "a resource of the cluster is being deleted";
/// Times for which an update may take as long as its deadline and soak together, if the cluster is
/// Ready in between.
const MAX_ATTEMPTS: i32 = 2;

/// Progress of a cluster toward a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It has another revision.
    Pending,
    /// It has another revision and is unavailable, or was not Ready before the update and is not
    /// after it, for this reason.
    Deferred(String),
    /// The revision is being installed. Observed again after this time, if nothing changes before.
    Updating(Option<SignedDuration>),
    /// A person lets the rollout leave it as it is.
    Skipped,
    /// It has the revision, and must be Ready for this time before the next stage starts. Another
    /// cluster of its stage may begin.
    Soaking(SignedDuration),
    /// It has the revision.
    Updated,
    /// It has the revision, and was not Ready in time: reason and message.
    Failed(String, String),
    /// Nothing is known about it, and the stage waits for it: reason and message. Observed again
    /// after this time, if nothing changes before.
    Waiting(String, String, Option<SignedDuration>),
    /// Another resource, which is not part of the fleet, uses the cluster.
    Conflict(String),
}

impl Progress {
    /// Whether the API server refused a write.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Failed(reason, _) if reason == REFUSED)
    }

    /// When to observe the cluster again.
    pub fn wake(&self) -> Option<SignedDuration> {
        match self {
            Self::Updating(wake) | Self::Waiting(_, _, wake) => *wake,
            Self::Soaking(left) => Some(*left),
            _ => None,
        }
    }
}

/// What the progress of a cluster depends on besides the cluster.
#[derive(Debug)]
pub struct Goal<'a, C> {
    /// The revision.
    pub revision: &'a str,
    /// The revision that was rolled out completely last.
    pub current: Option<&'a str>,
    /// The contents of revisions.
    pub contents: &'a C,
    /// Its stage.
    pub stage: &'a StageSettings,
    /// Generation of the fleet since which it rolls this out.
    pub generation: i64,
}

impl Member {
    /// What is recorded about the update to `revision`: for all its resources together.
    fn outcome(&self, goal: &Goal<'_, impl Contents>) -> Outcome {
        let Goal { revision, contents, generation, .. } = *goal;
        let is_rolling_out = goal.current != Some(revision);
        let has_all = self.has(revision, contents);
        let own = || self.applied().filter(|applied| applied.revision == revision || has_all);
        // If another try was asked for one of its resources, it is asked for all.
        let recorded = || self.of_goal(goal).filter_map(|applied| applied.outcome.as_ref());
        if !recorded().any(Outcome::is_retried)
            && let Some(failed) = recorded().find(|outcome| outcome.failure_since(generation).is_some())
        {
            return failed.clone();
        }
        let has_succeeded = |applied: &Applied| match &applied.outcome {
            Some(Outcome::Succeeded) => true,
            // An earlier version recorded nothing.
            None => !is_rolling_out || applied.revision != revision,
            Some(_) => false,
        };
        if own().all(has_succeeded) {
            return Outcome::Succeeded;
        }
        let was_ready = |applied: &Applied| applied.outcome != Some(Outcome::Progressing { was_ready: false });
        Outcome::Progressing { was_ready: own().all(was_ready) }
    }

    /// The reason for which the update failed, if it did. It may be observed again.
    pub fn former_failure(&self, goal: &Goal<'_, impl Contents>) -> Option<&str> {
        self.of_goal(goal).find_map(Applied::failure)
    }

    /// The resources whose failure is one of the update: a resource that the update leaves as it is
    /// may have failed under its former name.
    fn of_goal<'m>(&'m self, goal: &Goal<'_, impl Contents>) -> impl Iterator<Item = &'m Applied> {
        let has_all = self.has(goal.revision, goal.contents);
        self.of_update(goal.revision).filter(move |applied| applied.revision == goal.revision || has_all)
    }

    /// Why it is not Ready: reason and message.
    pub fn not_ready(&self) -> Option<(String, String)> {
        let unreachable = self.unavailable.as_ref().map(|why| ("Unreachable".to_owned(), why.clone()));
        unreachable.or_else(|| self.applied().find_map(|applied| applied.ready.as_ref().err().cloned()))
    }

    /// Progress toward `goal`.
    pub fn progress(&self, goal: &Goal<'_, impl Contents>) -> Progress {
        let progress = self.progress_of_all(goal);
        let is_open = !matches!(progress, Progress::Updated | Progress::Conflict(_));
        if self.is_skipped && is_open { Progress::Skipped } else { progress }
    }

    fn progress_of_all(&self, goal: &Goal<'_, impl Contents>) -> Progress {
        let Goal { revision, current, contents, .. } = *goal;
        if let Some(gone) = self.gone {
            return self.recorded_progress(gone, revision);
        }
        // Others may have a component that the fleet has dropped.
        let is_wanted = |child: &&Child| {
            let of = |revision| contents.of(revision, &self.cluster, child.component).is_some();
            child.applied.is_some() || of(revision) || current.is_some_and(of)
        };
        let mut conflicts = self.children.iter().filter(|child| child.conflict.is_some());
        if let Some(other) = conflicts.find(is_wanted).and_then(|child| child.conflict.clone()) {
            return Progress::Conflict(other);
        }
        let has_all = self.has(revision, contents);
        // Most clusters of a large fleet have come to this end, so it costs least.
        if has_all && self.applied().all(|applied| applied.outcome == Some(Outcome::Succeeded)) {
            return Progress::Updated;
        }
        let is_terminating = self.applied().any(|applied| applied.is_terminating);
        let refused = self.refused.as_ref().filter(|refused| refused.revision == revision && !has_all);
        let refused = refused.map(|refused| Progress::Failed(REFUSED.to_owned(), refused.message.clone()));
        // Another revision with the same content may be in progress, or have failed.
        let is_open = |applied: &Applied| applied.outcome.as_ref().is_some_and(|o| *o != Outcome::Succeeded);
        let is_observed = has_all && self.applied().any(is_open)
            || is_terminating && self.is_touched(revision, current, contents) && self.has_content(revision, contents);
        if !self.is_started(revision, current, contents) && !is_observed {
            // Nothing can be written before it is gone.
            let is_waiting = is_terminating && self.writes(revision, contents).is_empty();
            return match (&self.unavailable, &self.hub_fault, refused) {
                (_, _, Some(refused)) => refused,
                _ if has_all => Progress::Updated,
                (Some(why), ..) => Progress::Deferred(why.clone()),
                // It is nobody's deferral: the next stage would start with what happens to work.
                (None, Some(HubFault { message, is_common: true }), _) => {
                    Progress::Waiting(HUB_FAULT.to_owned(), message.clone(), None)
                }
                (None, Some(HubFault { message, .. }), _) => Progress::Deferred(message.clone()),
                (None, None, _) if is_waiting => Progress::Deferred(TERMINATING.to_owned()),
                (None, None, _) => self.unreported(goal.stage.deadline).unwrap_or(Progress::Pending),
            };
        }
        match self.outcome(goal) {
            Outcome::Succeeded if has_all => Progress::Updated,
            Outcome::Failed { reason, .. } => {
                let message = match &self.gates {
                    Gates::Failed(why) if reason == GATE_FAILED => why.clone(),
                    _ => self.not_ready().map(|(_, message)| message).unwrap_or_default(),
                };
                Progress::Failed(reason, message)
            }
            Outcome::Progressing { was_ready: false } => self.observed(goal, false, refused),
            _ => self.observed(goal, true, refused),
        }
    }

    /// Waits for the state of a resource that the operator has not reported yet: neither whether it
    /// is Ready nor its version is known, so neither what an update breaks nor its next step is. It
    /// is deferred if that takes longer than an update may.
    fn unreported(&self, deadline: SignedDuration) -> Option<Progress> {
        let unreported = self.applied().find(|applied| applied.is_lost())?;
        let (reason, message) = unreported.ready.clone().err()?;
        let left = deadline - self.elapsed.in_phase;
        if left.is_positive() {
            let message = format!("{message}: its update waits for that, and is deferred after {deadline:#}");
            return Some(Progress::Waiting(reason, message, Some(left)));
        }
        Some(Progress::Deferred(format!("{message}, after {deadline:#}: it is updated when its state is known")))
    }

    /// The progress of an update that neither succeeded nor failed yet.
    fn observed(&self, goal: &Goal<'_, impl Contents>, was_ready: bool, refused: Option<Progress>) -> Progress {
        let StageSettings { deadline, min_ready, soak, .. } = *goal.stage;
        let was_ready = was_ready || self.is_first_installation();
        let end = (deadline + soak) * MAX_ATTEMPTS - self.elapsed.total;
        let phase = self.phase(goal.revision, goal.contents);
        if let (Phase::Hidden | Phase::NotReady, Some(refused)) = (&phase, refused) {
            return refused;
        }
        let left = match phase {
            Phase::Unknown => return Progress::Updating(None),
            // It is a fault of the hub, if any, and nobody's failure. From its deadline on, the
            // status says so.
            Phase::Unobserved => {
                let left = deadline - self.elapsed.in_phase;
                return Progress::Updating(Some(left).filter(SignedDuration::is_positive));
            }
            Phase::Ready(_) if self.elapsed.in_phase >= min_ready => {
                return self.measured(was_ready, soak - self.elapsed.in_phase);
            }
            // It ends, even if the soak is longer than what is left.
            Phase::Ready(_) => return Progress::Updating(Some(min_ready - self.elapsed.in_phase)),
            // It holds its place no longer than one that is not Ready, and has not failed.
            Phase::Hidden if self.elapsed.in_phase >= deadline => {
                let why = self.hub_fault.as_ref().map(|fault| fault.message.clone());
                return Progress::Deferred(why.unwrap_or_default());
            }
            Phase::Hidden => return Progress::Updating(Some(deadline - self.elapsed.in_phase)),
            Phase::NotReady => (deadline - self.elapsed.in_phase).min(end),
        };
        if left.is_positive() {
            return Progress::Updating(Some(left));
        }
        // The next step between minor versions.
        let is_ready = self.unavailable.is_none() && self.is_ready();
        if is_ready && !self.writes(goal.revision, goal.contents).is_empty() {
            return Progress::Updating(None);
        }
        let late =
            || ("ProgressDeadlineExceeded".to_owned(), "the resources are not written or deleted yet".to_owned());
        let (reason, message) = self.not_ready().unwrap_or_else(late);
        if was_ready {
            return Progress::Failed(reason, message);
        }
        Progress::Deferred(format!("it was not Ready before the update, and is not after it: {reason}: {message}"))
    }

    /// Whether it is reachable, although nobody vouches for it, and had nothing of the fleet
    /// before: what is wrong is the update.
    fn is_first_installation(&self) -> bool {
        let is_reachable = self.unavailable.is_none() && self.hub_fault.is_none();
        !self.is_vouched_for && is_reachable && self.applied().all(|applied| applied.previous.is_none())
    }

    /// The progress of an update of which only the gates are left, and a soak.
    fn measured(&self, was_ready: bool, soak: SignedDuration) -> Progress {
        match &self.gates {
            Gates::Passed if soak.is_positive() => Progress::Soaking(soak),
            Gates::Passed => Progress::Updated,
            // No deadline ends it: what can't be measured has not failed.
            Gates::Pending(_) | Gates::Unknown(_) => Progress::Updating(None),
            Gates::Failed(why) if was_ready => Progress::Failed(GATE_FAILED.to_owned(), why.clone()),
            Gates::Failed(why) => Progress::Deferred(format!("it was not Ready before the update, and {why}")),
        }
    }

    /// Whether a refused write of this member is tried again now.
    pub fn retries(&self, progress: &Progress) -> bool {
        progress.is_refused() && self.refused.as_ref().is_some_and(|refused| refused.is_due)
    }
}
