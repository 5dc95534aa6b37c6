//! Conditions of the status: transition times, and `Ready` computed from the five others.

use jiff::Timestamp;

use crate::api::Condition;
use crate::text::{MAX_MESSAGE, shown};
use crate::time::truncate;

/// The five conditions that `Ready` depends on, in the order in which a reconcile reaches them.
pub const DEPENDENTS: [&str; 5] = [
    VERSION_MIGRATION_ELIGIBLE,
    TARGET_CLUSTER_RESOLVED,
    INSTALL_SUCCEEDED,
    DEPENDENCIES_INSTALLED,
    DEPLOYMENTS_AVAILABLE,
];

/// Condition type: all five others are True.
pub const READY: &str = "Ready";
/// Condition type: the target version may follow the installed one.
pub const VERSION_MIGRATION_ELIGIBLE: &str = "VersionMigrationEligible";
/// Condition type: the resource refers to no cluster, or the client for its cluster works.
pub const TARGET_CLUSTER_RESOLVED: &str = "TargetClusterResolved";
/// Condition type: the API server accepted every object.
pub const INSTALL_SUCCEEDED: &str = "InstallSucceeded";
/// Condition type: no dependency of the component is missing.
pub const DEPENDENCIES_INSTALLED: &str = "DependenciesInstalled";
/// Condition type: every Deployment is available.
pub const DEPLOYMENTS_AVAILABLE: &str = "DeploymentsAvailable";

/// Condition type, True or absent: nothing goes on until somebody acts (kstatus' convention).
/// `Ready` does not depend on it.
pub const STALLED: &str = "Stalled";

/// State of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// True.
    True,
    /// False.
    False {
        /// Reason, for programs.
        reason: String,
        /// Message, for people.
        message: String,
    },
    /// Unknown.
    Unknown {
        /// Reason, for programs; may be empty.
        reason: String,
        /// Message, for people; may be empty.
        message: String,
    },
}

impl State {
    /// False, with reason and message.
    pub fn not_met(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::False { reason: reason.into(), message: message.into() }
    }

    /// Unknown, without reason and message.
    pub fn unknown() -> Self {
        Self::Unknown { reason: String::new(), message: String::new() }
    }

    /// Unknown, with reason and message.
    pub fn unknown_because(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Unknown { reason: reason.into(), message: message.into() }
    }

    fn status(&self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False { .. } => "False",
            Self::Unknown { .. } => "Unknown",
        }
    }
}

/// States of the conditions that `Ready` depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct States {
    /// `VersionMigrationEligible`.
    pub eligible: State,
    /// `TargetClusterResolved`.
    pub resolved: State,
    /// `InstallSucceeded`.
    pub installed: State,
    /// `DependenciesInstalled`.
    pub dependencies: State,
    /// `DeploymentsAvailable`.
    pub available: State,
}

impl States {
    /// `state` of each type of condition.
    pub fn of_each(mut state: impl FnMut(&'static str) -> State) -> Self {
        Self {
            eligible: state(VERSION_MIGRATION_ELIGIBLE),
            resolved: state(TARGET_CLUSTER_RESOLVED),
            installed: state(INSTALL_SUCCEEDED),
            dependencies: state(DEPENDENCIES_INSTALLED),
            available: state(DEPLOYMENTS_AVAILABLE),
        }
    }

    /// Each with its type, in the order of [`DEPENDENTS`].
    pub fn each(&self) -> [(&'static str, &State); 5] {
        [
            (VERSION_MIGRATION_ELIGIBLE, &self.eligible),
            (TARGET_CLUSTER_RESOLVED, &self.resolved),
            (INSTALL_SUCCEEDED, &self.installed),
            (DEPENDENCIES_INSTALLED, &self.dependencies),
            (DEPLOYMENTS_AVAILABLE, &self.available),
        ]
    }
}

/// The six conditions for `states`, sorted by type. `lastTransitionTime` is `now` if the status
/// differs from that in `old`, else it is kept. Other conditions in `old` are kept.
pub fn update(old: &[Condition], states: &States, now: Timestamp) -> Vec<Condition> {
    let ready = ready(states);
    let own = states.each().into_iter().chain([(READY, &ready)]);
    let mut conditions: Vec<Condition> = own.map(|(type_, state)| condition(old, type_, state, now)).collect();
    conditions.extend(old.iter().filter(|c| c.type_ != READY && !DEPENDENTS.contains(&c.type_.as_str())).cloned());
    conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
    conditions
}

/// State of `Ready`: the first False, else the first Unknown, else True.
pub fn ready(states: &States) -> State {
    let first = |f: fn(&State) -> bool| states.each().into_iter().map(|(_, state)| state).find(|s| f(s)).cloned();
    first(|s| matches!(s, State::False { .. }))
        .or_else(|| first(|s| matches!(s, State::Unknown { .. })))
        .unwrap_or(State::True)
}

fn condition(old: &[Condition], type_: &str, state: &State, now: Timestamp) -> Condition {
    let before = old.iter().find(|c| c.type_ == type_);
    let since = before.filter(|c| c.status == state.status()).and_then(|c| c.last_transition_time.clone());
    let (reason, message) = match state {
        State::True => (None, None),
        State::False { reason, message } | State::Unknown { reason, message } => {
            (non_empty(reason), non_empty(&shown(message, MAX_MESSAGE)))
        }
    };
    Condition {
        type_: type_.to_owned(),
        status: state.status().to_owned(),
        observed_generation: None,
        severity: None,
        last_transition_time: since.or_else(|| Some(seconds(now))),
        reason,
        message,
    }
}

fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn seconds(now: Timestamp) -> String {
    truncate(now).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(state: &State) -> States {
        States::of_each(|_| state.clone())
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn new_status_has_six_sorted_conditions() {
        let conditions = update(&[], &all(&State::unknown()), at(0));
        let types: Vec<_> = conditions.iter().map(|c| c.type_.as_str()).collect();
        assert_eq!(
            types,
            [
                "DependenciesInstalled",
                "DeploymentsAvailable",
                "InstallSucceeded",
                "Ready",
                "TargetClusterResolved",
                "VersionMigrationEligible"
            ]
        );
        assert!(conditions.iter().all(|c| c.status == "Unknown" && c.reason.is_none()));
    }

    #[test]
    fn each_has_its_type_in_order() {
        let states = States::of_each(|type_| State::not_met(type_, "x"));
        let each = states.each();
        assert_eq!(each.map(|(type_, _)| type_), DEPENDENTS);
        assert!(each.into_iter().all(|(type_, state)| *state == State::not_met(type_, "x")));
    }

    #[test]
    fn ready_prefers_first_false_over_unknown() {
        let mut states = all(&State::True);
        assert_eq!(ready(&states), State::True);
        states.eligible = State::unknown();
        assert_eq!(ready(&states), State::unknown());
        states.available = State::not_met("NotReady", "Waiting on deployments: a");
        states.installed = State::not_met("Error", "Install failed with message: b");
        assert_eq!(ready(&states), State::not_met("Error", "Install failed with message: b"));
    }

    #[test]
    fn transition_time_changes_with_the_status_only() {
        let first = update(&[], &all(&State::not_met("A", "a")), at(100));
        let second = update(&first, &all(&State::not_met("B", "b")), at(200));
        assert!(second.iter().all(|c| c.since() == Some(at(100)) && c.reason.as_deref() == Some("B")));
        let third = update(&second, &all(&State::True), at(300));
        assert!(third.iter().all(|c| c.since() == Some(at(300)) && c.message.is_none()));
    }
}
