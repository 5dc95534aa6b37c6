//! An event that is sent to a Broker, and has to arrive at a Service.

use std::time::{Duration, Instant};

use http::Method;
use http::header::CONTENT_TYPE;
use knative_operator_shared::api::Component;
use knative_operator_shared::api::fleet::{EventGate, GateBroker, GateService};
use kube::Client;
use kube::client::Body;

use super::http::{compare, exchange, get, request};
use super::limits::within;
use knative_operator_fleet::gates::Answer;

/// The Service that receives the events of all Brokers of the default class.
const INGRESS: &str = "broker-ingress";
/// Type of the event, by default.
const TYPE: &str = "dev.knative.operator.gate";
/// Source of the event.
const SOURCE: &str = "https://github.com/knative/operator";
/// Interval of the requests that ask for the event.
const INTERVAL: Duration = Duration::from_secs(1);

/// Measures `gate` once.
pub async fn measure(client: &Client, gate: &EventGate, timeout: Duration) -> Answer {
    let id = format!("{:016x}", fastrand::u64(..));
    let deadline = Instant::now() + timeout;
    let sent = within(client, timeout, send(client, gate, &id)).await;
    if sent != Answer::Success {
        return sent;
    }
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let arrived = within(client, left.max(INTERVAL), arrival(client, gate, &id)).await;
        let Answer::Failure(why) = arrived else { return arrived };
        if left <= INTERVAL {
            return Answer::Failure(format!("the event did not arrive within {} s: {why}", timeout.as_secs()));
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Sends the event.
async fn send(client: &Client, gate: &EventGate, id: &str) -> Answer {
    let GateBroker { namespace, name } = &gate.broker;
    let ingress =
        GateService { namespace: Component::Eventing.canonical().to_owned(), name: INGRESS.to_owned(), port: None };
    let request = request(Method::POST, &ingress, &format!("/{namespace}/{name}"))
        .header("ce-specversion", "1.0")
        .header("ce-id", id)
        .header("ce-source", SOURCE)
        .header("ce-type", gate.type_.as_deref().unwrap_or(TYPE))
        .header(CONTENT_TYPE, "application/json")
        .body(Body::from(b"{}".to_vec()));
    match exchange(client, request).await {
        Ok(reply) if reply.status.is_success() => Answer::Success,
        Ok(reply) => {
            Answer::Failure(format!("Broker {namespace}/{name} refused the event: HTTP {}", reply.status.as_u16()))
        }
        Err(answer) => answer,
    }
}

/// Whether the event `id` arrived.
async fn arrival(client: &Client, gate: &EventGate, id: &str) -> Answer {
    let reply = match get(client, &gate.reply).await {
        Ok(reply) => reply,
        Err(answer) => return answer,
    };
    match compare(&gate.reply, &reply) {
        Answer::Success if !reply.body.contains(id) => Answer::Failure("the response does not have its ID".to_owned()),
        answer => answer,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Request, Response};
    use serde_json::json;

    use super::*;

    /// Measures on a cluster whose Broker answers with `code`, and delivers if `delivers`.
    async fn measured(code: u16, delivers: bool) -> Answer {
        let gate = serde_json::from_value(json!({
            "broker": {"namespace": "n", "name": "default"},
            "reply": {"service": {"namespace": "n", "name": "display", "port": 8080}, "path": "/events"},
        }));
        let arrived = Arc::new(Mutex::new(String::new()));
        let service = tower::service_fn(move |request: Request<Body>| {
            let path = request.uri().path().to_owned();
            let (code, body) = if request.method() == Method::POST {
                let broker = "/api/v1/namespaces/knative-eventing/services/http:broker-ingress:80/proxy/n/default";
                assert_eq!(
                    (path.as_str(), &request.headers()["ce-type"]),
                    (broker, &http::HeaderValue::from_static(TYPE))
                );
                if delivers {
                    *arrived.lock().unwrap() = format!("{:?}", request.headers()["ce-id"]);
                }
                (code, String::new())
            } else {
                assert_eq!(path, "/api/v1/namespaces/n/services/http:display:8080/proxy/events");
                (200, arrived.lock().unwrap().clone())
            };
            let response = Response::builder().status(code).body(Body::from(body.into_bytes())).unwrap();
            async { Ok::<_, std::convert::Infallible>(response) }
        });
        measure(&Client::new(service, "n"), &gate.unwrap(), Duration::from_millis(1500)).await
    }

    #[tokio::test]
    async fn event_has_to_arrive() {
        assert_eq!(measured(202, true).await, Answer::Success);
        let refused = Answer::Failure("Broker n/default refused the event: HTTP 404".to_owned());
        assert_eq!(measured(404, true).await, refused);
        let lost = measured(202, false).await;
        assert!(matches!(&lost, Answer::Failure(why) if why.contains("did not arrive within 1 s")), "{lost:?}");
    }
}
