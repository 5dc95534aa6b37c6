//! What others write into objects, as it is shown: without characters that terminals and browsers
//! obey, and of a length that a reader can see. Events and ClusterProfiles are written by many, and
//! so are specs; who may write a status may write anything there. Pure.

use knative_operator_shared::api::Condition;
use knative_operator_shared::api::fleet::{RolloutRecord, StageApproval};
use knative_operator_shared::text::{MAX_MESSAGE, is_obeyed, shown};

use super::model::{
    AttentionView, ClusterView, ComponentView, ConnectionView, EventView, FleetView, Overview, Problem, StageView,
};

/// Maximum length of `namespace/name`, in bytes.
const MAX_NAME: usize = 2 * 253 + 1;

/// Changes all texts in `overview` to what is shown. Remedies have checked names only.
pub fn sanitize(overview: &mut Overview) {
    let Overview { ready: _, clusters_by_state: _, fleets, clusters, notes } = overview;
    notes.iter_mut().for_each(message);
    fleets.iter_mut().for_each(fleet);
    clusters.iter_mut().for_each(cluster);
}

fn name(text: &mut String) {
    limit(text, MAX_NAME);
}

fn message(text: &mut String) {
    limit(text, MAX_MESSAGE);
}

fn limit(text: &mut String, most: usize) {
    if text.len() > most || text.contains(is_obeyed) {
        *text = shown(text, most);
    }
}

// All fields are named, so that a new one isn't forgotten.

fn fleet(fleet: &mut FleetView) {
    let FleetView {
        namespace,
        name: own,
        ready: _,
        reason,
        message: text,
        remedy: _,
        paused: _,
        current_revision,
        update_revision,
        versions,
        rollouts,
        stages,
        attention,
        conditions,
        events,
    } = fleet;
    [namespace, own, reason].into_iter().chain(current_revision).chain(update_revision).for_each(name);
    versions.values_mut().for_each(name);
    message(text);
    rollouts.iter_mut().for_each(rollout);
    stages.iter_mut().for_each(stage);
    for AttentionView { cluster, reason, message: text, remedy: _ } in attention {
        [cluster, reason].into_iter().for_each(name);
        message(text);
    }
    conditions.iter_mut().for_each(condition);
    events.iter_mut().for_each(event);
}

fn rollout(rollout: &mut RolloutRecord) {
    let RolloutRecord { revision, requested_by, started_at, finished_at, result, approvals } = rollout;
    let texts = [revision, started_at].into_iter().chain(requested_by).chain(finished_at).chain(result);
    texts.for_each(name);
    for StageApproval { stage, username } in approvals {
        [stage, username].into_iter().for_each(name);
    }
}

fn stage(stage: &mut StageView) {
    let StageView {
        name: own,
        state: _,
        total: _,
        updated: _,
        updating: _,
        failed: _,
        deferred: _,
        approved_by,
        waits_for,
        until,
        started_at,
        finished_at,
        clusters,
    } = stage;
    let texts = [own].into_iter().chain(approved_by).chain(until).chain(started_at).chain(finished_at);
    texts.chain(clusters).for_each(name);
    waits_for.iter_mut().for_each(message);
}

fn cluster(cluster: &mut ClusterView) {
    let ClusterView { id, state: _, fleet, server, providers, properties, connection, components } = cluster;
    [id].into_iter().chain(fleet).chain(providers).for_each(name);
    server.iter_mut().for_each(message);
    let is_plain = |text: &String| text.len() <= MAX_NAME && !text.contains(is_obeyed);
    if !properties.iter().all(|(key, value)| is_plain(key) && is_plain(value)) {
        let all = std::mem::take(properties).into_iter();
        properties.extend(all.map(|(key, value)| (shown(&key, MAX_NAME), shown(&value, MAX_NAME))));
    }
    if let Some(ConnectionView { connected: _, since }) = connection {
        since.iter_mut().for_each(name);
    }
    components.iter_mut().for_each(component);
}

fn component(component: &mut ComponentView) {
    let ComponentView {
        kind: _,
        namespace,
        name: own,
        state: _,
        version,
        target_version,
        since,
        problem,
        notes,
        conditions,
        events,
    } = component;
    [namespace, own].into_iter().chain(version).chain(target_version).chain(since).for_each(name);
    if let Some(Problem { condition, reason, message: text, until, remedy: _ }) = problem {
        [condition, reason].into_iter().chain(until).for_each(name);
        message(text);
    }
    notes.iter_mut().for_each(message);
    conditions.iter_mut().for_each(condition);
    events.iter_mut().for_each(event);
}

fn condition(condition: &mut Condition) {
    let Condition { type_, status, observed_generation: _, severity, last_transition_time, reason, message: text } =
        condition;
    [type_, status].into_iter().chain(severity).chain(last_transition_time).chain(reason).for_each(name);
    text.iter_mut().for_each(message);
}

fn event(event: &mut EventView) {
    let EventView { at, type_, reason, message: text, count: _ } = event;
    [at, type_, reason].into_iter().for_each(name);
    message(text);
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::super::build::overview;
    use super::super::snapshot::{Snapshot, Watched};
    use super::*;

    /// The strings in `value`, keys included.
    fn strings(value: &Value) -> Vec<&str> {
        match value {
            Value::String(text) => vec![text],
            Value::Array(items) => items.iter().flat_map(strings).collect(),
            Value::Object(fields) => {
                fields.iter().flat_map(|(key, value)| [vec![key.as_str()], strings(value)].concat()).collect()
            }
            _ => Vec::new(),
        }
    }

    #[test]
    fn texts_of_others_are_short_and_obeyed_by_nobody() {
        let hostile = format!("\u{1b}[2J\u{202e} {}", "x ".repeat(5000));
        let condition = |type_: &str| {
            json!({"type": type_, "status": "False", "reason": hostile, "message": hostile,
                "severity": hostile, "lastTransitionTime": hostile})
        };
        let conditions = json!([condition("Ready"), condition("InstallSucceeded"), condition(&hostile)]);
        let meta =
            |name: &str| json!({"namespace": "n", "name": name, "labels": {"operator.knative.dev/fleet": hostile}});
        let mut snapshot = Snapshot::default();
        for (name, profile) in [("a", "spoke"), ("b", hostile.as_str())] {
            snapshot.set(
                Watched::Servings,
                json!({"metadata": meta(name), "status": {"version": hostile, "conditions": conditions},
                    "spec": {"version": hostile, "clusterProfileRef": {"namespace": "f", "name": profile}}}),
            );
        }
        snapshot.set(
            Watched::Profiles,
            json!({"metadata": {"namespace": "f", "name": "spoke"}, "status": {
                "accessProviders": [{"name": hostile, "cluster": {"server": hostile}}],
                "properties": [{"name": "tier", "value": hostile}]}}),
        );
        for (kind, name) in [("KnativeServing", "a"), ("KnativeFleet", "prod")] {
            snapshot.set(
                Watched::Events,
                json!({"metadata": {"namespace": "n", "name": name, "creationTimestamp": hostile}, "type": hostile,
                    "involvedObject": {"kind": kind, "namespace": "n", "name": name}, "reason": hostile,
                    "message": hostile}),
            );
        }
        let stage = json!({"name": hostile, "state": "Progressing", "approvedBy": hostile, "waitsFor": hostile,
            "until": hostile, "startedAt": hostile, "finishedAt": hostile});
        let record = json!({"revision": hostile, "startedAt": hostile, "requestedBy": hostile, "result": hostile,
            "finishedAt": hostile, "approvals": [{"stage": hostile, "username": hostile}]});
        snapshot.set(
            Watched::Fleets,
            json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet", "metadata": meta("prod"),
                "spec": {"placement": {"propertySelector": {"matchLabels": {"tier": hostile}}},
                    "serving": {"spec": {"version": hostile}}},
                "status": {"conditions": conditions, "stages": [stage], "rollouts": [record],
                    "currentRevision": hostile, "updateRevision": hostile, "attention": [
                        {"cluster": {"namespace": "f", "name": hostile}, "reason": hostile, "message": hostile}]}}),
        );
        let overview = json!(overview(&snapshot, Timestamp::UNIX_EPOCH));
        let fleet = &overview["fleets"][0];
        for shown in [&fleet["stages"][0]["approvedBy"], &fleet["rollouts"][0]["result"], &fleet["events"][0]["type"]] {
            assert!(shown.as_str().unwrap().starts_with(r"\u{1b}[2J\u{202e} x"), "{shown}");
        }
        let server = overview["clusters"].as_array().unwrap().iter().find_map(|cluster| cluster["server"].as_str());
        assert!(server.unwrap().starts_with(r"\u{1b}[2J"), "{overview:#}");
        for text in strings(&overview) {
            assert!(text.len() <= 2 * MAX_MESSAGE && !text.contains(is_obeyed), "{} bytes: {text}", text.len());
        }
    }
}
