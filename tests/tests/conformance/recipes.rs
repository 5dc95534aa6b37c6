//! The recipes for Jobs in docs/user/fleet.md do what the page says: their containers run as
//! processes, with a server in place of Prometheus, a webhook, or a Knative Service. The examples
//! of the page are valid.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use knative_operator_tests::recipe::{self, Ended, container};
use knative_operator_tests::site::Site;
use knative_operator_tests::tools;
use serde_json::{Value, json};
use tokio::net::TcpSocket;

use super::operator;

/// The addresses in the recipes.
const PROMETHEUS: &str = "http://prometheus.monitoring:9090";
const WEBHOOK: &str = "https://checks.example.com";
const SERVICE: &str = "http://hello.default.svc.cluster.local";
/// Seconds that the load test permits for the 99th percentile of the latencies.
const PERMITTED: f64 = 1.0;
/// Latency of a slow response: more than that.
const SLOW: Duration = Duration::from_millis(1500);

/// What the operator gives a container; `e2e knative_fleet_gates` compares the names.
fn variables() -> BTreeMap<String, String> {
    let all = [("CLUSTER", "fleet-system/spoke-1"), ("SERVING_VERSION", "1.22.1"), ("STAGE", "canary")];
    all.map(|(name, value)| (format!("KNATIVE_FLEET_{name}"), value.to_owned())).into()
}

/// Runs the recipe `name` with `to` in place of the address `from`.
async fn run(name: &str, from: &str, to: &str) -> Ended {
    let gate = recipe::gate(name).unwrap();
    recipe::run(container(&gate), &variables(), from, to).await.unwrap()
}

/// Runs the recipe `name` with a server that gives `answer` in place of the address `from`; how it
/// ended, and the requests.
async fn served<A>(name: &str, from: &str, answer: A) -> (Ended, Vec<String>)
where
    A: Fn(&str) -> (u16, String) + Send + Sync + 'static,
{
    let site = Site::open(Ipv4Addr::LOCALHOST, answer).await.unwrap();
    (run(name, from, &site.url()).await, site.take_requests())
}

/// Runs the recipe `name` with a URL at which nothing listens in place of the address `from`.
async fn unanswered(name: &str, from: &str) -> Ended {
    // The socket has the port, so nobody else can listen there, and does not listen itself.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let ended = run(name, from, &format!("http://{}", socket.local_addr().unwrap())).await;
    drop(socket);
    ended
}

/// Exit code and last words.
fn end(ended: &Ended) -> (i32, &str) {
    (ended.code, ended.last_words())
}

/// The response of Prometheus to a query with the results `result`.
fn vector(result: &Value) -> String {
    json!({"status": "success", "data": {"resultType": "vector", "result": result}}).to_string()
}

/// The same with one value.
fn scalar(value: &str) -> String {
    vector(&json!([{"metric": {}, "value": [1_767_225_600.123, value]}]))
}

#[tokio::test(flavor = "multi_thread")]
async fn query_passes_with_few_errors_only() {
    let invalid = json!({"status": "error", "errorType": "bad_data", "error": "invalid parameter \"query\""});
    let refused = |code: u16| format!("curl: (22) The requested URL returned error: {code}");
    let rate = |text: &str| format!("rate of errors: {text}");
    for (status, body, code, words) in [
        (200, scalar("0"), 0, rate("0")),
        (200, scalar("1e-05"), 0, rate("1e-05")),
        (200, scalar("0.01"), 0, rate("0.01")),
        (200, scalar("0.010000000000000002"), 1, rate("0.010000000000000002")),
        (200, scalar("0.02"), 1, rate("0.02")),
        (200, scalar("1"), 1, rate("1")),
        (200, scalar("NaN"), 1, rate("no requests")),
        (200, vector(&json!([])), 1, rate("no requests")),
        (200, "<html></html>".to_owned(), 1, rate("no requests")),
        (200, String::new(), 1, rate("no requests")),
        (400, invalid.to_string(), 22, refused(400)),
        (500, "no space left".to_owned(), 22, refused(500)),
    ] {
        let answer = (status, body.clone());
        let (ended, requests) = served("errors", PROMETHEUS, move |_| answer.clone()).await;
        assert_eq!(end(&ended), (code, words.as_str()), "{status} {body}: {}", ended.log);
        let [request] = requests.as_slice() else { panic!("{requests:?}") };
        let is_query = request.starts_with("POST /api/v1/query HTTP/1.1\r\n") && request.contains("\r\n\r\nquery=");
        assert!(is_query && request.contains("kn_serving_invocation_duration_seconds_count"), "{request}");
    }
    let ended = unanswered("errors", PROMETHEUS).await;
    assert!(ended.code == 7 && ended.last_words().starts_with("curl: (7) "), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_decides() {
    for (status, code, words) in [(200, 0, "ok"), (500, 22, "curl: (22) The requested URL returned error: 500")] {
        let (ended, requests) = served("business-check", WEBHOOK, move |_| (status, "ok".to_owned())).await;
        assert_eq!(end(&ended), (code, words), "{}", ended.log);
        let expected = "GET /fine?cluster=fleet-system/spoke-1&version=1.22.1 HTTP/1.1\r\n";
        assert!(requests.len() == 1 && requests[0].starts_with(expected), "{requests:?}");
    }
    let ended = unanswered("business-check", WEBHOOK).await;
    assert!(ended.code == 7 && ended.last_words().starts_with("curl: (7) "), "{ended:?}");
}

/// The number of a request of the load test.
fn number(request: &str) -> u32 {
    let path = request.split(' ').nth(1).unwrap_or_default();
    path.strip_prefix("/?").and_then(|number| number.parse().ok()).unwrap_or_default()
}

/// Failed requests and 99th percentile in seconds, as the load test prints them.
fn measured(ended: &Ended) -> (u32, f64) {
    let measured = ended.last_words().split_once(" of 200 requests failed, p99 ").and_then(|(failed, rest)| {
        let seconds = rest.strip_suffix(" s")?;
        Some((failed.parse().ok()?, seconds.parse().ok()?))
    });
    measured.unwrap_or_else(|| panic!("{ended:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn load_test_passes_if_all_requests_are_answered_in_time() {
    let fine = || (200, "hello".to_owned());
    let (mut ended, mut requests) = served("load", SERVICE, move |_| fine()).await;
    // A busy machine can be slow once.
    if measured(&ended).1 > PERMITTED {
        (ended, requests) = served("load", SERVICE, move |_| fine()).await;
    }
    let (failed, p99) = measured(&ended);
    assert!(ended.code == 0 && failed == 0 && p99 <= PERMITTED, "{ended:?}");
    let mut numbers: Vec<u32> = requests.iter().map(|request| number(request)).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=200).collect::<Vec<_>>());

    let one = move |request: &str| if number(request) == 7 { (503, String::new()) } else { fine() };
    let (ended, _) = served("load", SERVICE, one).await;
    assert_eq!((ended.code, measured(&ended).0), (1, 1), "{ended:?}");
    let slow = move |request: &str| {
        // Three in 200 are more than one in a hundred.
        if number(request) > 197 {
            std::thread::sleep(SLOW);
        }
        fine()
    };
    let (ended, _) = served("load", SERVICE, slow).await;
    let (failed, p99) = measured(&ended);
    assert!(ended.code == 1 && failed == 0 && p99 > PERMITTED, "{ended:?}");
    let ended = unanswered("load", SERVICE).await;
    assert_eq!((ended.code, measured(&ended).0), (1, 200), "{ended:?}");
}

/// A fleet with what `block` of the page shows: gates, or a part of the spec.
fn fleet(block: &Value) -> Value {
    let mut fleet = json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet",
        "metadata": {"name": "knative", "namespace": "platform"}, "spec": {
            "placement": {"clusterSelector": {"matchLabels": {"env": "prod"}}, "namespaces": ["fleet-system"]},
            "serving": {"spec": {"version": "1.22", "ingress": {"kourier": {"enabled": true}},
                "config": {"network": {"ingress-class": "kourier.ingress.networking.knative.dev"}}}}}});
    if block.is_array() {
        fleet["spec"]["rollout"] = json!({"stages": [{"name": "all", "gates": block}]});
    }
    for (field, value) in block["spec"].as_object().into_iter().flatten() {
        fleet["spec"][field] = value.clone();
    }
    fleet
}

#[test]
fn examples_of_fleets_are_valid() {
    let releases = tools::go_operator_module().unwrap().join("cmd/operator/kodata");
    let (folder, releases) = (tempfile::tempdir().unwrap(), releases.to_str().unwrap());
    let file = folder.path().join("fleet.yaml");
    let blocks = recipe::yaml(recipe::FLEETS).unwrap();
    for block in &blocks {
        assert!(block.is_array() || block["spec"].is_object(), "{block}");
        std::fs::write(&file, fleet(block).to_string()).unwrap();
        let output = operator(&["lint", "--strict", "-f", file.to_str().unwrap(), "--releases", releases]);
        let said = format!("{output:?}");
        assert!(output.status.success() && !said.contains("warning: "), "{block}: {said}");
    }
    let names: Vec<Value> = recipe::gates().unwrap().iter().map(|gate| gate["name"].clone()).collect();
    assert_eq!((blocks.len(), names.as_slice()), (6, &[json!("errors"), json!("business-check"), json!("load")][..]));
}
