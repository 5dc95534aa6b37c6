//! What happened lately on all clusters and in all fleets, in one order. Pure.

use std::borrow::Cow;

use serde::Serialize;

use super::model::{ClusterView, EventView, FleetView, Overview};

/// Maximum number of entries.
const MAX_ENTRIES: usize = 500;
/// Reason of the event at the start of a rollout.
const STARTED: &str = "RolloutStarted";

/// What an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Topic {
    /// A component is installed.
    Install,
    /// A component gets another version.
    Upgrade,
    /// Somebody changed or deleted objects of an installation.
    Drift,
    /// Something failed.
    Failure,
    /// A stage waits for an approval, or got it.
    Approval,
    /// A rollout or a stage of it began or ended.
    Rollout,
    /// Something else.
    Other,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ActivityView<'o> {
    /// What it is about.
    pub topic: Topic,
    /// Identifier of the cluster. Absent for a fleet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<&'o str>,
    /// Kind of the resource.
    pub kind: &'static str,
    /// Namespace of the resource.
    pub namespace: &'o str,
    /// Name of the resource.
    pub name: &'o str,
    /// When, and what.
    #[serde(flatten)]
    pub event: Cow<'o, EventView>,
}

/// What happened on all clusters and in all fleets, newest first.
pub fn activity(overview: &Overview) -> Vec<ActivityView<'_>> {
    let clusters = overview.clusters.iter().flat_map(events_of);
    newest_first(clusters.chain(overview.fleets.iter().flat_map(of_fleet)).collect())
}

/// What happened on `cluster`, newest first.
pub fn of_cluster(cluster: &ClusterView) -> Vec<ActivityView<'_>> {
    newest_first(events_of(cluster).collect())
}

fn newest_first(mut all: Vec<ActivityView<'_>>) -> Vec<ActivityView<'_>> {
    // RFC 3339 times in UTC sort as text.
    all.sort_by(|a, b| b.event.at.cmp(&a.event.at));
    all.truncate(MAX_ENTRIES);
    all
}

fn events_of(cluster: &ClusterView) -> impl Iterator<Item = ActivityView<'_>> {
    cluster.components.iter().flat_map(move |component| {
        component.events.iter().map(move |event| ActivityView {
            topic: topic(event),
            cluster: Some(&cluster.id),
            kind: component.kind,
            namespace: &component.namespace,
            name: &component.name,
            event: Cow::Borrowed(event),
        })
    })
}

/// The events of `fleet`, and what its status has of the time before: events are gone after an
/// hour.
fn of_fleet(fleet: &FleetView) -> Vec<ActivityView<'_>> {
    let entry = |topic: Topic, event: EventView| ActivityView {
        topic,
        cluster: None,
        kind: "KnativeFleet",
        namespace: &fleet.namespace,
        name: &fleet.name,
        event: Cow::Owned(event),
    };
    let mut all: Vec<ActivityView<'_>> =
        fleet.events.iter().map(|event| entry(topic_of_fleet(event), event.clone())).collect();
    let is_known = |revision: &str| {
        let names = |event: &EventView| event.message.split([' ', ',', ';']).any(|word| word == revision);
        fleet.events.iter().any(|event| event.reason == STARTED && names(event))
    };
    for rollout in &fleet.rollouts {
        let revision = &rollout.revision;
        let by = rollout.requested_by.as_ref().map(|user| format!(", asked for by {user}")).unwrap_or_default();
        if !is_known(revision) {
            let message = format!("Rolling out revision {revision}{by}");
            all.push(entry(Topic::Rollout, recorded(&rollout.started_at, STARTED, message)));
        }
        if let (Some(at), Some(result)) = (&rollout.finished_at, &rollout.result) {
            let topic = if result == "RolledBack" { Topic::Failure } else { Topic::Rollout };
            all.push(entry(topic, recorded(at, result, format!("The rollout of revision {revision} ended"))));
        }
    }
    for stage in &fleet.stages {
        if let (Some(at), Some(user)) = (&stage.started_at, &stage.approved_by) {
            let message = format!("Stage {} was approved by {user}", stage.name);
            all.push(entry(Topic::Approval, recorded(at, "Approved", message)));
        }
    }
    all
}

fn recorded(at: &str, reason: &str, message: String) -> EventView {
    EventView { at: at.to_owned(), type_: "Normal".to_owned(), reason: reason.to_owned(), message, count: 1 }
}

fn topic(event: &EventView) -> Topic {
    match event.reason.as_str() {
        "DriftRepaired" | "DriftFight" => Topic::Drift,
        "Installing" if event.message.split(':').next().is_some_and(|what| what.contains(" from ")) => Topic::Upgrade,
        "Installing" | "InstallSucceeded" => Topic::Install,
        _ if event.type_ == "Warning" => Topic::Failure,
        _ => Topic::Other,
    }
}

fn topic_of_fleet(event: &EventView) -> Topic {
    match event.reason.as_str() {
        "AwaitingApproval" => Topic::Approval,
        _ if event.type_ == "Warning" => Topic::Failure,
        _ => Topic::Rollout,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::snapshot::{Snapshot, Watched};
    use super::*;

    fn event(kind: &str, name: &str, at: &str, (type_, reason, message): (&str, &str, &str)) -> Value {
        json!({"metadata": {"namespace": "n", "name": format!("{name}-{reason}")}, "lastTimestamp": at, "type": type_,
            "reason": reason, "message": message, "involvedObject": {"kind": kind, "namespace": "n", "name": name}})
    }

    fn hub(events: Vec<Value>, status: &Value) -> Overview {
        let mut snapshot = Snapshot::default();
        snapshot.set(
            Watched::Servings,
            json!({"metadata": {"namespace": "n", "name": "s"}, "spec": {"clusterProfileRef": {"namespace": "f", "name": "a"}}}),
        );
        snapshot.set(
            Watched::Fleets,
            json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet", "metadata": {"namespace": "n", "name": "prod"},
                "spec": {"placement": {"clusterSelector": {}}, "serving": {"spec": {"version": "1.23.0"}}}, "status": status}),
        );
        events.into_iter().for_each(|event| snapshot.set(Watched::Events, event));
        super::super::build::overview(&snapshot, "2026-02-01T00:00:00Z".parse().unwrap())
    }

    #[test]
    fn events_of_all_resources_have_one_order_and_a_topic() {
        let (normal, warning) = ("Normal", "Warning");
        let overview = hub(
            vec![
                event(
                    "KnativeServing",
                    "s",
                    "2026-01-01T00:00:00Z",
                    (normal, "Installing", "Installing version 1.22.0: 9 objects in namespace a from b"),
                ),
                event("KnativeServing", "s", "2026-01-01T00:02:00Z", (normal, "DriftRepaired", "Repaired")),
                event("KnativeServing", "s", "2026-01-01T00:03:00Z", (warning, "RemoteClusterUnreachable", "no")),
                event("KnativeServing", "s", "2026-01-01T00:04:00Z", (normal, "Ready", "is ready")),
                event("KnativeFleet", "prod", "2026-01-01T00:01:00Z", (normal, "AwaitingApproval", "europe")),
                event("KnativeFleet", "prod", "2026-01-01T00:05:00Z", (warning, "TooManyFailures", "2")),
            ],
            &json!({}),
        );
        let all = activity(&overview);
        let shown: Vec<_> = all.iter().map(|entry| (entry.topic, entry.cluster, entry.event.reason.as_str())).collect();
        let expected = [
            (Topic::Failure, None, "TooManyFailures"),
            (Topic::Other, Some("f/a"), "Ready"),
            (Topic::Failure, Some("f/a"), "RemoteClusterUnreachable"),
            (Topic::Drift, Some("f/a"), "DriftRepaired"),
            (Topic::Approval, None, "AwaitingApproval"),
            (Topic::Install, Some("f/a"), "Installing"),
        ];
        assert_eq!(shown, expected);
        let own: Vec<_> = of_cluster(&overview.clusters[0]).iter().map(|entry| entry.topic).collect();
        assert_eq!(own, [Topic::Other, Topic::Failure, Topic::Drift, Topic::Install]);
        let upgrade = event(
            "KnativeServing",
            "s",
            "2026-01-01T00:00:00Z",
            (normal, "Installing", "Installing version 1.23.0 from 1.22.0: 9 objects"),
        );
        assert_eq!(activity(&hub(vec![upgrade], &json!({})))[0].topic, Topic::Upgrade);
    }

    #[test]
    fn rollouts_and_approvals_are_known_without_their_events() {
        let status = json!({"rollouts": [
                {"revision": "prod-1", "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T01:00:00Z", "result": "RolledBack"},
                {"revision": "prod-2", "requestedBy": "jane", "startedAt": "2026-01-02T00:00:00Z"}],
            "stages": [{"name": "canary", "state": "Progressing", "clusters": 1, "approvedBy": "joe", "startedAt": "2026-01-02T00:05:00Z"}]});
        let shown = |overview: &Overview| -> Vec<Value> {
            let entry = |entry: &ActivityView<'_>| {
                json!([entry.topic, entry.event.at, entry.event.reason, entry.event.message])
            };
            activity(overview).iter().map(entry).collect()
        };
        let older = [
            json!(["failure", "2026-01-01T01:00:00Z", "RolledBack", "The rollout of revision prod-1 ended"]),
            json!(["rollout", "2026-01-01T00:00:00Z", "RolloutStarted", "Rolling out revision prod-1"]),
        ];
        let approval = json!(["approval", "2026-01-02T00:05:00Z", "Approved", "Stage canary was approved by joe"]);
        let started = |at: &str, message: &str| json!(["rollout", at, "RolloutStarted", message]);
        let mut expected =
            vec![approval.clone(), started("2026-01-02T00:00:00Z", "Rolling out revision prod-2, asked for by jane")];
        expected.extend(older.clone());
        assert_eq!(shown(&hub(Vec::new(), &status)), expected);
        // Its event is there: once is enough.
        let message = "Rolling out revision prod-2; clusters: 1";
        let event = event("KnativeFleet", "prod", "2026-01-02T00:00:01Z", ("Normal", "RolloutStarted", message));
        let mut expected = vec![approval, started("2026-01-02T00:00:01Z", message)];
        expected.extend(older);
        assert_eq!(shown(&hub(vec![event], &status)), expected);
    }
}
