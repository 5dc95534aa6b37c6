//! How conditions are set: transition times, and `Ready` out of the five others.

use jiff::{Timestamp, Unit};

use crate::api::Condition;
use crate::text::{MAX_MESSAGE, clip};

/// The five conditions that `Ready` depends on, in the order in which they are reached.
pub const DEPENDENTS: [&str; 5] = [
    VERSION_MIGRATION_ELIGIBLE,
    TARGET_CLUSTER_RESOLVED,
    INSTALL_SUCCEEDED,
    DEPENDENCIES_INSTALLED,
    DEPLOYMENTS_AVAILABLE,
];

/// All five others are True.
pub const READY: &str = "Ready";
/// The target version may follow the installed one.
pub const VERSION_MIGRATION_ELIGIBLE: &str = "VersionMigrationEligible";
/// No cluster is referred to, or its client works.
pub const TARGET_CLUSTER_RESOLVED: &str = "TargetClusterResolved";
/// Every object of the plan was accepted.
pub const INSTALL_SUCCEEDED: &str = "InstallSucceeded";
/// Nothing that the component needs is missing.
pub const DEPENDENCIES_INSTALLED: &str = "DependenciesInstalled";
/// Each Deployment of the plan is available.
pub const DEPLOYMENTS_AVAILABLE: &str = "DeploymentsAvailable";

/// What is so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It holds.
    True,
    /// It does not.
    False {
        /// One word for programs.
        reason: String,
        /// A sentence for people.
        message: String,
    },
    /// Nobody knows yet.
    Unknown {
        /// One word for programs; empty when there is nothing to say.
        reason: String,
        /// A sentence for people; empty when there is nothing to say.
        message: String,
    },
}

impl State {
    /// Not so, because.
    pub fn no(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::False { reason: reason.into(), message: message.into() }
    }

    /// Not known, with nothing to say about it.
    pub fn unknown() -> Self {
        Self::Unknown { reason: String::new(), message: String::new() }
    }

    /// Not known, because.
    pub fn unclear(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Unknown { reason: reason.into(), message: message.into() }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False { .. } => "False",
            Self::Unknown { .. } => "Unknown",
        }
    }
}

/// The state of each dependent condition, by its place in [`DEPENDENTS`].
pub type States = [State; 5];

/// The six conditions that tell `states`, sorted by type. `lastTransitionTime` is `now` where the status differs
/// from that in `old`, and kept otherwise. Conditions of `old` that are not ours are kept as they are.
pub fn tell(old: &[Condition], states: &States, now: Timestamp) -> Vec<Condition> {
    let ready = ready(states);
    let ours = DEPENDENTS.iter().copied().zip(states).chain([(READY, &ready)]);
    let mut told: Vec<Condition> = ours.map(|(type_, state)| condition(old, type_, state, now)).collect();
    told.extend(old.iter().filter(|c| c.type_ != READY && !DEPENDENTS.contains(&c.type_.as_str())).cloned());
    told.sort_by(|a, b| a.type_.cmp(&b.type_));
    told
}

/// What `Ready` is: the first False, else the first Unknown, else True.
pub fn ready(states: &States) -> State {
    let first = |f: fn(&State) -> bool| states.iter().find(|s| f(s)).cloned();
    first(|s| matches!(s, State::False { .. }))
        .or_else(|| first(|s| matches!(s, State::Unknown { .. })))
        .unwrap_or(State::True)
}

fn condition(old: &[Condition], type_: &str, state: &State, now: Timestamp) -> Condition {
    let before = old.iter().find(|c| c.type_ == type_);
    let since = before.filter(|c| c.status == state.word()).and_then(|c| c.last_transition_time.clone());
    let (reason, message) = match state {
        State::True => (None, None),
        State::False { reason, message } | State::Unknown { reason, message } => {
            (some(reason), some(&clip(message, MAX_MESSAGE)))
        }
    };
    Condition {
        type_: type_.to_owned(),
        status: state.word().to_owned(),
        severity: None,
        last_transition_time: since.or_else(|| Some(seconds(now))),
        reason,
        message,
    }
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn seconds(now: Timestamp) -> String {
    now.round(Unit::Second).unwrap_or(now).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(state: &State) -> States {
        std::array::from_fn(|_| state.clone())
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_stored_status_has_all_six_sorted() {
        let told = tell(&[], &all(&State::unknown()), at(0));
        let types: Vec<_> = told.iter().map(|c| c.type_.as_str()).collect();
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
        assert!(told.iter().all(|c| c.status == "Unknown" && c.reason.is_none()));
    }

    #[test]
    fn ready_takes_the_first_false_before_any_unknown() {
        let mut states = all(&State::True);
        assert_eq!(ready(&states), State::True);
        states[0] = State::unknown();
        assert_eq!(ready(&states), State::unknown());
        states[4] = State::no("NotReady", "Waiting on deployments: a");
        states[2] = State::no("Error", "Install failed with message: b");
        assert_eq!(ready(&states), State::no("Error", "Install failed with message: b"));
    }

    #[test]
    fn transition_time_changes_with_the_status_only() {
        let first = tell(&[], &all(&State::no("A", "a")), at(100));
        let second = tell(&first, &all(&State::no("B", "b")), at(200));
        assert!(second.iter().all(|c| c.since() == Some(at(100)) && c.reason.as_deref() == Some("B")));
        let third = tell(&second, &all(&State::True), at(300));
        assert!(third.iter().all(|c| c.since() == Some(at(300)) && c.message.is_none()));
    }
}
