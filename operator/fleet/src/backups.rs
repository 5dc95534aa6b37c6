//! A hub of the model that is restored from a backup. The clusters stay as they are: they may have
//! newer versions than the hub knows, and installations of which it has no resource.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use jiff::Timestamp;
use knative_operator_shared::api::{ClusterProfileReference, Component};
use knative_operator_shared::version::Version;

use super::backup::{Backup, FORMER, Installed, Restored};
use super::bundles::meaning;
use super::decision::Decision;
use super::member::{Applied, Change, Child, Contents, Member, Reported, Wanted, Write};
use super::model::World;
use super::timer::Timers;
use super::truth::Truth;

impl World {
    /// Backs the hub up.
    pub fn back_up(&mut self) {
        self.backup = Some(Rc::new(Backup {
            members: self.members.clone(),
            truth: self.truth.clone(),
            gone: self.gone.clone(),
            relabeled: self.contents.relabeled.clone(),
            current: self.current.clone(),
            update: self.update,
            failed: self.failed.clone(),
            paused: self.paused,
            approvals: self.approvals.clone(),
            had_clusters: self.had_clusters.clone(),
            generation: self.generation,
        }));
    }

    /// Restores the hub, if there is a backup. The operator starts.
    pub fn restore(&mut self, how: Restored) {
        let Some(backup) = self.backup.clone() else { return };
        self.ahead = self.installed();
        for (index, member) in self.members.iter_mut().enumerate() {
            // The ClusterProfile of one that joined later is created again, without a resource.
            let stored = backup.members.get(index);
            let is_selected = !backup.gone.contains_key(&index);
            let is_kept = how == Restored::Snapshot || how == Restored::Adopted && is_selected;
            member.stage = stored.map_or(member.stage, |stored| stored.stage);
            member.is_skipped = how == Restored::Snapshot && stored.is_some_and(|stored| stored.is_skipped);
            for (number, child) in member.children.iter_mut().enumerate() {
                child.applied = stored.and_then(|stored| stored.children[number].applied.clone()).filter(|_| is_kept);
            }
            self.truth[index] = backup.truth.get(index).filter(|_| is_kept).cloned().unwrap_or_default();
        }
        (self.gone, self.contents.relabeled) = (backup.gone.clone(), backup.relabeled.clone());
        self.paused = backup.paused;
        self.unreported.clear();
        if how == Restored::Snapshot {
            (self.current, self.failed) = (backup.current.clone(), backup.failed.clone());
            (self.approvals, self.had_clusters) = (backup.approvals.clone(), backup.had_clusters.clone());
            self.generation = backup.generation;
            self.update = backup.update;
            self.follow_bundle();
        } else {
            self.create_again(backup.update);
        }
        self.fall_behind();
        self.timers = RefCell::new(Timers::default());
        for truth in &mut self.truth {
            (truth.ready, truth.returns) = (None, None);
            truth.restart(self.elapsed);
        }
        self.observe_truth();
    }

    /// The versions that clusters have, also those that the hub does not know.
    fn installed(&self) -> Installed {
        let mut installed = Installed::new();
        for (index, child) in self.members.iter().enumerate().flat_map(|(i, m)| m.children.iter().map(move |c| (i, c)))
        {
            let known = child.applied.as_ref().and_then(|applied| applied.installed.clone());
            installed.extend(known.map(|version| ((index, child.component), version)));
        }
        installed.extend(self.ahead.clone());
        installed
    }

    /// The fleet, which rolled `update` out, has another uid: it knows no revision of the former
    /// one, its status is empty, and no approval is for it.
    fn create_again(&mut self, update: &'static str) {
        for (index, member) in self.members.iter_mut().enumerate() {
            for applied in member.children.iter_mut().filter_map(|child| child.applied.as_mut()) {
                (applied.is_terminating, applied.reported, applied.installed) = (false, Reported::Nothing, None);
                applied.ready = Err(("NotObserved".to_owned(), String::new()));
                self.unreported.insert(index);
            }
        }
        self.current = None;
        self.failed.clear();
        self.approvals.clear();
        self.had_clusters.clear();
        self.generation = 1;
        self.update = self.meant_after(update, None);
        let asked = self.members.iter().flat_map(Member::applied).filter_map(|applied| applied.version.as_deref());
        let newest = asked.filter(|asked| meaning(self.update).is_some() && asked.starts_with("1.20")).max();
        assert!(newest <= meaning(self.update), "{} means less than {newest:?}, which the fleet has", self.update);
        for index in 0..self.members.len() {
            let of = |component| self.contents.of(self.update, &self.members[index].cluster, component);
            let wanted = Component::ALL.map(of);
            for (child, wanted) in self.members[index].children.iter_mut().zip(wanted) {
                child.applied.iter_mut().for_each(|applied| adopt(applied, self.update, wanted.as_deref()));
            }
            if self.members[index].applied().all(|applied| applied.revision == FORMER) {
                self.truth[index] = Truth::default();
            }
            self.truth[index].forgive(self.elapsed);
        }
    }

    /// Keeps the versions of clusters that are newer than what the hub knows: there, nothing is
    /// written. What is broken is reported as such.
    fn fall_behind(&mut self) {
        let known = self.members.iter().map(|member| {
            let of = |child: &Child| child.applied.as_ref().and_then(|applied| applied.installed.clone());
            member.children.iter().map(|child| (child.component, of(child))).collect::<BTreeMap<_, _>>()
        });
        let known: Vec<_> = known.collect();
        self.ahead.retain(|(index, component), version| known[*index][component].as_ref() < Some(&*version));
        for index in 0..self.members.len() {
            let is_broken = self.broken.contains(&index);
            for number in 0..self.members[index].children.len() {
                let is_ahead = self.is_ahead(index, number);
                let child = &mut self.members[index].children[number];
                for applied in child.applied.iter_mut().filter(|applied| applied.reported != Reported::Nothing) {
                    if is_ahead || is_broken {
                        applied.ready = Err(("Error".to_owned(), "restored".to_owned()));
                    }
                }
            }
        }
    }

    /// Whether a cluster has a newer version of the component with a number than its resource asks
    /// for, or one from which no step leads there.
    pub fn is_ahead(&self, index: usize, number: usize) -> bool {
        let child = &self.members[index].children[number];
        let asked = child.applied.as_ref().and_then(|applied| applied.version.as_deref());
        let Some(installed) = self.ahead.get(&(index, child.component)) else { return false };
        let target = Version::resolve(asked, self.contents.versions(child.component));
        target.is_ok_and(|target| target < *installed || target.may_follow(Some(installed), "").is_err())
    }

    /// Whether everything on a cluster is Ready, also if its resources don't say so yet.
    pub fn is_ready(&self, index: usize) -> bool {
        let member = &self.members[index];
        let is_unreported = self.unreported.contains(&index) && !self.broken.contains(&index);
        member.unavailable.is_none() && (member.is_ready() || is_unreported && !member.is_new())
    }

    /// "Nobody is uninstalled": a component is deleted if a revision of the fleet drops it, and a
    /// cluster never loses all of them.
    pub fn check_uninstalled(&self, decision: &Decision) {
        let deleted = |cluster: &ClusterProfileReference, component| {
            let is = |write: &&Write| write.key() == (cluster.clone(), component);
            decision.writes.iter().filter(is).any(|write| write.change == Change::Delete)
        };
        for member in &self.members {
            let own = || member.children.iter().filter(|child| child.applied.is_some());
            let lost = own().filter(|child| deleted(&member.cluster, child.component)).count();
            assert!(lost == 0 || lost < own().count(), "{:?} loses everything", member.cluster);
            for child in own().filter(|child| deleted(&member.cluster, child.component)) {
                let drops = |revision: &str| {
                    let wanted = self.contents.of(revision, &member.cluster, child.component);
                    self.contents.knows(revision) && wanted.is_none()
                };
                let previous = member.applied().filter_map(|applied| applied.previous.as_deref());
                let mut revisions = previous.chain([self.update]).chain(self.current.as_deref());
                assert!(revisions.any(drops), "no revision drops {:?} of {:?}", child.component, member.cluster);
            }
        }
    }
}

/// Adopts a resource that a former fleet applied, as one of revision `update` if it has its
/// content.
fn adopt(applied: &mut Applied, update: &str, wanted: Option<&Wanted>) {
    if wanted.is_some_and(|wanted| wanted.content == applied.content && wanted.version == applied.version) {
        (applied.revision, applied.has_drifted) = (update.to_owned(), true);
    } else {
        (applied.revision, applied.has_drifted, applied.content) = (FORMER.to_owned(), false, 0);
        (applied.since, applied.outcome) = (Timestamp::UNIX_EPOCH, None);
    }
    applied.previous = applied.previous.take().map(|_| FORMER.to_owned());
}

#[cfg(test)]
mod tests {
    use knative_operator_shared::api::fleet::{KnativeFleetStatus, OnFailure, StageState};

    use super::*;
    use crate::adversary::Action;
    use crate::findings::{is_started, pass};
    use crate::progress::Progress;
    use crate::truth::DEADLINE;

    /// A fleet with a canary, and a cluster whose stage needs an approval, both with revision `a`.
    fn rolled_out() -> World {
        let mut world = World::new(&[(1, 0, 0, false), (1, 0, 0, true)], &[0, 1], OnFailure::Pause);
        world.act(&Action::Approve);
        (0..4).for_each(|_| pass(&mut world, 1));
        assert_eq!(world.current.as_deref(), Some("a"));
        world
    }

    fn is_of(world: &World, cluster: usize, revision: &str) -> bool {
        world.members[cluster].applied().any(|applied| applied.revision == revision)
    }

    fn versions(world: &World) -> Vec<Option<&str>> {
        world.members.iter().map(|member| member.children[0].applied.as_ref()?.version.as_deref()).collect()
    }

    #[test]
    fn update_waits_for_the_state_of_resources_that_were_restored() {
        let mut world = rolled_out();
        for action in [Action::Backup, Action::Restore(Restored::Adopted), Action::Edit("b")] {
            world.act(&action);
        }
        world.settle();
        assert!(matches!(&world.decide().progress[0], Progress::Waiting(reason, ..) if reason == "NotObserved"));
        assert_eq!(versions(&world), [Some("1.20.3"); 2]);
        // Then it fails if it breaks, and no minor version is skipped.
        pass(&mut world, 1);
        assert_eq!(versions(&world), [Some("1.21.3"), Some("1.20.3")]);
        assert!(world.members[0].was_all_ready());
    }

    #[test]
    fn restored_resource_that_is_never_reported_is_deferred() {
        let mut world = World::new(&[(2, 0, 0, false), (1, 0, 0, false)], &[0, 0, 1], OnFailure::Pause);
        (0..4).for_each(|_| pass(&mut world, 1));
        for action in [Action::Backup, Action::Restore(Restored::Adopted), Action::Edit("d")] {
            world.act(&action);
        }
        world.silent.insert(1);
        world.settle();
        (0..4).for_each(|_| pass(&mut world, 1));
        let state = |world: &World| (world.decide().progress[1].clone(), is_of(world, 2, "d"));
        let (waiting, is_begun) = state(&world);
        assert!(matches!(&waiting, Progress::Waiting(reason, ..) if reason == "NotObserved"), "{waiting:?}");
        assert!(!is_begun, "the stage waits");
        let status = KnativeFleetStatus { update_revision: Some("d".to_owned()), ..KnativeFleetStatus::default() };
        let stage = world.stages_after(&status)[0].clone();
        let expected = "the stage waits for clusters whose state is not known (1); status.attention has them";
        assert_eq!((stage.waits_for.as_deref(), stage.until.is_some()), (Some(expected), true), "{stage:?}");
        // What is not known is not done, and has not failed.
        pass(&mut world, DEADLINE);
        let (deferred, is_begun) = state(&world);
        assert!(matches!(deferred, Progress::Deferred(_)) && is_begun, "{deferred:?}");
        assert!(!is_of(&world, 1, "d"));
        (0..4).for_each(|_| pass(&mut world, 1));
        world.silent.clear();
        (0..4).for_each(|_| pass(&mut world, 1));
        assert_eq!((state(&world), is_of(&world, 1, "d")), ((Progress::Updated, true), true));
    }

    #[test]
    fn older_bundle_takes_no_version_back_from_a_restored_fleet() {
        let mut world = rolled_out();
        world.act(&Action::Bundle("1.20.4"));
        world.act(&Action::Approve);
        (0..4).for_each(|_| pass(&mut world, 1));
        for action in [Action::Backup, Action::Bundle("1.20.3"), Action::Restore(Restored::Adopted)] {
            world.act(&action);
        }
        world.settle();
        assert_eq!((world.update, world.current.as_deref()), ("f", Some("f")));
        assert_eq!(versions(&world), [Some("1.20.4"); 2]);
    }

    #[test]
    fn restored_fleet_needs_its_approvals_again() {
        for how in [Restored::Adopted, Restored::Collected] {
            let mut world = rolled_out();
            world.act(&Action::Edit("e"));
            world.act(&Action::Approve);
            world.settle();
            world.act(&Action::Backup);
            (0..4).for_each(|_| pass(&mut world, 1));
            world.act(&Action::Restore(how));
            (0..4).for_each(|_| pass(&mut world, 1));
            let applied = world.members[1].children[0].applied.as_ref();
            assert_ne!(applied.map(|applied| applied.revision.as_str()), Some("e"), "{how:?}");
            assert_eq!(is_started(&world, 1), how == Restored::Adopted, "{how:?}: it has what it had");
            assert_eq!(world.decide().stages[1].state, StageState::AwaitingApproval, "{how:?}");
        }
    }
}
