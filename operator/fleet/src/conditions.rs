//! The conditions of a fleet.

use std::collections::BTreeSet;

use jiff::Timestamp;
use knative_operator_shared::api::fleet::{KnativeFleetStatus, StageState, StageStatus};
use knative_operator_shared::api::{ClusterProfileReference, Condition};
use knative_operator_shared::label::PROTECTED;
use knative_operator_shared::text::{MAX_MESSAGE, and_more, clip};
use knative_operator_shared::time::truncate;

use super::decision::{Decision, Input, StageReport};
use super::member::Contents;
use super::removal::{Blocked, Leavers, RemovalDecision};
use super::rollback;

/// Maximum length of the message about a cluster, in bytes: with all of them, the status stays
/// small.
pub(super) const MAX_CLUSTER_MESSAGE: usize = 512;
/// The command that approves. NAME and NAMESPACE are those of the fleet, which has the condition.
const APPROVE: &str = "knative-operator fleet approve NAME -n NAMESPACE";
/// Maximum number of clusters named in a message.
const MAX_NAMED: usize = 5;

/// A condition: type, and status, reason and message.
pub type State = (&'static str, bool, &'static str, String);

/// The conditions of a fleet with `status` after `old`.
pub fn conditions<C: Contents>(
    old: &KnativeFleetStatus,
    input: &Input<'_, C>,
    status: &KnativeFleetStatus,
    decision: &Decision,
    leavers: &Leavers<'_>,
) -> Vec<Condition> {
    let stages = input.stages.settings().iter().zip(&decision.stages);
    let stages: Vec<_> = stages.filter_map(|(stage, report)| Some((stage.name.as_str(), wait(report)?))).collect();
    let waiting = stages.as_slice();
    let states = [
        paused(input, status, decision),
        progressing(input, status, waiting),
        ready(input, status, waiting),
        removal_pending(input, leavers),
        removal_blocked(leavers),
    ];
    states.into_iter().map(|state| condition(old, status.observed_generation, state, input.now)).collect()
}

/// The condition in `state` after those of `old`, in `generation`.
pub fn condition(
    old: &KnativeFleetStatus,
    generation: Option<i64>,
    (type_, is_true, reason, message): State,
    now: Timestamp,
) -> Condition {
    let status = if is_true { "True" } else { "False" };
    let before = old.conditions.iter().find(|condition| condition.type_ == type_ && condition.status == status);
    let since = before.and_then(|condition| condition.last_transition_time.clone());
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        observed_generation: generation,
        severity: None,
        last_transition_time: Some(since.unwrap_or_else(|| truncate(now).to_string())),
        reason: Some(reason.to_owned()),
        message: Some(clip(&message, MAX_MESSAGE)),
    }
}

fn paused<C: Contents>(input: &Input<'_, C>, status: &KnativeFleetStatus, decision: &Decision) -> State {
    let stopped = status.stages.iter().find(|stage| stage.state == StageState::Paused);
    let failures =
        |stage: &StageStatus| format!("{} of {} clusters of stage {} failed", stage.failed, stage.clusters, stage.name);
    let has_too_many = |stage: &&StageStatus| {
        let mut reports = input.stages.settings().iter().zip(&decision.stages);
        reports.any(|(settings, report)| settings.name == stage.name && report.has_too_many(settings))
    };
    match stopped.filter(|_| !input.has_failed).filter(has_too_many) {
        // A pause hides no failures: its end doesn't end them.
        Some(stage) => {
            let pause = if input.is_paused { format!("; {}", input.pause) } else { String::new() };
            let message = format!("{}; no further cluster is started{pause}", failures(stage));
            ("Paused", true, "TooManyFailures", message)
        }
        None if input.is_paused => {
            ("Paused", true, "Paused", format!("{}; no further cluster is started", input.pause))
        }
        None => ("Paused", false, "NotPaused", String::new()),
    }
}

/// What the stage of `report` waits for, if it waits for clusters.
pub fn wait(report: &StageReport) -> Option<String> {
    let later = "later stages wait until a cluster of this stage is updated";
    match report {
        StageReport { unrecorded: Some(why), .. } => Some(format!(
            "the stage waits until what came of the update of its clusters is recorded, which the API server refuses: {}",
            clip(why, MAX_CLUSTER_MESSAGE)
        )),
        report if report.is_lost => Some(format!(
            "its clusters left or changed their stage during the rollout; {later}: select clusters for it again, or remove it from spec.rollout.stages"
        )),
        StageReport { waiting, .. } if *waiting > 0 => Some(format!(
            "the stage waits for clusters whose state is not known ({waiting}); status.attention has them"
        )),
        report if report.is_unproven() => Some(format!("{later}: each is deferred, failed or in conflict")),
        _ => None,
    }
}

fn progressing<C: Contents>(input: &Input<'_, C>, status: &KnativeFleetStatus, waiting: &[(&str, String)]) -> State {
    let (type_, update) = ("Progressing", input.update);
    let Some(stage) = status.stages.iter().find(|stage| stage.state != StageState::Complete) else {
        if input.has_failed && input.is_rolling_out() {
            let kept = input.members.iter().filter(|member| rollback::is_kept(member, input)).count();
            let kept = match kept {
                0 => String::new(),
                kept => format!("; clusters that had no revision before keep it: {kept}"),
            };
            let failed = input.members.iter().filter(|member| rollback::failure(member, input).is_some()).count();
            let failed = match failed {
                0 => String::new(),
                failed => format!("; clusters that are not Ready after it, in status.attention: {failed}"),
            };
            let message =
                format!("The rollout of revision {update} failed and was rolled back{kept}{failed}; change the spec");
            return (type_, false, "RolledBack", message);
        }
        if input.is_rolling_out() && status.current_revision.as_deref() != Some(update) {
            let message = format!("No cluster is selected; revision {update} is rolled out when one is");
            return (type_, false, "NoClusters", message);
        }
        return (type_, false, "Complete", format!("Revision {update} is rolled out"));
    };
    let StageStatus { name, updated, clusters, .. } = stage;
    if input.has_failed && input.is_rolling_out() {
        return (
            type_,
            true,
            "RollingBack",
            format!("The rollout of revision {update} failed; stage {name} is rolled back"),
        );
    }
    let progress = format!("Stage {name}: {updated} of {clusters} clusters have revision {update}");
    match stage.state {
        StageState::AwaitingApproval => (
            type_,
            false,
            "AwaitingApproval",
            format!("{progress}; approve the stage with {APPROVE}, or a KnativeFleetApproval for it and the revision"),
        ),
        StageState::Paused => (type_, false, "Paused", progress),
        _ => match waiting.iter().find(|(waiting, _)| waiting == name) {
            Some((_, why)) => (type_, true, "WaitingForClusters", format!("{progress}; {why}")),
            None => (type_, true, "RollingOut", progress),
        },
    }
}

/// How many clusters have the revision `update`, and how they are.
fn counts(status: &KnativeFleetStatus, update: &str) -> String {
    let KnativeFleetStatus { clusters, updated, ready, deferred, failed, .. } = status;
    let others = [(failed, "failed"), (deferred, "deferred")].into_iter().filter(|(number, _)| **number > 0);
    let others: String = others.map(|(number, state)| format!(", {number} {state}")).collect();
    format!("{updated}/{clusters} updated to {update}; {ready} Ready{others}")
}

fn ready<C: Contents>(input: &Input<'_, C>, status: &KnativeFleetStatus, waiting: &[(&str, String)]) -> State {
    let KnativeFleetStatus { clusters, updated, ready, deferred, failed, .. } = status;
    let is_rolled_out = !input.is_rolling_out() || status.current_revision.as_deref() == Some(input.update);
    let message = counts(status, input.update);
    match () {
        () if *clusters == 0 => ("Ready", false, "NoClusters", "spec.placement selects no cluster".to_owned()),
        () if *failed > 0 => ("Ready", false, "ClustersFailed", message),
        () if !is_rolled_out || updated < clusters && *deferred == 0 => {
            let (_, _, reason, _) = progressing(input, status, waiting);
            ("Ready", false, if reason == "Complete" { "RolloutIncomplete" } else { reason }, message)
        }
        () if *deferred > 0 => ("Ready", false, "ClustersDeferred", message),
        () if ready < clusters => ("Ready", false, "ClustersNotReady", message),
        () => ("Ready", true, "Ready", message),
    }
}

fn removal_pending<C: Contents>(input: &Input<'_, C>, leavers: &Leavers<'_>) -> State {
    let type_ = "RemovalPending";
    let (removable, protected) = (leavers.removable(), &leavers.decision.protected);
    // Others may have an approval, or be within the limit.
    let are_all_blocked = leavers.decision.blocked.is_some() && removable.is_empty();
    if leavers.clusters.is_empty() || are_all_blocked {
        return (type_, false, "NotPending", String::new());
    }
    let stay = stay(leavers);
    let counting = &leavers.decision.counting;
    if removable.is_empty() && stay.is_empty() {
        let counting = named(&counting.iter().collect::<Vec<_>>());
        return (
            type_,
            true,
            "GracePeriod",
            format!("Clusters that left the fleet stay until the rollout ends: {counting}"),
        );
    }
    if removable.is_empty() {
        return (type_, true, if protected.is_empty() { "Unavailable" } else { "Protected" }, stay);
    }
    let stay = if stay.is_empty() { String::new() } else { format!("; {stay}") };
    let clusters = named(&removable);
    if input.is_paused {
        return (
            type_,
            true,
            "Paused",
            format!(
                "spec.rollout.paused is true, so clusters that left the fleet stay: {clusters}; after the pause, they stay for an hour at least, or for their grace period if that is shorter{stay}"
            ),
        );
    }
    let until = leavers.decision.until.map(|until| format!(" at {until} or later")).unwrap_or_default();
    let counting = match counting.len() {
        0 => String::new(),
        counting => format!("; those that count in the rollout stay until it ends: {counting}"),
    };
    let message = format!(
        "{} clusters left the fleet and are removed from it{until}: {clusters}; to keep them, select them again{counting}{stay}",
        removable.len()
    );
    (type_, true, "GracePeriod", message)
}

/// Which clusters left and stay for longer than a grace period, and why; empty if none do.
fn stay(leavers: &Leavers<'_>) -> String {
    let RemovalDecision { protected, unavailable, .. } = leavers.decision;
    let names = |clusters: &BTreeSet<ClusterProfileReference>| named(&clusters.iter().collect::<Vec<_>>());
    let mut parts = Vec::new();
    if !protected.is_empty() {
        parts.push(format!(
            "the annotation {PROTECTED} protects the resources of these clusters, which left the fleet: {}; remove it, or select them again",
            names(protected)
        ));
    }
    if !unavailable.is_empty() {
        parts.push(format!(
            "these clusters left the fleet, and stay because they are not healthy or not reachable: {}; their grace period begins when \
             they are available; to keep them, select them again",
            names(unavailable)
        ));
    }
    parts.join("; ")
}

fn removal_blocked(leavers: &Leavers<'_>) -> State {
    let Some(Blocked { name, clusters, limit }) = &leavers.decision.blocked else {
        return ("RemovalBlocked", false, "NotBlocked", String::new());
    };
    let clusters: Vec<_> = clusters.iter().collect();
    let (count, clusters) = (clusters.len(), named(&clusters));
    let message = match limit {
        0 => format!("All clusters ({count}) would leave the fleet: {clusters}"),
        limit => {
            format!("{count} clusters would leave the fleet, and not more than {limit} may within 24 hours: {clusters}")
        }
    };
    let fix = match name {
        None => "correct the placement; it can be approved when it is recorded since when they left".to_owned(),
        Some(name) => format!(
            "correct the placement, or approve the removal with {APPROVE} --removal, or a KnativeFleetApproval for \
             revision {name} and stage removal, which removes at once those whose grace period is over"
        ),
    };
    ("RemovalBlocked", true, "TooManyClusters", format!("{message}; {fix}"))
}

/// The first ones of `clusters`, and the number of the others.
fn named(clusters: &[&ClusterProfileReference]) -> String {
    let named: Vec<_> = clusters.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    named.join(", ") + &and_more(clusters.len().saturating_sub(MAX_NAMED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocked_removal_names_the_clusters_and_the_command() {
        let cluster = ClusterProfileReference { name: "a".to_owned(), namespace: "n".to_owned() };
        let blocked = |name: Option<&str>| {
            let clusters = BTreeSet::from([cluster.clone()]);
            let blocked = Blocked { name: name.map(str::to_owned), clusters, limit: 0 };
            let decision = RemovalDecision { blocked: Some(blocked), ..RemovalDecision::default() };
            removal_blocked(&Leavers { clusters: &[], decision: &decision }).3
        };
        let named = blocked(Some("removal-1"));
        let expected = "All clusters (1) would leave the fleet: n/a; correct the placement, or approve the removal with \
                        knative-operator fleet approve NAME -n NAMESPACE --removal, or a KnativeFleetApproval for \
                        revision removal-1 ";
        assert!(named.starts_with(expected), "{named}");
        assert!(!blocked(None).contains("fleet approve"), "it can't be approved yet");
    }

    #[test]
    fn counts_name_the_revision_and_what_is_not_well() {
        let of = |failed, deferred| {
            let status = KnativeFleetStatus {
                clusters: 1000,
                updated: 700,
                ready: 980,
                failed,
                deferred,
                ..KnativeFleetStatus::default()
            };
            counts(&status, "prod-7")
        };
        assert_eq!(of(0, 0), "700/1000 updated to prod-7; 980 Ready");
        assert_eq!(of(4, 1), "700/1000 updated to prod-7; 980 Ready, 4 failed, 1 deferred");
    }
}
