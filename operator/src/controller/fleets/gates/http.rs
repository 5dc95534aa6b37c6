//! Requests to Services of a cluster, through the service proxy of its API server: no other way
//! into the cluster is needed, and the credential of the cluster is the only one.

use std::fmt::Write;
use std::time::{Duration, Instant};

use http::header::HOST;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use knative_operator_runtime::error_text;
use knative_operator_shared::api::fleet::{GateService, HttpGate};
use knative_operator_shared::redact::redact;
use knative_operator_shared::text::{clip, show_controls, start};
use kube::Client;
use kube::client::Body;
use serde::Deserialize;

use knative_operator_cluster_access::transport::ToService;
use knative_operator_fleet::gates::Answer;

/// Maximum size of a response that is read, in bytes.
const MAX_BODY: usize = 64 << 10;
/// Maximum size of a text of a response that is shown, in bytes; and of one that is read for it.
const MAX_SHOWN: usize = 400;
const MAX_REDACTED: usize = 4 << 10;

/// A response of a Service.
#[derive(Debug)]
pub struct Reply {
    /// Status.
    pub status: StatusCode,
    /// The start of the body.
    pub body: String,
    /// Time until it was there.
    pub latency: Duration,
}

/// The status that an API server answers with instead of a Service.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    kind: String,
    api_version: String,
    #[serde(default)]
    message: String,
}

/// Measures `gate` once.
pub async fn measure(client: &Client, gate: &HttpGate) -> Answer {
    match get(client, gate).await {
        Ok(reply) => compare(gate, &reply),
        Err(answer) => answer,
    }
}

/// Sends the request of `gate`.
pub async fn get(client: &Client, gate: &HttpGate) -> Result<Reply, Answer> {
    let mut request = request(Method::GET, &gate.service, gate.path());
    if let Some(host) = &gate.host {
        request = request.header(HOST, host);
    }
    exchange(client, request.body(Body::empty())).await
}

/// A request to `path` of `service`.
pub fn request(method: Method, service: &GateService, path: &str) -> http::request::Builder {
    let GateService { namespace, name, .. } = service;
    let mut uri = format!("/api/v1/namespaces/{namespace}/services/http:{name}:{}/proxy", service.port());
    // Writing to a String can't fail.
    let _ = write!(uri, "{path}");
    Request::builder().method(method).uri(uri).extension(ToService)
}

/// Sends `request`; the response, or why there is none of the Service.
pub async fn exchange(client: &Client, request: http::Result<Request<Body>>) -> Result<Reply, Answer> {
    let request = request.map_err(|error| Answer::Unknown(format!("invalid request: {error}")))?;
    let started = Instant::now();
    let response = client.send(request).await;
    let response =
        response.map_err(|error| Answer::Unknown(format!("the cluster is unreachable: {}", error_text(&error))))?;
    let (parts, mut stream) = response.into_parts();
    let mut bytes = Vec::new();
    while bytes.len() < MAX_BODY {
        match stream.frame().await {
            None => break,
            Some(Ok(frame)) => {
                let data = frame.into_data().unwrap_or_default();
                bytes.extend_from_slice(&data[..data.len().min(MAX_BODY - bytes.len())]);
            }
            Some(Err(error)) => {
                return Err(Answer::Unknown(format!("the response ended early: {}", shown(&error.to_string()))));
            }
        }
    }
    let reply =
        Reply { status: parts.status, body: String::from_utf8_lossy(&bytes).into_owned(), latency: started.elapsed() };
    of_api_server(&reply).map_or(Ok(reply), Err)
}

/// The answer if `reply` is one of the API server itself: nothing was measured, unless no endpoint
/// of the Service responds, which the API server says with these words only.
fn of_api_server(reply: &Reply) -> Option<Answer> {
    let status: Status = serde_json::from_str(&reply.body).ok()?;
    if status.kind != "Status" || status.api_version != "v1" || reply.status.is_success() {
        return None;
    }
    let message = shown(&status.message);
    let is_broken = ["endpoint", "error trying to reach service"].iter().any(|words| status.message.contains(words));
    let is_broken = is_broken && reply.status == StatusCode::SERVICE_UNAVAILABLE;
    Some(if is_broken { Answer::Failure(message) } else { Answer::Unknown(message) })
}

/// Compares `reply` with what `gate` expects.
pub fn compare(gate: &HttpGate, reply: &Reply) -> Answer {
    let latency = reply.latency.as_millis();
    if i32::from(reply.status.as_u16()) != gate.expected_status() {
        let text = shown(&reply.body);
        let text = if text.is_empty() { text } else { format!(": {text}") };
        return Answer::Failure(format!("HTTP {}, not {}{text}", reply.status.as_u16(), gate.expected_status()));
    }
    if let Some(expected) = gate.expected_body.as_ref().filter(|expected| !reply.body.contains(*expected)) {
        let (expected, text) = (shown(expected), shown(&reply.body));
        return Answer::Failure(format!("the response does not have \"{expected}\": {text}"));
    }
    match gate.max_latency_milliseconds.and_then(|most| u128::try_from(most).ok()) {
        Some(most) if latency > most => Answer::Failure(format!("the response took {latency} ms, more than {most} ms")),
        _ => Answer::Success,
    }
}

/// `text` of a Service for people, without credentials.
pub fn shown(text: &str) -> String {
    clip(&show_controls(&redact(start(text, MAX_REDACTED))), MAX_SHOWN)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn gate(patch: &Value) -> HttpGate {
        let mut gate = json!({"service": {"namespace": "n", "name": "s"}});
        json_patch::merge(&mut gate, patch);
        serde_json::from_value(gate).unwrap()
    }

    /// A client of a cluster that answers with `status` and `body`, and what was asked.
    async fn answer(gate: &HttpGate, status: u16, body: &str) -> Answer {
        let (body, expected) = (body.to_owned(), gate.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            assert_eq!(request.uri(), "/api/v1/namespaces/n/services/http:s:80/proxy/a?b=c");
            assert_eq!(request.headers().get(HOST).map(|host| host.to_str().unwrap()), expected.host.as_deref());
            assert!(request.extensions().get::<ToService>().is_some());
            let response = http::Response::builder().status(status).body(Body::from(body.clone().into_bytes()));
            async { Ok::<_, std::convert::Infallible>(response.unwrap()) }
        });
        measure(&Client::new(service, "n"), gate).await
    }

    #[tokio::test]
    async fn response_is_compared_and_that_of_the_api_server_is_none() {
        let status = |message: &str| json!({"kind": "Status", "apiVersion": "v1", "message": message}).to_string();
        let base = json!({"path": "/a?b=c", "host": "h.example.com", "expectedBody": "hello"});
        let with = |patch: Value| {
            let mut all = base.clone();
            json_patch::merge(&mut all, &patch);
            gate(&all)
        };
        let failure = |text: &str| Answer::Failure(text.to_owned());
        let unknown = |text: &str| Answer::Unknown(text.to_owned());
        for (gate, code, body, expected) in [
            (with(json!({})), 200, "say hello".to_owned(), Answer::Success),
            (with(json!({"host": null})), 200, "hello".to_owned(), Answer::Success),
            (with(json!({})), 200, "bye".to_owned(), failure("the response does not have \"hello\": bye")),
            (with(json!({})), 500, "an error\n".to_owned(), failure("HTTP 500, not 200: an error")),
            (with(json!({})), 302, String::new(), failure("HTTP 302, not 200")),
            (with(json!({"expectedStatus": 404, "expectedBody": null})), 404, "none".to_owned(), Answer::Success),
            (with(json!({})), 403, status("services \"s\" is forbidden"), unknown("services \"s\" is forbidden")),
            (
                with(json!({})),
                503,
                status("error trying to reach service: dial tcp: connection refused"),
                failure("error trying to reach service: dial tcp: connection refused"),
            ),
            (with(json!({})), 500, status("etcdserver: no leader"), unknown("etcdserver: no leader")),
            (with(json!({})), 404, status("services \"s\" not found"), unknown("services \"s\" not found")),
            (
                with(json!({})),
                503,
                status("no endpoints available for service \"s\""),
                failure("no endpoints available for service \"s\""),
            ),
            (
                with(json!({})),
                500,
                "password: hunter22hunter22".to_owned(),
                failure("HTTP 500, not 200: password: [hidden]"),
            ),
        ] {
            assert_eq!(answer(&gate, code, &body).await, expected);
        }
        let long = answer(&with(json!({"expectedBody": null})), 500, &"word ".repeat(100_000)).await;
        assert!(matches!(&long, Answer::Failure(why) if why.len() < 450), "{long:?}");
    }

    #[test]
    fn slow_response_is_a_failure() {
        let gate = gate(&json!({"maxLatencyMilliseconds": 100}));
        let reply =
            |millis| Reply { status: StatusCode::OK, body: String::new(), latency: Duration::from_millis(millis) };
        assert_eq!(compare(&gate, &reply(100)), Answer::Success);
        let expected = Answer::Failure("the response took 101 ms, more than 100 ms".to_owned());
        assert_eq!(compare(&gate, &reply(101)), expected);
    }
}
