//! Records what came of updates: of the update revision, and of other revisions that were started
//! before it, to roll back, or on a new cluster.

use jiff::SignedDuration;
use knative_operator_shared::fleet::stage::StageSettings;

use super::decision::{Decision, Input};
use super::gates::Gates;
use super::member::{Contents, Member, Write};
use super::outcome::Outcome;
use super::progress::Progress;
use super::timer::Phase;

/// The least time for [`unobserved_limit`]: after a restart, the operator looks at thousands.
const UNOBSERVED_LIMIT: SignedDuration = SignedDuration::from_mins(10);

/// Another revision than that of the spec that is being installed on a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherInProgress<'a> {
    /// The revision.
    pub revision: &'a str,
    /// When to observe the cluster again.
    pub wake: Option<SignedDuration>,
}

/// How long a cluster of `stage` keeps its place in a rollback although the operator has not looked
/// at it since a write.
fn unobserved_limit(stage: &StageSettings) -> SignedDuration {
    (stage.deadline * 2).max(UNOBSERVED_LIMIT)
}

impl<C: Contents> Input<'_, C> {
    /// The other revision that is being installed on `member`, until it is Ready, or its deadline
    /// is over.
    pub fn other_in_progress<'m>(&self, member: &'m Member) -> Option<OtherInProgress<'m>> {
        let revision = member.other_in_progress(self.update, self.current, self.contents)?;
        if member.gone.is_some() || member.is_skipped {
            return None;
        }
        // Its labels changed, so it has the content of no revision any more.
        let is_superseded = revision == self.update || !member.has_content(revision, self.contents);
        if is_superseded && member.unavailable.is_none() && member.is_ready() {
            return None;
        }
        let stage = &self.stages.settings()[member.stage];
        let wake = match member.phase(revision, self.contents) {
            Phase::Unknown => return Some(OtherInProgress { revision, wake: None }),
            Phase::Ready(_) => return None,
            // From its deadline on, the status says so.
            Phase::Unobserved => {
                let left = [stage.deadline, unobserved_limit(stage)].map(|at| at - member.elapsed.in_phase);
                left.into_iter().find(SignedDuration::is_positive)
            }
            Phase::NotReady | Phase::Hidden => {
                Some(stage.deadline - member.elapsed.in_phase).filter(SignedDuration::is_positive)
            }
        };
        wake.map(|wake| OtherInProgress { revision, wake: Some(wake) })
    }

    /// Whether the operator has reported nothing of `member` for so long that it has no place in a
    /// rollback any more.
    pub fn is_given_up(&self, member: &Member) -> bool {
        let is_unobserved = member.phase(self.update, self.contents) == Phase::Unobserved;
        is_unobserved && member.elapsed.in_phase >= unobserved_limit(&self.stages.settings()[member.stage])
    }

    /// The same of one on which another revision is being installed: whether it returned is not
    /// known.
    pub fn is_return_given_up(&self, member: &Member) -> bool {
        let other = member.other_in_progress(self.update, self.current, self.contents);
        other.is_some() && !member.is_skipped && self.is_given_up(member)
    }

    /// How long `member` must still be Ready, if it is.
    fn soak_left(&self, member: &Member) -> Option<SignedDuration> {
        let left = self.stages.settings()[member.stage].soak - member.elapsed.in_phase;
        Some(left).filter(SignedDuration::is_positive)
    }

    /// When to observe the other revision on `member` again.
    pub fn other_wake(&self, member: &Member) -> Option<SignedDuration> {
        let revision = member.other_in_progress(self.update, self.current, self.contents)?;
        if member.gone.is_some() {
            return None;
        }
        match member.phase(revision, self.contents) {
            Phase::Ready(_) => self.soak_left(member),
            _ => self.other_in_progress(member)?.wake,
        }
    }

    /// Writes that record the outcome of updates.
    pub fn records(&self, decision: &Decision) -> Vec<Write> {
        let all = self.members.iter().zip(&decision.progress);
        all.flat_map(|(member, progress)| self.records_of(member, progress, || self.has_recovered(member, decision)))
            .collect()
    }

    /// Writes that record what came of the update of `member`, whose progress is `progress`, or of
    /// another one; none if that is not known yet, or stored.
    fn records_of(&self, member: &Member, progress: &Progress, has_recovered: impl FnOnce() -> bool) -> Vec<Write> {
        if member.gone.is_some() || member.is_skipped {
            return Vec::new();
        }
        if let Some(revision) = member.other_in_progress(self.update, self.current, self.contents) {
            let outcome = self
                .other_outcome(member, revision)
                .filter(|_| revision != self.update && member.has_content(revision, self.contents));
            return outcome.map(|outcome| member.records(revision, &outcome)).unwrap_or_default();
        }
        let outcome = match progress {
            Progress::Updated => Outcome::Succeeded,
            Progress::Failed(..) if has_recovered() => Outcome::Succeeded,
            Progress::Failed(reason, _) if !progress.is_refused() => {
                Outcome::Failed { generation: self.generation, reason: reason.clone() }
            }
            _ => return Vec::new(),
        };
        if self.is_recording(member) { member.records(self.update, &outcome) } else { Vec::new() }
    }

    /// Whether what comes of the update is recorded for `member`. An earlier version did not.
    fn is_recording(&self, member: &Member) -> bool {
        self.is_rolling_out() || member.is_recorded()
    }

    /// Whether what came of the update of `member`, whose progress is `progress`, is still to be
    /// recorded. Its stage is not complete before, nor is the rollout: a process that continues
    /// knows neither the success nor the failure, and observes the cluster again.
    pub fn is_unstored(&self, member: &Member, progress: &Progress) -> bool {
        let is_open = match progress {
            Progress::Updated => member.applied().any(|applied| applied.outcome != Some(Outcome::Succeeded)),
            progress => matches!(progress, Progress::Failed(..)) && !progress.is_refused(),
        };
        is_open && !self.records_of(member, progress, || false).is_empty()
    }

    /// Why the API server refuses to record what came of an update of `member`.
    pub fn refused_record<'m>(&self, member: &'m Member, progress: &Progress, decision: &Decision) -> Option<&'m str> {
        let why = member.unrecorded.as_deref()?;
        let writes = self.records_of(member, progress, || self.has_recovered(member, decision));
        (!writes.is_empty()).then_some(why)
    }

    /// What came of the update of `member` to `revision`, if that is known.
    fn other_outcome(&self, member: &Member, revision: &str) -> Option<Outcome> {
        let phase = member.phase(revision, self.contents);
        if matches!(phase, Phase::Ready(_)) {
            // What its gates did not pass has not succeeded, but for the revision to return to.
            let needs_gates = !self.is_rolling_back() && self.current != Some(revision);
            let is_measured = !needs_gates || member.gates == Gates::Passed;
            return (self.soak_left(member).is_none() && is_measured).then_some(Outcome::Succeeded);
        }
        // Its place ended, and nobody knows what came of it.
        if self.other_in_progress(member).is_some() || member.hub_fault.is_some() || phase == Phase::Unobserved {
            return None;
        }
        let (reason, _) = member.not_ready().unwrap_or_default();
        // The update is not what broke a cluster that was not Ready before; but a rollback has
        // failed if it isn't after it.
        let has_failed = member.was_all_ready() || self.is_rolling_back();
        has_failed.then_some(Outcome::Failed { generation: self.generation, reason })
    }

    /// Whether `member` has failed, and is Ready since the rollout is complete. During the rollout,
    /// a failure stays one, and one of its gates until they are measured again.
    fn has_recovered(&self, member: &Member, decision: &Decision) -> bool {
        let (stage, report) = (&self.stages.settings()[member.stage], &decision.stages[member.stage]);
        let is_stopped = report.has_too_many(stage);
        let is_ready = matches!(member.phase(self.update, self.contents), Phase::Ready(_));
        let may_recover = !self.is_rolling_out() && !is_stopped && !member.has_failed_gates(self.generation);
        let is_ready = is_ready && member.gates == Gates::Passed;
        may_recover && is_ready && member.elapsed.in_phase >= stage.soak
    }
}

#[cfg(test)]
mod tests {
    use knative_operator_shared::api::fleet::{KnativeFleetStatus, OnFailure, StageState};

    use super::*;
    use crate::adversary::Action;
    use crate::findings::{broken_by_update, is_started, pass};
    use crate::member::Change;
    use crate::model::World;
    use crate::progress::NOT_STORED;
    use crate::transitions::transitions;
    use crate::truth::DEADLINE;

    /// Whether all writes of `decision` record a success.
    fn records_only(decision: &Decision) -> bool {
        let is_record = |write: &Write| write.change == Change::Record(Outcome::Succeeded);
        !decision.writes.is_empty() && decision.writes.iter().all(is_record)
    }

    #[test]
    fn no_stage_follows_from_a_success_that_is_not_stored() {
        let stages = [(1, 0, 60, false), (1, 0, 0, false)];
        let mut world = World::new(&stages, &[0, 1], OnFailure::Pause);
        world.settle();
        pass(&mut world, 1);
        world.tick(60);
        assert!(records_only(&world.decide()), "{:?}", world.decide());
        // The process ends before the record is stored, and the canary breaks under the next one.
        world.act(&Action::Crash(0));
        world.act(&Action::Break(0, true));
        world.settle();
        pass(&mut world, DEADLINE);
        assert!(!is_started(&world, 1) && matches!(world.decide().progress[0], Progress::Failed(..)));
        world.act(&Action::Break(0, false));
        world.act(&Action::Retry);
        (0..3).for_each(|_| pass(&mut world, 60));
        assert!(is_started(&world, 1));
    }

    #[test]
    fn stage_says_which_success_can_not_be_stored_and_why() {
        let mut world = World::new(&[(1, 0, 0, false), (1, 0, 0, false)], &[0, 1], OnFailure::Pause);
        world.settle();
        world.tick(1);
        assert!(records_only(&world.decide()), "{:?}", world.decide());
        let before = world.status_after(&KnativeFleetStatus::default());
        world.members[0].unrecorded = Some("a policy refuses it".to_owned());
        let status = world.status_after(&before);
        let cluster = world.members[0].cluster.to_string();
        let waits = status.stages[0].waits_for.as_deref().unwrap_or_default();
        assert!(waits.ends_with(&format!("which the API server refuses: {cluster}: a policy refuses it")), "{waits}");
        assert_eq!(status.stages[1].waits_for.as_deref(), Some("an earlier stage"));
        let progressing = status.conditions.iter().find(|condition| condition.type_ == "Progressing").unwrap();
        let message = progressing.message.as_deref().unwrap_or_default();
        assert_eq!(progressing.reason.as_deref(), Some("WaitingForClusters"));
        assert!(message.ends_with(waits), "{message}");
        let attention = status.attention.iter().map(|entry| (entry.cluster.to_string(), entry.reason.as_str()));
        assert_eq!(attention.collect::<Vec<_>>(), [(cluster.clone(), NOT_STORED)]);
        let events = transitions(&before, &status);
        let event = events.iter().find(|event| event.reason == NOT_STORED).unwrap();
        assert!(event.is_warning && event.note.starts_with(&cluster), "{event:?}");
        // Once it is stored, nothing of it is left.
        world.settle();
        let status = world.status_after(&status);
        assert_eq!((status.attention.len(), status.stages[0].waits_for.as_deref()), (0, None));
    }

    #[test]
    fn no_stage_follows_from_a_failure_that_is_not_stored() {
        // One cluster of the stage may fail, and the other one shows that the revision works.
        let mut world = World::new(&[(2, 1, 0, false), (1, 0, 0, false)], &[0, 0, 1], OnFailure::Pause);
        world.settle();
        world.act(&Action::Break(0, true));
        pass(&mut world, 1);
        world.tick(DEADLINE);
        let decision = world.decide();
        assert!(matches!(decision.progress[0], Progress::Failed(..)), "{decision:?}");
        let is_record = |write: &Write| matches!(write.change, Change::Record(Outcome::Failed { .. }));
        assert!(!decision.writes.is_empty() && decision.writes.iter().all(is_record), "{decision:?}");
        assert_eq!(decision.stages[0].state, StageState::Progressing);
        // The API server refuses it.
        let before = world.status_after(&KnativeFleetStatus::default());
        let waits = before.stages[0].waits_for.as_deref().unwrap_or_default();
        assert_eq!(waits, "clusters: 0 are being updated, 1 failed, which is recorded now, 0 have not begun");
        world.members[0].unrecorded = Some("a policy refuses it".to_owned());
        let status = world.status_after(&before);
        let waits = status.stages[0].waits_for.as_deref().unwrap_or_default();
        assert!(waits.ends_with(": a policy refuses it"), "{waits}");
        let entry = &status.attention[0];
        assert_eq!((entry.cluster.name.as_str(), entry.reason.as_str()), ("0", NOT_STORED));
        assert!(
            entry.message.contains("it failed with ") && entry.message.contains("a policy refuses it"),
            "{entry:?}"
        );
        assert!(transitions(&before, &status).iter().any(|event| event.reason == NOT_STORED && event.is_warning));
        assert!(!is_started(&world, 2));
        // Once it is stored, the next stage begins.
        world.settle();
        assert!(is_started(&world, 2));
        assert_ne!(world.status_after(&status).attention[0].reason, NOT_STORED);
    }

    #[test]
    fn refused_record_of_a_return_is_reported() {
        let mut world = broken_by_update();
        // It fails, and again after its return.
        pass(&mut world, DEADLINE);
        world.tick(DEADLINE);
        let decision = world.decide();
        assert!(matches!(decision.writes[0].change, Change::Record(Outcome::Failed { .. })), "{decision:?}");
        world.members[0].unrecorded = Some("a policy refuses it".to_owned());
        let status = world.status_after(&KnativeFleetStatus::default());
        assert_eq!(status.attention[0].reason, NOT_STORED, "{:?}", status.attention);
    }

    #[test]
    fn no_rollout_is_complete_before_its_successes_are_stored() {
        let mut world = World::new(&[(2, 0, 0, false)], &[0, 0], OnFailure::Rollback);
        (0..4).for_each(|_| pass(&mut world, 1));
        world.act(&Action::Edit("c"));
        world.settle();
        world.tick(1);
        let decision = world.decide();
        assert!(records_only(&decision) && !decision.is_complete, "{decision:?}");
        // It is lost with the process.
        world.act(&Action::Crash(0));
        assert_eq!(world.current.as_deref(), Some("a"));
        world.settle();
        assert_eq!(world.current.as_deref(), Some("c"));
        // So the revision to return to is the one that was rolled out.
        world.act(&Action::Edit("d"));
        world.settle();
        let previous = world.members.iter().map(|member| member.children[0].applied.as_ref()?.previous.as_deref());
        assert_eq!(previous.collect::<Vec<_>>(), [Some("a"), Some("c")], "c left the first one as it was");
    }
}
