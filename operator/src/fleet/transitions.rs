//! Events for changes of the status of a fleet.

use knative_operator_shared::api::Condition;
use knative_operator_shared::api::fleet::{KnativeFleetStatus, StageState};

/// Reasons that need attention.
const WARNINGS: [&str; 7] =
    ["TooManyFailures", "TooManyClusters", "RollingBack", "RolledBack", "InvalidSpec", "ClustersUnknown", "NoClusters"];
/// Reasons without an event: other events report the same, or nothing happened.
const SILENT: [&str; 9] = [
    "RollingOut",
    "RolloutIncomplete",
    "Complete",
    "NotPaused",
    "NotBlocked",
    "ClustersFailed",
    "ClustersDeferred",
    "ClustersNotReady",
    "",
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

/// Events for the change from `old` to `new`.
pub fn transitions(old: &KnativeFleetStatus, new: &KnativeFleetStatus) -> Vec<Transition> {
    let normal = |reason: &str, note: String| Transition { is_warning: false, reason: reason.to_owned(), note };
    let mut events = Vec::new();
    let is_same = old.update_revision == new.update_revision;
    if let Some(revision) = new.update_revision.as_ref().filter(|_| !is_same) {
        events.push(normal("RolloutStarted", format!("Rolling out revision {revision}, clusters: {}", new.clusters)));
    }
    for stage in &new.stages {
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
    for condition in &new.conditions {
        let before = old.conditions.iter().find(|before| before.type_ == condition.type_).map(reason);
        let reason = reason(condition);
        if before.as_ref() != Some(&reason) && !SILENT.contains(&reason.as_str()) {
            let is_warning = WARNINGS.contains(&reason.as_str());
            events.push(Transition { is_warning, reason, note: condition.message.clone().unwrap_or_default() });
        }
    }
    // Two conditions may have the same reason.
    let mut unique: Vec<Transition> = Vec::new();
    for event in events {
        if unique.iter().all(|other| other.reason != event.reason || other.reason.starts_with("Stage")) {
            unique.push(event);
        }
    }
    unique
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
        let again = status("r-2", "Progressing", &[("Progressing", "RollingOut")]);
        assert_eq!(reasons(&ready, &again), [event("RolloutStarted", false), event("StageStarted", false)]);
    }
}
