//! What happens to a fleet of the model.

use std::cell::RefCell;

use jiff::SignedDuration;

use super::absence::Gone;
use super::backup::Restored;
use super::gates::Gates;
use super::member::{Applied, HubFault, Reported};
use super::model::World;
use super::outcome::Outcome;
use super::timer::Timers;

/// Something that happens to a fleet.
#[derive(Clone, Debug)]
pub enum Action {
    /// Time passes, and resources become Ready.
    Tick(i64),
    /// The clock of the replica is set.
    SetClock(i64),
    /// The spec gets another revision.
    Edit(&'static str),
    /// The operator gets another release bundle, with this patch of what revision `a` asks for.
    Bundle(&'static str),
    /// A cluster becomes unavailable, or available.
    Outage(usize, bool),
    /// The hub can't reach a cluster because of a fault of its own, or of one for clusters with an
    /// odd number, or can.
    HubFault(usize, bool),
    /// A revision can't be installed on a cluster, or can.
    Break(usize, bool),
    /// The gates of a cluster pass, fail, or can't be measured.
    Gate(usize, Gates),
    /// The operator reports nothing about a cluster any more, or does.
    Silence(usize, bool),
    /// A resource is not Ready for a moment, such as when a node is drained.
    Blip(usize),
    /// Somebody changes a resource.
    Drift(usize),
    /// The labels of a cluster change.
    Relabel(usize),
    /// A cluster leaves the fleet, or is back.
    Leave(usize, bool),
    /// The ClusterProfile of a cluster vanishes, or is back.
    Vanish(usize, bool),
    /// The labels of a cluster move it to another stage.
    Restage(usize, usize),
    /// A person lets the rollout skip a cluster, or not any more.
    Skip(usize, bool),
    /// A cluster joins.
    Join(usize),
    /// A stage is approved.
    Approve,
    /// A person or a CronJob pauses the fleet, or resumes it.
    Pause(bool),
    /// A person asks for another try of what failed.
    Retry,
    /// The operator stops after some writes, and another replica continues.
    Crash(usize),
    /// The hub is backed up.
    Backup,
    /// The hub is restored from the last backup.
    Restore(Restored),
}

impl Reported {
    /// What is reported after a write: of a resource `before`, or of a new one, without a status.
    pub fn after_write(before: Option<&Applied>) -> Self {
        let has_status = before.is_some_and(|applied| applied.reported != Self::Nothing);
        if has_status { Self::Earlier } else { Self::Nothing }
    }
}

impl Applied {
    /// Somebody changes it, or the fleet repairs that.
    pub fn drift(&mut self, has_drifted: bool) {
        self.has_drifted = has_drifted;
        // One without a status has none afterwards, either.
        if self.reported == Reported::Current {
            self.reported = Reported::Earlier;
        }
    }
}

impl World {
    /// The operator looks at what was written: from then on, times count.
    pub fn look(&mut self) {
        let mut has_looked = false;
        let seen = self.members.iter_mut().enumerate().filter(|(index, _)| !self.silent.contains(index));
        for applied in
            seen.flat_map(|(_, member)| member.children.iter_mut()).filter_map(|child| child.applied.as_mut())
        {
            if applied.reported != Reported::Current && !applied.is_lost() {
                (applied.reported, has_looked) = (Reported::Current, true);
            }
        }
        if has_looked {
            self.observed();
        }
    }

    fn not_ready(&mut self, index: usize) {
        let children = self.members[index].children.iter_mut().filter_map(|child| child.applied.as_mut());
        children.for_each(|applied| applied.ready = Err(("NotReady".to_owned(), String::new())));
        self.unreported.remove(&index);
        self.observe_truth();
    }

    fn go(&mut self, index: usize, gone: Gone) {
        self.gone.insert(index, gone);
        self.observe_truth();
    }

    /// The revision of the fleet is `update` now.
    pub fn roll_out(&mut self, update: &'static str) {
        if self.update != update {
            // It is another rollout.
            self.had_clusters.clear();
            self.members.iter_mut().for_each(|member| member.is_skipped = false);
        }
        self.update = update;
    }

    /// Does `action`.
    pub fn act(&mut self, action: &Action) {
        let count = self.members.len();
        match action {
            Action::Tick(seconds) => self.tick(*seconds),
            Action::SetClock(seconds) => self.skew = SignedDuration::from_secs(*seconds),
            Action::Edit(revision) => {
                self.roll_out(self.meant(revision));
                self.generation += 1;
                self.failed.clear();
                self.truth.iter_mut().for_each(|truth| truth.forgive(self.elapsed));
                self.observe_truth();
            }
            Action::Bundle(patch) => {
                self.bundle = patch;
                self.follow_bundle();
            }
            Action::Outage(index, outage) => {
                self.members[index % count].unavailable = outage.then(|| "unreachable".to_owned());
                self.observe_truth();
            }
            Action::HubFault(index, fault) => {
                self.members[index % count].hub_fault = fault.then(|| HubFault {
                    message: "the plugin failed".to_owned(),
                    is_common: (index % count).is_multiple_of(2),
                });
                self.observe_truth();
            }
            Action::Break(index, true) => {
                self.broken.insert(index % count);
                self.not_ready(index % count);
            }
            Action::Break(index, false) => drop(self.broken.remove(&(index % count))),
            Action::Silence(index, true) => drop(self.silent.insert(index % count)),
            Action::Silence(index, false) => drop(self.silent.remove(&(index % count))),
            Action::Gate(index, gates) => {
                self.gates.insert(index % count, gates.clone());
                self.observe_truth();
            }
            Action::Blip(index) => self.not_ready(index % count),
            Action::Drift(index) => {
                let children = self.members[index % count].children.iter_mut();
                children.filter_map(|c| c.applied.as_mut()).for_each(|applied| applied.drift(true));
            }
            Action::Relabel(index) => {
                let name = (index % count).to_string();
                if !self.contents.relabeled.remove(&name) {
                    self.contents.relabeled.insert(name);
                }
                let soak = self.stages.settings()[self.stage(index % count)].soak;
                self.truth[index % count].supersede(soak);
                self.observe_truth();
            }
            Action::Leave(index, true) => self.go(index % count, Gone::Left),
            Action::Vanish(index, true) => self.go(index % count, Gone::Vanished),
            Action::Leave(index, false) | Action::Vanish(index, false) => {
                if self.gone.remove(&(index % count)).is_some() {
                    self.truth[index % count].restart(self.elapsed);
                }
            }
            Action::Restage(index, stage) => {
                self.members[index % count].stage = stage % self.stages.settings().len();
            }
            Action::Skip(index, is_skipped) => {
                // Without a resource, nothing records it.
                let member = &mut self.members[index % count];
                member.is_skipped = *is_skipped && !member.is_new();
            }
            Action::Join(stage) => self.join(*stage),
            Action::Approve => {
                let names: Vec<_> = self.stages.settings().iter().map(|stage| stage.name.clone()).collect();
                self.approvals.extend(names.into_iter().map(|name| ((self.update.to_owned(), name), String::new())));
            }
            Action::Pause(paused) => self.paused = *paused,
            Action::Retry => {
                for applied in
                    self.members.iter_mut().flat_map(|m| m.children.iter_mut()).filter_map(|c| c.applied.as_mut())
                {
                    let retried = applied.outcome.as_ref().and_then(Outcome::retried);
                    applied.outcome = retried.or(applied.outcome.take());
                }
                self.truth.iter_mut().for_each(|truth| truth.forgive(self.elapsed));
                self.observe_truth();
            }
            Action::Crash(limit) => {
                self.advance(*limit);
                self.timers = RefCell::new(Timers::default());
                self.truth.iter_mut().for_each(|truth| truth.restart(self.elapsed));
            }
            Action::Backup => self.back_up(),
            Action::Restore(how) => self.restore(*how),
        }
    }
}
