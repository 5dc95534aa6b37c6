use std::sync::{Arc, Mutex};

use http::{Request as HttpRequest, Response};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

/// A cluster with these Pods and events and this log, whose API server refuses paths with
/// `refused`; and the requests that it got.
fn cluster(pods: Value, events: Value, log: &'static str, refused: &'static str) -> (Client, Arc<Mutex<Vec<String>>>) {
    let requests: Arc<Mutex<Vec<String>>> = Arc::default();
    let record = Arc::clone(&requests);
    let answer = move |request: HttpRequest<Body>| {
        let path = request.uri().path().to_owned();
        record.lock().unwrap().push(request.uri().to_string());
        let is_refused = !refused.is_empty() && path.contains(refused);
        let body = match path.rsplit('/').next().unwrap_or_default() {
            _ if is_refused => json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "no", "reason": "Forbidden", "code": 403}).to_string(),
            "log" => log.to_owned(),
            "pods" => json!({"metadata": {}, "items": pods}).to_string(),
            _ => json!({"metadata": {}, "items": events}).to_string(),
        };
        async move {
            let response = Response::builder().status(if is_refused { 403 } else { 200 });
            response.body(Body::from(body.into_bytes())).map_err(|error| error.to_string())
        }
    };
    (Client::new(tower::service_fn(answer), "n"), requests)
}

/// A Pod of the Deployment `name`, whose container ended with `code`.
fn crashed(name: &str, code: i64) -> Value {
    json!({"metadata": {"name": format!("{name}-x-1"), "uid": format!("uid-{name}"), "labels": {"pod-template-hash": "x"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": format!("{name}-x"), "uid": "r", "controller": true}]},
        "spec": {"nodeName": "node-1", "containers": [{"name": name, "image": "i"}]},
        "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "containerStatuses": [{"name": name, "restartCount": 3,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": code, "reason": "Error"}}}]}})
}

fn deployments(names: &[&str]) -> Vec<ObjectId> {
    names.iter().map(|name| ObjectId::new("apps", "Deployment", "n", name)).collect()
}

fn texts(findings: &Findings) -> Vec<String> {
    sentences(&findings.found).into_iter().map(|(id, found)| format!("{}: {}", id.name, found.text())).collect()
}

fn take(requests: &Mutex<Vec<String>>) -> Vec<String> {
    std::mem::take(&mut *requests.lock().unwrap())
}

#[tokio::test]
async fn problem_needs_at_most_three_requests_and_one_afterwards() {
    let probe = json!([{"reason": "Unhealthy", "message": "Readiness probe failed: no", "lastTimestamp": "2026-01-01T00:00:00Z"}]);
    let pods = json!([crashed("a", 1), crashed("b", 137), crashed("c", 137)]);
    let (client, requests) = cluster(pods, probe, "starting\nno route to 10.1.1.1\n", "");
    let first = causes(&client, &deployments(&["a", "b", "c"]), Answers::new()).await;
    assert_eq!(
        texts(&first),
        [
            r#"a: container "a" crashes with exit code 1; last words: "no route to 10.1.1.1""#,
            r#"b: containers "b" and "c" crash with exit code 137 (SIGKILL)"#,
            r#"c: containers "b" and "c" crash with exit code 137 (SIGKILL)"#
        ]
    );
    assert_eq!(
        take(&requests),
        [
            "/api/v1/namespaces/n/pods?&limit=500",
            "/api/v1/namespaces/n/pods/a-x-1/log?&container=a&limitBytes=16384&previous=true&tailLines=12",
            "/api/v1/namespaces/n/events?&fieldSelector=involvedObject.uid%3Duid-b&limit=100",
        ]
    );
    // The answer is known; another cause is asked about.
    let second = causes(&client, &deployments(&["a", "b", "c"]), first.answers).await;
    assert_eq!(take(&requests).len(), 3);
    assert!(
        texts(&second)[1].ends_with(r#"crash with exit code 137 (SIGKILL); last words of "b": "no route to 10.1.1.1""#)
    );
    let third = causes(&client, &deployments(&["a", "b", "c"]), second.answers).await;
    assert_eq!((take(&requests).len(), texts(&third)[1].contains("last words of \"b\"")), (1, true));
}

#[tokio::test]
async fn missing_permission_is_named() {
    for (refused, expected) in [
        (
            "/log",
            vec![r#"a: container "a" crashes with exit code 1; unknown without the permission to: get pods/log in n"#],
        ),
        ("/pods", vec!["a: the cause is unknown without the permission to list pods in n"]),
        // Last words matter more.
        ("/events", vec![r#"a: container "a" crashes with exit code 1; last words: "bye""#]),
    ] {
        let (client, requests) = cluster(json!([crashed("a", 1)]), json!([]), "bye", refused);
        let found = causes(&client, &deployments(&["a"]), Answers::new()).await;
        assert_eq!(texts(&found), expected, "{refused}");
        assert!(take(&requests).len() <= 3);
    }
}

#[tokio::test]
async fn workload_without_pods_has_the_cause_in_its_events() {
    let quota = json!([{"reason": "FailedCreate", "message": "create Pod b-0 in StatefulSet b failed error: pods \"b-0\" is forbidden: exceeded quota: none", "lastTimestamp": "2026-01-01T00:00:00Z"}]);
    let (client, requests) = cluster(json!([]), quota, "", "");
    let set = ObjectId::new("apps", "StatefulSet", "n", "b");
    let found = causes(&client, &[set], Answers::new()).await;
    assert_eq!(texts(&found), ["b: Pods are refused: exceeded quota: none"]);
    assert_eq!(take(&requests).len(), 2);
    // Nothing is known, and nothing is said.
    let (client, _) = cluster(json!("rubbish"), json!([]), "", "");
    assert!(texts(&causes(&client, &deployments(&["a"]), Answers::new()).await).is_empty());
}
