//! Events for changes of the status of a fleet.

use jiff::Timestamp;
use knative_operator_shared::api::Condition;
use knative_operator_shared::api::fleet::{ClusterAttention, KnativeFleetStatus, StageState};
use knative_operator_shared::condition::STALLED;

use super::gates::{GATE_FAILED, GATE_UNKNOWN};
use super::progress::{HUB_FAULT, NOT_OBSERVED, NOT_STORED, SKIPPED};
use super::status::MAX_ATTENTION;
use super::unknown::CONTENT_UNKNOWN;

/// Reasons that need attention.
const WARNINGS: [&str; 16] = [
    "ClustersFailed",
    "ClustersDeferred",
    "DeletionNotConfirmed",
    "TooManyFailures",
    "TooManyClusters",
    "GracePeriod",
    "Protected",
    "Unavailable",
    "RollingBack",
    "RolledBack",
    "RevisionNotStored",
    "FinalizerNotStored",
    "WaitingForClusters",
    "InvalidSpec",
    "ClustersUnknown",
    "NoClusters",
];
/// Reasons without an event: other events report the same, or nothing happened.
const SILENT: [&str; 8] =
    ["RollingOut", "RolloutIncomplete", "Complete", "NotPaused", "NotPending", "NotBlocked", "ClustersNotReady", ""];

/// Reasons of clusters that need attention, of which a cluster is an event. The others are events
/// of its resources, or pass.
const CLUSTERS: [&str; 14] = [
    GATE_FAILED,
    GATE_UNKNOWN,
    HUB_FAULT,
    CONTENT_UNKNOWN,
    NOT_STORED,
    NOT_OBSERVED,
    "Deferred",
    SKIPPED,
    "Refused",
    "Conflict",
    "ClusterLeft",
    "ProfileMissing",
    "Duplicate",
    "NotPermitted",
];

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Whether it is a warning.
    pub is_warning: bool,
    /// Reason.
    pub reason: String,
    /// Note.
    pub note: String,
}

/// How a rollout ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RolloutEnd {
    /// All its stages are complete, and at least one cluster is updated.
    Complete,
    /// Too many clusters failed.
    Failed,
    /// Another revision replaced it.
    Superseded,
}

/// All ends of rollouts.
pub const ENDS: [RolloutEnd; 3] = [RolloutEnd::Complete, RolloutEnd::Failed, RolloutEnd::Superseded];

impl RolloutEnd {
    /// Name, as in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Failed => "failed",
            Self::Superseded => "superseded",
        }
    }
}

/// How a rollout ended with the change from `old` to `new`, if one did; and the time of its start.
pub fn rollout_end(old: &KnativeFleetStatus, new: &KnativeFleetStatus) -> Option<(RolloutEnd, Option<Timestamp>)> {
    let has_failed = |status: &KnativeFleetStatus| {
        let reasons = ["TooManyFailures", "RollingBack", "RolledBack"];
        status.conditions.iter().any(|c| c.reason.as_deref().is_some_and(|reason| reasons.contains(&reason)))
    };
    let is_complete = |status: &KnativeFleetStatus| status.current_revision == status.update_revision;
    let is_same = old.update_revision == new.update_revision;
    let end = match () {
        () if new.update_revision.is_none() => return None,
        () if is_complete(new) && !(is_same && is_complete(old)) => RolloutEnd::Complete,
        () if has_failed(new) && !(is_same && has_failed(old)) => RolloutEnd::Failed,
        () if !is_same && old.update_revision.is_some() && !is_complete(old) && !has_failed(old) => {
            RolloutEnd::Superseded
        }
        () => return None,
    };
    let started = new.stages.iter().filter_map(|stage| stage.started_at.as_deref()?.parse().ok()).min();
    Some((end, started))
}

/// Events for the change from `old` to `new`.
pub fn transitions(old: &KnativeFleetStatus, new: &KnativeFleetStatus) -> Vec<Transition> {
    let normal = |reason: &str, note: String| Transition { is_warning: false, reason: reason.to_owned(), note };
    let mut events = Vec::new();
    let is_same = old.update_revision == new.update_revision;
    if let Some(revision) = new.update_revision.as_ref().filter(|_| !is_same) {
        let by = new.requested_by.as_ref().map(|user| format!(", asked for by {user}")).unwrap_or_default();
        events
            .push(normal("RolloutStarted", format!("Rolling out revision {revision}{by}; clusters: {}", new.clusters)));
    }
    // Stages that return tell nothing about the update: the conditions do.
    for stage in new.stages.iter().filter(|_| !new.is_rolled_back()) {
        let before = old.stages.iter().find(|before| is_same && before.name == stage.name).map(|before| before.state);
        if before == Some(stage.state) || before.is_none() && stage.state == StageState::Pending {
            continue;
        }
        match stage.state {
            StageState::Progressing => {
                events.push(normal(
                    "StageStarted",
                    format!("Stage {} started, clusters: {}", stage.name, stage.clusters),
                ));
            }
            StageState::Complete if stage.clusters > 0 => {
                let counts = format!("{} updated, {} failed, {} deferred", stage.updated, stage.failed, stage.deferred);
                events.push(normal("StageComplete", format!("Stage {} is complete: {counts}", stage.name)));
            }
            _ => {}
        }
    }
    let reason = |condition: &Condition| condition.reason.clone().unwrap_or_default();
    // It repeats another condition.
    for condition in new.conditions.iter().filter(|condition| condition.type_ != STALLED) {
        let before = old.conditions.iter().find(|before| before.type_ == condition.type_).map(reason);
        let reason = reason(condition);
        if before.as_ref() != Some(&reason) && !SILENT.contains(&reason.as_str()) {
            let is_warning = WARNINGS.contains(&reason.as_str());
            events.push(Transition { is_warning, reason, note: condition.message.clone().unwrap_or_default() });
        }
    }
    let fresh = fresh(old, new);
    events.extend(CLUSTERS.into_iter().filter_map(|reason| clusters(reason, &fresh)));
    // Two conditions may have the same reason.
    let mut unique: Vec<Transition> = Vec::new();
    for event in events {
        if unique.iter().all(|other| other.reason != event.reason || other.reason.starts_with("Stage")) {
            unique.push(event);
        }
    }
    unique
}

/// The clusters that need attention in `new`, and did not for the same reason in `old`.
fn fresh<'s>(old: &KnativeFleetStatus, new: &'s KnativeFleetStatus) -> Vec<&'s ClusterAttention> {
    let same = |entry: &ClusterAttention, other: &ClusterAttention| {
        (&entry.cluster, &entry.reason) == (&other.cluster, &other.reason)
    };
    let is_known = |entry: &ClusterAttention| old.attention.iter().any(|other| same(entry, other));
    // Of a full list, the end was cut off: what comes after all that was in it may have been there.
    let is_full = old.attention.len() >= MAX_ATTENTION;
    let end = new.attention.iter().rposition(is_known).map_or(0, |last| last + 1);
    let count = if is_full { end } else { new.attention.len() };
    new.attention.iter().take(count).filter(|entry| !is_known(entry)).collect()
}

/// The event about those of `fresh` that need attention for this `reason`.
fn clusters(reason: &str, fresh: &[&ClusterAttention]) -> Option<Transition> {
    let all = fresh.iter().filter(|entry| entry.reason == reason);
    let notes: Vec<String> = all.map(|entry| format!("{}: {}", entry.cluster, entry.message)).collect();
    let event = Transition { is_warning: true, reason: reason.to_owned(), note: notes.join("; ") };
    (!notes.is_empty()).then_some(event)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(revision: &str, stage: &str, conditions: &[(&str, &str)]) -> KnativeFleetStatus {
        let conditions: Vec<_> = conditions
            .iter()
            .map(|(type_, reason)| json!({"type": type_, "status": "True", "reason": reason, "message": "m"}))
            .collect();
        let stages = json!([{"name": "canary", "state": stage, "clusters": 2}]);
        serde_json::from_value(
            json!({"updateRevision": revision, "clusters": 2, "stages": stages, "conditions": conditions}),
        )
        .unwrap()
    }

    #[test]
    fn each_transition_is_one_event() {
        let new = KnativeFleetStatus::default();
        let started = status("r-1", "Progressing", &[("Progressing", "RollingOut"), ("Paused", "NotPaused")]);
        let paused = status("r-1", "Paused", &[("Progressing", "Paused"), ("Paused", "TooManyFailures")]);
        let ready = status("r-1", "Complete", &[("Progressing", "Complete"), ("Ready", "Ready")]);
        let reasons = |old: &KnativeFleetStatus, new: &KnativeFleetStatus| {
            transitions(old, new).into_iter().map(|event| (event.reason, event.is_warning)).collect::<Vec<_>>()
        };
        let event = |reason: &str, is_warning: bool| (reason.to_owned(), is_warning);
        assert_eq!(reasons(&new, &started), [event("RolloutStarted", false), event("StageStarted", false)]);
        assert_eq!(reasons(&started, &started), []);
        assert_eq!(reasons(&started, &paused), [event("Paused", false), event("TooManyFailures", true)]);
        assert_eq!(reasons(&started, &ready), [event("StageComplete", false), event("Ready", false)]);
        let returns = status("r-1", "Progressing", &[("Progressing", "RollingBack")]);
        let returned = status("r-1", "Complete", &[("Progressing", "RolledBack")]);
        assert_eq!(reasons(&paused, &returns), [event("RollingBack", true)]);
        assert_eq!(reasons(&returns, &returned), [event("RolledBack", true)]);
        let again = status("r-2", "Progressing", &[("Progressing", "RollingOut")]);
        assert_eq!(reasons(&ready, &again), [event("RolloutStarted", false), event("StageStarted", false)]);
    }

    #[test]
    fn cluster_that_needs_attention_is_one_event_and_not_one_for_each_message() {
        let with = |entries: &[(&str, &str, &str)]| -> KnativeFleetStatus {
            let entry = |(name, reason, message): &(&str, &str, &str)| json!({"cluster": {"name": name, "namespace": "n"}, "reason": reason, "message": message});
            let attention: Vec<_> = entries.iter().map(entry).collect();
            serde_json::from_value(json!({"attention": attention})).unwrap()
        };
        let (pending, unknown) = (with(&[("a", "GatePending", "m")]), with(&[("a", "GateUnknown", "1")]));
        let failed = with(&[("a", "GateFailed", "HTTP 500"), ("b", "GateFailed", "HTTP 501"), ("c", "NotReady", "x")]);
        let notes = |old: &KnativeFleetStatus, new: &KnativeFleetStatus| {
            transitions(old, new)
                .into_iter()
                .map(|event| format!("{} {}", event.reason, event.note))
                .collect::<Vec<_>>()
        };
        assert_eq!(notes(&pending, &unknown), ["GateUnknown n/a: 1"]);
        assert!(notes(&unknown, &with(&[("a", "GateUnknown", "2")])).is_empty() && notes(&failed, &failed).is_empty());
        assert_eq!(notes(&unknown, &failed), ["GateFailed n/a: HTTP 500; n/b: HTTP 501"]);
        let all: Vec<String> = (0..MAX_ATTENTION + 2).map(|n| format!("{n:02}")).collect();
        let of = |names: &[String]| {
            let entries: Vec<_> = names.iter().map(|name| (name.as_str(), "Deferred", "m")).collect();
            with(&entries)
        };
        // The list is full: one that is back lets another one move up. One that is new is reported.
        assert!(notes(&of(&all[1..=MAX_ATTENTION]), &of(&all[2..])).is_empty());
        assert_eq!(notes(&of(&all[1..=MAX_ATTENTION]), &of(&all[..MAX_ATTENTION])), ["Deferred n/00: m"]);
        let deferred = with(&[("a", "Deferred", "down"), ("b", "Refused", "quota")]);
        assert_eq!(notes(&failed, &deferred), ["Deferred n/a: down", "Refused n/b: quota"]);
    }

    #[test]
    fn end_of_a_rollout_is_reported_once() {
        let with = |current: Option<&str>, update: &str, reason: &str| KnativeFleetStatus {
            current_revision: current.map(str::to_owned),
            ..status(update, "Progressing", &[("Paused", reason)])
        };
        let new = KnativeFleetStatus::default();
        let started = with(None, "r-1", "NotPaused");
        let failed = with(None, "r-1", "TooManyFailures");
        let complete = with(Some("r-1"), "r-1", "NotPaused");
        let next = with(Some("r-1"), "r-2", "NotPaused");
        let end = |old: &KnativeFleetStatus, new: &KnativeFleetStatus| rollout_end(old, new).map(|(end, _)| end);
        assert_eq!(end(&new, &started), None);
        assert_eq!(end(&started, &complete), Some(RolloutEnd::Complete));
        assert_eq!(end(&complete, &complete), None);
        assert_eq!(end(&started, &failed), Some(RolloutEnd::Failed));
        assert_eq!(end(&failed, &failed), None);
        assert_eq!(end(&failed, &with(None, "r-2", "NotPaused")), None);
        assert_eq!(end(&complete, &next), None);
        assert_eq!(end(&next, &with(Some("r-1"), "r-3", "NotPaused")), Some(RolloutEnd::Superseded));
    }
}
