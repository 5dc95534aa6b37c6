//! What went wrong in earlier versions, one case for each.

use jiff::SignedDuration;
use knative_operator_shared::api::fleet::{OnFailure, StageState};

use super::adversary::Action;
use super::member::Change;
use super::model::World;
use super::outcome::Outcome;
use super::progress::{HUB_FAULT, Progress};
use super::truth::DEADLINE;

/// A canary, and a stage after it.
const CANARY: [(usize, usize, i32, bool); 2] = [(1, 0, 0, false), (1, 0, 0, false)];

pub fn is_started(world: &World, cluster: usize) -> bool {
    world.members[cluster].children[0].applied.is_some()
}

pub fn pass(world: &mut World, seconds: i64) {
    world.tick(seconds);
    world.settle();
}

/// A cluster that was Ready in revision `a`, and is not in `d`. The fleet rolls back what fails.
pub fn broken_by_update() -> World {
    let mut world = World::new(&[(1, 0, 0, false)], &[0], OnFailure::Rollback);
    world.settle();
    pass(&mut world, 1);
    world.act(&Action::Edit("d"));
    world.settle();
    world.act(&Action::Break(0, true));
    world.settle();
    world
}

#[test]
fn soak_is_observed_although_recorded_times_are_in_the_future() {
    let mut world = World::new(&[(1, 0, 3600, false), (1, 0, 0, false)], &[0, 1], OnFailure::Pause);
    world.settle();
    for clock in [0, 7200, -7200] {
        world.act(&Action::SetClock(clock));
        pass(&mut world, 1000);
        assert!(!is_started(&world, 1), "the clock is set by {clock} s");
    }
    pass(&mut world, 1000);
    assert!(!is_started(&world, 1), "Ready was observed for 3000 s");
    pass(&mut world, 1000);
    assert!(is_started(&world, 1));
}

#[test]
fn stage_that_is_deferred_lets_no_other_start() {
    let mut world = World::new(&CANARY, &[0, 1], OnFailure::Pause);
    world.act(&Action::Outage(0, true));
    world.settle();
    for _ in 0..5 {
        pass(&mut world, DEADLINE);
    }
    assert!(!is_started(&world, 1) && world.decide().stages[0].is_unproven());
    world.act(&Action::Outage(0, false));
    world.settle();
    pass(&mut world, 1);
    assert!(is_started(&world, 1));
}

#[test]
fn clusters_that_join_later_have_a_failure_limit() {
    let mut world = World::new(&[(1, 0, 0, false)], &[], OnFailure::Pause);
    world.settle();
    assert_eq!(world.current, None, "the fleet precedes its clusters");
    world.act(&Action::Join(0));
    world.act(&Action::Join(0));
    world.act(&Action::Break(0, true));
    world.settle();
    for _ in 0..5 {
        pass(&mut world, DEADLINE);
    }
    assert!(!is_started(&world, 1));
    assert_eq!(world.decide().stages[0].state, StageState::Paused);
}

#[test]
fn cluster_that_is_lost_after_the_write_has_failed() {
    let mut world = World::new(&CANARY, &[0, 1], OnFailure::Pause);
    world.settle();
    world.act(&Action::Outage(0, true));
    world.settle();
    pass(&mut world, DEADLINE);
    assert!(!is_started(&world, 1));
    assert!(matches!(&world.decide().progress[0], Progress::Failed(reason, _) if reason == "Unreachable"));
    // It stays one when the cluster is back, until a person asks for another try.
    world.act(&Action::Outage(0, false));
    world.settle();
    pass(&mut world, DEADLINE);
    assert!(!is_started(&world, 1));
    world.act(&Action::Retry);
    world.settle();
    assert!(is_started(&world, 1));
}

#[test]
fn fault_after_the_deadline_is_no_failure_at_once_and_none_after_success() {
    let mut world = World::new(&[(1, 0, 2 * 100, false), (1, 0, 0, true)], &[0, 1], OnFailure::Rollback);
    world.settle();
    pass(&mut world, 1);
    pass(&mut world, 150);
    world.act(&Action::Blip(0));
    world.settle();
    assert!(matches!(world.decide().progress[0], Progress::Updating(Some(_))), "later than the deadline");
    pass(&mut world, 1);
    pass(&mut world, 200);
    assert_eq!(world.decide().stages[1].state, StageState::AwaitingApproval);
    // Overnight, a node is drained.
    world.act(&Action::Break(0, true));
    world.settle();
    pass(&mut world, 10 * DEADLINE);
    assert_eq!((&world.decide().progress[0], world.failed.is_empty()), (&Progress::Updated, true));
}

#[test]
fn fault_of_the_hub_fails_nothing() {
    let mut world = World::new(&CANARY, &[0, 1], OnFailure::Rollback);
    world.settle();
    world.act(&Action::HubFault(0, true));
    world.act(&Action::Break(0, true));
    world.settle();
    for _ in 0..5 {
        pass(&mut world, DEADLINE);
    }
    assert_eq!((world.decide().progress[0].clone(), world.failed.is_empty()), (Progress::Updating(None), true));
    world.act(&Action::Break(0, false));
    world.act(&Action::HubFault(0, false));
    world.settle();
    pass(&mut world, 1);
    assert!(is_started(&world, 1));
}

#[test]
fn stage_waits_for_a_cluster_that_a_fault_of_the_hub_hides() {
    let mut world = World::new(&CANARY, &[0, 0, 1], OnFailure::Pause);
    world.act(&Action::HubFault(0, true));
    world.settle();
    for _ in 0..5 {
        pass(&mut world, DEADLINE);
    }
    assert!(is_started(&world, 1) && !is_started(&world, 0) && !is_started(&world, 2));
    assert!(matches!(&world.decide().progress[0], Progress::Waiting(reason, ..) if reason == HUB_FAULT));
    // A ClusterProfile without credential blocks nobody.
    world.members[0].hub_fault.as_mut().unwrap().is_common = false;
    world.settle();
    assert!(matches!(world.decide().progress[0], Progress::Deferred(_)) && is_started(&world, 2));
}

#[test]
fn cluster_that_was_not_ready_before_is_deferred() {
    let mut world = World::new(&[(1, 0, 0, false)], &[0, 0], OnFailure::Rollback);
    world.settle();
    pass(&mut world, 1);
    pass(&mut world, 1);
    world.act(&Action::Break(0, true));
    world.act(&Action::Edit("d"));
    world.settle();
    assert_eq!(world.members[0].children[0].applied.as_ref().unwrap().revision, "d", "it may be the fix");
    pass(&mut world, DEADLINE);
    assert!(matches!(world.decide().progress[0], Progress::Deferred(_)));
    pass(&mut world, 1);
    assert_eq!((world.current.as_deref(), world.failed.is_empty()), (Some("d"), true));
}

#[test]
fn pause_holds_a_rollback() {
    let mut world = broken_by_update();
    world.act(&Action::Pause(true));
    pass(&mut world, DEADLINE);
    let revision = |world: &World| world.members[0].children[0].applied.as_ref().unwrap().revision.clone();
    assert_eq!((world.failed.contains("d"), revision(&world)), (true, "d".to_owned()));
    world.act(&Action::Pause(false));
    world.settle();
    assert_eq!(revision(&world), "a");
}

#[test]
fn revision_to_return_to_was_installed_successfully() {
    let mut world = World::new(&[(1, 0, 0, false)], &[0], OnFailure::Pause);
    world.settle();
    pass(&mut world, 1);
    for (outcome, expected) in [
        (Outcome::Progressing { was_ready: true }, "a"),
        (Outcome::Failed { generation: 1, reason: "NotReady".to_owned() }, "a"),
        (Outcome::Succeeded, "d"),
    ] {
        let applied = world.members[0].children[0].applied.as_mut().unwrap();
        (applied.revision, applied.previous, applied.outcome) = ("d".to_owned(), Some("a".to_owned()), Some(outcome));
        let writes = world.members[0].writes("b", &world.contents);
        let previous = writes.iter().find_map(|write| match &write.change {
            Change::Apply { previous, .. } => previous.clone(),
            _ => None,
        });
        assert_eq!(previous.as_deref(), Some(expected));
    }
}

#[test]
fn component_whose_deletion_hangs_fails_and_blocks_no_other() {
    let mut world = World::new(&[(1, 1, 0, false)], &[0, 0], OnFailure::Pause);
    world.settle();
    pass(&mut world, 1);
    pass(&mut world, 1);
    world.act(&Action::Edit("e"));
    world.hanging.insert(0);
    world.settle();
    assert!(matches!(world.decide().progress[0], Progress::Updating(Some(_))));
    pass(&mut world, DEADLINE);
    assert!(matches!(world.decide().progress[0], Progress::Failed(..)));
    pass(&mut world, 1);
    assert_eq!(world.decide().progress[1], Progress::Updated);
}

#[test]
fn deadline_has_a_wake_up_also_in_a_rollback() {
    let mut world = broken_by_update();
    pass(&mut world, DEADLINE);
    assert_eq!(world.members[0].children[0].applied.as_ref().unwrap().revision, "a");
    assert_eq!(world.decide().wake, Some(SignedDuration::from_secs(DEADLINE)));
}

#[test]
fn rollback_waits_for_no_cluster_that_is_not_ready() {
    // To the next minor version, and on the way to a later one.
    for (update, step, second) in [("d", 1, "a"), ("b", 1, "a"), ("b", 2, "b")] {
        let mut world = World::new(&[(2, 0, 0, false)], &[0, 0], OnFailure::Rollback);
        world.settle();
        pass(&mut world, 1);
        world.act(&Action::Edit(update));
        world.settle();
        world.act(&Action::Break(0, true));
        world.settle();
        if step == 2 {
            pass(&mut world, 1);
        }
        world.act(&Action::Break(1, true));
        pass(&mut world, DEADLINE - i64::from(step == 2));
        let revision = |of: usize| world.members[of].children[0].applied.as_ref().unwrap().revision.clone();
        assert!(world.failed.contains(update), "{update}: the first one failed");
        assert_eq!((revision(0).as_str(), revision(1).as_str()), ("a", second), "{update} {step}");
    }
}

#[test]
fn cluster_returns_to_nothing_that_its_stage_did_not_approve() {
    let mut world = World::new(&[(1, 0, 0, false), (1, 0, 0, true)], &[0], OnFailure::Rollback);
    world.approvals.insert(("a".to_owned(), "1".to_owned()), String::new());
    world.settle();
    pass(&mut world, 1);
    world.settle();
    assert_eq!(world.current.as_deref(), Some("a"), "stage 1 has no cluster");
    world.act(&Action::Edit("c"));
    world.approvals = [(("c".to_owned(), "1".to_owned()), String::new())].into();
    world.act(&Action::Join(1));
    for _ in 0..4 {
        pass(&mut world, 1);
    }
    world.act(&Action::Break(0, true));
    let has = |world: &World| world.members[1].children[0].applied.as_ref().unwrap().revision.clone();
    assert_eq!(has(&world), "c");
    world.failed.insert("c");
    world.current = Some("a".to_owned());
    pass(&mut world, DEADLINE);
    assert_eq!(has(&world), "c", "nobody approved the other one");
}

#[test]
fn cluster_that_was_written_in_part_has_failed_if_it_is_not_ready() {
    let mut world = World::new(&[(1, 0, 0, false)], &[0, 0], OnFailure::Pause);
    // The operator stops between the two resources of the first cluster.
    world.act(&Action::Crash(1));
    world.act(&Action::Break(0, true));
    world.settle();
    pass(&mut world, DEADLINE);
    assert!(matches!(world.decide().progress[0], Progress::Failed(..)), "it was new, not broken, before");
    assert!(!is_started(&world, 1));
}

#[test]
fn content_by_other_labels_is_another_update() {
    // One cluster may fail.
    let mut world = World::new(&[(1, 1, 0, false), (1, 0, 0, false)], &[0, 1], OnFailure::Pause);
    world.settle();
    world.act(&Action::Break(0, true));
    world.act(&Action::Relabel(0));
    world.settle();
    pass(&mut world, DEADLINE);
    assert!(matches!(world.decide().progress[0], Progress::Failed(..)), "it was new, not broken, before");
    assert!(!is_started(&world, 1));
}

#[test]
fn cluster_that_was_not_ready_before_did_not_fail_by_an_update_that_was_replaced() {
    // One cluster may fail.
    let mut world = World::new(&[(1, 1, 0, false), (1, 0, 0, false)], &[0, 1], OnFailure::Pause);
    world.settle();
    (0..3).for_each(|_| pass(&mut world, 1));
    world.act(&Action::Break(0, true));
    world.act(&Action::Edit("b"));
    world.settle();
    world.act(&Action::Outage(0, true));
    pass(&mut world, DEADLINE);
    world.act(&Action::Edit("a"));
    world.settle();
    world.act(&Action::Edit("b"));
    pass(&mut world, DEADLINE);
    assert!(matches!(world.decide().progress[0], Progress::Deferred(_)));
    assert_eq!(world.members[1].children[0].applied.as_ref().unwrap().revision, "a");
}

#[test]
fn update_that_replaces_another_one_fails_for_what_that_one_broke() {
    let mut world = World::new(&[(1, 0, 60, false)], &[0, 0], OnFailure::Pause);
    world.settle();
    (0..5).for_each(|_| pass(&mut world, 60));
    assert_eq!(world.current.as_deref(), Some("a"));
    world.act(&Action::Edit("d"));
    world.settle();
    world.act(&Action::Break(0, true));
    pass(&mut world, DEADLINE / 2);
    world.act(&Action::Edit("b"));
    world.settle();
    pass(&mut world, DEADLINE);
    assert!(matches!(world.decide().progress[0], Progress::Failed(..)), "it was Ready before both");
    assert_eq!(world.members[1].children[0].applied.as_ref().unwrap().revision, "a");
}

#[test]
fn cluster_that_failed_is_observed_again_in_another_rollout() {
    let mut world = World::new(&[(1, 0, 0, false)], &[0], OnFailure::Pause);
    world.settle();
    world.act(&Action::Break(0, true));
    pass(&mut world, DEADLINE);
    world.act(&Action::Pause(true));
    world.act(&Action::Edit("b"));
    world.settle();
    pass(&mut world, DEADLINE);
    world.act(&Action::Edit("a"));
    world.settle();
    assert!(matches!(world.decide().progress[0], Progress::Updating(Some(_))), "another revision took the time");
}

#[test]
fn canary_that_failed_within_the_limit_proves_nothing() {
    let mut world = World::new(&[(1, 1, 0, false), (1, 0, 0, false)], &[0, 1], OnFailure::Pause);
    world.act(&Action::Crash(2));
    world.act(&Action::Break(0, true));
    world.settle();
    pass(&mut world, DEADLINE);
    assert!(matches!(world.decide().progress[0], Progress::Failed(..)));
    assert!(!is_started(&world, 1) && world.decide().stages[0].is_unproven());
    world.act(&Action::Break(0, false));
    world.act(&Action::Retry);
    pass(&mut world, 1);
    assert!(is_started(&world, 1));
}

#[test]
fn component_that_is_dropped_is_an_update_with_its_soak() {
    let mut world = World::new(&[(1, 0, 60, false)], &[0, 0], OnFailure::Rollback);
    world.settle();
    (0..4).for_each(|_| pass(&mut world, 60));
    assert_eq!(world.current.as_deref(), Some("a"));
    let has_eventing = |world: &World, cluster: usize| {
        world.members[cluster].children[1].applied.as_ref().is_some_and(|applied| !applied.is_terminating)
    };
    world.act(&Action::Edit("e"));
    world.settle();
    pass(&mut world, 1);
    pass(&mut world, 50);
    assert!(!has_eventing(&world, 0) && has_eventing(&world, 1), "the first one soaks");
    pass(&mut world, 10);
    assert!(!has_eventing(&world, 1));
    // If it fails, all have the component again.
    world.act(&Action::Break(1, true));
    pass(&mut world, DEADLINE);
    world.act(&Action::Break(1, false));
    (0..4).for_each(|_| pass(&mut world, 60));
    assert!(world.failed.contains("e") && has_eventing(&world, 0) && has_eventing(&world, 1));
}
