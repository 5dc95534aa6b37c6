//! Gates hold a rollout until they pass, and what can't be measured is neither success nor failure.

use knative_operator_shared::api::fleet::{OnFailure, StageState};

use super::adversary::Action;
use super::findings::{is_started, pass};
use super::gates::{GATE_FAILED, Gates};
use super::model::World;
use super::outcome::Outcome;
use super::progress::Progress;
use super::truth::DEADLINE;

/// A canary with a soak, and a stage after it; the gates of the canary say `gates`.
fn canary(gates: Gates, on_failure: OnFailure) -> World {
    let mut world = World::new(&[(1, 0, 60, false), (1, 0, 0, false)], &[0, 1], on_failure);
    world.act(&Action::Gate(0, gates));
    world.settle();
    world
}

fn failed() -> Gates {
    Gates::Failed("gates 0/1: answers failed: HTTP 500".to_owned())
}

fn unknown() -> Gates {
    Gates::Unknown("gates 0/1: answers can't be measured: forbidden".to_owned())
}

fn outcome(world: &World, cluster: usize) -> Option<Outcome> {
    world.members[cluster].children[0].applied.as_ref().and_then(|applied| applied.outcome.clone())
}

#[test]
fn gate_that_fails_stops_the_rollout_after_the_soak() {
    let mut world = canary(failed(), OnFailure::Pause);
    pass(&mut world, 1);
    assert!(matches!(world.decide().progress[0], Progress::Updating(Some(_))), "it soaks");
    pass(&mut world, 60);
    let decision = world.decide();
    assert!(matches!(&decision.progress[0], Progress::Failed(reason, _) if reason == GATE_FAILED), "{decision:?}");
    assert_eq!((decision.stages[0].state, decision.stages[0].broken), (StageState::Paused, 1));
    assert!(!is_started(&world, 1));
    // It stays one, although the cluster is Ready and the gates would pass now.
    world.act(&Action::Gate(0, Gates::Passed));
    (0..3).for_each(|_| pass(&mut world, DEADLINE));
    assert!(!is_started(&world, 1) && matches!(outcome(&world, 0), Some(Outcome::Failed { .. })));
    // Nor does a pause that ends repair it.
    world.act(&Action::Pause(true));
    world.act(&Action::Pause(false));
    (0..3).for_each(|_| pass(&mut world, DEADLINE));
    assert!(!is_started(&world, 1) && matches!(outcome(&world, 0), Some(Outcome::Failed { .. })));
    // A person asks for another try: they are measured again.
    world.act(&Action::Retry);
    world.settle();
    pass(&mut world, 60);
    assert_eq!(outcome(&world, 0), Some(Outcome::Succeeded));
    assert!(is_started(&world, 1));
}

#[test]
fn gate_that_can_not_be_measured_is_neither_success_nor_failure() {
    let mut world = canary(unknown(), OnFailure::Rollback);
    (0..20).for_each(|_| pass(&mut world, DEADLINE));
    let (decision, measured) = world.decide_with_measured();
    assert_eq!((&decision.progress[0], decision.wake, measured.len()), (&Progress::Updating(None), None, 1));
    assert!(!is_started(&world, 1) && world.failed.is_empty());
    // A moment in which it is not Ready ends nothing, either.
    world.act(&Action::Blip(0));
    world.settle();
    assert!(matches!(world.decide().progress[0], Progress::Updating(Some(_))), "{:?}", world.decide());
    world.act(&Action::Gate(0, Gates::Passed));
    pass(&mut world, 1);
    assert!(!is_started(&world, 1), "it soaks again");
    pass(&mut world, 60);
    assert!(is_started(&world, 1));
}

#[test]
fn gate_that_fails_rolls_back() {
    let mut world = canary(Gates::Passed, OnFailure::Rollback);
    (0..3).for_each(|_| pass(&mut world, 61));
    assert_eq!(world.current.as_deref(), Some("a"));
    world.act(&Action::Edit("e"));
    world.act(&Action::Gate(0, failed()));
    world.settle();
    pass(&mut world, 1);
    pass(&mut world, 60);
    assert!(world.failed.contains("e"), "{:?}", world.decide());
    pass(&mut world, 1);
    // The gates are of the update, and not of the way back.
    pass(&mut world, 60);
    let applied = world.members[0].children[0].applied.as_ref().unwrap();
    assert_eq!((applied.revision.as_str(), &applied.outcome), ("a", &Some(Outcome::Succeeded)));
    let other = world.members[1].children[0].applied.as_ref().unwrap();
    assert_eq!(other.revision, "a");
}

#[test]
fn gate_of_a_cluster_that_was_not_ready_before_defers_it() {
    let mut world = canary(Gates::Passed, OnFailure::Pause);
    (0..3).for_each(|_| pass(&mut world, 61));
    world.act(&Action::Blip(0));
    world.act(&Action::Edit("c"));
    world.act(&Action::Edit("b"));
    world.act(&Action::Gate(0, failed()));
    world.settle();
    (0..6).for_each(|_| pass(&mut world, 61));
    let (decision, measured) = world.decide_with_measured();
    let is_deferred = |progress: &Progress| matches!(progress, Progress::Deferred(why) if why.contains("HTTP 500"));
    assert!(is_deferred(&decision.progress[0]) && measured.len() == 1, "{decision:?}");
    assert!(decision.stages[0].is_unproven());
    // They are measured again.
    world.act(&Action::Gate(0, Gates::Passed));
    world.settle();
    assert_eq!(outcome(&world, 0), Some(Outcome::Succeeded));
}

#[test]
fn gates_of_an_update_that_succeeded_are_not_measured_again() {
    let mut world = canary(Gates::Passed, OnFailure::Pause);
    (0..3).for_each(|_| pass(&mut world, 61));
    world.act(&Action::Gate(0, failed()));
    world.act(&Action::Pause(true));
    world.act(&Action::Pause(false));
    (0..3).for_each(|_| pass(&mut world, 61));
    let (decision, measured) = world.decide_with_measured();
    assert!(measured.is_empty() && decision.progress.iter().all(|progress| *progress == Progress::Updated));
}
