//! Clusters that leave, vanish or change their stage while a revision is rolled out skip no stage.

use knative_operator_shared::api::fleet::{OnFailure, StageState};

use super::adversary::Action;
use super::findings::pass;
use super::model::World;
use super::progress::Progress;
use super::truth::DEADLINE;

/// A canary that soaks for an hour, and a stage after it.
const CANARY: [(usize, usize, i32, bool); 2] = [(1, 0, 3600, false), (1, 0, 0, false)];

/// The revision of the resource of a cluster.
fn revision(world: &World, cluster: usize) -> &str {
    world.members[cluster].children[0].applied.as_ref().map_or("", |applied| applied.revision.as_str())
}

/// A fleet with revision `a`; revision `d` is on its canary, which soaks.
fn soaking(on_failure: OnFailure) -> World {
    let mut world = World::new(&CANARY, &[0, 1], on_failure);
    world.settle();
    (0..3).for_each(|_| pass(&mut world, 3600));
    assert_eq!(world.current.as_deref(), Some("a"));
    world.act(&Action::Edit("d"));
    world.settle();
    pass(&mut world, 60);
    world
}

#[test]
fn stage_waits_for_a_canary_that_is_gone() {
    for (gone, back, reason) in [
        (Action::Leave(0, true), Action::Leave(0, false), "ClusterLeft"),
        (Action::Vanish(0, true), Action::Vanish(0, false), "ProfileMissing"),
    ] {
        let mut world = soaking(OnFailure::Rollback);
        world.act(&gone);
        world.settle();
        pass(&mut world, 7200);
        assert_eq!((revision(&world, 1), world.failed.is_empty()), ("a", true), "{gone:?}");
        let decision = world.decide();
        assert!(matches!(&decision.progress[0], Progress::Waiting(of, ..) if of == reason), "{decision:?}");
        assert!(decision.stages[0].waits_for_clusters());
        world.act(&back);
        world.settle();
        pass(&mut world, 60);
        assert_eq!(revision(&world, 1), "a", "its soak starts again");
        pass(&mut world, 3600);
        assert_eq!(revision(&world, 1), "d");
    }
}

#[test]
fn canary_that_gets_other_labels_stays_in_its_stage() {
    let mut world = soaking(OnFailure::Pause);
    world.act(&Action::Restage(0, 1));
    world.settle();
    pass(&mut world, 60);
    assert_eq!((revision(&world, 1), world.decide().stages[0].clusters), ("a", 1));
    pass(&mut world, 3600);
    assert_eq!(revision(&world, 1), "d");
    pass(&mut world, 60);
    let stages = world.decide().stages;
    assert_eq!((world.current.as_deref(), stages[0].clusters, stages[1].clusters), (Some("d"), 0, 2));
}

#[test]
fn failed_canary_that_is_taken_out_stays_failed() {
    let mut world = soaking(OnFailure::Pause);
    world.act(&Action::Break(0, true));
    world.settle();
    pass(&mut world, DEADLINE);
    assert_eq!(world.decide().stages[0].state, StageState::Paused);
    world.act(&Action::Leave(0, true));
    world.settle();
    pass(&mut world, 7200);
    let decision = world.decide();
    assert_eq!((revision(&world, 1), decision.stages[0].failed), ("a", 1), "{decision:?}");
    // Another revision starts without it.
    world.act(&Action::Edit("b"));
    world.settle();
    assert_eq!(world.decide().stages[0].clusters, 0);
}

#[test]
fn canary_that_succeeded_and_left_proves_its_stage() {
    let mut world = soaking(OnFailure::Pause);
    pass(&mut world, 3600);
    world.act(&Action::Leave(0, true));
    pass(&mut world, 60);
    assert_eq!((revision(&world, 1), world.current.as_deref()), ("d", Some("d")));
}

#[test]
fn stage_that_lost_its_clusters_before_their_turn_waits() {
    let mut world = World::new(&CANARY, &[0, 1], OnFailure::Pause);
    world.act(&Action::Outage(0, true));
    world.settle();
    for gone in [Action::Leave(0, true), Action::Restage(0, 1)] {
        world.act(&gone);
        pass(&mut world, DEADLINE);
        assert!(revision(&world, 1).is_empty() && world.decide().stages[0].is_lost, "{gone:?}");
        world.act(&Action::Leave(0, false));
        world.act(&Action::Outage(0, false));
    }
    world.act(&Action::Join(0));
    (0..6).for_each(|_| pass(&mut world, 3600));
    assert!(!revision(&world, 1).is_empty(), "another cluster takes its place");
}

#[test]
fn rollout_completes_on_no_empty_fleet() {
    let mut world = World::new(&[(1, 0, 0, false)], &[0, 0], OnFailure::Rollback);
    world.settle();
    (0..3).for_each(|_| pass(&mut world, 1));
    assert_eq!(world.current.as_deref(), Some("a"));
    // The selector is mistyped for a moment: once a cluster has the revision, then before.
    world.act(&Action::Edit("d"));
    world.settle();
    pass(&mut world, 1);
    let leave = |world: &mut World, left: bool| {
        world.act(&Action::Leave(0, left));
        world.act(&Action::Leave(1, left));
        world.settle();
        pass(world, 1);
    };
    leave(&mut world, true);
    assert_eq!(world.current.as_deref(), Some("a"));
    leave(&mut world, false);
    (0..3).for_each(|_| pass(&mut world, 1));
    assert_eq!(world.current.as_deref(), Some("d"));
    world.paused = true;
    leave(&mut world, true);
    world.act(&Action::Edit("b"));
    pass(&mut world, 1);
    assert_eq!(world.current.as_deref(), Some("d"));
    // The first cluster starts it.
    world.paused = false;
    world.act(&Action::Join(0));
    (0..9).for_each(|_| pass(&mut world, 1));
    assert_eq!((world.current.as_deref(), revision(&world, 2)), (Some("b"), "b"));
}
