//! While the clusters of a fleet are not known, or the operator has not looked at one, no time
//! passes for them: a soak does not end, and nothing fails.

use jiff::SignedDuration;
use knative_operator_shared::api::fleet::{KnativeFleetStatus, OnFailure};

use super::adversary::Action;
use super::findings::{is_started, pass};
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
    world.act(&Action::Silence(0, true));
    world.settle();
    for _ in 0..5 {
        pass(&mut world, DEADLINE);
    }
    assert!(matches!(world.decide().progress[0], Progress::Updating(Some(_))) && world.failed.is_empty());
    assert!(!is_started(&world, 1));
    let status = world.status_after(&KnativeFleetStatus::default());
    let attention: Vec<&str> = status.attention.iter().map(|entry| entry.reason.as_str()).collect();
    assert_eq!(attention, ["Installing"]);
    // From then on, its deadline counts.
    world.act(&Action::Silence(0, false));
    pass(&mut world, DEADLINE - 1);
    assert!(world.failed.is_empty());
    pass(&mut world, 1);
    assert!(!world.failed.is_empty() && !is_started(&world, 1));
}

#[test]
fn update_that_keeps_the_operator_from_reporting_fails_in_the_end() {
    let mut world = World::new(&[(2, 0, 0, false)], &[0, 0, 0], OnFailure::Rollback);
    (0..4).for_each(|_| pass(&mut world, 1));
    assert_eq!(world.current.as_deref(), Some("a"));
    // Two of them are updated at the same time.
    world.act(&Action::Silence(0, true));
    world.act(&Action::Silence(1, true));
    world.act(&Action::Edit("d"));
    world.settle();
    for _ in 0..6 {
        pass(&mut world, DEADLINE);
    }
    assert!(world.failed.contains("d") && world.failed.len() == 1, "{:?}", world.decide());
    let revision = |world: &World, index: usize| {
        let applied = world.members[index].children[0].applied.as_ref();
        applied.map(|applied| applied.revision.clone())
    };
    let [first, second, third] = [0, 1, 2].map(|index| revision(&world, index));
    assert_eq!([first, second, third].map(Option::unwrap), ["a", "a", "a"]);
    // Nobody knows what came of it, and the status says so.
    world.tick(2 * DEADLINE);
    let old = KnativeFleetStatus { update_revision: Some("d".to_owned()), ..KnativeFleetStatus::default() };
    let attention = world.status_after(&old).attention;
    assert!(attention.iter().any(|entry| entry.cluster.name == "0"), "{attention:?}");
}

#[test]
fn cluster_that_nobody_looks_at_holds_no_place_of_a_rollback() {
    let mut world = World::new(&[(1, 0, 0, false)], &[0, 0, 0], OnFailure::Rollback);
    (0..6).for_each(|_| pass(&mut world, 1));
    assert_eq!(world.current.as_deref(), Some("a"));
    world.act(&Action::Edit("d"));
    (0..3).for_each(|_| pass(&mut world, 1));
    world.act(&Action::Break(2, true));
    world.settle();
    pass(&mut world, DEADLINE);
    assert!(world.failed.contains("d"), "{:?}", world.decide());
    // The first that returns is not reported any more.
    for index in 0..3 {
        world.act(&Action::Silence(index, true));
    }
    world.act(&Action::Break(2, false));
    for _ in 0..15 {
        pass(&mut world, DEADLINE);
    }
    let revisions: Vec<_> =
        world.members.iter().map(|member| member.children[0].applied.as_ref().unwrap().revision.as_str()).collect();
    assert_eq!(revisions, ["a", "a", "a"]);
}
