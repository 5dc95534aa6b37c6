//! Decides what to write next for a fleet.

use std::collections::HashSet;

use knative_operator_shared::fleet::stage::REST;

use super::decision::{Decision, Input, StageReport};
use super::member::{Contents, Member};
use super::progress::Progress;
use super::{rollback, rollout};

impl<C: Contents> Input<'_, C> {
    /// Decides. Equal inputs give an equal decision, and after all its writes the next decision is
    /// empty, or the next step.
    pub fn decide(&self) -> Decision {
        let progress: Vec<_> = self.members.iter().map(|member| member.progress(&self.goal(member))).collect();
        let mut decision = Decision { progress, ..Decision::default() };
        decision.stages = self.reports(&decision.progress);
        let others = self.members.iter().filter_map(|member| self.other_wake(member));
        decision.wake = decision.progress.iter().filter_map(Progress::wake).chain(others).min();
        decision.writes.extend(self.members.iter().filter(|member| member.gone.is_none()).flat_map(Member::repairs));
        decision.writes.extend(self.records(&decision));
        if self.has_failed && self.is_rolling_out() {
            rollback::advance(self, &mut decision);
        } else {
            rollout::advance(self, &mut decision);
        }
        // Two writes of the same resource would overwrite each other: the last one counts.
        let mut written = HashSet::new();
        decision.writes.reverse();
        decision.writes.retain(|write| written.insert(write.key()));
        decision.writes.reverse();
        decision
    }

    fn reports(&self, progress: &[Progress]) -> Vec<StageReport> {
        let mut reports = vec![StageReport::default(); self.stages.settings().len()];
        for ((report, stage), own) in reports.iter_mut().zip(self.stages.settings()).zip(self.by_stage()) {
            let is_empty = own.is_empty();
            // No stage comes after the clusters that no stage selects.
            let is_first = stage.name != REST && self.had_clusters.contains(&stage.name);
            report.is_lost = is_empty && self.is_rolling_out() && is_first;
        }
        for (member, progress) in self.members.iter().zip(progress) {
            let report = &mut reports[member.stage];
            report.clusters += 1;
            // One that is gone may still be in progress.
            let is_unknown = member.gone.is_some() && matches!(progress, Progress::Waiting(..));
            report.others += usize::from(is_unknown || self.other_in_progress(member).is_some());
            report.failed += usize::from(rollback::failure(member, self).is_some());
            match progress {
                Progress::Pending => report.pending += 1,
                Progress::Deferred(_) => {
                    report.deferred += 1;
                    // What hides it repairs nothing.
                    let has_failed = member.former_failure(&self.goal(member)).is_some();
                    report.failed += usize::from(has_failed && member.hub_fault.is_some());
                }
                Progress::Skipped => report.deferred += 1,
                Progress::Updating(_) => {
                    report.updating += 1;
                    report.failed += usize::from(member.former_failure(&self.goal(member)).is_some());
                }
                // A former failure counts no longer, and no later stage starts before its end.
                Progress::Soaking(_) => report.soaking += 1,
                Progress::Updated if self.is_unstored(member, progress) => {
                    report.soaking += 1;
                    report.note_unrecorded(member);
                }
                Progress::Updated => report.updated += 1,
                Progress::Failed(..) => {
                    report.failed += 1;
                    // One that is gone stops the stage, but has nothing to return from.
                    report.broken += usize::from(!progress.is_refused() && member.gone.is_none());
                    if self.is_unstored(member, progress) {
                        report.unstored += 1;
                        report.note_unrecorded(member);
                    }
                }
                Progress::Waiting(..) => report.waiting += 1,
                Progress::Conflict(_) => {}
            }
        }
        reports
    }
}
