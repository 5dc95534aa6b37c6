//! Explores the states of small fleets: from each state that was reached, every action of the
//! adversary, until no new state is found or the limit is reached. The invariants are in
//! [`super::invariants`]; besides, a rollout that waits says what for. `EXPLORE_STATES` is the
//! limit for each fleet.

use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use jiff::SignedDuration;
use knative_operator_shared::api::fleet::{KnativeFleetStatus, OnFailure, StageState};

use super::adversary::Action;
use super::backup::Restored;
use super::gates::Gates;
use super::member::{Member, Reported};
use super::model::World;
use super::progress::NOT_OBSERVED;
use super::truth::DEADLINE;

/// States of each fleet.
const STATES: usize = 2000;

/// All that a decision can depend on, without times that make no difference any more.
fn fingerprint(world: &World) -> String {
    let capped = |time: SignedDuration| time.as_secs().min(7 * DEADLINE) / 10;
    let members = world.observed().into_iter().enumerate().map(|(index, member)| {
        let children: Vec<_> = member
            .children
            .iter()
            .map(|child| {
                child.applied.as_ref().map(|a| {
                    let state = (a.ready.is_ok(), a.has_drifted, a.is_terminating, a.reported);
                    format!("{:?}", (&a.revision, &a.previous, &a.outcome, a.content, state))
                })
            })
            .collect();
        let elapsed = (capped(member.elapsed.total), capped(member.elapsed.in_phase));
        format!(
            "{children:?} {} {} {:?} {:?} {elapsed:?} {} {} {:?}",
            member.stage,
            member.is_skipped,
            member.unavailable,
            member.hub_fault,
            world.broken.contains(&index),
            world.silent.contains(&index),
            member.gates
        )
    });
    let members: Vec<_> = members.collect();
    let mut approvals: Vec<_> = world.approvals.keys().collect();
    approvals.sort();
    format!(
        "{members:?} {:?} {:?} {:?} {} {} {:?} {} {approvals:?} {:?} {:?}",
        world.gone,
        world.had_clusters,
        world.current,
        world.update,
        world.bundle,
        world.failed,
        world.paused,
        world.contents,
        world.ahead
    )
}

/// A rollout that does nothing says what it waits for, or is complete.
fn check_waiting(world: &World) {
    let (decision, measured) = world.decide_with_measured();
    if !decision.writes.is_empty()
        || decision.wake.is_some()
        || decision.is_complete
        || decision.mark_failed
        || !measured.is_empty()
    {
        return;
    }
    let is_explained = decision.stages.iter().find(|stage| stage.state != StageState::Complete).is_none_or(|stage| {
        let is_waiting = matches!(stage.state, StageState::AwaitingApproval | StageState::Paused);
        let has_fault = world.members.iter().any(|member| member.hub_fault.is_some());
        let is_paused = world.failed.contains(world.update) && world.paused;
        is_waiting || stage.waits_for_clusters() || has_fault || is_paused || names_unreported(world)
    });
    assert!(is_explained, "the rollout waits and does not say what for: {decision:?}");
}

/// Whether the status names a cluster of which the operator reports nothing.
fn names_unreported(world: &World) -> bool {
    let is_unreported = |member: &&Member| member.applied().any(|applied| applied.reported != Reported::Current);
    let attention = world.status_after(&KnativeFleetStatus::default()).attention;
    let mut unreported = world.members.iter().filter(is_unreported);
    unreported.any(|member| attention.iter().any(|e| e.cluster == member.cluster && e.reason == NOT_OBSERVED))
}

/// Explores up to `limit` states; returns their number.
fn explore(start: World, actions: &[Action], limit: usize) -> usize {
    let (mut seen, mut queue) = (HashSet::new(), VecDeque::from([(start, Vec::new())]));
    while let Some((world, path)) = queue.pop_front() {
        for action in actions {
            let path = || path.iter().copied().chain([action]).collect::<Vec<_>>();
            let mut next = world.clone();
            let step = AssertUnwindSafe(|| {
                next.act(action);
                next.settle();
                check_waiting(&next);
            });
            if let Err(panic) = catch_unwind(step) {
                eprintln!("after {:?}", path());
                resume_unwind(panic);
            }
            if seen.len() < limit && seen.insert(fingerprint(&next)) {
                queue.push_back((next, path()));
            }
        }
    }
    seen.len()
}

/// What the adversary does to fleets of `clusters`.
fn actions(clusters: usize) -> Vec<Action> {
    let mut actions = vec![
        Action::Tick(30),
        Action::Tick(DEADLINE),
        Action::SetClock(7200),
        Action::SetClock(-7200),
        Action::Edit("a"),
        Action::Edit("c"),
        Action::Edit("e"),
        Action::Bundle("1.20.4"),
        Action::Bundle("1.20.3"),
        Action::Approve,
        Action::Pause(true),
        Action::Pause(false),
        Action::Retry,
        Action::Crash(1),
    ];
    for index in 0..clusters {
        for is in [true, false] {
            actions.extend([Action::Outage(index, is), Action::Break(index, is)]);
        }
        actions.extend([Action::Blip(index), Action::Relabel(index)]);
    }
    actions.extend([Action::Leave(0, true), Action::Leave(0, false), Action::Restage(0, 1), Action::Restage(0, 0)]);
    actions.extend([Action::Vanish(1, true), Action::Vanish(1, false)]);
    for gates in [Gates::Failed(String::new()), Gates::Unknown(String::new()), Gates::Passed] {
        actions.push(Action::Gate(0, gates));
    }
    for is in [true, false] {
        actions.extend([Action::HubFault(0, is), Action::HubFault(1, is), Action::Skip(0, is)]);
        actions.push(Action::Silence(0, is));
    }
    actions
}

#[test]
fn invariants_hold_in_the_first_states_of_small_fleets() {
    // The variable when this is compiled, since this crate reads no environment.
    let limit = option_env!("EXPLORE_STATES").map_or(STATES, |states| states.parse().unwrap());
    // A canary that must be Ready for a minute, with its place or without, then a stage that needs
    // an approval or not.
    for (min_ready, approval, on_failure) in [
        (60, false, OnFailure::Pause),
        (60, true, OnFailure::Pause),
        (60, false, OnFailure::Rollback),
        (0, false, OnFailure::Rollback),
    ] {
        let stages = [(1, 0, min_ready, false), (1, 0, 0, approval)];
        let world = World::new(&stages, &[0, 1, 1], on_failure).with_soak(0, 60);
        let states = explore(world, &actions(3), limit);
        eprintln!("{states} states, place for {min_ready} s, approval: {approval}, {on_failure:?}");
        assert!(states >= limit.min(1000), "{states}");
    }
}

#[test]
fn invariants_hold_in_the_first_states_after_a_backup() {
    let limit = option_env!("EXPLORE_STATES").map_or(STATES, |states| states.parse().unwrap());
    // The hub is backed up when a canary soaks, and restored when the rollout has gone on: with the
    // revision that was backed up, or another one.
    for (update, on_failure) in [("e", OnFailure::Pause), ("f", OnFailure::Rollback)] {
        let mut world = World::new(&[(1, 0, 0, false), (1, 0, 0, true)], &[0, 1, 1], on_failure).with_soak(0, 60);
        let pass = |world: &mut World| {
            world.act(&Action::Approve);
            world.settle();
            world.tick(60);
            world.settle();
        };
        (0..6).for_each(|_| pass(&mut world));
        assert_eq!(world.current.as_deref(), Some("a"));
        world.act(&if update == "f" { Action::Bundle("1.20.4") } else { Action::Edit(update) });
        world.settle();
        world.tick(30);
        world.settle();
        world.act(&Action::Backup);
        (0..6).for_each(|_| pass(&mut world));
        assert_eq!(world.current.as_deref(), Some(update));
        let restores = [Restored::Snapshot, Restored::Adopted, Restored::Collected].map(Action::Restore);
        let states = explore(world, &[restores.to_vec(), actions(3)].concat(), limit);
        eprintln!("{states} states, {update} was backed up, {on_failure:?}");
        assert!(states >= limit.min(1000), "{states}");
    }
}
