//! `knative-operator fleet history`.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::process::ExitCode;

use k8s_openapi::api::apps::v1::ControllerRevision;
use knative_operator_runtime::error_text;
use knative_operator_shared::api::fleet::{RolloutRecord, Template};
use knative_operator_shared::api::{KnativeFleet, KnativeFleetStatus};
use knative_operator_shared::label::FLEET;
use knative_operator_shared::text::one_line;
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::{Hub, fleets};
use crate::command::list;
use crate::command::table::{row, table};
use knative_operator_fleet::revision::{Owner, Revision, RevisionData};
use knative_operator_fleet::template::label_value;

/// The revisions of `fleet`, with their time of creation, oldest first.
pub async fn revisions(hub: &Hub, fleet: Owner<'_>) -> Result<Vec<(Revision, String)>, String> {
    let api = Api::<ControllerRevision>::namespaced(hub.client.clone(), &hub.namespace);
    let stored = api.list(&ListParams::default().labels(&format!("{FLEET}={}", label_value(fleet.name)))).await;
    let stored = stored.map_err(|error| format!("cannot list ControllerRevisions: {}", error_text(&error)))?;
    let mut revisions: Vec<(Revision, String)> = stored
        .into_iter()
        .filter_map(|stored| {
            let created = stored.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string());
            Some((Revision::parse(&stored).ok()?, created.unwrap_or_default()))
        })
        .filter(|(revision, _)| revision.is_of(fleet))
        .collect();
    revisions.sort_by_key(|(revision, _)| revision.number);
    Ok(revisions)
}

/// What `fleet` rolls out now, according to its status.
pub async fn update_revision(client: &Client, fleet: &KnativeFleet) -> Result<Option<RevisionData>, String> {
    let meta = &fleet.metadata;
    let (namespace, name) = (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
    let Some(status) = &fleet.status else { return Ok(None) };
    let Some(update) = &status.update_revision else { return Ok(None) };
    let api = Api::<ControllerRevision>::namespaced(client.clone(), namespace);
    let stored = api.get_opt(update).await.map_err(|error| {
        let why = list::explained(&error, "get", &format!("controllerrevisions.apps in namespace {namespace}"));
        format!("cannot read ControllerRevision {namespace}/{update}: {why}")
    })?;
    let owner = Owner { name, uid: meta.uid.as_deref().unwrap_or_default(), status };
    let revision = stored.and_then(|stored| Revision::parse(&stored).ok()).filter(|revision| revision.is_of(owner));
    Ok(revision.map(|revision| revision.data))
}

/// The version in `template`.
fn version(template: &Template) -> &str {
    template.spec.get("version").and_then(Value::as_str).unwrap_or("latest")
}

/// The components of a revision with their versions, for people.
pub fn versions(revision: &RevisionData) -> String {
    let pinned = revision.pinned();
    let of = |(kind, template): (&str, &Option<Template>)| Some(format!("{kind} {}", version(template.as_ref()?)));
    let all = [("KnativeServing", &pinned.serving), ("KnativeEventing", &pinned.eventing)].into_iter().filter_map(of);
    all.collect::<Vec<_>>().join(", ")
}

/// A line for each field of the spec that differs between `from` and `to`, with its values.
pub fn changes(from: &RevisionData, to: &RevisionData) -> String {
    let mut lines = String::new();
    compare(Some(&json!(from.pinned())), Some(&json!(to.pinned())), "spec", &mut lines);
    lines
}

/// Adds the fields at `path` that differ to `lines`. All count: an empty template installs, and an
/// override with null removes.
fn compare(from: Option<&Value>, to: Option<&Value>, path: &str, lines: &mut String) {
    let change = match (from, to) {
        (from, to) if from == to => return,
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            for key in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
                compare(old.get(key), new.get(key), &format!("{path}.{key}"), lines);
            }
            return;
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) => {
            for number in 0..old.len().max(new.len()) {
                compare(old.get(number), new.get(number), &format!("{path}.{number}"), lines);
            }
            return;
        }
        (Some(from), Some(to)) => format!("{from} to {to}"),
        (Some(from), None) => format!("{from} is removed"),
        (None, Some(to)) => format!("{to} is added"),
        (None, None) => return,
    };
    // Writing to a String can't fail.
    let _ = writeln!(lines, "  {}: {change}", one_line(path));
}

/// Prints the revisions and the last rollouts of the fleet `name`, or of the only one.
pub async fn run(hub: &Hub, name: Option<&str>) -> Result<ExitCode, String> {
    let name = fleets::name_or_only(hub, name).await?;
    let fleet = hub.fleet(&name).await?;
    let (uid, status) = (fleet.metadata.uid.unwrap_or_default(), fleet.status.unwrap_or_default());
    let stored = revisions(hub, Owner { name: &name, uid: &uid, status: &status }).await?;
    hub.print(&describe(&stored, &status), &json!(values(&stored, &status)));
    Ok(ExitCode::SUCCESS)
}

/// What `revision` is in a fleet with `status`.
fn states(revision: &Revision, status: &KnativeFleetStatus) -> Vec<&'static str> {
    let states = [
        (status.current_revision.as_ref() == Some(&revision.name), "current"),
        (status.update_revision.as_ref() == Some(&revision.name), "update"),
        (status.failed_revisions.iter().flatten().any(|failed| *failed == revision.name), "failed"),
    ];
    states.into_iter().filter(|(is, _)| *is).map(|(_, state)| state).collect()
}

/// The `stored` revisions, with their times of creation, and the rollouts in `status`.
fn describe(stored: &[(Revision, String)], status: &KnativeFleetStatus) -> String {
    let mut rows = vec![row(["NUMBER", "REVISION", "CREATED", "SERVING", "EVENTING", "STATE"])];
    for (revision, created) in stored {
        let pinned = revision.data.pinned();
        let [serving, eventing] =
            [&pinned.serving, &pinned.eventing].map(|t| t.as_ref().map_or("", version).to_owned());
        let (number, states) = (revision.number.to_string(), states(revision, status).join(", "));
        rows.push(row([&number, &revision.name, created, &serving, &eventing, &states]));
    }
    let mut text = table(&rows);
    if !status.rollouts.is_empty() {
        let mut rows = vec![row(["REVISION", "REQUESTED BY", "STARTED", "FINISHED", "RESULT", "APPROVALS"])];
        rows.extend(status.rollouts.iter().map(|rollout| rollout_row(rollout, status)));
        // Writing to a String can't fail.
        let _ = write!(text, "\n{}", table(&rows));
    }
    text
}

/// The row of `rollout`. While it is in progress, its result is the reason of `Progressing`.
fn rollout_row(rollout: &RolloutRecord, status: &KnativeFleetStatus) -> Vec<String> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let progressing = status.conditions.iter().find(|condition| condition.type_ == "Progressing");
    let result = rollout.result.clone().or_else(|| progressing?.reason.clone());
    let approvals = rollout.approvals.iter().map(|approval| format!("{}: {}", approval.stage, approval.username));
    row([
        &rollout.revision,
        &text(&rollout.requested_by),
        &rollout.started_at,
        &text(&rollout.finished_at),
        &text(&result),
        &approvals.collect::<Vec<_>>().join(", "),
    ])
}

/// The same, for programs.
fn values(stored: &[(Revision, String)], status: &KnativeFleetStatus) -> Vec<Value> {
    let value = |(revision, created): &(Revision, String)| {
        let rollouts: Vec<_> = status.rollouts.iter().filter(|rollout| rollout.revision == revision.name).collect();
        json!({"number": revision.number, "revision": revision.name, "created": created, "states": states(revision, status),
            "rollouts": rollouts, "data": revision.data})
    };
    stored.iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_fields_that_change_are_shown() {
        let data = |value: Value| serde_json::from_value::<RevisionData>(value).unwrap();
        let change = |patch: Value| json!({"clusterSelector": {}, "serving": {"spec": {"config": patch}}});
        let versions = |version: &str| json!({"KnativeServing": {"1.22": version}});
        let before = data(json!({"serving": {"spec": {"version": "1.22", "config": {"a": {"b": "c"}}}},
            "overrides": [change(json!({"a": "b"}))], "versions": versions("1.22.0")}));
        let after =
            data(json!({"serving": {"spec": {"version": "1.22", "config": {"x\n  y": {}}}}, "eventing": {"spec": {}},
            "overrides": [change(json!({"a": null})), change(json!({}))], "versions": versions("1.22.1")}));
        assert_eq!(changes(&before, &before), "");
        let expected = [
            r#"spec.eventing: {"metadata":{},"spec":{}} is added"#,
            r#"spec.overrides.0.serving.spec.config.a: "b" to null"#,
            r#"spec.overrides.1: {"clusterSelector":{},"serving":{"spec":{"config":{}}}} is added"#,
            r#"spec.serving.spec.config.a: {"b":"c"} is removed"#,
            "spec.serving.spec.config.x y: {} is added",
            r#"spec.serving.spec.version: "1.22.0" to "1.22.1""#,
        ];
        assert_eq!(changes(&before, &after).lines().map(str::trim_start).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn rollouts_are_shown_with_their_ends_and_approvals() {
        let status: KnativeFleetStatus = serde_json::from_value(json!({
            "currentRevision": "f-1", "updateRevision": "f-2",
            "conditions": [{"type": "Progressing", "status": "False", "reason": "AwaitingApproval"}],
            "rollouts": [
                {"revision": "f-1", "requestedBy": "jane", "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:05:00Z",
                    "result": "Complete", "approvals": [{"stage": "canary", "username": "ann"}, {"stage": "prod", "username": "kim\u{1b}[2J"}]},
                {"revision": "f-2", "startedAt": "2026-01-02T00:00:00Z"}],
        }))
        .unwrap();
        let stored = ["f-1", "f-2", "f-3"].map(|name| {
            let data = serde_json::from_value(json!({"serving": {"spec": {"version": "1.22.0"}}})).unwrap();
            let label = String::new();
            let revision =
                Revision { name: name.to_owned(), number: 1, failed_generation: None, owner: None, label, data };
            (revision, "2026-01-01T00:00:00Z".to_owned())
        });
        let text = describe(&stored, &status);
        let (_, rollouts) = text.split_once("\n\n").unwrap();
        let expected = [
            "REVISION   REQUESTED BY   STARTED                FINISHED               RESULT             APPROVALS",
            r"f-1        jane           2026-01-01T00:00:00Z   2026-01-01T00:05:00Z   Complete           canary: ann, prod: kim\u{1b}[2J",
            "f-2                       2026-01-02T00:00:00Z                          AwaitingApproval",
        ];
        assert_eq!(rollouts.lines().collect::<Vec<_>>(), expected);
        let values = values(&stored, &status);
        let of = |number: usize, field: &str| values[number]["rollouts"].pointer(field).cloned();
        assert_eq!((of(0, "/0/approvals/0/stage"), of(1, "/0/result")), (Some(json!("canary")), None));
        assert_eq!((of(2, ""), &values[1]["states"]), (Some(json!([])), &json!(["update"])));
        // An operator of an earlier version recorded none.
        assert!(!describe(&stored, &KnativeFleetStatus::default()).contains("\n\n"));
    }
}
