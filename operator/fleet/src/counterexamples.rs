//! Paths of the adversary that broke what people rely on in the code of an earlier version, one for
//! each critical finding. The document of the architecture has them in a table.

use knative_operator_shared::api::fleet::{OnFailure, StageState};
use knative_operator_shared::version::Version;

use super::adversary::Action;
use super::findings::{is_started, pass};
use super::model::World;
use super::progress::Progress;
use super::removal_model::{Action as Removal, Fleet};
use super::truth::DEADLINE;

/// A fleet with a canary and two clusters after it.
fn fleet(stages: &[(usize, usize, i32, bool)]) -> World {
    World::new(stages, &[0, 1, 1], OnFailure::Pause)
}

/// A canary that must be Ready for a minute.
const SOAK: [(usize, usize, i32, bool); 2] = [(1, 0, 60, false), (1, 0, 0, false)];

fn play(world: &mut World, actions: &[Action]) {
    for action in actions {
        world.act(action);
        world.settle();
    }
}

#[test]
fn next_stage_waits_for_the_soak_although_ready_lies_in_the_future() {
    let mut world = fleet(&SOAK);
    // The model records that the canary is Ready since a second that is to come.
    play(&mut world, &[Action::Tick(1), Action::Tick(30)]);
    assert!(world.members[0].is_ready() && !is_started(&world, 1));
    pass(&mut world, 59);
    assert!(!is_started(&world, 1), "Ready was observed for 59 s");
    pass(&mut world, 1);
    assert!(is_started(&world, 1) && !is_started(&world, 2));
}

#[test]
fn mistyped_selector_that_matches_others_uninstalls_nothing() {
    // It matches 30 unreachable clusters instead of the three of the fleet. Those have no
    // installation, and count nowhere.
    let mut fleet = Fleet::of(3);
    (0..3).for_each(|index| fleet.act(&Removal::Leave(index, true)));
    (0..48).for_each(|_| fleet.act(&Removal::Tick(60)));
    let blocked = fleet.pass(usize::MAX).map(|(_, clusters)| clusters);
    assert_eq!((fleet.removed.len(), blocked), (0, Some(vec![0, 1, 2])), "two days later");
}

#[test]
fn clusters_that_no_selector_matched_for_a_moment_need_the_approval_of_their_stage() {
    let mut world = fleet(&[(1, 0, 0, false), (1, 0, 0, true)]);
    // A mistyped selector matches 30 unreachable clusters instead, then it is corrected.
    (0..3).for_each(|index| world.act(&Action::Leave(index, true)));
    for index in 3..33 {
        world.act(&Action::Join(2));
        world.act(&Action::Outage(index, true));
    }
    world.settle();
    assert_eq!((world.decide().stages[2].deferred, world.current.as_deref()), (30, None), "nothing is complete");
    (3..33).for_each(|index| world.act(&Action::Leave(index, true)));
    (0..3).for_each(|index| world.act(&Action::Leave(index, false)));
    world.settle();
    play(&mut world, &[Action::Tick(1), Action::Tick(1)]);
    assert!(is_started(&world, 0) && !is_started(&world, 1));
    assert_eq!(world.decide().stages[1].state, StageState::AwaitingApproval);
}

/// A variant that is not in the table.
#[test]
fn cluster_that_was_away_while_its_stage_had_its_turn_needs_the_approval() {
    let mut world = fleet(&[(1, 0, 0, false), (1, 0, 0, true)]);
    let away = [Action::Outage(1, true), Action::Outage(2, true), Action::Tick(30), Action::Tick(30)];
    play(&mut world, &away);
    let stage = world.decide().stages[1].clone();
    assert_eq!((stage.deferred, world.current.as_deref()), (2, None), "the rollout is not complete");
    play(&mut world, &[Action::Outage(1, false), Action::Tick(30)]);
    assert!(!is_started(&world, 1));
    assert_eq!(world.decide().stages[1].state, StageState::AwaitingApproval);
    play(&mut world, &[Action::Approve]);
    assert!(is_started(&world, 1));
}

#[test]
fn update_that_cuts_a_cluster_off_stops_the_rollout() {
    let mut world = fleet(&SOAK);
    play(&mut world, &[Action::Tick(30), Action::Outage(0, true), Action::Tick(DEADLINE)]);
    let decision = world.decide();
    assert!(matches!(&decision.progress[0], Progress::Failed(reason, _) if reason == "Unreachable"));
    assert_eq!((decision.stages[0].state, is_started(&world, 1)), (StageState::Paused, false));
}

#[test]
fn newer_bundle_upgrades_the_canary_and_no_other_before_its_soak() {
    let mut world = fleet(&SOAK);
    world.settle();
    (0..6).for_each(|_| pass(&mut world, 60));
    assert_eq!(world.current.as_deref(), Some("a"));
    let installed = |world: &World| -> Vec<String> {
        let all = world.members.iter().filter_map(|member| member.children[0].applied.as_ref()?.installed.as_ref());
        all.map(Version::to_string).collect()
    };
    play(&mut world, &[Action::Bundle("1.20.4"), Action::Tick(1)]);
    assert_eq!(installed(&world), ["1.20.4", "1.20.3", "1.20.3"]);
    pass(&mut world, 59);
    assert_eq!(installed(&world), ["1.20.4", "1.20.3", "1.20.3"], "Ready was observed for 59 s");
    (0..2).for_each(|_| pass(&mut world, 1));
    assert_eq!(installed(&world), ["1.20.4", "1.20.4", "1.20.3"]);
}
