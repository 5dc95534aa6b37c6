//! While the clusters of a fleet are not known, or the operator has not looked at one, no time
//! passes for them: a soak does not end, and nothing fails.

use jiff::SignedDuration;
use knative_operator_shared::api::fleet::{KnativeFleetStatus, OnFailure, StageState};

use super::adversary::Action;
use super::findings::{is_started, pass};
use super::member::Reported;
use super::model::World;
use super::progress::{NOT_OBSERVED, Progress};
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
    assert!(matches!(world.decide().progress[0], Progress::Updating(None)) && world.failed.is_empty());
    assert!(!is_started(&world, 1));
    let status = world.status_after(&KnativeFleetStatus::default());
    let attention: Vec<&str> = status.attention.iter().map(|entry| entry.reason.as_str()).collect();
    assert_eq!(attention, [NOT_OBSERVED]);
    // From then on, its deadline counts.
    world.act(&Action::Silence(0, false));
    pass(&mut world, DEADLINE - 1);
    assert!(world.failed.is_empty());
    pass(&mut world, 1);
    assert!(!world.failed.is_empty() && !is_started(&world, 1));
}

#[test]
fn operator_that_reports_nothing_stops_a_rollout_and_says_so() {
    let mut world = World::new(&[(2, 0, 0, false), (1, 0, 0, false)], &[0, 0, 0, 1], OnFailure::Rollback);
    (0..6).for_each(|_| pass(&mut world, 1));
    assert_eq!(world.current.as_deref(), Some("a"));
    // Such as a policy that refuses each status.
    world.act(&Action::Silence(0, true));
    world.act(&Action::Silence(1, true));
    world.act(&Action::Edit("d"));
    world.settle();
    let old = KnativeFleetStatus { update_revision: Some("d".to_owned()), ..KnativeFleetStatus::default() };
    for _ in 0..20 {
        pass(&mut world, DEADLINE);
    }
    // They hold their places, and nothing has failed.
    let decision = world.decide();
    let [first, second, third, fourth] = &decision.progress[..] else { panic!("{decision:?}") };
    assert!(world.failed.is_empty() && (third, fourth) == (&Progress::Pending, &Progress::Pending), "{decision:?}");
    assert!(matches!((first, second), (Progress::Updating(None), Progress::Updating(None))), "{decision:?}");
    let status = world.status_after(&old);
    let attention: Vec<&str> = status.attention.iter().map(|entry| entry.cluster.name.as_str()).collect();
    assert_eq!(attention, ["0", "1"]);
    // When it reports again, one works, and the other one has its deadline.
    world.act(&Action::Break(1, true));
    world.act(&Action::Silence(0, false));
    world.act(&Action::Silence(1, false));
    pass(&mut world, DEADLINE - 1);
    assert!(world.failed.is_empty(), "{:?}", world.decide());
    pass(&mut world, 1);
    assert!(world.failed.contains("d"), "{:?}", world.decide());
}

#[test]
fn component_that_is_not_reported_hides_no_other_that_fails() {
    let mut world = World::new(&[(1, 0, 0, false)], &[0], OnFailure::Rollback);
    (0..3).for_each(|_| pass(&mut world, 1));
    world.act(&Action::Edit("b"));
    world.settle();
    world.act(&Action::Break(0, true));
    // Serving is, Eventing is not.
    world.look();
    world.act(&Action::Silence(0, true));
    for (number, child) in world.members[0].children.iter_mut().enumerate() {
        child.applied.as_mut().unwrap().reported = if number == 0 { Reported::Current } else { Reported::Earlier };
    }
    world.settle();
    pass(&mut world, DEADLINE);
    assert!(world.failed.contains("b"), "{:?}", world.decide());
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
    // Nobody knows whether they did.
    assert_eq!(world.decide().stages[0].state, StageState::Progressing);
    for index in 0..3 {
        world.act(&Action::Silence(index, false));
    }
    (0..3).for_each(|_| pass(&mut world, 1));
    assert_eq!(world.decide().stages[0].state, StageState::Complete);
}
