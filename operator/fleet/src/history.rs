//! The last rollouts, in the status of a fleet: who asked for each, when it began and ended, how,
//! and with which approvals. They are for people: nothing is decided by them.

use jiff::Timestamp;
use knative_operator_shared::api::fleet::{KnativeFleetStatus, RolloutRecord, StageApproval};
use knative_operator_shared::time::truncate;

/// Maximum number of rollouts.
const MAX_ROLLOUTS: usize = 10;
/// Maximum number of approvals of a rollout.
const MAX_APPROVALS: usize = 64;
/// Maximum length of all rollouts, in bytes, unless the last one alone is longer.
const MAX_LENGTH: usize = 16 << 10;

/// All clusters are updated, deferred, or failed within the limit.
const COMPLETE: &str = "Complete";
/// Too many clusters failed, and all returned.
const ROLLED_BACK: &str = "RolledBack";
/// Another one began before its end.
const SUPERSEDED: &str = "Superseded";

/// The rollouts with the change of the status from `old` to `new`.
pub fn rollouts(old: &KnativeFleetStatus, new: &KnativeFleetStatus, now: Timestamp) -> Vec<RolloutRecord> {
    let mut all = old.rollouts.clone();
    let Some(update) = &new.update_revision else { return all };
    let now = truncate(now).to_string();
    if let Some(last) = all.last_mut().filter(|last| last.revision != *update) {
        end(last, SUPERSEDED, &now);
    }
    if begins(old, new, all.last().filter(|last| last.revision == *update)) {
        all.push(RolloutRecord {
            revision: update.clone(),
            requested_by: new.requested_by.clone(),
            started_at: now.clone(),
            ..RolloutRecord::default()
        });
    }
    if let Some(last) = all.last_mut().filter(|last| last.revision == *update) {
        add_approvals(last, new);
        if let Some(result) = result(new) {
            end(last, result, &now);
        }
    }
    if all != old.rollouts {
        limit(&mut all);
    }
    all
}

/// Whether a rollout begins with the change from `old` to `new`. `last`: the last one of the
/// revision, if none of another revision followed.
fn begins(old: &KnativeFleetStatus, new: &KnativeFleetStatus, last: Option<&RolloutRecord>) -> bool {
    match last {
        // When an earlier version began it is not known.
        None => old.update_revision != new.update_revision,
        // A revision that failed is rolled out again, with other clusters or stages.
        Some(last) => {
            last.finished_at.is_some()
                && old.rollout_generation != new.rollout_generation
                && new.current_revision != new.update_revision
        }
    }
}

/// How the rollout in `status` ended, if it did. One of the current revision, which was on the way
/// to another one, ends when all clusters are back.
fn result(status: &KnativeFleetStatus) -> Option<&'static str> {
    let is_rolled_back = || {
        let mut progressing = status.conditions.iter().filter(|condition| condition.type_ == "Progressing");
        progressing.any(|condition| condition.reason.as_deref() == Some(ROLLED_BACK))
    };
    match () {
        () if status.current_revision == status.update_revision && status.stage.is_none() => Some(COMPLETE),
        () if is_rolled_back() => Some(ROLLED_BACK),
        () => None,
    }
}

/// Ends `rollout`, unless it has ended.
fn end(rollout: &mut RolloutRecord, result: &str, now: &str) {
    if rollout.finished_at.is_none() {
        (rollout.finished_at, rollout.result) = (Some(now.to_owned()), Some(result.to_owned()));
    }
}

/// Adds the approvals of the stages in `status` that began, or have no clusters. In a rollback, no
/// stage begins.
fn add_approvals(rollout: &mut RolloutRecord, status: &KnativeFleetStatus) {
    if status.failed_revisions.iter().flatten().any(|failed| *failed == rollout.revision) {
        return;
    }
    for stage in status.stages.iter().filter(|stage| stage.started_at.is_some() || stage.finished_at.is_some()) {
        let Some(username) = stage.approved_by.clone() else { continue };
        let approval = StageApproval { stage: stage.name.clone(), username };
        if rollout.approvals.len() < MAX_APPROVALS && !rollout.approvals.contains(&approval) {
            rollout.approvals.push(approval);
        }
    }
}

/// Removes the oldest of `all`, so that the status stays small.
fn limit(all: &mut Vec<RolloutRecord>) {
    let length = |all: &[RolloutRecord]| serde_json::to_vec(all).map_or(0, |bytes| bytes.len());
    while all.len() > MAX_ROLLOUTS || all.len() > 1 && length(all.as_slice()) > MAX_LENGTH {
        all.remove(0);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A status in the rollout of `update` after revision `a`, with a stage in `state`, and
    /// `patch`.
    fn status(update: &str, state: &str, patch: &Value) -> KnativeFleetStatus {
        let has_begun = !["Pending", "AwaitingApproval"].contains(&state);
        let stage = json!({"name": "prod", "state": state, "startedAt": has_begun.then_some("2026-01-01T00:00:00Z")});
        let mut status = json!({
            "currentRevision": "a", "updateRevision": update, "requestedBy": "jane", "rolloutGeneration": 3,
            "stage": (state != "Complete").then_some("prod"), "stages": [stage],
        });
        json_patch::merge(&mut status, patch);
        serde_json::from_value(status).unwrap()
    }

    /// `status` with the stage approved by `user`.
    fn approved(mut status: KnativeFleetStatus, user: &str) -> KnativeFleetStatus {
        status.stages.iter_mut().for_each(|stage| stage.approved_by = Some(user.to_owned()));
        status
    }

    /// `status` after it was rolled back.
    fn rolled_back(status: KnativeFleetStatus) -> KnativeFleetStatus {
        let progressing = json!([{"type": "Progressing", "status": "False", "reason": "RolledBack"}]);
        let conditions = serde_json::from_value(progressing).unwrap();
        KnativeFleetStatus { conditions, failed_revisions: status.update_revision.clone().map(|r| vec![r]), ..status }
    }

    /// The rollouts when `statuses` follow `old`, each ten seconds after the one before.
    fn after(mut old: KnativeFleetStatus, statuses: &[KnativeFleetStatus]) -> Vec<String> {
        for (number, status) in (1_i64..).zip(statuses) {
            let rollouts = rollouts(&old, status, Timestamp::from_millisecond(10_000 * number + 900).unwrap());
            old = KnativeFleetStatus { rollouts, ..status.clone() };
        }
        let second = |time: &str| time.parse::<Timestamp>().unwrap().as_second();
        let text = |rollout: &RolloutRecord| {
            let approvals: Vec<_> = rollout.approvals.iter().map(|a| format!(" {}:{}", a.stage, a.username)).collect();
            let end = rollout.finished_at.as_deref().map(|end| second(end).to_string()).unwrap_or_default();
            let result = rollout.result.as_deref().unwrap_or("goes on");
            format!("{} {}-{end} {result}{}", rollout.revision, second(&rollout.started_at), approvals.concat())
        };
        old.rollouts.iter().map(text).collect()
    }

    #[test]
    fn rollout_begins_once_and_ends_once() {
        let (none, old) = (json!({}), KnativeFleetStatus::default);
        let waiting = || status("b", "AwaitingApproval", &none);
        let running = || approved(status("b", "Progressing", &none), "ann");
        let complete = || approved(status("b", "Complete", &json!({"currentRevision": "b"})), "ann");
        // An approval in advance is not used yet.
        assert_eq!(after(old(), &[approved(waiting(), "ann")]), ["b 10- goes on"]);
        assert_eq!(after(old(), &[waiting(), running(), running()]), ["b 10- goes on prod:ann"]);
        let expected = ["b 10-30 Complete prod:ann"];
        assert_eq!(after(old(), &[waiting(), running(), complete(), complete()]), expected);
        // A cluster that joins has no rollout of its own, but its stage may need another approval.
        let joins = json!({"currentRevision": "b", "rolloutGeneration": 4});
        let joined = approved(status("b", "Progressing", &joins), "kim");
        assert_eq!(after(old(), &[waiting(), running(), complete(), joined]), ["b 10-30 Complete prod:ann prod:kim"]);
        // What is unchanged on all clusters.
        assert_eq!(after(old(), &[complete()]), ["b 10-10 Complete prod:ann"]);
        let first = &rollouts(&old(), &complete(), Timestamp::UNIX_EPOCH)[0];
        assert_eq!((first.requested_by.as_deref(), first.started_at.as_str()), (Some("jane"), "1970-01-01T00:00:00Z"));
    }

    #[test]
    fn rollout_of_another_revision_replaces_it() {
        let (none, old) = (json!({}), KnativeFleetStatus::default());
        let running = |update: &str| status(update, "Progressing", &none);
        let back = status("a", "Complete", &none);
        let expected = ["b 10-20 Superseded", "c 20-30 Superseded", "a 30-50 Complete"];
        assert_eq!(after(old, &[running("b"), running("c"), running("a"), running("a"), back]), expected);
    }

    #[test]
    fn revision_that_was_rolled_back_can_be_rolled_out_again() {
        let (none, old) = (json!({}), KnativeFleetStatus::default);
        let running = || approved(status("b", "Progressing", &none), "ann");
        // Nothing returns in a stage that was not reached: it is complete.
        let later = || approved(rolled_back(status("b", "Complete", &none)), "later");
        let unknown = || KnativeFleetStatus { conditions: Vec::new(), ..later() };
        let expected = ["b 10-20 RolledBack prod:ann"];
        assert_eq!(after(old(), &[running(), later(), unknown(), later()]), expected);
        let again = status("b", "Progressing", &json!({"rolloutGeneration": 4}));
        assert_eq!(after(old(), &[running(), later(), again]), ["b 10-20 RolledBack prod:ann", "b 30- goes on"]);
        // Other stages in the middle don't end it.
        let changed = status("b", "Progressing", &json!({"rolloutGeneration": 4}));
        assert_eq!(after(old(), &[running(), changed]), ["b 10- goes on prod:ann"]);
    }

    #[test]
    fn rollout_of_an_earlier_version_is_unknown() {
        let none = json!({});
        let earlier = status("b", "Progressing", &json!({"rolloutGeneration": null}));
        let complete = status("b", "Complete", &json!({"currentRevision": "b"}));
        assert!(after(earlier.clone(), &[status("b", "Progressing", &none), complete]).is_empty());
        assert_eq!(after(earlier, &[status("c", "Progressing", &none)]), ["c 10- goes on"]);
    }

    #[test]
    fn rollouts_are_few_and_short() {
        let mut old = KnativeFleetStatus::default();
        for number in 0..20 {
            let status = status(&number.to_string(), "Progressing", &json!({}));
            let rollouts = rollouts(&old, &status, Timestamp::UNIX_EPOCH);
            old = KnativeFleetStatus { rollouts, ..status };
        }
        let names: Vec<_> = old.rollouts.iter().map(|rollout| rollout.revision.as_str()).collect();
        assert_eq!((names.len(), names.first(), names.last()), (MAX_ROLLOUTS, Some(&"10"), Some(&"19")));
        let mut long = status("long", "Progressing", &json!({}));
        long.stages = (0..=MAX_APPROVALS).map(|_| long.stages[0].clone()).collect();
        for (number, stage) in long.stages.iter_mut().enumerate() {
            (stage.name, stage.approved_by) = (number.to_string(), Some("u".repeat(512)));
        }
        let rollouts = rollouts(&old, &long, Timestamp::UNIX_EPOCH);
        let approvals: Vec<_> = rollouts.iter().map(|rollout| rollout.approvals.len()).collect();
        assert_eq!(approvals, [MAX_APPROVALS]);
    }
}
