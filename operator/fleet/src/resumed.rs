//! A failure counts until the cluster is updated. It is observed again when a person asks for that,
//! and starts no other cluster because of it; a pause that ends, as a maintenance window opens each
//! day, observes nothing again.

use knative_operator_shared::api::fleet::{OnFailure, StageState};

use super::adversary::Action;
use super::findings::{broken_by_update, is_started, pass};
use super::member::Refused;
use super::model::World;
use super::outcome::Outcome;
use super::progress::Progress;
use super::truth::DEADLINE;

/// Three clusters, two at the same time; the first one failed.
fn failed() -> World {
    let mut world = World::new(&[(2, 0, 60, false)], &[0, 0, 0], OnFailure::Pause);
    world.settle();
    world.act(&Action::Break(0, true));
    world.settle();
    pass(&mut world, DEADLINE);
    assert!(matches!(world.decide().progress[0], Progress::Failed(..)) && !is_started(&world, 2));
    world
}

#[test]
fn pause_that_ends_resets_no_failure() {
    for on_failure in [OnFailure::Pause, OnFailure::Rollback] {
        let mut world = failed();
        let outcome = |world: &World| world.members[0].applied().next().map(|applied| applied.outcome.clone());
        let before = outcome(&world);
        // The cluster is repaired; its failure is one of the update until a person says otherwise.
        world.act(&Action::Break(0, false));
        for _ in 0..3 {
            world.act(&Action::Pause(true));
            pass(&mut world, 60);
            world.act(&Action::Pause(false));
            pass(&mut world, 60);
            let decision = world.decide();
            assert!(matches!(decision.progress[0], Progress::Failed(..)) && !is_started(&world, 2), "{decision:?}");
            assert_eq!((decision.stages[0].state, decision.stages[0].broken), (StageState::Paused, 1));
            assert_eq!(outcome(&world), before);
        }
        // With another policy, it is what it was.
        world.on_failure = on_failure;
        world.settle();
        assert_eq!(world.failed.contains("a"), on_failure == OnFailure::Rollback);
    }
}

#[test]
fn failure_that_an_earlier_version_recorded_counts() {
    let mut world = failed();
    // It recorded the generation of the failure: the fleet was paused, and resumed, before.
    for applied in world.members[0].children.iter_mut().filter_map(|child| child.applied.as_mut()) {
        if let Some(Outcome::Failed { generation, .. }) = &mut applied.outcome {
            *generation += 2;
        }
    }
    world.act(&Action::Break(0, false));
    (0..3).for_each(|_| pass(&mut world, 60));
    assert!(matches!(world.decide().progress[0], Progress::Failed(..)) && !is_started(&world, 2));
}

#[test]
fn retried_fleet_observes_only_what_failed() {
    let mut world = failed();
    world.act(&Action::Retry);
    world.settle();
    let decision = world.decide();
    let stage = &decision.stages[0];
    assert_eq!((stage.state, stage.failed, stage.broken), (StageState::Paused, 1, 0), "{decision:?}");
    assert!(matches!(decision.progress[0], Progress::Updating(Some(_))) && !is_started(&world, 2));
    // It fails again.
    pass(&mut world, DEADLINE);
    assert!(matches!(world.decide().progress[0], Progress::Failed(..)) && !is_started(&world, 2));
    world.act(&Action::Retry);
    world.act(&Action::Break(0, false));
    pass(&mut world, 1);
    assert!(!is_started(&world, 2), "it soaks");
    pass(&mut world, 60);
    assert!(is_started(&world, 2));
}

#[test]
fn cluster_that_is_tried_again_is_observed_for_all_its_time_and_starts_no_other() {
    let mut world = failed();
    // Some time later, somebody asks for another try.
    pass(&mut world, DEADLINE);
    for child in world.members[0].children.iter_mut() {
        let applied = child.applied.as_mut().unwrap();
        applied.outcome = applied.outcome.as_ref().and_then(Outcome::retried).or(applied.outcome.clone());
    }
    let decision = world.decide();
    let stage = &decision.stages[0];
    assert_eq!((stage.state, stage.failed, stage.broken), (StageState::Paused, 1, 0), "{decision:?}");
    pass(&mut world, DEADLINE - 1);
    assert!(matches!(world.decide().progress[0], Progress::Updating(Some(_))) && !is_started(&world, 2));
    pass(&mut world, 1);
    assert!(matches!(world.decide().progress[0], Progress::Failed(..)) && !is_started(&world, 2), "it fails again");
}

#[test]
fn update_is_tried_again_as_one() {
    let mut world = failed();
    // The resources are written one after the other.
    let applied = world.members[0].children[0].applied.as_mut().unwrap();
    applied.outcome = applied.outcome.as_ref().and_then(Outcome::retried);
    assert!(applied.outcome.is_some());
    let decision = world.decide();
    assert!(matches!(decision.progress[0], Progress::Updating(Some(_))), "{decision:?}");
    assert!(decision.writes.is_empty(), "nothing takes it back: {:?}", decision.writes);
}

#[test]
fn resource_that_failed_under_a_former_name_counts_with_the_others() {
    let mut world = failed();
    // The next revision changed the other component only.
    world.members[0].children[0].applied.as_mut().unwrap().revision = "former".to_owned();
    world.act(&Action::Retry);
    world.act(&Action::Break(0, false));
    pass(&mut world, 1);
    pass(&mut world, 60);
    assert_eq!(world.decide().progress[0], Progress::Updated);
    let applied = || world.members[0].applied();
    assert!(applied().all(|applied| applied.outcome == Some(Outcome::Succeeded)), "{:?}", world.members[0]);
    assert!(is_started(&world, 2));
}

#[test]
fn failure_counts_until_the_last_minor_version_is_reached() {
    let mut world = failed();
    world.act(&Action::Edit("b"));
    world.act(&Action::Break(0, false));
    world.settle();
    (0..3).for_each(|_| pass(&mut world, 61));
    world.act(&Action::Break(0, true));
    world.settle();
    pass(&mut world, DEADLINE);
    world.act(&Action::Retry);
    world.act(&Action::Break(0, false));
    // The invariants hold at each step.
    for _ in 0..10 {
        pass(&mut world, 61);
    }
    assert_eq!(world.current.as_deref(), Some("b"));
}

#[test]
fn failure_that_is_observed_again_rolls_nothing_back() {
    let mut world = failed();
    world.on_failure = OnFailure::Rollback;
    world.act(&Action::Retry);
    world.settle();
    assert!(world.failed.is_empty());
    pass(&mut world, DEADLINE);
    assert!(world.failed.contains("a"), "it failed again");
}

#[test]
fn refusal_of_the_hub_stops_the_stage_and_rolls_nothing_back() {
    let mut world = World::new(&[(1, 0, 0, false)], &[0, 0], OnFailure::Rollback);
    let message = "exceeded quota".to_owned();
    world.members[0].refused = Some(Refused { revision: "a".to_owned(), message, is_due: false });
    world.settle();
    let decision = world.decide();
    assert_eq!((decision.stages[0].state, decision.mark_failed), (StageState::Paused, false), "{decision:?}");
    assert!(world.failed.is_empty() && !is_started(&world, 1));
}

#[test]
fn rollback_that_fails_on_a_cluster_is_reported() {
    let mut world = broken_by_update();
    pass(&mut world, DEADLINE);
    assert_eq!(world.members[0].children[0].applied.as_ref().unwrap().revision, "a");
    assert_eq!(world.decide().stages[0].failed, 0, "it is in progress");
    pass(&mut world, DEADLINE);
    let stage = &world.decide().stages[0];
    assert_eq!((stage.state, stage.failed), (StageState::Complete, 1));
    world.act(&Action::Break(0, false));
    pass(&mut world, 1);
    assert_eq!(world.decide().stages[0].failed, 0, "it is Ready");
}
