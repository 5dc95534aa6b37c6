//! While the clusters of a fleet are not known, or the operator has not looked at one, no time
//! passes for them: a soak does not end, and nothing fails.

use jiff::SignedDuration;
use knative_operator_shared::api::fleet::{KnativeFleetStatus, OnFailure};

use super::adversary::Action;
use super::findings::{is_started, pass};
use super::member::Reported;
use super::model::World;
use super::progress::Progress;
use super::truth::DEADLINE;

/// The clusters are not known for some time, in which nothing is decided.
fn hide(world: &mut World, seconds: i64) {
    let unknown = SignedDuration::from_secs(seconds);
    world.elapsed += unknown;
    world.timers.borrow_mut().skip(unknown);
    world.settle();
}

#[test]
fn soak_does_not_end_while_the_clusters_are_not_known() {
    for soak in [false, true] {
        let (min_ready, soaks) = if soak { (0, 60) } else { (60, 0) };
        let stages = [(1, 0, min_ready, false), (1, 0, 0, false)];
        let mut world = World::new(&stages, &[0, 1], OnFailure::Pause).with_soak(0, soaks);
        world.settle();
        pass(&mut world, 1);
        pass(&mut world, 50);
        hide(&mut world, 3600);
        assert!(!is_started(&world, 1));
        // What it had before counts.
        pass(&mut world, 10);
        assert!(is_started(&world, 1));
    }
}

#[test]
fn nothing_fails_while_the_clusters_are_not_known() {
    let mut world = World::new(&[(1, 0, 0, false)], &[0], OnFailure::Rollback);
    world.settle();
    world.act(&Action::Break(0, true));
    world.settle();
    pass(&mut world, DEADLINE - 1);
    hide(&mut world, 10 * DEADLINE);
    assert!(matches!(world.decide().progress[0], Progress::Updating(Some(_))) && world.failed.is_empty());
    pass(&mut world, 1);
    assert!(matches!(world.decide().progress[0], Progress::Failed(..)) || world.failed.contains("a"));
}

#[test]
fn operator_that_has_not_looked_since_the_write_fails_nothing() {
    let mut world = World::new(&[(1, 0, 0, false), (1, 0, 0, false)], &[0, 1], OnFailure::Rollback);
    world.act(&Action::Break(0, true));
    world.settle();
    let set = |world: &mut World, reported| {
        world.members[0].children.iter_mut().for_each(|child| child.applied.as_mut().unwrap().reported = reported);
    };
    set(&mut world, Reported::Earlier);
    for _ in 0..5 {
        pass(&mut world, DEADLINE);
    }
    assert_eq!((world.decide().progress[0].clone(), world.failed.is_empty()), (Progress::Updating(None), true));
    assert!(!is_started(&world, 1));
    let status = world.status_after(&KnativeFleetStatus::default());
    let attention: Vec<&str> = status.attention.iter().map(|entry| entry.reason.as_str()).collect();
    assert_eq!(attention, ["Installing"]);
    // From then on, its deadline counts.
    set(&mut world, Reported::Current);
    pass(&mut world, 0);
    pass(&mut world, DEADLINE - 1);
    assert!(world.failed.is_empty());
    pass(&mut world, 1);
    assert!(!world.failed.is_empty() && !is_started(&world, 1));
}
