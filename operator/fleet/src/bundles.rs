//! Release bundles of the model. Revision `a` is of a spec that asks for a version without a patch
//! number: with a newer patch in the bundle, that means revision `f`. A bundle may come in the
//! middle of a rollout, and no person changes the fleet with it.

use knative_operator_shared::api::Component;
use knative_operator_shared::api::fleet::{OnFailure, StageState};
use knative_operator_shared::version::Version;
use serde_json::json;

use super::adversary::Action;
use super::findings::pass;
use super::member::{Member, Reported};
use super::model::World;
use super::revision::RevisionData;
use super::truth::DEADLINE;
use super::versions::{VersionSources, known, resolved};

/// What the spec of revision `a` asks for.
const ASKED: &str = "1.20";
/// The patches of bundles, and the revision with each.
const PATCHES: [(&str, &str); 2] = [("1.20.3", "a"), ("1.20.4", "f")];

/// The version of `revision`, if its spec asks for one without a patch number.
pub fn meaning(revision: &str) -> Option<&'static str> {
    PATCHES.into_iter().find(|(_, of)| *of == revision).map(|(patch, _)| patch)
}

/// The spec of revision `a`, with what it means if that was decided.
fn data(meaning: Option<&str>) -> RevisionData {
    let mut data = json!({"serving": {"spec": {"version": ASKED}}});
    if let Some(meaning) = meaning {
        data["versions"] = json!({"KnativeServing": {ASKED: meaning}});
    }
    serde_json::from_value(data).unwrap()
}

impl World {
    /// The revision that the spec of `revision` means, with the bundle and after what was rolled
    /// out.
    pub fn meant(&self, revision: &'static str) -> &'static str {
        self.meant_after(revision, meaning(self.update))
    }

    /// Rolls out what the spec means with the bundle, unless failures stopped the rollout.
    pub fn follow_bundle(&mut self) {
        let before = self.update;
        if meaning(before) < Some(self.bundle) && meaning(before).is_some() && !self.is_stopped() {
            self.roll_out(self.meant(before));
            self.check_bundle(before);
            self.observe_truth();
        }
    }

    /// Whether failures stopped the rollout, or rolled it back.
    fn is_stopped(&self) -> bool {
        let stages = self.decide().stages;
        let mut stages = stages.iter().zip(self.stages.settings());
        self.failed.contains(self.update)
            || stages.any(|(report, stage)| report.state == StageState::Paused && report.has_too_many(stage))
    }

    /// The same, after a revision that meant the patch `before`, if it is known.
    pub fn meant_after(&self, revision: &'static str, before: Option<&str>) -> &'static str {
        if meaning(revision).is_none() {
            return revision;
        }
        let before = before.map(|patch| data(Some(patch)));
        let installed = self.members.iter().flat_map(Member::applied).filter_map(|applied| {
            known(applied.installed.clone(), applied.reported != Reported::Nothing, applied.version.as_deref())
        });
        let installed: Vec<_> = installed.map(|version| (Component::Serving, version)).collect();
        let patch: Version = self.bundle.parse().unwrap();
        let available = [(Component::Serving, vec![patch])];
        let sources = VersionSources {
            available: &available,
            before: before.as_ref(),
            installed: &installed,
            keeps_installed: false,
        };
        let meant = resolved(data(None), &sources);
        let version = meant.version(Component::Serving, Some(ASKED));
        // Without a version, each cluster would decide for itself.
        PATCHES.into_iter().find(|(patch, _)| Some(*patch) == version).map_or(revision, |(_, of)| of)
    }
}

/// The revision of a cluster.
fn revision(member: &Member) -> &str {
    member.children[0].applied.as_ref().map_or("", |applied| applied.revision.as_str())
}

fn have(world: &World) -> Vec<&str> {
    world.members.iter().map(revision).collect()
}

#[test]
fn newer_bundle_passes_the_same_stages_and_approvals() {
    // After a rollout, and in the middle of one.
    for is_complete in [true, false] {
        let mut world = World::new(&[(1, 0, 0, false), (1, 0, 0, true)], &[0, 1], OnFailure::Pause).with_soak(0, 60);
        world.act(&Action::Approve);
        world.settle();
        if is_complete {
            (0..4).for_each(|_| pass(&mut world, 60));
            assert_eq!((world.current.as_deref(), have(&world)), (Some("a"), vec!["a", "a"]));
        } else {
            pass(&mut world, 1);
            assert_eq!(have(&world), ["a", ""], "the canary soaks");
        }
        let other = if is_complete { "a" } else { "" };
        world.act(&Action::Bundle("1.20.4"));
        world.settle();
        assert_eq!((world.update, have(&world)), ("f", vec!["f", other]));
        pass(&mut world, 1);
        pass(&mut world, 59);
        assert_eq!(world.decide().stages[1].state, StageState::Pending, "the canary soaks again");
        pass(&mut world, 1);
        assert_eq!(world.decide().stages[1].state, StageState::AwaitingApproval, "it has that of another revision");
        assert_eq!(have(&world), ["f", other]);
        // An older bundle takes nothing back, also if a person changes the fleet.
        for action in [Action::Bundle("1.20.3"), Action::Edit("a"), Action::Approve] {
            world.act(&action);
            world.settle();
        }
        (0..2).for_each(|_| pass(&mut world, 60));
        assert_eq!((world.current.as_deref(), have(&world)), (Some("f"), vec!["f", "f"]));
    }
}

#[test]
fn newer_bundle_starts_no_rollout_that_failures_stopped() {
    for on_failure in [OnFailure::Pause, OnFailure::Rollback] {
        let mut world = World::new(&[(1, 0, 0, false), (1, 0, 0, false)], &[0, 1], on_failure);
        world.act(&Action::Edit("d"));
        world.settle();
        (0..4).for_each(|_| pass(&mut world, 1));
        assert_eq!(world.current.as_deref(), Some("d"));
        for action in [Action::Edit("a"), Action::Break(0, true)] {
            world.act(&action);
            world.settle();
        }
        pass(&mut world, DEADLINE);
        if on_failure == OnFailure::Rollback {
            world.act(&Action::Break(0, false));
            (0..4).for_each(|_| pass(&mut world, 1));
        }
        let first = if on_failure == OnFailure::Pause { "a" } else { "d" };
        assert_eq!(have(&world), [first, "d"], "{on_failure:?}");
        // Neither a newer bundle nor the end of a pause repairs what failed.
        for action in [Action::Bundle("1.20.4"), Action::Pause(true), Action::Pause(false)] {
            world.act(&action);
            world.settle();
            (0..4).for_each(|_| pass(&mut world, 1));
            assert_eq!((world.update, have(&world)), ("a", vec![first, "d"]), "{on_failure:?} {action:?}");
        }
        // A person repairs the cluster and asks for another try, or changes the fleet.
        world.act(&Action::Break(0, false));
        world.act(&if on_failure == OnFailure::Pause { Action::Retry } else { Action::Edit("a") });
        (0..8).for_each(|_| pass(&mut world, 1));
        assert_eq!((world.current.as_deref(), have(&world)), (Some("f"), vec!["f", "f"]), "{on_failure:?}");
    }
}
