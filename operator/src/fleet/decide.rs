//! Decides what to write next for a fleet.

use std::collections::HashSet;

use jiff::Timestamp;

use super::decision::{Decision, Input, StageReport};
use super::member::{Contents, Member, Progress};
use super::{rollback, rollout};

impl<C: Contents> Input<'_, C> {
    /// Decides. Equal inputs give an equal decision, and after all its writes the next decision is
    /// empty, or the next step.
    pub fn decide(&self) -> Decision {
        let mut decision = Decision { progress: self.progress(), ..Decision::default() };
        decision.stages = self.reports(&decision.progress);
        decision.wake = decision.progress.iter().filter_map(Progress::wake).min();
        decision.writes.extend(self.members.iter().flat_map(Member::repairs));
        if self.has_failed && self.is_rolling_out() {
            rollback::advance(self, &mut decision);
        } else {
            rollout::advance(self, &mut decision);
        }
        // A repair and another write of the same resource would overwrite each other.
        let mut written = HashSet::new();
        decision.writes.reverse();
        decision.writes.retain(|write| written.insert((write.cluster.clone(), write.component)));
        decision.writes.reverse();
        decision
    }

    fn progress(&self) -> Vec<Progress> {
        let of = |member: &Member| {
            let stage = &self.stages.settings()[member.stage];
            member.progress(self.update, self.current, self.contents, stage, self.now)
        };
        self.members.iter().map(of).collect()
    }

    fn reports(&self, progress: &[Progress]) -> Vec<StageReport> {
        let mut reports = vec![StageReport::default(); self.stages.settings().len()];
        for (member, progress) in self.members.iter().zip(progress) {
            let report = &mut reports[member.stage];
            report.clusters += 1;
            match progress {
                Progress::Pending => report.pending += 1,
                Progress::Deferred(_) => report.deferred += 1,
                Progress::Updating(_) => report.updating += 1,
                Progress::Updated => report.updated += 1,
                Progress::Failed(..) => report.failed += 1,
                Progress::Conflict(_) => {}
            }
        }
        reports
    }
}

impl Progress {
    fn wake(&self) -> Option<Timestamp> {
        match self {
            Self::Updating(wake) => *wake,
            _ => None,
        }
    }
}
