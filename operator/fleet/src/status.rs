//! The status of a fleet.

use std::collections::HashSet;

use jiff::Timestamp;
use knative_operator_shared::api::fleet::{
    BlockedRemoval, ClusterAttention, KnativeFleetStatus, RemovalStatus, StageState,
};
use knative_operator_shared::text::clip;

use super::conditions::{MAX_CLUSTER_MESSAGE, State, condition, conditions};
use super::decision::{Decision, Input};
use super::gates::{GATE_FAILED, GATE_PENDING, GATE_UNKNOWN, Gates};
use super::member::{Contents, Member, Reported};
use super::progress::{HUB_FAULT, NOT_OBSERVED, NOT_STORED, Progress, SKIPPED};
use super::removal::Leavers;
use super::rollback;
use super::stages::{number, stages};
use super::unknown::{self, CONTENT_UNKNOWN};

/// Maximum number of clusters that need attention in the status.
pub const MAX_ATTENTION: usize = 20;

/// The status of a fleet of `generation` after `old`.
pub fn status<C: Contents>(
    old: &KnativeFleetStatus,
    generation: Option<i64>,
    input: &Input<'_, C>,
    decision: &Decision,
    removal: &Leavers<'_>,
) -> KnativeFleetStatus {
    let current = if decision.is_complete { Some(input.update) } else { input.current };
    let previous = if decision.is_complete { input.current } else { None };
    let count = |is: fn(&Progress) -> bool| number(decision.progress.iter().filter(|progress| is(progress)).count());
    let failed = number(decision.stages.iter().map(|stage| stage.failed).sum());
    let stages = stages(old, input, decision);
    let in_progress = stages.iter().find(|stage| stage.state != StageState::Complete).map(|stage| stage.name.clone());
    let mut status = KnativeFleetStatus {
        observed_generation: generation,
        conditions: Vec::new(),
        current_revision: current.map(str::to_owned),
        previous_revision: previous.map(str::to_owned).or_else(|| old.previous_revision.clone()),
        update_revision: Some(input.update.to_owned()),
        requested_by: old.requested_by.clone(),
        failed_revisions: old.failed_revisions.clone(),
        revisions: old.revisions.clone(),
        rollout_digest: old.rollout_digest.clone(),
        rollout_generation: old.rollout_generation,
        rollouts: old.rollouts.clone(),
        removals: Some(removal.decision.record.clone()).filter(|record| *record != RemovalStatus::default()),
        blocked_removal: blocked_removal(removal),
        clusters: number(input.members.len()),
        installed: old.installed,
        updated: count(|progress| *progress == Progress::Updated),
        ready: number(input.members.iter().filter(|member| member.is_ready()).count()),
        deferred: count(|progress| matches!(progress, Progress::Deferred(_) | Progress::Skipped)),
        failed: failed.saturating_add(count(|progress| matches!(progress, Progress::Conflict(_)))),
        stage: in_progress,
        stages,
        attention: attention(old, input, decision),
    };
    status.conditions = conditions(old, input, &status, decision, removal);
    status
}

/// The removal that is blocked.
fn blocked_removal(removal: &Leavers<'_>) -> Option<BlockedRemoval> {
    let blocked = removal.decision.blocked.as_ref()?;
    let (clusters, limit) = (number(blocked.clusters.len()), number(blocked.limit));
    Some(BlockedRemoval { name: blocked.name.clone(), clusters, limit })
}

/// The status of a fleet whose spec is invalid. Nothing is written for it.
pub fn invalid(old: &KnativeFleetStatus, generation: Option<i64>, message: &str, now: Timestamp) -> KnativeFleetStatus {
    standing(old, generation, "InvalidSpec", message, now)
}

/// The status of a fleet whose clusters are unknown. Nothing is written for it.
pub fn unknown(old: &KnativeFleetStatus, generation: Option<i64>, message: &str, now: Timestamp) -> KnativeFleetStatus {
    standing(old, generation, "ClustersUnknown", message, now)
}

/// The status of a fleet that is neither Ready nor rolled out. The numbers and the stages are those
/// of the time before, and what the next pass goes on with.
fn standing(
    old: &KnativeFleetStatus,
    generation: Option<i64>,
    reason: &'static str,
    message: &str,
    now: Timestamp,
) -> KnativeFleetStatus {
    let state = |type_| (type_, false, reason, message.to_owned());
    let mut status = stopped(old, generation, state("Ready"), now);
    set(old, &mut status, state("Progressing"), now);
    status
}

/// The status of a fleet that is being deleted although it is protected. Nothing is deleted for it.
pub fn protected(
    old: &KnativeFleetStatus,
    generation: Option<i64>,
    message: &str,
    now: Timestamp,
) -> KnativeFleetStatus {
    stopped(old, generation, ("Ready", false, "Protected", message.to_owned()), now)
}

/// The status of a fleet that is being deleted although nobody confirmed that. Nothing is deleted
/// for it.
pub fn unconfirmed(
    old: &KnativeFleetStatus,
    generation: Option<i64>,
    message: &str,
    now: Timestamp,
) -> KnativeFleetStatus {
    let state = |type_, is| (type_, is, "DeletionNotConfirmed", message.to_owned());
    let mut status = stopped(old, generation, state("Ready", false), now);
    // It is about all clusters, and has no approval.
    status.blocked_removal = None;
    for (type_, is) in [("Progressing", false), ("RemovalPending", false), ("RemovalBlocked", true)] {
        set(old, &mut status, state(type_, is), now);
    }
    status
}

/// The status of a fleet that is being deleted, and with it the installations of `left` clusters.
pub fn deleting(old: &KnativeFleetStatus, generation: Option<i64>, left: i32, now: Timestamp) -> KnativeFleetStatus {
    let state = |type_| (type_, false, "Deleting", format!("Clusters to uninstall from: {left}"));
    let mut status = stopped(old, generation, state("Ready"), now);
    status.blocked_removal = None;
    for type_ in ["Progressing", "RemovalPending", "RemovalBlocked"] {
        set(old, &mut status, state(type_), now);
    }
    status
}

/// Reports in `status`, which follows `old`, that the update revision is not rolled out, with
/// reason and message.
pub fn withheld(
    old: &KnativeFleetStatus,
    status: &mut KnativeFleetStatus,
    (reason, message): (&'static str, &str),
    now: Timestamp,
) {
    for type_ in ["Progressing", "Ready"] {
        set(old, status, (type_, false, reason, message.to_owned()), now);
    }
}

fn stopped(old: &KnativeFleetStatus, generation: Option<i64>, ready: State, now: Timestamp) -> KnativeFleetStatus {
    let mut status = KnativeFleetStatus { observed_generation: generation, ..old.clone() };
    set(old, &mut status, ready, now);
    status
}

/// Sets a condition of `status`, which follows `old`.
fn set(old: &KnativeFleetStatus, status: &mut KnativeFleetStatus, state: State, now: Timestamp) {
    let new = condition(old, status.observed_generation, state, now);
    match status.conditions.iter_mut().find(|condition| condition.type_ == new.type_) {
        Some(condition) => *condition = new,
        None => status.conditions.push(new),
    }
}

/// What is known about a cluster that failed, and is observed again.
fn observed_again(member: &Member) -> String {
    let state = match (member.not_ready(), &member.gates) {
        (Some((_, message)), _) => message,
        (None, Gates::Pending(why) | Gates::Unknown(why)) => why.clone(),
        (None, _) => "it is Ready".to_owned(),
    };
    format!("it failed before, and is observed again: {state}")
}

/// The message about a cluster whose gates failed: after a restart, only the status `old` has it.
fn gate_failure(old: &KnativeFleetStatus, member: &Member) -> String {
    let same = |entry: &&ClusterAttention| entry.reason == GATE_FAILED && entry.cluster == member.cluster;
    old.attention.iter().find(same).map_or_else(|| "a gate failed".to_owned(), |entry| entry.message.clone())
}

/// Order, reason and message of a cluster whose gates are measured.
fn measured(member: &Member) -> Option<(u8, String, String)> {
    match &member.gates {
        Gates::Unknown(why) => Some((2, GATE_UNKNOWN.to_owned(), why.clone())),
        Gates::Pending(why) => Some((6, GATE_PENDING.to_owned(), why.clone())),
        Gates::Passed | Gates::Failed(_) => None,
    }
}

/// Order, reason and message of a cluster at which the operator has not looked since a write.
fn unobserved(member: &Member) -> (u8, String, String) {
    let unreported = member.applied().find(|applied| applied.reported != Reported::Current);
    let message = unreported.and_then(|applied| applied.ready.as_ref().err()).map(|(_, message)| message.clone());
    (2, NOT_OBSERVED.to_owned(), message.unwrap_or_default())
}

/// Order and message of a cluster of whose update the API server refuses to record what came, which
/// is `progress` if it is the one of the spec, for the reason `why`.
fn unstored(progress: &Progress, why: &str) -> (u8, String) {
    match progress {
        Progress::Failed(reason, message) => {
            (0, format!("it failed with {reason}, and its stage waits until that is recorded: {why}; {message}"))
        }
        Progress::Updated => (2, format!("it is updated, and its stage waits until that is recorded: {why}")),
        _ => (2, format!("what came of the last installation is not recorded: {why}")),
    }
}

/// The clusters that need attention: those that failed first.
fn attention<C: Contents>(
    old: &KnativeFleetStatus,
    input: &Input<'_, C>,
    decision: &Decision,
) -> Vec<ClusterAttention> {
    let mut attention: Vec<(u8, ClusterAttention)> = Vec::new();
    for (member, progress) in input.members.iter().zip(&decision.progress) {
        if let Some((reason, message)) = rollback::failure(member, input) {
            let message = clip(&message, MAX_CLUSTER_MESSAGE);
            attention.push((0, ClusterAttention { cluster: member.cluster.clone(), reason, message }));
            continue;
        }
        if let Some(revision) = input.waits_for_unknown(member, decision.stages[member.stage].state) {
            let message = clip(&unknown::message(revision), MAX_CLUSTER_MESSAGE);
            let reason = CONTENT_UNKNOWN.to_owned();
            attention.push((2, ClusterAttention { cluster: member.cluster.clone(), reason, message }));
            continue;
        }
        if let Some(revision) = rollback::waits_for_report(member, input) {
            let (reason, why) = member.not_ready().unwrap_or_default();
            let message =
                clip(&format!("it returns to revision {revision} when its state is known: {why}"), MAX_CLUSTER_MESSAGE);
            attention.push((2, ClusterAttention { cluster: member.cluster.clone(), reason, message }));
            continue;
        }
        if let Some(why) = input.refused_record(member, progress, decision) {
            let (order, message) = unstored(progress, why);
            let (reason, message) = (NOT_STORED.to_owned(), clip(&message, MAX_CLUSTER_MESSAGE));
            attention.push((order, ClusterAttention { cluster: member.cluster.clone(), reason, message }));
            continue;
        }
        let (order, reason, message) = match progress {
            Progress::Failed(reason, message) if reason == GATE_FAILED && message.is_empty() => {
                (0, reason.clone(), gate_failure(old, member))
            }
            Progress::Failed(reason, message) => (0, reason.clone(), message.clone()),
            Progress::Conflict(other) => (1, "Conflict".to_owned(), other.clone()),
            Progress::Waiting(reason, why, _) => (2, reason.clone(), why.clone()),
            Progress::Deferred(why) => (3, "Deferred".to_owned(), why.clone()),
            Progress::Skipped => (3, SKIPPED.to_owned(), "a person lets the rollout leave it as it is".to_owned()),
            Progress::Updating(_) => match (&member.hub_fault, member.former_failure(&input.goal(member))) {
                (Some(fault), _) => (4, HUB_FAULT.to_owned(), fault.message.clone()),
                (None, Some(reason)) => (0, reason.to_owned(), observed_again(member)),
                (None, None) if input.is_unobserved(member) => unobserved(member),
                (None, None) => match measured(member).filter(|_| input.measures_gates(member, progress)) {
                    Some(measured) => measured,
                    None => continue,
                },
            },
            Progress::Updated => match member.not_ready() {
                Some((reason, message)) => (5, reason, message),
                None => continue,
            },
            Progress::Pending if input.is_unobserved(member) => unobserved(member),
            Progress::Soaking(_) | Progress::Pending => continue,
        };
        let message = clip(&message, MAX_CLUSTER_MESSAGE);
        attention.push((order, ClusterAttention { cluster: member.cluster.clone(), reason, message }));
    }
    let reported: HashSet<_> = attention.iter().map(|(_, attention)| &attention.cluster).collect();
    let others = input.uncounted.iter().filter(|(cluster, _)| !reported.contains(cluster));
    let others = others.map(|(cluster, (reason, message))| {
        let message = clip(message, MAX_CLUSTER_MESSAGE);
        (7, ClusterAttention { cluster: cluster.clone(), reason: (*reason).to_owned(), message })
    });
    let others: Vec<_> = others.collect();
    attention.extend(others);
    attention.sort_by(|(a, x), (b, y)| (a, &x.cluster).cmp(&(b, &y.cluster)));
    attention.into_iter().take(MAX_ATTENTION).map(|(_, cluster)| cluster).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::{Arc, OnceLock};

    use knative_operator_shared::api::fleet::{OnFailure, Rollout, Stage};
    use knative_operator_shared::api::{ClusterProfileReference, Component};
    use knative_operator_shared::fleet::stage::Stages;
    use knative_operator_shared::version::Version;

    use super::*;
    use crate::approval::Approved;
    use crate::member::{Child, Refused, Wanted};
    use crate::removal::{Blocked, RemovalDecision};

    struct Nothing;

    impl Contents for Nothing {
        fn of(&self, _: &str, _: &ClusterProfileReference, _: Component) -> Option<Arc<Wanted>> {
            Some(Arc::new(Wanted { content: 1, version: None }))
        }

        fn knows(&self, _: &str) -> bool {
            true
        }

        fn is_known(&self, _: &str, _: &ClusterProfileReference) -> bool {
            true
        }

        fn versions(&self, _: Component) -> &[Version] {
            &[]
        }
    }

    #[test]
    fn status_of_5000_clusters_is_small() {
        let stage = |number: usize| Stage {
            name: format!("{number:063}"),
            cluster_selector: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector::default()),
            ..Stage::default()
        };
        let stages = Stages::of(&Rollout { stages: (0..64).map(stage).collect(), ..Rollout::default() }).unwrap();
        // All of them fail with long messages.
        let member = |number: usize| Member {
            stage: number % 64,
            refused: Some(Refused { revision: "r".to_owned(), message: "why ".repeat(2000), is_due: false }),
            ..Member::new(
                ClusterProfileReference { name: format!("{number:0253}"), namespace: "n".repeat(63) },
                vec![Child { component: Component::Serving, conflict: None, applied: None }],
            )
        };
        let members: Vec<Member> = (0..5000).map(member).collect();
        let approvals = Approved::new();
        let input = Input {
            stages: &stages,
            members: &members,
            had_clusters: &BTreeSet::new(),
            uncounted: &BTreeMap::new(),
            current: Some("s"),
            update: "r",
            has_failed: false,
            generation: 1,
            on_failure: OnFailure::Pause,
            is_paused: false,
            pause: "",
            approvals: &approvals,
            contents: &Nothing,
            now: Timestamp::UNIX_EPOCH,
            installable: OnceLock::new(),
        };
        let decision = input.decide();
        let all = members.iter().map(|member| member.cluster.clone()).collect();
        let blocked = Blocked { name: Some("0123456789".to_owned()), clusters: all, limit: 500 };
        let blocked = RemovalDecision { blocked: Some(blocked), ..RemovalDecision::default() };
        let clusters: Vec<_> = members.iter().map(|member| &member.cluster).collect();
        let leavers = Leavers { clusters: &clusters, decision: &blocked };
        let status = status(&KnativeFleetStatus::default(), Some(1), &input, &decision, &leavers);
        assert_eq!((status.clusters, status.failed, status.attention.len()), (5000, 5000, MAX_ATTENTION));
        let bytes = serde_json::to_vec(&status).unwrap().len();
        assert!(bytes < 64 << 10, "{bytes} bytes");
        let removal = BlockedRemoval { name: Some("0123456789".to_owned()), clusters: 5000, limit: 500 };
        assert_eq!(status.blocked_removal.as_ref(), Some(&removal));
        // While the clusters are not known, it stays. The deletion of the fleet is another one.
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(unknown(&status, Some(2), "why", now).blocked_removal, Some(removal));
        for other in [unconfirmed(&status, Some(2), "why", now), deleting(&status, Some(2), 5, now)] {
            assert_eq!(other.blocked_removal, None);
        }
        // Each condition has the generation that it describes.
        let generations = |status: &KnativeFleetStatus| {
            let of = |type_: &str| status.conditions.iter().find(|c| c.type_ == type_)?.observed_generation;
            ["Ready", "Progressing", "Paused"].map(of)
        };
        let later = unknown(&status, Some(2), "why", now);
        assert_eq!((generations(&status), generations(&later)), ([Some(1); 3], [Some(2), Some(2), Some(1)]));
    }
}
