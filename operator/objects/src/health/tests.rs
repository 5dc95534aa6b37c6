//! Tests of the health of objects.

use serde_json::json;

use super::*;

fn health(kind: &str, object: Value) -> Option<Health> {
    of(kind, &serde_json::from_value(object).unwrap())
}

fn message_of(kind: &str, object: Value) -> String {
    match health(kind, object) {
        Some(Health::Waiting(wait)) => wait.to_string(),
        other => format!("{other:?}"),
    }
}

fn available(status: &str, generation: i64, observed: i64, replicas: i64, updated: i64) -> Value {
    json!({"metadata": {"generation": generation}, "spec": {"replicas": 1},
        "status": {"observedGeneration": observed, "replicas": replicas, "updatedReplicas": updated, "conditions": [
            {"type": "Available", "status": status, "reason": "MinimumReplicasUnavailable", "message": "does not have minimum availability.", "lastTransitionTime": "2026-01-01T10:00:00Z"},
            {"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated", "lastUpdateTime": "2026-01-01T10:00:05Z"}]}})
}

#[test]
fn texts_of_a_cluster_are_short_and_obeyed_by_nobody() {
    let text = format!("\u{1b}[2J {}", "x ".repeat(1 << 20));
    let condition = |type_: &str| json!({"type": type_, "status": "True", "reason": text, "message": text, "lastTransitionTime": text});
    for (kind, type_) in [("Deployment", "ReplicaFailure"), ("Job", "Failed"), ("Job", "Other")] {
        let object = json!({"metadata": {}, "spec": {"activeDeadlineSeconds": 9},
            "status": {"startTime": text, "conditions": [condition(type_)]}});
        let message = message_of(kind, object);
        assert!(message.len() < 3 * MAX_MESSAGE && !message.contains('\u{1b}'), "{type_}: {} bytes", message.len());
    }
}

#[test]
fn deployment_is_ready_when_newest_generation_is_available() {
    assert_eq!(health("Deployment", available("True", 2, 2, 1, 1)), Some(Health::Ready));
    for (object, expected) in [
        (available("True", 2, 1, 1, 1), "its newest generation is not observed yet"),
        (
            available("False", 2, 2, 1, 1),
            "MinimumReplicasUnavailable: does not have minimum availability, since 2026-01-01T10:00:00Z, deadline 2026-01-01T10:10:05Z",
        ),
        (
            available("True", 2, 2, 2, 1),
            "1 of 1 replicas are updated, 1 old ones remain, deadline 2026-01-01T10:10:05Z",
        ),
        (
            available("True", 2, 2, i64::MAX, -2),
            "-2 of 1 replicas are updated, 9223372036854775807 old ones remain, deadline 2026-01-01T10:10:05Z",
        ),
        (json!({"metadata": {}}), "it has no condition Available yet"),
    ] {
        assert_eq!(message_of("Deployment", object), expected);
    }
}

#[test]
fn deployment_rolls_while_its_former_replicas_are_available() {
    for (object, expected) in [
        (available("True", 2, 1, 1, 1), true),
        (available("True", 2, 2, 2, 1), true),
        (available("False", 2, 1, 1, 1), false),
        (available("False", 2, 2, 2, 1), false),
        (json!({"metadata": {"generation": 1}}), false),
    ] {
        let health = health("Deployment", object.clone());
        assert!(matches!(health, Some(Health::Waiting(wait)) if wait.is_rolling == expected), "{object}");
    }
}

#[test]
fn job_completes_or_fails() {
    let job = |type_: &str| json!({"metadata": {}, "status": {"conditions": [{"type": type_, "status": "True", "reason": "BackoffLimitExceeded"}]}});
    assert_eq!(health("Job", job("Complete")), Some(Health::Ready));
    assert_eq!(health("Job", job("Failed")), Some(Health::Failed("BackoffLimitExceeded".into())));
    let running = json!({"metadata": {}, "spec": {"activeDeadlineSeconds": 60}, "status": {"active": 1, "ready": 1, "failed": 2, "startTime": "2026-01-01T10:00:00Z"}});
    assert_eq!(
        message_of("Job", running),
        "1 of its Pods are running, 2 failed (6 are allowed to), since 2026-01-01T10:00:00Z, deadline 2026-01-01T10:01:00Z"
    );
}

#[test]
fn job_runs_while_a_pod_of_it_is_ready() {
    let runs = |status: Value| match health("Job", json!({"metadata": {}, "status": status})) {
        Some(Health::Waiting(wait)) => wait.is_of_running_job(),
        other => unreachable!("{other:?}"),
    };
    assert!(runs(json!({"active": 1, "ready": 1})) && runs(json!({"active": 10, "ready": 10})));
    // Its image is being pulled, its container restarts, or an earlier Pod failed.
    for status in [json!({}), json!({"active": 1, "ready": 0}), json!({"active": 1, "ready": 1, "failed": 1})] {
        assert!(!runs(status.clone()), "{status}");
    }
}

#[test]
fn definition_is_established_or_reports_reason() {
    let kind = "CustomResourceDefinition";
    let crd = |conditions: Value| json!({"metadata": {"creationTimestamp": "2026-01-01T10:00:00Z"}, "status": {"conditions": conditions}});
    assert_eq!(health(kind, crd(json!([{"type": "Established", "status": "True"}]))), Some(Health::Ready));
    let terminating = json!({"metadata": {"deletionTimestamp": "2026-01-01T10:00:00Z"}, "status": {"conditions": [{"type": "Established", "status": "True"}]}});
    assert_eq!(message_of(kind, terminating), TERMINATING);
    let refused = json!([{"type": "NamesAccepted", "status": "False", "reason": "PluralConflict", "message": "\"xs\" is already in use"}]);
    assert_eq!(health(kind, crd(refused)), Some(Health::Failed("PluralConflict: \"xs\" is already in use".into())));
    assert_eq!(
        message_of(kind, crd(json!([]))),
        "it is not Established yet, since 2026-01-01T10:00:00Z, deadline 2026-01-01T10:01:00Z"
    );
}
