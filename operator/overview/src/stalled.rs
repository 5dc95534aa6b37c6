//! The condition `Stalled`, by which kstatus (Flux, Helm) and health scripts see that only a person
//! helps: the remedy is one without which the problem does not end. Pure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use knative_operator_shared::api::{Condition, KnativeFleetStatus};
use knative_operator_shared::condition::STALLED;
use knative_operator_shared::time::truncate;

use super::names::Names;
use super::{build, component};

/// Reasons for which a fleet waits for a person as planned: it is not stalled, unless it failed.
const PLANNED: [&str; 2] = ["AwaitingApproval", "Paused"];

/// Time for which a problem of a component lasts before it counts: what is missing may be created
/// together with the resource, and a program that waits by kstatus gives up as soon as it sees the
/// condition.
const SETTLE: SignedDuration = SignedDuration::from_secs(5);

/// A problem that only a person solves.
struct Permanent {
    reason: String,
    message: String,
    /// Since when its condition is as it is, if it has to last before it counts.
    since: Option<Timestamp>,
}

impl Permanent {
    /// Time until it counts.
    fn settles_in(&self, now: Timestamp) -> Option<Duration> {
        let left = SETTLE - now.duration_since(self.since?);
        Duration::try_from(left).ok().filter(|left| !left.is_zero())
    }
}

/// `conditions` of a KnativeServing or KnativeEventing after `old`, with `Stalled` if it is.
pub fn of_component(old: &[Condition], mut conditions: Vec<Condition>, now: Timestamp) -> Vec<Condition> {
    let problem = problem_of_component(&conditions);
    set(old, &mut conditions, problem, None, now);
    conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
    conditions
}

/// Time until a KnativeServing or KnativeEventing with `conditions` is stalled; `None` if it is, or
/// is not to be.
pub fn component_settles_in(conditions: &[Condition], now: Timestamp) -> Option<Duration> {
    problem_of_component(conditions).filter(|_| stalled(conditions).is_none())?.settles_in(now)
}

fn problem_of_component(conditions: &[Condition]) -> Option<Permanent> {
    let problem = component::problem(conditions, &Names::default())?;
    let condition = conditions.iter().find(|c| c.type_ == problem.condition && c.status == "False")?;
    let is_permanent = problem.remedy.as_ref().is_some_and(|remedy| !remedy.can_recover);
    is_permanent.then(|| Permanent { reason: problem.reason, message: problem.message, since: condition.since() })
}

/// `status` of a fleet after `old`, with `Stalled` if it is.
pub fn of_fleet(old: &KnativeFleetStatus, mut status: KnativeFleetStatus, now: Timestamp) -> KnativeFleetStatus {
    let problem = problem_of_fleet(&status);
    set(&old.conditions, &mut status.conditions, problem, status.observed_generation, now);
    status
}

fn problem_of_fleet(status: &KnativeFleetStatus) -> Option<Permanent> {
    let (condition, remedy) = build::problem(&status.conditions)?;
    let reason = condition.reason.clone().unwrap_or_default();
    let is_permanent = remedy.is_some_and(|remedy| !remedy.can_recover) && !PLANNED.contains(&reason.as_str());
    let message = condition.message.clone().unwrap_or_default();
    is_permanent.then_some(Permanent { reason, message, since: None })
}

/// The condition `Stalled` among `conditions`, if it is True.
fn stalled(conditions: &[Condition]) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.type_ == STALLED && condition.status == "True")
}

/// Sets `Stalled` among `conditions`, which follow `old`, to `problem` in `generation`, once that
/// has lasted.
fn set(
    old: &[Condition],
    conditions: &mut Vec<Condition>,
    problem: Option<Permanent>,
    generation: Option<i64>,
    now: Timestamp,
) {
    conditions.retain(|condition| condition.type_ != STALLED);
    let before = stalled(old);
    let since = before.and_then(|condition| condition.last_transition_time.clone());
    // One problem may follow another.
    let problem = problem.filter(|problem| before.is_some() || problem.settles_in(now).is_none());
    conditions.extend(problem.map(|Permanent { reason, message, since: _ }| Condition {
        type_: STALLED.to_owned(),
        status: "True".to_owned(),
        observed_generation: generation,
        severity: None,
        last_transition_time: Some(since.unwrap_or_else(|| truncate(now).to_string())),
        reason: Some(reason),
        message: Some(message),
    }));
}

#[cfg(test)]
mod tests {
    use knative_operator_shared::condition::{State, States, update};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn after(old: &[Condition], resolved: State, now: Timestamp) -> Vec<Condition> {
        let states = States { resolved, ..States::of_each(|_| State::True) };
        of_component(old, update(old, &states, now), now)
    }

    #[test]
    fn component_is_stalled_only_while_a_person_must_act() {
        let missing = || State::not_met("ClusterProfileNotFound", "no");
        // What is missing may be created a moment later.
        let first = after(&[], missing(), at(100));
        assert_eq!((stalled(&first), component_settles_in(&first, at(101))), (None, Some(Duration::from_secs(4))));
        let first = after(&first, missing(), at(105));
        let found = stalled(&first).unwrap();
        assert_eq!((found.status.as_str(), found.reason.as_deref()), ("True", Some("ClusterProfileNotFound")));
        assert_eq!(component_settles_in(&first, at(105)), None);
        let second = after(&first, missing(), at(200));
        assert_eq!(stalled(&second).unwrap().since(), Some(at(105)));
        assert!(second.is_sorted_by(|a, b| a.type_ < b.type_));
        for state in [State::True, State::not_met("RemoteClusterUnreachable", "no"), State::unknown()] {
            let conditions = after(&second, state, at(300));
            assert_eq!((stalled(&conditions), conditions.len()), (None, 6));
        }
        // Nothing is known of a new resource.
        let unknown = States::of_each(|_| State::unknown());
        assert_eq!(stalled(&of_component(&[], update(&[], &unknown, at(0)), at(0))), None);
    }

    /// Why a fleet with conditions of a type, a status and a reason is stalled.
    fn reason_of_fleet(conditions: &[(&str, &str, &str)]) -> Option<String> {
        let condition = |(type_, status, reason): &(&str, &str, &str)| Condition {
            type_: (*type_).to_owned(),
            status: (*status).to_owned(),
            reason: Some((*reason).to_owned()),
            ..Condition::default()
        };
        let conditions = conditions.iter().map(condition).collect();
        let status = KnativeFleetStatus { conditions, ..KnativeFleetStatus::default() };
        let status = of_fleet(&KnativeFleetStatus::default(), status, at(0));
        stalled(&status.conditions).and_then(|condition| condition.reason.clone())
    }

    #[test]
    fn pause_hides_no_failure() {
        let pending = ("RemovalPending", "True", "Paused");
        for failure in ["RolledBack", "RevisionNotStored", "FinalizerNotStored"] {
            let conditions = [("Paused", "True", "Paused"), ("Progressing", "False", failure), pending];
            assert_eq!(reason_of_fleet(&conditions).as_deref(), Some(failure));
        }
        let conditions = [("Paused", "True", "TooManyFailures"), ("Progressing", "False", "Paused"), pending];
        assert_eq!(reason_of_fleet(&conditions).as_deref(), Some("TooManyFailures"));
    }

    #[test]
    fn fleet_that_waits_as_planned_is_not_stalled() {
        let fleet = |type_: &str, status: &str, reason: &str| reason_of_fleet(&[(type_, status, reason)]);
        for (type_, status, reason) in
            [("Paused", "True", "Paused"), ("Progressing", "False", "AwaitingApproval"), ("Ready", "True", "Ready")]
        {
            assert_eq!(fleet(type_, status, reason), None);
        }
        for (type_, status, reason) in [
            ("Paused", "True", "TooManyFailures"),
            ("Progressing", "False", "RolledBack"),
            ("Ready", "False", "InvalidSpec"),
            ("RemovalBlocked", "True", "TooManyClusters"),
        ] {
            assert_eq!(fleet(type_, status, reason).as_deref(), Some(reason));
        }
    }
}
