//! The status of a fleet.

use std::fmt::Write;

use jiff::{Timestamp, Unit};
use knative_operator_shared::api::fleet::{ClusterAttention, KnativeFleetStatus, StageState, StageStatus};
use knative_operator_shared::api::{ClusterProfileReference, Condition};
use knative_operator_shared::fleet::stage::{REST, StageSettings};
use knative_operator_shared::text::{MAX_MESSAGE, clip};

use super::decision::{Decision, Input};
use super::member::{Contents, Member, Progress};

/// Maximum number of clusters that need attention in the status.
const MAX_ATTENTION: usize = 20;
/// Maximum number of clusters named in a message.
const MAX_NAMED: usize = 5;
/// Maximum length of the message about a cluster, in bytes: with all of them, the status stays
/// small.
const MAX_CLUSTER_MESSAGE: usize = 512;

/// A condition: type, and status, reason and message.
type State = (&'static str, bool, &'static str, String);

/// A removal that is blocked: its name, its clusters, and how many may leave at the same time.
pub type BlockedRemoval<'a> = (&'a str, Vec<&'a ClusterProfileReference>, usize);

/// The status of a fleet of `generation` after `old`.
pub fn status<C: Contents>(
    old: &KnativeFleetStatus,
    generation: Option<i64>,
    input: &Input<'_, C>,
    decision: &Decision,
    removal: Option<&BlockedRemoval<'_>>,
) -> KnativeFleetStatus {
    let current = if decision.is_complete { Some(input.update) } else { input.current };
    let count = |is: fn(&Progress) -> bool| number(decision.progress.iter().filter(|progress| is(progress)).count());
    let stages = stages(old, input, decision);
    let in_progress = stages.iter().find(|stage| stage.state != StageState::Complete).map(|stage| stage.name.clone());
    let mut status = KnativeFleetStatus {
        observed_generation: generation,
        conditions: Vec::new(),
        current_revision: current.map(str::to_owned),
        update_revision: Some(input.update.to_owned()),
        revisions: old.revisions.clone(),
        rollout_digest: old.rollout_digest.clone(),
        rollout_generation: old.rollout_generation,
        clusters: number(input.members.len()),
        updated: count(|progress| *progress == Progress::Updated),
        ready: number(input.members.iter().filter(|member| member.is_ready()).count()),
        deferred: count(|progress| matches!(progress, Progress::Deferred(_))),
        failed: count(|progress| matches!(progress, Progress::Failed(..) | Progress::Conflict(_))),
        stage: in_progress,
        stages,
        attention: attention(input, decision),
    };
    status.conditions = conditions(old, input, &status, removal);
    status
}

/// The status of a fleet whose spec is invalid. Nothing is written for it.
pub fn invalid(old: &KnativeFleetStatus, generation: Option<i64>, message: &str, now: Timestamp) -> KnativeFleetStatus {
    stopped(old, generation, ("Ready", false, "InvalidSpec", message.to_owned()), now)
}

/// The status of a fleet whose clusters are unknown. Nothing is written for it.
pub fn unknown(old: &KnativeFleetStatus, generation: Option<i64>, message: &str, now: Timestamp) -> KnativeFleetStatus {
    stopped(old, generation, ("Ready", false, "ClustersUnknown", message.to_owned()), now)
}

fn stopped(old: &KnativeFleetStatus, generation: Option<i64>, ready: State, now: Timestamp) -> KnativeFleetStatus {
    let mut status = KnativeFleetStatus { observed_generation: generation, ..old.clone() };
    let ready = condition(old, ready, now);
    match status.conditions.iter_mut().find(|condition| condition.type_ == ready.type_) {
        Some(condition) => *condition = ready,
        None => status.conditions.push(ready),
    }
    status
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn time(time: Timestamp) -> String {
    time.round(Unit::Second).unwrap_or(time).to_string()
}

fn stages<C: Contents>(old: &KnativeFleetStatus, input: &Input<'_, C>, decision: &Decision) -> Vec<StageStatus> {
    let is_same = old.update_revision.as_deref() == Some(input.update);
    let stages = input.stages.settings().iter().zip(&decision.stages);
    // The last stage is for clusters that no other selects: without clusters, it is not shown.
    let shown = stages.filter(|(settings, report)| report.clusters > 0 || settings.name != REST);
    let stage = |(settings, report): (&StageSettings, &super::decision::StageReport)| {
        let before = old.stages.iter().find(|stage| is_same && stage.name == settings.name);
        let started = !matches!(report.state, StageState::Pending | StageState::AwaitingApproval);
        let at = |before: Option<&String>, is: bool| is.then(|| before.cloned().unwrap_or_else(|| time(input.now)));
        StageStatus {
            name: settings.name.clone(),
            state: report.state,
            clusters: number(report.clusters),
            updated: number(report.updated),
            updating: number(report.updating),
            failed: number(report.failed),
            deferred: number(report.deferred),
            started_at: at(before.and_then(|stage| stage.started_at.as_ref()), started),
            finished_at: at(before.and_then(|stage| stage.finished_at.as_ref()), report.state == StageState::Complete),
        }
    };
    shown.map(stage).collect()
}

/// The clusters that need attention: those that failed first.
fn attention<C: Contents>(input: &Input<'_, C>, decision: &Decision) -> Vec<ClusterAttention> {
    let mut attention: Vec<(u8, ClusterAttention)> = Vec::new();
    for (member, progress) in input.members.iter().zip(&decision.progress) {
        let (order, reason, message) = match progress {
            Progress::Failed(reason, message) => (0, reason.clone(), message.clone()),
            Progress::Conflict(other) => (1, "Conflict".to_owned(), other.clone()),
            Progress::Deferred(why) => (2, "Deferred".to_owned(), why.clone()),
            Progress::Updated => match not_ready(member) {
                Some((reason, message)) => (3, reason.clone(), message.clone()),
                None => continue,
            },
            Progress::Pending | Progress::Updating(_) => continue,
        };
        let message = clip(&message, MAX_CLUSTER_MESSAGE);
        attention.push((order, ClusterAttention { cluster: member.cluster.clone(), reason, message }));
    }
    for (cluster, (reason, message)) in input.uncounted {
        let message = clip(message, MAX_CLUSTER_MESSAGE);
        attention.push((4, ClusterAttention { cluster: cluster.clone(), reason: (*reason).to_owned(), message }));
    }
    attention.sort_by(|(a, x), (b, y)| (a, &x.cluster).cmp(&(b, &y.cluster)));
    attention.into_iter().take(MAX_ATTENTION).map(|(_, cluster)| cluster).collect()
}

fn not_ready(member: &Member) -> Option<&(String, String)> {
    member.children.iter().filter_map(|child| child.applied.as_ref()).find_map(|applied| applied.ready.as_ref().err())
}

fn conditions<C: Contents>(
    old: &KnativeFleetStatus,
    input: &Input<'_, C>,
    status: &KnativeFleetStatus,
    removal: Option<&BlockedRemoval<'_>>,
) -> Vec<Condition> {
    let states = [paused(input, status), progressing(input, status), ready(input, status), removal_blocked(removal)];
    states.into_iter().map(|state| condition(old, state, input.now)).collect()
}

fn condition(old: &KnativeFleetStatus, (type_, is_true, reason, message): State, now: Timestamp) -> Condition {
    let status = if is_true { "True" } else { "False" };
    let before = old.conditions.iter().find(|condition| condition.type_ == type_ && condition.status == status);
    let since = before.and_then(|condition| condition.last_transition_time.clone());
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        severity: None,
        last_transition_time: Some(since.unwrap_or_else(|| time(now))),
        reason: Some(reason.to_owned()),
        message: Some(clip(&message, MAX_MESSAGE)),
    }
}

fn paused<C: Contents>(input: &Input<'_, C>, status: &KnativeFleetStatus) -> State {
    let stopped = status.stages.iter().find(|stage| stage.state == StageState::Paused);
    match stopped {
        _ if input.is_paused => {
            ("Paused", true, "Paused", "spec.rollout.paused is true; no further cluster is started".to_owned())
        }
        Some(stage) if !input.has_failed => {
            let message = format!(
                "{} of {} clusters of stage {} failed; no further cluster is started",
                stage.failed, stage.clusters, stage.name
            );
            ("Paused", true, "TooManyFailures", message)
        }
        _ => ("Paused", false, "NotPaused", String::new()),
    }
}

fn progressing<C: Contents>(input: &Input<'_, C>, status: &KnativeFleetStatus) -> State {
    let (type_, update) = ("Progressing", input.update);
    let Some(stage) = status.stages.iter().find(|stage| stage.state != StageState::Complete) else {
        if input.has_failed && input.is_rolling_out() {
            return (
                type_,
                false,
                "RolledBack",
                format!("The rollout of revision {update} failed and was rolled back; change the spec"),
            );
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
            format!("{progress}; create a KnativeFleetApproval for the revision and the stage"),
        ),
        StageState::Paused => (type_, false, "Paused", progress),
        _ => (type_, true, "RollingOut", progress),
    }
}

fn ready<C: Contents>(input: &Input<'_, C>, status: &KnativeFleetStatus) -> State {
    let KnativeFleetStatus { clusters, updated, ready, deferred, failed, .. } = status;
    let is_rolled_out = !input.is_rolling_out() || status.current_revision.as_deref() == Some(input.update);
    let message = format!(
        "{updated} of {clusters} clusters have the revision, {ready} are Ready, {failed} failed, {deferred} are deferred"
    );
    match () {
        () if *clusters == 0 => ("Ready", false, "NoClusters", "spec.placement selects no cluster".to_owned()),
        () if *failed > 0 => ("Ready", false, "ClustersFailed", message),
        () if !is_rolled_out || updated < clusters && *deferred == 0 => {
            let (_, _, reason, _) = progressing(input, status);
            ("Ready", false, if reason == "Complete" { "RolloutIncomplete" } else { reason }, message)
        }
        () if *deferred > 0 => ("Ready", false, "ClustersDeferred", message),
        () if ready < clusters => ("Ready", false, "ClustersNotReady", message),
        () => ("Ready", true, "Ready", message),
    }
}

fn removal_blocked(removal: Option<&BlockedRemoval<'_>>) -> State {
    let Some((name, clusters, limit)) = removal else { return ("RemovalBlocked", false, "NotBlocked", String::new()) };
    let mut message = match limit {
        0 => format!("All clusters ({}) would leave the fleet: ", clusters.len()),
        limit => format!("{} clusters would leave the fleet, more than {limit}: ", clusters.len()),
    };
    let named: Vec<_> = clusters.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    message += &named.join(", ");
    if clusters.len() > MAX_NAMED {
        // Writing to a String can't fail.
        let _ = write!(message, " and {} more", clusters.len() - MAX_NAMED);
    }
    let _ = write!(
        message,
        "; correct the placement, or create a KnativeFleetApproval for revision {name} and stage removal"
    );
    ("RemovalBlocked", true, "TooManyClusters", message)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashSet};

    use knative_operator_shared::api::Component;
    use knative_operator_shared::api::fleet::{OnFailure, Rollout, Stage};
    use knative_operator_shared::fleet::stage::Stages;
    use knative_operator_shared::version::Version;

    use super::*;
    use crate::fleet::member::{Child, Refused, Wanted};

    struct Nothing;

    impl Contents for Nothing {
        fn of(&self, _: &str, _: &ClusterProfileReference, _: Component) -> Option<Wanted> {
            Some(Wanted { content: 1, version: None })
        }

        fn knows(&self, _: &str) -> bool {
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
            cluster: ClusterProfileReference { name: format!("{number:0253}"), namespace: "n".repeat(63) },
            stage: number % 64,
            unavailable: None,
            refused: Some(Refused { revision: "r".to_owned(), message: "why ".repeat(2000), is_due: false }),
            children: vec![Child { component: Component::Serving, conflict: None, applied: None }],
        };
        let members: Vec<Member> = (0..5000).map(member).collect();
        let approvals = HashSet::new();
        let input = Input {
            stages: &stages,
            members: &members,
            uncounted: &BTreeMap::new(),
            current: Some("s"),
            update: "r",
            has_failed: false,
            on_failure: OnFailure::Pause,
            is_paused: false,
            approvals: &approvals,
            contents: &Nothing,
            now: Timestamp::UNIX_EPOCH,
        };
        let decision = input.decide();
        let removal = ("0123456789", members.iter().map(|member| &member.cluster).collect(), 500);
        let status = status(&KnativeFleetStatus::default(), Some(1), &input, &decision, Some(&removal));
        assert_eq!((status.clusters, status.failed, status.attention.len()), (5000, 5000, MAX_ATTENTION));
        let bytes = serde_json::to_vec(&status).unwrap().len();
        assert!(bytes < 64 << 10, "{bytes} bytes");
    }
}
