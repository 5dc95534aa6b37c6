//! Conditions, computed from what a reconcile found. Pure.

use std::collections::BTreeMap;
use std::time::Instant;

use jiff::Timestamp;
use knative_operator_shared::api::{Component, Condition};
use knative_operator_shared::condition::{self, State, States, TARGET_CLUSTER_RESOLVED};

use knative_operator_apply::error::ApplyError;
use knative_operator_objects::health::Wait;
use knative_operator_objects::{Digest, ObjectId};
use knative_operator_overview::{Unresolved, rejections, stalled};

/// Maximum number of objects or Deployments named in a message.
const MAX_NAMED: usize = 5;

/// Reason of `InstallSucceeded` while the installation has another owner.
pub const OCCUPIED: &str = "Occupied";
/// Reason of `InstallSucceeded` while the author of the resource may not use its cluster.
pub const NOT_PERMITTED: &str = "NotPermitted";
/// Reason of `InstallSucceeded` while the namespace is terminating.
pub const TERMINATING: &str = "NamespaceTerminating";

/// What a reconcile found about an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstallationReport {
    /// The component.
    pub component: Component,
    /// Which version it is, if it is one on the way to that of the spec, for people.
    pub step: Option<String>,
    /// Why the installation failed as a whole, if it did.
    pub failed: Option<String>,
    /// Objects that the API server refused, with the reason.
    pub refused: Vec<(ObjectId, ApplyError)>,
    /// Objects that failed and don't recover by themselves, with the reason.
    pub failures: Vec<String>,
    /// Objects or steps that are still to come.
    pub pending: Vec<String>,
    /// Deployments that are not available, with the reason.
    pub unavailable: Vec<(String, Wait)>,
    /// Workloads and Jobs whose Pods may tell why they wait, with their desired content.
    pub waiting: BTreeMap<ObjectId, Digest>,
    /// Until when Pods may start that somebody added to a Deployment that was available.
    pub starting_until: Option<Instant>,
    /// Whether every object has been observed; right after the start none has.
    pub observed: bool,
    /// Whether an object is missing, because it was refused or deleted.
    pub has_missing_objects: bool,
    /// Whether the cluster became unreachable.
    pub unreachable: bool,
}

impl InstallationReport {
    /// A report about `component` without findings.
    pub fn of(component: Component) -> Self {
        Self {
            component,
            step: None,
            failed: None,
            refused: Vec::new(),
            failures: Vec::new(),
            pending: Vec::new(),
            unavailable: Vec::new(),
            waiting: BTreeMap::new(),
            starting_until: None,
            observed: false,
            has_missing_objects: false,
            unreachable: false,
        }
    }

    /// Whether there is nothing to wait for. Until then, it is examined again at the poll interval
    /// at the latest.
    pub fn is_complete(&self) -> bool {
        self.pending.is_empty() && self.unavailable.is_empty() && self.observed && !self.has_missing_objects
    }
}

/// Result of a reconcile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReconcileResult {
    /// The target version may not follow the installed one, with the reason; and the result for the
    /// installed version, if any, which is kept.
    Ineligible(String, Option<Box<ReconcileResult>>),
    /// The operator may not write to the target cluster for now: reason and message of
    /// `InstallSucceeded`.
    Blocked(&'static str, String),
    /// The target cluster can't be reached.
    Unresolved(Unresolved),
    /// The installation was examined.
    Installation(InstallationReport),
}

impl ReconcileResult {
    /// Whether a version on the way to another one is Ready, and the next one can begin.
    pub fn completes_step(&self) -> bool {
        let Self::Installation(report) = self else { return false };
        let has_failed = report.failed.is_some() || !report.refused.is_empty() || !report.failures.is_empty();
        let is_waiting = !report.pending.is_empty() || !report.unavailable.is_empty();
        report.step.is_some() && report.observed && !has_failed && !is_waiting && !report.has_missing_objects
    }

    /// Whether it only waits for Deployments whose former replicas are available.
    pub fn is_rolling(&self) -> bool {
        let Self::Installation(report) = self else { return false };
        !report.unavailable.is_empty() && report.unavailable.iter().all(|(_, wait)| wait.is_rolling)
    }
}

/// States of the stored conditions.
pub fn stored(conditions: &[Condition]) -> States {
    States::of_each(|type_| {
        let Some(condition) = conditions.iter().find(|c| c.type_ == type_) else { return State::unknown() };
        let (reason, message) =
            (condition.reason.clone().unwrap_or_default(), condition.message.clone().unwrap_or_default());
        match condition.status.as_str() {
            "True" => State::True,
            "False" => State::not_met(reason, message),
            _ => State::unknown_because(reason, message),
        }
    })
}

/// The conditions for `states` after `old`.
pub fn update(old: &[Condition], states: &States, now: Timestamp) -> Vec<Condition> {
    stalled::of_component(old, condition::update(old, states, now), now)
}

/// Adds `note` to the condition that the target cluster is resolved, if it is.
pub fn add_note(conditions: &mut [Condition], note: Option<String>) {
    let resolved = conditions.iter_mut().find(|c| c.type_ == TARGET_CLUSTER_RESOLVED && c.status == "True");
    if let (Some(resolved), Some(note)) = (resolved, note) {
        resolved.message = Some(note);
    }
}

/// States after `result`, given the states `before`.
pub fn states(before: States, result: &ReconcileResult) -> States {
    match result {
        ReconcileResult::Ineligible(reason, kept) => {
            let mut after = match kept {
                Some(kept) => states(before, kept),
                None => before,
            };
            after.eligible =
                State::not_met("Error", format!("Version migration is not eligible with message: {reason}"));
            after
        }
        ReconcileResult::Blocked(reason, message) => {
            let available = match before.available {
                State::True if *reason == TERMINATING => {
                    State::unknown_because(TERMINATING, "the Deployments are deleted with their namespace")
                }
                State::True if *reason == OCCUPIED => {
                    State::unknown_because(OCCUPIED, "the Deployments belong to another owner")
                }
                other => other,
            };
            States { installed: State::not_met(*reason, message.clone()), available, ..before }
        }
        ReconcileResult::Unresolved(Unresolved { reason, message }) => {
            let unclear = |before: State| match before {
                // On an unreachable cluster, conditions that were True become Unknown.
                State::True => {
                    State::unknown_because(reason.as_str(), "unknown while the target cluster is not resolved")
                }
                other => other,
            };
            States {
                eligible: State::True,
                resolved: State::not_met(reason.as_str(), message.clone()),
                installed: unclear(before.installed),
                dependencies: before.dependencies,
                available: unclear(before.available),
            }
        }
        ReconcileResult::Installation(report) => {
            let installed = install_state(report, before.installed);
            States {
                eligible: State::True,
                resolved: State::True,
                dependencies: if installed == State::True { State::True } else { before.dependencies },
                installed,
                available: deployments_state(report, before.available),
            }
        }
    }
}

fn install_state(report: &InstallationReport, before: State) -> State {
    let step = report.step.as_ref().map(|step| format!("{step}: ")).unwrap_or_default();
    let failed = |reason: String| State::not_met("Error", format!("Install failed with message: {step}{reason}"));
    if let Some(reason) = &report.failed {
        return failed(reason.clone());
    }
    let (lacking, others) = rejections::group_by_dependency(report.component, &report.refused);
    let refused = others.into_iter().map(|(id, reason)| format!("failed to apply {id}: {reason}"));
    if let Some(reason) =
        join_first(&lacking.into_iter().chain(refused).chain(report.failures.iter().cloned()).collect::<Vec<_>>())
    {
        return failed(reason);
    }
    let waiting = join_first(&report.pending).map(|what| format!("Waiting for {what}"));
    if let Some(step) = &report.step {
        // Also once it is complete: the next version follows.
        let waiting = waiting.map(|waiting| format!(". {waiting}")).unwrap_or_default();
        return State::unknown_because("Installing", format!("Installing {step}{waiting}"));
    }
    match waiting {
        Some(what) => State::unknown_because("Installing", what),
        None if (report.observed && !report.has_missing_objects) || before == State::True => State::True,
        None => before,
    }
}

fn deployments_state(report: &InstallationReport, before: State) -> State {
    if report.unavailable.is_empty() {
        // Not observed yet: keep the state, for example after a restart.
        return if report.observed && report.failed.is_none() { State::True } else { before };
    }
    let names: Vec<_> = report.unavailable.iter().map(|(name, _)| name.as_str()).collect();
    State::not_met(
        "NotReady",
        format!("Waiting on deployments: {} ({})", names.join(", "), join_reasons(&report.unavailable)),
    )
}

/// Reasons of unavailable Deployments; those with the same reason are listed together.
fn join_reasons(unavailable: &[(String, Wait)]) -> String {
    let mut by_reason: Vec<(Wait, Vec<&str>)> = Vec::new();
    for (name, wait) in unavailable {
        match by_reason.iter_mut().find(|(known, _)| known.reason == wait.reason) {
            Some((known, names)) => {
                names.push(name);
                // RFC 3339 times in UTC sort as text: the earliest start and the earliest deadline.
                known.since = [known.since.take(), wait.since.clone()].into_iter().flatten().min();
                known.deadline = [known.deadline.take(), wait.deadline.clone()].into_iter().flatten().min();
            }
            None => by_reason.push((wait.clone(), vec![name])),
        }
    }
    if let [(wait, _)] = by_reason.as_slice() {
        return wait.to_string();
    }
    // Deployments that were applied together have the same times, which take room.
    let times = |wait: &Wait| Wait { reason: "all".to_owned(), ..wait.clone() };
    let common = by_reason
        .first()
        .map(|(wait, _)| times(wait))
        .filter(|first| *first != Wait::from("all") && by_reason.iter().all(|(wait, _)| times(wait) == *first));
    if common.is_some() {
        by_reason.iter_mut().for_each(|(wait, _)| (wait.since, wait.deadline) = (None, None));
    }
    let reasons: Vec<_> = by_reason.iter().map(|(wait, names)| format!("{}: {wait}", names.join(", "))).collect();
    let reasons = join_first(&reasons).unwrap_or_default();
    // First: a long message is cut at its end.
    common.map_or_else(|| reasons.clone(), |common| format!("{common}; {reasons}"))
}

/// Joins the first few of `texts`; `None` if there are none.
fn join_first(texts: &[String]) -> Option<String> {
    let (first, rest) = texts.split_at(texts.len().min(MAX_NAMED));
    let more = if rest.is_empty() { String::new() } else { format!("; and {} more", rest.len()) };
    (!first.is_empty()).then(|| format!("{}{more}", first.join("; ")))
}

#[cfg(test)]
#[path = "conditions_tests.rs"]
mod tests;
