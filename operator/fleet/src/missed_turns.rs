//! Clusters that miss the turn of their stage get nothing without the approval of the stage. Those
//! with refused writes delay no other.

use knative_operator_shared::api::fleet::{OnFailure, StageState};

use super::adversary::Action;
use super::member::Refused;
use super::model::World;
use super::progress::Progress;

/// A stage without approval, and one with.
const STAGES: [(usize, usize, i32, bool); 2] = [(1, 0, 0, false), (1, 0, 0, true)];

/// Lets time pass until nothing happens any more.
fn run(world: &mut World) {
    for _ in 0..20 {
        world.settle();
        world.tick(60);
    }
    world.settle();
}

/// The revision of the resource of a cluster.
fn revision(world: &World, cluster: usize) -> Option<&str> {
    world.members[cluster].children[0].applied.as_ref().map(|applied| applied.revision.as_str())
}

#[test]
fn cluster_that_was_deferred_waits_for_the_approval_after_the_rollout() {
    let mut world = World::new(&STAGES, &[0, 1], OnFailure::Pause);
    world.act(&Action::Approve);
    run(&mut world);
    assert_eq!((world.current.as_deref(), revision(&world, 1)), (Some("a"), Some("a")));
    world.act(&Action::Edit("d"));
    world.members[1].unavailable = Some("unreachable".to_owned());
    run(&mut world);
    assert_eq!(world.current.as_deref(), Some("a"), "the only cluster of the stage is deferred");
    assert!(world.decide().stages[1].is_unproven());
    world.members[1].unavailable = None;
    run(&mut world);
    assert_eq!((revision(&world, 1), world.decide().stages[1].state), (Some("a"), StageState::AwaitingApproval));
    world.act(&Action::Approve);
    run(&mut world);
    assert_eq!((revision(&world, 1), world.decide().stages[1].state), (Some("d"), StageState::Complete));
}

#[test]
fn new_cluster_gets_no_revision_that_its_stage_did_not_get() {
    let mut world = World::new(&STAGES, &[0], OnFailure::Pause);
    run(&mut world);
    assert_eq!((world.current.as_deref(), world.decide().stages[1].state), (None, StageState::AwaitingApproval));
    world.act(&Action::Approve);
    run(&mut world);
    assert_eq!(world.current.as_deref(), Some("a"), "the stage with the approval is empty");
    world.approvals.clear();
    world.act(&Action::Join(1));
    run(&mut world);
    assert_eq!((revision(&world, 1), world.decide().stages[1].state), (None, StageState::AwaitingApproval));
    world.act(&Action::Edit("d"));
    run(&mut world);
    assert_eq!(revision(&world, 1), None);
    world.act(&Action::Approve);
    run(&mut world);
    assert_eq!(revision(&world, 1), Some("d"));
    // A cluster that joins during the next rollout gets what the other one has.
    world.act(&Action::Edit("c"));
    world.act(&Action::Join(1));
    run(&mut world);
    assert_eq!((revision(&world, 1), revision(&world, 2)), (Some("d"), Some("d")));
}

fn refused(is_due: bool) -> Option<Refused> {
    Some(Refused { revision: "a".to_owned(), message: "quota".to_owned(), is_due })
}

#[test]
fn refused_cluster_is_reported_and_delays_no_other() {
    // One cluster at a time, and one may fail.
    let mut world = World::new(&[(1, 1, 0, false)], &[0, 0], OnFailure::Pause);
    world.members[0].refused = refused(false);
    run(&mut world);
    assert_eq!((revision(&world, 0), revision(&world, 1)), (None, Some("a")));
    assert_eq!(world.decide().progress[0], Progress::Failed("Refused".to_owned(), "quota".to_owned()));
    world.act(&Action::Pause(true));
    world.members[0].refused = refused(true);
    run(&mut world);
    assert_eq!(revision(&world, 0), None, "paused");
    world.act(&Action::Pause(false));
    run(&mut world);
    assert_eq!(revision(&world, 0), Some("a"), "it is tried again");
}

#[test]
fn refused_resource_next_to_an_accepted_one_is_reported() {
    let mut world = World::new(&[(1, 0, 0, false)], &[0, 0], OnFailure::Pause);
    run(&mut world);
    world.members[0].children[1].applied = None;
    assert_eq!(world.decide().progress[0], Progress::Pending);
    world.members[0].refused = refused(false);
    let decision = world.decide();
    assert!(decision.progress[0].is_refused(), "{decision:?}");
    assert!(decision.writes.is_empty() && decision.stages[0].updating == 0, "{decision:?}");
    world.members[0].refused = refused(true);
    assert_eq!(world.decide().writes.len(), 1);
}
