//! Records what came of updates: of the update revision, and of other revisions that were started
//! before it, to roll back, or on a new cluster.

use jiff::SignedDuration;

use super::decision::{Decision, Input};
use super::gates::Gates;
use super::member::{Contents, Member, Write};
use super::outcome::Outcome;
use super::progress::Progress;
use super::timer::Phase;

/// Another revision than that of the spec that is being installed on a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherInProgress<'a> {
    /// The revision.
    pub revision: &'a str,
    /// When to observe the cluster again.
    pub wake: Option<SignedDuration>,
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
        let left = self.stages.settings()[member.stage].deadline - member.elapsed.in_phase;
        match member.phase(revision, self.contents) {
            Phase::Unknown => Some(OtherInProgress { revision, wake: None }),
            Phase::NotReady | Phase::Hidden if left.is_positive() => {
                Some(OtherInProgress { revision, wake: Some(left) })
            }
            Phase::NotReady | Phase::Hidden | Phase::Ready(_) => None,
        }
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
        let mut writes = Vec::new();
        let all = self.members.iter().zip(&decision.progress);
        let present = all.filter(|(member, _)| member.gone.is_none() && !member.is_skipped);
        for (member, progress) in present {
            if let Some(revision) = member.other_in_progress(self.update, self.current, self.contents) {
                let outcome = self
                    .other_outcome(member, revision)
                    .filter(|_| revision != self.update && member.has_content(revision, self.contents));
                writes.extend(outcome.iter().flat_map(|outcome| member.records(revision, outcome)));
                continue;
            }
            let outcome = match progress {
                Progress::Updated => Outcome::Succeeded,
                Progress::Failed(..) if self.has_recovered(member, decision) => Outcome::Succeeded,
                Progress::Failed(reason, _) if !progress.is_refused() => {
                    Outcome::Failed { generation: self.generation, reason: reason.clone() }
                }
                _ => continue,
            };
            if self.is_rolling_out() || member.is_recorded() {
                writes.extend(member.records(self.update, &outcome));
            }
        }
        writes
    }

    /// What came of the update of `member` to `revision`, if that is known.
    fn other_outcome(&self, member: &Member, revision: &str) -> Option<Outcome> {
        if matches!(member.phase(revision, self.contents), Phase::Ready(_)) {
            // What its gates did not pass has not succeeded, but for the revision to return to.
            let needs_gates = !self.is_rolling_back() && self.current != Some(revision);
            let is_measured = !needs_gates || member.gates == Gates::Passed;
            return (self.soak_left(member).is_none() && is_measured).then_some(Outcome::Succeeded);
        }
        if self.other_in_progress(member).is_some() || member.hub_fault.is_some() {
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
