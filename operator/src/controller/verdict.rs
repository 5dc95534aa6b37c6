//! What a pass found, as conditions. Pure.

use knative_operator_shared::api::{Component, Condition};
use knative_operator_shared::condition::{DEPENDENTS, State, States};

use super::missing;
use crate::cluster::Unresolved;
use crate::health::Wait;
use crate::object::ObjectId;

/// Objects or deployments named in a message, at most.
const NAMED: usize = 5;

/// Reason of `InstallSucceeded` while the namespace is being deleted.
pub const TERMINATING: &str = "NamespaceTerminating";

/// What became of the installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// Of what.
    pub component: Component,
    /// What stops all of it, if something does.
    pub failed: Option<String>,
    /// Objects that were refused, and why.
    pub refused: Vec<(ObjectId, String)>,
    /// What failed and won't work by itself, and why.
    pub broken: Vec<String>,
    /// What is still to come.
    pub pending: Vec<String>,
    /// Deployments that aren't available, and why.
    pub unavailable: Vec<(String, Wait)>,
    /// Whether everything has been looked at: right after a start nothing has.
    pub seen: bool,
    /// Whether something isn't there, be it refused or gone a moment ago.
    pub gaps: bool,
    /// Whether the cluster went away meanwhile.
    pub lost: bool,
}

impl Installation {
    /// Of `component`, of which nothing is known yet.
    pub fn of(component: Component) -> Self {
        Self {
            component,
            failed: None,
            refused: Vec::new(),
            broken: Vec::new(),
            pending: Vec::new(),
            unavailable: Vec::new(),
            seen: false,
            gaps: false,
            lost: false,
        }
    }
}

/// How far a pass came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The target version may not follow the installed one, because; what became of the installed one, if there is one: it is
    /// kept right.
    Ineligible(String, Option<Box<Verdict>>),
    /// Nothing may be written to the target cluster for now: reason and message of `InstallSucceeded`.
    Blocked(&'static str, String),
    /// The target cluster is not to be had.
    Unresolved(Unresolved),
    /// The installation was looked at.
    Installation(Installation),
}

/// The states that the stored conditions tell.
pub fn stored(conditions: &[Condition]) -> States {
    DEPENDENTS.map(|type_| {
        let Some(condition) = conditions.iter().find(|c| c.type_ == type_) else { return State::unknown() };
        let (reason, message) =
            (condition.reason.clone().unwrap_or_default(), condition.message.clone().unwrap_or_default());
        match condition.status.as_str() {
            "True" => State::True,
            "False" => State::no(reason, message),
            _ => State::unclear(reason, message),
        }
    })
}

/// The states after `verdict`, where they were `before`.
pub fn states(before: States, verdict: &Verdict) -> States {
    match verdict {
        Verdict::Ineligible(why, kept) => {
            let mut after = match kept {
                Some(kept) => states(before, kept),
                None => before,
            };
            after[0] = State::no("Error", format!("Version migration is not eligible with message: {why}"));
            after
        }
        Verdict::Blocked(reason, message) => {
            let [eligible, resolved, _, dependencies, available] = before;
            let available = match available {
                State::True if *reason == TERMINATING => {
                    State::unclear(TERMINATING, "the Deployments go with their namespace")
                }
                other => other,
            };
            [eligible, resolved, State::no(*reason, message.clone()), dependencies, available]
        }
        Verdict::Unresolved(Unresolved { reason, message }) => {
            let [_, _, installed, dependencies, available] = before;
            let unclear = |before: State| match before {
                // What was True on a cluster that can't be reached is not known any more.
                State::True => State::unclear(reason.as_str(), "not known while the target cluster is not resolved"),
                other => other,
            };
            let resolved = State::no(reason.as_str(), message.clone());
            [State::True, resolved, unclear(installed), dependencies, unclear(available)]
        }
        Verdict::Installation(found) => {
            let [_, _, installed, dependencies, available] = before;
            let installed = install(found, installed);
            let dependencies = if installed == State::True { State::True } else { dependencies };
            [State::True, State::True, installed, dependencies, deployments(found, available)]
        }
    }
}

fn install(found: &Installation, before: State) -> State {
    let failed = |why: String| State::no("Error", format!("Install failed with message: {why}"));
    if let Some(why) = &found.failed {
        return failed(why.clone());
    }
    let (lacking, others) = missing::grouped(found.component, &found.refused);
    let refused = others.into_iter().map(|(id, why)| format!("failed to apply {id}: {why}"));
    if let Some(why) =
        listed(&lacking.into_iter().chain(refused).chain(found.broken.iter().cloned()).collect::<Vec<_>>())
    {
        return failed(why);
    }
    match listed(&found.pending) {
        Some(what) => State::unclear("Installing", format!("Waiting for {what}")),
        None if (found.seen && !found.gaps) || before == State::True => State::True,
        None => before,
    }
}

fn deployments(found: &Installation, before: State) -> State {
    if found.unavailable.is_empty() {
        // Not looked at is not known anew: a restart of the operator changes nothing.
        return if found.seen && found.failed.is_none() { State::True } else { before };
    }
    let names: Vec<_> = found.unavailable.iter().map(|(name, _)| name.as_str()).collect();
    State::no("NotReady", format!("Waiting on deployments: {} ({})", names.join(", "), reasons(&found.unavailable)))
}

/// Why each is unavailable, those with the same reason together.
fn reasons(unavailable: &[(String, Wait)]) -> String {
    let mut by_reason: Vec<(Wait, Vec<&str>)> = Vec::new();
    for (name, wait) in unavailable {
        match by_reason.iter_mut().find(|(known, _)| known.why == wait.why) {
            Some((known, names)) => {
                names.push(name);
                // RFC 3339 in UTC sorts as text: the first that waits, and the first that is given up.
                known.since = [known.since.take(), wait.since.clone()].into_iter().flatten().min();
                known.deadline = [known.deadline.take(), wait.deadline.clone()].into_iter().flatten().min();
            }
            None => by_reason.push((wait.clone(), vec![name])),
        }
    }
    if let [(wait, _)] = by_reason.as_slice() {
        return wait.to_string();
    }
    let reasons: Vec<_> = by_reason.iter().map(|(wait, names)| format!("{}: {wait}", names.join(", "))).collect();
    listed(&reasons).unwrap_or_default()
}

/// The first few of `texts`, as one; none if there are none.
fn listed(texts: &[String]) -> Option<String> {
    let (first, rest) = texts.split_at(texts.len().min(NAMED));
    let more = if rest.is_empty() { String::new() } else { format!("; and {} more", rest.len()) };
    (!first.is_empty()).then(|| format!("{}{more}", first.join("; ")))
}

#[cfg(test)]
mod tests {
    use knative_operator_shared::condition::ready;
    use knative_operator_shared::reason::Reason;

    use super::*;

    fn fresh() -> States {
        std::array::from_fn(|_| State::unknown())
    }

    fn running() -> States {
        std::array::from_fn(|_| State::True)
    }

    fn found(change: impl FnOnce(&mut Installation)) -> Verdict {
        let mut found = Installation { seen: true, ..Installation::of(Component::Serving) };
        change(&mut found);
        Verdict::Installation(found)
    }

    fn message(state: &State) -> &str {
        match state {
            State::True => "",
            State::False { message, .. } | State::Unknown { message, .. } => message,
        }
    }

    #[test]
    fn all_is_well_when_everything_is_there_and_works() {
        assert_eq!(ready(&states(fresh(), &found(|_| {}))), State::True);
    }

    #[test]
    fn what_is_waited_for_is_named() {
        let after = states(
            fresh(),
            &found(|f| {
                f.unavailable =
                    [("a", "why"), ("b", "so"), ("c", "why")].map(|(n, w)| (n.to_owned(), Wait::from(w))).to_vec();
            }),
        );
        assert_eq!(message(&after[4]), "Waiting on deployments: a, b, c (a, c: why; b: so)");
        let after = states(fresh(), &found(|f| f.pending = vec!["Job x".into()]));
        assert_eq!((message(&after[2]), &after[3]), ("Waiting for Job x", &State::unknown()));
    }

    #[test]
    fn one_refused_object_fails_the_install_and_is_named() {
        let id = ObjectId::new("", "ConfigMap", "n", "c");
        let after = states(running(), &found(|f| f.refused = vec![(id, "forbidden".into())]));
        assert_eq!(message(&after[2]), "Install failed with message: failed to apply ConfigMap n/c: forbidden");
        assert_eq!(after[4], State::True);
    }

    #[test]
    fn nothing_on_an_unreachable_cluster_is_true() {
        let unresolved = Verdict::Unresolved(Unresolved::new(Reason::RemoteClusterUnreachable, "gone"));
        let after = states(running(), &unresolved);
        assert_eq!(after[1], State::no("RemoteClusterUnreachable", "gone"));
        assert!(matches!((&after[2], &after[4]), (State::Unknown { .. }, State::Unknown { .. })));
        assert_eq!(ready(&after), after[1]);
        assert_eq!(ready(&states(after, &found(|_| {}))), State::True);
    }

    #[test]
    fn what_is_missing_keeps_an_install_from_succeeding_and_says_nothing_of_the_deployments() {
        let after = states(fresh(), &found(|f| f.gaps = true));
        assert_eq!((&after[2], &after[4]), (&State::unknown(), &State::True));
        assert_eq!(states(running(), &found(|f| f.gaps = true)), running());
    }

    #[test]
    fn a_restart_changes_nothing_before_anybody_has_looked() {
        let unseen = Verdict::Installation(Installation::of(Component::Serving));
        assert_eq!(states(running(), &unseen), running());
        assert_eq!(states(fresh(), &unseen)[4], State::unknown());
    }

    #[test]
    fn an_ineligible_version_leaves_the_rest_as_it_was() {
        let after = states(running(), &Verdict::Ineligible("too far".into(), None));
        assert_eq!(message(&after[0]), "Version migration is not eligible with message: too far");
        assert_eq!(after[1..], running()[1..]);
        // What is installed is looked after all the same.
        let kept = found(|f| f.unavailable = vec![("a".to_owned(), Wait::from("why"))]);
        let after = states(running(), &Verdict::Ineligible("too far".into(), Some(Box::new(kept))));
        assert_eq!(message(&after[0]), "Version migration is not eligible with message: too far");
        assert_eq!(message(&after[4]), "Waiting on deployments: a (why)");
    }
}
