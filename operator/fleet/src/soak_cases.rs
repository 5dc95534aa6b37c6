//! A soak holds later stages, and no place; a cluster that is skipped holds neither; clusters begin
//! in their order.

use knative_operator_shared::api::fleet::{OnFailure, StageState};

use super::adversary::Action;
use super::findings::pass;
use super::gates::Gates;
use super::model::World;
use super::outcome::Outcome;
use super::progress::Progress;
use super::truth::DEADLINE;

fn has(world: &World, cluster: usize, revision: &str) -> bool {
    world.members[cluster].applied().any(|applied| applied.revision == revision)
}

/// Two clusters that soak for an hour, one at a time, and a stage after them; all have revision `a`
/// and the first one has begun `c`.
fn soaking(on_failure: OnFailure) -> World {
    let mut world = World::new(&[(1, 0, 0, false), (1, 0, 0, false)], &[0, 0, 1], on_failure);
    (0..4).for_each(|_| pass(&mut world, 1));
    assert_eq!(world.current.as_deref(), Some("a"));
    let mut world = world.with_soak(0, 3600);
    world.act(&Action::Edit("d"));
    world.settle();
    world
}

#[test]
fn soak_holds_the_next_stage_and_no_place() {
    let mut world = soaking(OnFailure::Pause);
    assert!(has(&world, 0, "d") && !has(&world, 1, "d"));
    pass(&mut world, 1);
    assert!(has(&world, 1, "d") && !has(&world, 2, "d"), "the first one has given its place away");
    pass(&mut world, 3598);
    let decision = world.decide();
    assert_eq!((decision.stages[0].soaking, decision.stages[0].updating), (2, 0), "{decision:?}");
    assert_eq!(decision.stages[0].state, StageState::Progressing);
    assert!(!has(&world, 2, "d"), "they soak");
    pass(&mut world, 3600);
    assert!(has(&world, 2, "d"));
}

#[test]
fn cluster_that_fails_in_its_soak_has_failed_in_the_update() {
    for (on_failure, expected) in [(OnFailure::Pause, "d"), (OnFailure::Rollback, "a")] {
        let mut world = soaking(on_failure);
        (0..3).for_each(|_| pass(&mut world, 100));
        world.act(&Action::Break(0, true));
        world.settle();
        pass(&mut world, DEADLINE);
        (0..3).for_each(|_| pass(&mut world, 1));
        assert!(!has(&world, 2, "d") && has(&world, 1, expected), "{on_failure:?}");
    }
}

#[test]
fn skipped_cluster_is_left_as_it_is_until_somebody_takes_it_back() {
    let mut world = soaking(OnFailure::Rollback);
    world.act(&Action::Skip(1, true));
    world.settle();
    pass(&mut world, 1);
    pass(&mut world, 3600);
    assert!(has(&world, 2, "d") && has(&world, 1, "a"));
    assert_eq!(world.decide().progress[1], Progress::Skipped);
    pass(&mut world, 1);
    assert_eq!(world.current.as_deref(), Some("d"), "it holds no rollout");
    world.act(&Action::Skip(1, false));
    world.settle();
    assert!(has(&world, 1, "d"));
}

#[test]
fn failure_of_a_skipped_cluster_does_not_count() {
    let mut world = soaking(OnFailure::Pause);
    world.act(&Action::Break(0, true));
    world.settle();
    pass(&mut world, DEADLINE);
    assert_eq!(world.decide().stages[0].state, StageState::Paused);
    world.act(&Action::Skip(0, true));
    world.settle();
    assert!(has(&world, 1, "d"));
    // It keeps what it has, in a rollback, too.
    let outcome = |world: &World| world.members[0].applied().next().and_then(|applied| applied.outcome.clone());
    assert!(matches!(outcome(&world), Some(Outcome::Failed { .. })));
    // A stage of which nothing shows that the revision works does not open the next one.
    world.act(&Action::Skip(1, true));
    world.settle();
    pass(&mut world, 7200);
    assert!(!has(&world, 2, "d") && world.decide().stages[0].is_unproven());
}

#[test]
fn clusters_begin_in_the_order_of_their_places() {
    let mut world = World::new(&[(1, 0, 0, false)], &[0, 0, 0], OnFailure::Pause);
    for (member, place) in world.members.iter_mut().zip([2, 10, 1]) {
        member.place = place;
    }
    let mut order = Vec::new();
    for _ in 0..4 {
        world.settle();
        order.extend((0..3).filter(|index| has(&world, *index, "a") && !order.contains(index)).collect::<Vec<_>>());
        world.tick(1);
    }
    assert_eq!(order, [2, 0, 1]);
}

#[test]
fn cluster_that_returns_has_a_place_until_a_dropped_component_is_gone() {
    let mut world = World::new(&[(1, 0, 0, false)], &[0, 0], OnFailure::Rollback);
    world.act(&Action::Edit("d"));
    (0..4).for_each(|_| pass(&mut world, 1));
    assert_eq!(world.current.as_deref(), Some("d"));
    // The other revision adds a component, and its gate fails on the first cluster.
    world.act(&Action::Gate(0, Gates::Failed("HTTP 500".to_owned())));
    world.act(&Action::Edit("a"));
    world.settle();
    world.tick(1);
    world.settle();
    assert!(has(&world, 0, "d") && world.members[0].applied().any(|applied| applied.is_terminating));
    let outcomes: Vec<_> = world.members[0].applied().map(|applied| (&applied.revision, &applied.outcome)).collect();
    assert!(
        outcomes
            .iter()
            .all(|(revision, outcome)| *revision != "d" || matches!(outcome, Some(Outcome::Progressing { .. }))),
        "{outcomes:?}"
    );
    // A change of the fleet begins no other cluster meanwhile.
    world.act(&Action::Edit("b"));
    let decision = world.decide();
    assert_eq!(decision.stages[0].others, 1, "{decision:?}");
    world.settle();
    assert!(!has(&world, 1, "b"));
}

#[test]
fn fault_of_its_own_defers_a_cluster_and_forgets_no_failure() {
    let mut world = World::new(&[(2, 0, 0, false), (1, 0, 0, false)], &[0, 0, 0, 1], OnFailure::Pause);
    world.settle();
    // The first one works; the credential of the second one is revoked.
    world.act(&Action::Break(1, true));
    world.act(&Action::HubFault(1, true));
    world.settle();
    pass(&mut world, DEADLINE / 2);
    assert!(matches!(world.decide().progress[1], Progress::Updating(Some(_))) && !has(&world, 3, "a"));
    pass(&mut world, DEADLINE);
    assert!(matches!(world.decide().progress[1], Progress::Deferred(_)));
    pass(&mut world, 1);
    assert!(has(&world, 3, "a"), "it has not failed, and holds no stage");
    // It is not Ready when the fault ends: that counts from then on.
    world.act(&Action::HubFault(1, false));
    world.settle();
    assert!(matches!(world.decide().progress[1], Progress::Updating(Some(_))));
    pass(&mut world, DEADLINE);
    assert!(matches!(world.decide().progress[1], Progress::Failed(..)));
    // A fault hides it, and a person asks for another try: nothing is repaired.
    world.join(0);
    world.act(&Action::HubFault(1, true));
    world.act(&Action::Retry);
    world.settle();
    (0..3).for_each(|_| pass(&mut world, DEADLINE));
    assert!(!has(&world, 4, "a"), "{:?}", world.decide());
}

#[test]
fn first_installation_fails_where_the_operator_reached_the_cluster() {
    for (outage, expected) in [(false, "Failed"), (true, "Deferred")] {
        let mut world = World::new(&[(1, 0, 0, false)], &[0], OnFailure::Pause);
        world.members[0].is_vouched_for = false;
        world.settle();
        world.act(&Action::Break(0, true));
        world.act(&Action::Outage(0, outage));
        world.settle();
        world.tick(DEADLINE);
        let progress = format!("{:?}", world.decide().progress[0]);
        assert!(progress.starts_with(expected), "{progress}");
    }
}
