//! `knative-operator fleet status`.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use futures::StreamExt;
use jiff::Timestamp;
use knative_operator_runtime::user::Namespaces;
use knative_operator_shared::api::fleet::{StageState, StageStatus};
use knative_operator_shared::api::{ClusterProfileReference, Condition, KnativeFleet, KnativeFleetStatus};
use knative_operator_shared::condition::STALLED;
use knative_operator_shared::text::one_line;
use kube::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::watch_object;
use serde_json::json;

use super::{Hub, fleets};
use crate::command::status::bar;
use crate::command::table::{row, table};
use crate::command::terminal::sequence;
use knative_operator_overview::{Names, advice_for_attention};

/// Flags of `fleet status`.
#[derive(Clone, Debug, clap::Args)]
pub struct StatusArgs {
    /// Name of the fleet. Without a name, all fleets of the namespace are listed, or with --watch
    /// the only one is followed.
    #[arg(conflicts_with = "all_namespaces")]
    name: Option<String>,
    #[command(flatten)]
    namespaces: Namespaces,
    /// Follows the rollout to its end.
    #[arg(short = 'w', long, conflicts_with = "all_namespaces")]
    watch: bool,
}

/// Reasons with which the numbers of a fleet are those of the time before.
const STANDING: [&str; 2] = ["ClustersUnknown", "InvalidSpec"];

/// Prints the status.
pub async fn run(hub: &Hub, args: &StatusArgs) -> Result<ExitCode, String> {
    if args.name.is_none() && !args.watch {
        return fleets::run(hub, args.namespaces.only(&hub.namespace)).await;
    }
    let name = fleets::name_or_only(hub, args.name.as_deref()).await?;
    if !args.watch {
        let fleet = hub.fleet(&name).await?;
        let status = fleet.status.clone().unwrap_or_default();
        hub.print(&describe(&fleet, Timestamp::now()), &json!(status));
        return Ok(ExitCode::SUCCESS);
    }
    hub.fleet(&name).await?;
    let api: Api<KnativeFleet> = Api::namespaced(hub.client.clone(), &hub.namespace);
    let mut events = watch_object(api, &name).default_backoff().boxed();
    let (redraws, mut last) = (std::io::stdout().is_terminal() && hub.format.is_text(), String::new());
    while let Some(event) = events.next().await {
        // The watch is retried.
        let Ok(fleet) = event else { continue };
        let Some(fleet) = fleet else {
            return Err(format!("KnativeFleet {}/{name} was deleted", hub.namespace));
        };
        let text = if redraws {
            // The cursor moves to the start, and what is below is deleted.
            sequence("H") + &sequence("J") + &describe(&fleet, Timestamp::now())
        } else if hub.format.is_text() {
            summary(&fleet)
        } else {
            hub.format.next_document(&json!(fleet.status))
        };
        if text != last {
            hub.format.write(&text);
            let _ = std::io::stdout().flush();
            last = text;
        }
        if let Some(code) = end(&fleet) {
            return Ok(code);
        }
    }
    Err("the watch ended".to_owned())
}

/// Exit status if the rollout ended.
fn end(fleet: &KnativeFleet) -> Option<ExitCode> {
    let status = fleet.status.as_ref().filter(|status| status.observed_generation == fleet.metadata.generation)?;
    if status.conditions.iter().any(|c| c.reason.as_deref() == Some("ClustersUnknown")) {
        return None;
    }
    let stopped = ["TooManyFailures", "RolledBack", "InvalidSpec", "Protected"];
    if status.conditions.iter().any(|c| c.reason.as_deref().is_some_and(|reason| stopped.contains(&reason))) {
        return Some(ExitCode::from(1));
    }
    (status.current_revision.is_some() && status.current_revision == status.update_revision)
        .then_some(ExitCode::SUCCESS)
}

/// One line about the progress.
fn summary(fleet: &KnativeFleet) -> String {
    let status = fleet.status.clone().unwrap_or_default();
    let KnativeFleetStatus { clusters, updated, ready, failed, deferred, .. } = status;
    let before = standing(&status.conditions).map(|reason| format!("{reason}, before: ")).unwrap_or_default();
    let stage = status.stage.map(|stage| format!("stage {stage}: ")).unwrap_or_default();
    format!(
        "{before}{stage}{updated} of {clusters} clusters updated, {ready} ready, {failed} failed, {deferred} deferred\n"
    )
}

/// The reason for which the numbers are those of the time before, if they are.
fn standing(conditions: &[Condition]) -> Option<&str> {
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready")?;
    ready.reason.as_deref().filter(|reason| STANDING.contains(reason))
}

/// The whole status.
fn describe(fleet: &KnativeFleet, now: Timestamp) -> String {
    let status = fleet.status.clone().unwrap_or_default();
    let name = |text: &Option<String>| text.clone().unwrap_or_default();
    let mut text = format!("KnativeFleet {}/{}\n", name(&fleet.metadata.namespace), name(&fleet.metadata.name));
    // Writing to a String can't fail.
    let _ = writeln!(text, "revision     {}", status.update_revision.as_deref().unwrap_or("(none)"));
    if let Some(user) = &status.requested_by {
        let _ = writeln!(text, "requested by {user}");
    }
    // Stalled repeats another one.
    let is_shown = |c: &&Condition| c.type_ == "Ready" || c.status == "True" && c.type_ != STALLED;
    for condition in status.conditions.iter().filter(is_shown) {
        let _ = writeln!(
            text,
            "{:<12} {} {}: {}",
            condition.type_,
            condition.status,
            condition.reason.as_deref().unwrap_or_default(),
            one_line(condition.message.as_deref().unwrap_or_default())
        );
    }
    if standing(&status.conditions).is_some() {
        text += "The numbers and the stages are those of the time before.\n";
    }
    let mut rows = vec![row(["STAGE", "", "UPDATED", "UPDATING", "FAILED", "DEFERRED", "STATE", "TIME"])];
    rows.extend(status.stages.iter().map(|stage| stage_row(&status, stage, now)));
    let _ = write!(text, "\n{}", table(&rows));
    for stage in &status.stages {
        let name = one_line(&stage.name);
        if let Some(user) = &stage.approved_by {
            let _ = writeln!(text, "Stage {name} was approved by {user}.");
        }
        let until = stage.until.as_ref().map(|until| format!(", until {until} or earlier")).unwrap_or_default();
        // Those after it wait for it.
        if let Some(what) = stage.waits_for.as_ref().filter(|_| stage.state != StageState::Pending) {
            let _ = writeln!(text, "Stage {name} waits for {}{until}.", one_line(what));
        }
    }
    if !status.attention.is_empty() {
        let mut rows = vec![row(["CLUSTER", "REASON", "MESSAGE"])];
        for other in &status.attention {
            rows.push(row([&other.cluster.to_string(), &other.reason, &other.message]));
        }
        let _ = write!(text, "\n{}", table(&rows));
        let meta = &fleet.metadata;
        let (own, namespace) = (name(&meta.name), name(&meta.namespace));
        let mut shown = HashSet::new();
        for other in &status.attention {
            let ClusterProfileReference { name: profile, namespace: profile_namespace } = &other.cluster;
            let names = Names {
                kind: "knativefleets",
                name: &own,
                namespace: &namespace,
                profile,
                profile_namespace,
                ..Names::default()
            };
            // The first cluster of each reason is enough.
            let advice = advice_for_attention(&other.reason, &names).filter(|_| shown.insert(&other.reason));
            let lines = advice.map(|advice| advice.lines()).unwrap_or_default();
            for (index, line) in lines.iter().enumerate() {
                let of = if index == 0 { format!("{}: ", other.reason) } else { String::new() };
                let _ = writeln!(text, "{of}{line}");
            }
        }
    }
    text
}

fn stage_row(status: &KnativeFleetStatus, stage: &StageStatus, now: Timestamp) -> Vec<String> {
    let parse = |text: &Option<String>| text.as_deref().and_then(|text| text.parse::<Timestamp>().ok());
    let time = parse(&stage.started_at).map(|started| {
        let end = parse(&stage.finished_at).unwrap_or(now);
        let seconds = end.duration_since(started).as_secs().max(0);
        if seconds < 120 { format!("{seconds}s") } else { format!("{}m", seconds / 60) }
    });
    row([
        &stage.name,
        &bar(stage.updated, stage.clusters, false),
        &format!("{}/{}", stage.updated, stage.clusters),
        &stage.updating.to_string(),
        &stage.failed.to_string(),
        &stage.deferred.to_string(),
        status.shown_state(stage),
        &time.unwrap_or_default(),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_has_bars_and_clusters_that_need_attention() {
        let fleet: KnativeFleet = serde_json::from_value(json!({"metadata": {"name": "f", "namespace": "n", "generation": 1}, "spec": {"placement": {}}, "status": {
            "observedGeneration": 1, "updateRevision": "f-1", "clusters": 4, "updated": 1, "failed": 1, "ready": 3, "stage": "prod",
            "conditions": [{"type": "Ready", "status": "False", "reason": "ClustersFailed", "message": "m"}],
            "stages": [{"name": "canary", "state": "Complete", "clusters": 1, "updated": 1, "approvedBy": "jane", "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:01:00Z"},
                {"name": "prod", "state": "Progressing", "clusters": 3, "failed": 1, "updating": 2, "startedAt": "2026-01-01T00:01:00Z",
                    "waitsFor": "clusters: 2 are being updated, 0 have not begun", "until": "2026-01-01T00:16:00Z"},
                {"name": "last", "state": "Pending", "clusters": 0, "waitsFor": "an earlier stage"}],
            "attention": [{"cluster": {"name": "c", "namespace": "n"}, "reason": "NotReady", "message": "why"},
                {"cluster": {"name": "d", "namespace": "n"}, "reason": "GateFailed", "message": "HTTP 500"}]}}))
        .unwrap();
        let text = describe(&fleet, "2026-01-01T00:11:00Z".parse().unwrap());
        for part in [
            "Ready        False ClustersFailed: m\n",
            "canary   [####################]   1/1       0          0        0          Complete      60s\n",
            "prod     [....................]   0/3       2          1        0          Progressing   10m\n",
            "n/c       NotReady     why\n",
            "GateFailed: What to do: ",
            "Stage canary was approved by jane.\n",
            "Stage prod waits for clusters: 2 are being updated, 0 have not begun, until 2026-01-01T00:16:00Z or earlier.\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("an earlier stage"), "{text}");
        assert_eq!(summary(&fleet), "stage prod: 1 of 4 clusters updated, 3 ready, 1 failed, 0 deferred\n");
        assert_eq!(bar(1, 3, false), "[######..............]");
    }

    #[test]
    fn stage_that_returned_is_not_shown_as_complete() {
        let fleet = |reason: &str, state: &str| -> KnativeFleet {
            let conditions = json!([{"type": "Progressing", "status": "False", "reason": reason, "message": "m"}]);
            let stages = json!([{"name": "canary", "state": state, "clusters": 1}]);
            serde_json::from_value(json!({"metadata": {"name": "f", "generation": 1}, "spec": {"placement": {}},
                "status": {"observedGeneration": 1, "conditions": conditions, "stages": stages}}))
            .unwrap()
        };
        let shown = |reason: &str, state: &str| describe(&fleet(reason, state), Timestamp::UNIX_EPOCH);
        assert!(shown("RolledBack", "Complete").contains("  RolledBack\n"), "{}", shown("RolledBack", "Complete"));
        assert!(shown("RollingBack", "Progressing").contains("  RollingBack\n"));
        assert!(shown("Complete", "Complete").contains("  Complete\n"));
    }

    #[test]
    fn rollout_whose_clusters_are_unknown_has_not_ended() {
        // All was rolled out before.
        let fleet = |reason: &str, observed: i64| -> KnativeFleet {
            let conditions = json!([{"type": "Ready", "status": "False", "reason": reason, "message": "m"}]);
            serde_json::from_value(json!({"metadata": {"name": "f", "generation": 2}, "spec": {"placement": {}}, "status": {
                "observedGeneration": observed, "currentRevision": "a", "updateRevision": "a", "clusters": 1, "updated": 1,
                "ready": 1, "conditions": conditions}}))
            .unwrap()
        };
        let end = |reason: &str, observed: i64| end(&fleet(reason, observed)).map(|code| format!("{code:?}"));
        let [success, failure] = [ExitCode::SUCCESS, ExitCode::from(1)].map(|code| Some(format!("{code:?}")));
        assert_ne!(success, failure);
        assert_eq!((end("Ready", 2), end("Ready", 1)), (success, None));
        assert_eq!((end("ClustersUnknown", 2), end("InvalidSpec", 2)), (None, failure));
        let unknown = fleet("ClustersUnknown", 2);
        let expected = "ClustersUnknown, before: 1 of 1 clusters updated, 1 ready, 0 failed, 0 deferred\n";
        assert_eq!(summary(&unknown), expected);
        assert!(describe(&unknown, Timestamp::UNIX_EPOCH).contains("are those of the time before.\n"));
    }
}
