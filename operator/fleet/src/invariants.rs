//! What people rely on, in the words of the documents: each decision is compared with what is true,
//! and not with what the operator computes from it.

use jiff::SignedDuration;
use knative_operator_shared::fleet::stage::StageSettings;

use super::bundles::meaning;
use super::decision::Decision;
use super::gates::{GATE_FAILED, Gates};
use super::member::{Change, Member, Reported};
use super::model::World;
use super::outcome::Outcome;
use super::progress::Progress;
use super::truth::DEADLINE;

impl World {
    /// Brings the truth up to date.
    pub fn observe_truth(&mut self) {
        let now = self.elapsed;
        let stages: Vec<_> = (0..self.members.len()).map(|index| self.stage(index)).collect();
        let ready: Vec<_> = (0..self.members.len()).map(|index| self.is_ready(index)).collect();
        for (index, member) in self.members.iter().enumerate() {
            let (truth, is_ready) = (&mut self.truth[index], ready[index]);
            let StageSettings { min_ready, soak, .. } = self.stages.settings()[stages[index]];
            truth.ready = is_ready.then(|| truth.ready.unwrap_or(now));
            truth.in_flight = truth.in_flight.filter(|_| !is_ready);
            truth.soaked = truth.soaked.max(truth.ready.map(|since| now - since).unwrap_or_default());
            let is_measured = is_ready && truth.soaked >= min_ready;
            let gates = self.gates.get(&index).cloned().unwrap_or_default();
            match gates {
                Gates::Passed if is_measured => truth.passed = Some(true),
                Gates::Failed(_) if is_measured => truth.passed = truth.passed.or(Some(false)),
                _ => {}
            }
            // What nobody observes has not failed, nor what is skipped.
            truth.proven = truth.proven.or(truth.ready.filter(|_| truth.is_done(soak)));
            let is_reported = member.applied().all(|applied| applied.reported == Reported::Current);
            let is_counted = !member.is_skipped && !self.gone.contains_key(&index);
            let is_observed = member.hub_fault.is_none() && is_reported && is_counted;
            if is_ready || !is_observed {
                truth.not_ready = None;
                // After the rollout, and after another try, it has recovered when it was Ready for
                // as long as an update.
                let is_complete = self.current.as_deref() == Some(self.update);
                let may_recover = is_complete || truth.is_forgiven;
                let is_fine = truth.ready.is_some_and(|since| now - since >= soak) && truth.is_done(soak);
                truth.failed &= !(may_recover && is_fine);
            } else {
                let since = *truth.not_ready.get_or_insert(now);
                let is_late = now - since >= SignedDuration::from_secs(DEADLINE);
                let has_succeeded = truth.proven.is_some() || truth.is_done(soak);
                truth.failed |= is_late && truth.was_ready && !has_succeeded;
            }
        }
    }

    /// Whether a write is under way on the cluster `index`.
    pub fn is_in_flight(&self, index: usize) -> bool {
        let is_late = |written: SignedDuration| self.elapsed - written >= SignedDuration::from_secs(DEADLINE);
        self.truth[index].in_flight.is_some_and(|written| !is_late(written)) && !self.members[index].is_new()
    }

    /// The clusters that `decision` begins to change: those that get the update revision, or lose a
    /// component by it.
    fn begun(&self, decision: &Decision) -> Vec<usize> {
        let begins = |member: &Member| {
            let changes = decision.writes.iter().any(|write| {
                let is_update = match &write.change {
                    Change::Apply { revision, .. } => *revision == self.update,
                    Change::Delete => !self.failed.contains(self.update),
                    _ => false,
                };
                write.cluster == member.cluster && is_update
            });
            changes && !member.is_started(self.update, self.current.as_deref(), &self.contents)
        };
        let all = self.members.iter().enumerate();
        all.filter(|(_, member)| begins(member)).map(|(index, _)| index).collect()
    }

    /// "An operator with a newer release bundle starts another rollout", and "no bundle makes
    /// `1.22` mean an older version than the one that the fleet has": it had that of `before`.
    pub fn check_bundle(&self, before: &str) {
        let newest = meaning(before).map(|version| version.max(self.bundle));
        assert_eq!(meaning(self.update), newest, "with the bundle {}, {before} means {}", self.bundle, self.update);
    }

    /// Checks `decision`.
    pub fn check(&self, decision: &Decision) {
        let begun = self.begun(decision);
        for index in &begun {
            assert!(!self.members[*index].is_skipped, "a cluster was begun that is skipped");
            let stage = self.stage(*index);
            let settings = &self.stages.settings()[stage];
            assert!(
                !self.paused && !self.failed.contains(self.update),
                "a cluster was begun although the fleet is paused, or the revision failed"
            );
            let approved = self.approvals.contains_key(&(self.update.to_owned(), settings.name.clone()));
            assert!(!settings.needs_approval || approved, "a cluster was begun without the approval of its stage");
            for earlier in 0..=stage {
                self.check_failures(earlier);
            }
            for earlier in 0..stage {
                self.check_stage_before(earlier);
            }
        }
        self.check_stored(decision, &begun);
        self.check_concurrency(decision, &begun);
        self.check_rollback(decision);
        self.check_uninstalled(decision);
    }

    /// Whether the update was begun on the cluster `index` in this rollout.
    fn is_begun(&self, index: usize) -> bool {
        self.members[index].is_begun(self.update, self.current.as_deref(), &self.contents)
    }

    /// "A cluster stays in the stage in which its update began until the rollout is complete."
    pub fn stage(&self, index: usize) -> usize {
        let (truth, own) = (&self.truth[index], self.members[index].stage);
        let begun = truth.begun.get(self.update).or_else(|| truth.begun.get(&truth.last));
        if self.is_begun(index) { begun.copied().unwrap_or(own) } else { own }
    }

    /// The clusters that count in a stage. Those that are gone do if their update has not ended, or
    /// failed.
    fn of_stage(&self, stage: usize) -> impl Iterator<Item = (usize, &Member)> {
        let has_succeeded = move |index: usize| {
            let truth = &self.truth[index];
            truth.is_done(self.stages.settings()[stage].soak) && !truth.failed
        };
        // A resource of an earlier update to the same revision may still be there.
        let is_written = |index: usize| {
            self.truth[index].revision == self.update || self.members[index].has(self.update, &self.contents)
        };
        let is_begun = move |index: usize| self.is_begun(index) && is_written(index);
        let counts = move |index: usize| !self.gone.contains_key(&index) || is_begun(index) && !has_succeeded(index);
        self.members.iter().enumerate().filter(move |(index, _)| counts(*index) && self.stage(*index) == stage)
    }

    /// Whether a gate failed, and was not measured again with success.
    fn has_failed_gates(&self, index: usize) -> bool {
        let of_update = self.members[index].of_update(self.update);
        let mut outcomes = of_update.filter_map(|applied| applied.outcome.as_ref());
        outcomes.any(|outcome| match outcome {
            Outcome::Failed { generation, reason } if reason == GATE_FAILED => {
                *generation == self.generation || self.truth[index].passed != Some(true)
            }
            _ => false,
        })
    }

    /// "If more than `maxFailures` clusters of a stage failed, the operator starts no further
    /// cluster."
    fn check_failures(&self, stage: usize) {
        let (failed, all) = self.of_stage(stage).fold((0, 0), |(failed, all), (index, member)| {
            let truth = &self.truth[index];
            // A resource of an earlier update to the same revision may still be there.
            let has_update = truth.revision == self.update && member.is_touched(self.update, None, &self.contents);
            // Before the end of its soak, one that is observed again counts no longer.
            let min_ready = self.stages.settings()[stage].min_ready;
            let is_ready = truth.ready.is_some_and(|since| self.elapsed - since >= min_ready);
            let soaks = truth.is_forgiven && is_ready && truth.passed == Some(true);
            let has_failed = truth.failed && !soaks || self.has_failed_gates(index);
            (failed + usize::from(has_update && has_failed && !member.is_skipped), all + 1)
        });
        let limit = self.stages.settings()[stage].failures(all);
        assert!(failed <= limit, "a cluster was begun after {failed} clusters of stage {stage} failed");
    }

    /// "No cluster of a stage is written before the clusters of the stage before soaked and passed
    /// their gates, failed within `maxFailures`, or are deferred", and "a stage that has clusters
    /// is complete when at least one of them is updated."
    fn check_stage_before(&self, stage: usize) {
        let soak = self.stages.settings()[stage].soak;
        let (mut proven, mut all) = (0, 0);
        for (index, member) in self.of_stage(stage) {
            all += 1;
            let truth = &self.truth[index];
            let is_written = truth.revision == self.update && member.is_touched(self.update, None, &self.contents);
            if !is_written {
                let is_hidden =
                    member.hub_fault.as_ref().is_some_and(|fault| fault.is_common) && member.unavailable.is_none();
                let has_update = member.has(self.update, &self.contents);
                assert!(
                    !is_hidden || has_update || member.is_skipped,
                    "the next stage was begun although a fault of the hub hides cluster {index}"
                );
                proven += usize::from(member.has(self.update, &self.contents));
                continue;
            }
            let is_done = truth.proven.is_some() || truth.is_done(soak);
            // A fault of its own defers it.
            let is_left = member.is_skipped || member.hub_fault.as_ref().is_some_and(|fault| !fault.is_common);
            // It ends after twice its time, also if it was Ready for moments.
            let attempts = (SignedDuration::from_secs(DEADLINE) + soak) * 2;
            let is_late = truth.written.is_some_and(|written| self.elapsed - written >= attempts);
            let has_failed = truth.failed || truth.passed == Some(false) || is_late && truth.ready.is_none();
            let is_settled = is_done || is_left || has_failed || !truth.was_ready;
            assert!(
                is_settled,
                "the next stage was begun before cluster {index} soaked and passed its gates: {truth:?}"
            );
            proven += usize::from(is_done);
        }
        let name = &self.stages.settings()[stage].name;
        // A revision that was rolled out completely is proven.
        let is_rolling_out = self.current.as_deref() != Some(self.update);
        let is_lost = all == 0 && is_rolling_out && self.had_clusters.contains(name);
        assert!(!is_lost, "stage {stage} was skipped when its clusters were gone");
        assert!(all == 0 || proven > 0, "the next stage was begun before any cluster of stage {stage} was updated");
    }

    /// "What comes of an update is recorded in the resources before the next stage starts": no
    /// later stage begins, and no rollout is complete, with the decision that records it.
    fn check_stored(&self, decision: &Decision, begun: &[usize]) {
        let observed = self.observed();
        let stage = |index: &usize| {
            let member = observed.iter().find(|member| member.cluster == self.members[*index].cluster);
            member.map(|member| member.stage)
        };
        for (member, progress) in observed.iter().zip(&decision.progress) {
            let records = decision.writes.iter().any(|write| {
                let is_outcome = match (progress, &write.change) {
                    (Progress::Updated, Change::Record(outcome)) => *outcome == Outcome::Succeeded,
                    (Progress::Failed(..), Change::Record(outcome)) => matches!(outcome, Outcome::Failed { .. }),
                    _ => false,
                };
                write.cluster == member.cluster && is_outcome
            });
            let follows = decision.is_complete || begun.iter().any(|index| stage(index) > Some(member.stage));
            assert!(
                !records || !follows,
                "something follows from what came of the update of {:?}, which is not stored",
                member.cluster
            );
        }
    }

    /// "At most `maxConcurrent` clusters are updated at the same time."
    fn check_concurrency(&self, decision: &Decision, begun: &[usize]) {
        for (stage, settings) in self.stages.settings().iter().enumerate() {
            let writes = |member: &Member| {
                let applies = |change: &Change| matches!(change, Change::Apply { .. });
                decision.writes.iter().any(|write| write.cluster == member.cluster && applies(&write.change))
            };
            let is_busy =
                |(index, member): &(usize, &Member)| writes(member) || !member.is_skipped && self.is_in_flight(*index);
            let busy = self.of_stage(stage).filter(is_busy);
            let (busy, limit) = (busy.count(), settings.concurrency(self.of_stage(stage).count()));
            let begins = self.of_stage(stage).any(|(index, _)| begun.contains(&index));
            assert!(!begins || busy <= limit, "{busy} clusters of stage {stage} at the same time");
        }
    }
}
