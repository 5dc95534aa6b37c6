//! Leases of replicas with different settings.

use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::Value;

use super::*;

/// An API server that has Leases only. Each request lets others go first.
fn hub() -> Client {
    let leases: Arc<Mutex<BTreeMap<String, Value>>> = Arc::default();
    let answer = move |request: Request<Body>| {
        let leases = Arc::clone(&leases);
        async move {
            tokio::task::yield_now().await;
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
            let name = sent["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let mut all = leases.lock().unwrap();
            let (code, value) = match parts.method {
                Method::GET => {
                    let items: Vec<_> = all.values().cloned().collect();
                    (200, json!({"metadata": {}, "items": items}))
                }
                Method::POST if all.contains_key(&name) => {
                    (409, json!({"code": 409, "status": "Failure", "reason": "", "message": ""}))
                }
                _ => {
                    let mut stored = sent;
                    stored["metadata"]["resourceVersion"] = json!("1");
                    all.insert(name, stored.clone());
                    (200, stored)
                }
            };
            drop(all);
            Ok::<_, std::convert::Infallible>(
                Response::builder().status(code).body(Body::from(value.to_string().into_bytes())).unwrap(),
            )
        }
    };
    Client::new(tower::service_fn(answer), "n")
}

/// A replica with a number of shards.
fn candidate(hub: &Client, events: &mpsc::Sender<ShardEvent>, identity: &str, shards: u32) -> Candidate {
    Candidate {
        leases: Api::namespaced(hub.clone(), "n"),
        settings: Settings {
            namespace: "n".to_owned(),
            name: "l".to_owned(),
            identity: identity.to_owned(),
            shards,
            fence: Fence::default(),
            shown: Leases::default(),
        },
        events: events.clone(),
        leases_held: BTreeMap::new(),
        observed: BTreeMap::new(),
        // Long ago: free shards are taken at once.
        started: Instant::now().checked_sub(Duration::from_secs(3600)).unwrap_or_else(Instant::now),
        restored: AtomicBool::new(false),
    }
}

#[tokio::test]
async fn lease_is_acquired_after_any_number_of_transitions() {
    let (hub, (events, _acquired)) = (hub(), mpsc::channel(64));
    let mut candidate = candidate(&hub, &events, "one", 1);
    let metadata = ObjectMeta { name: Some("l".to_owned()), ..ObjectMeta::default() };
    let spec = LeaseSpec { lease_transitions: Some(i32::MAX), ..LeaseSpec::default() };
    candidate.acquire(0, Some(Lease { metadata, spec: Some(spec) })).await.unwrap();
    let transitions = candidate.leases_held.get(&0).and_then(|own| own.lease.spec.as_ref()?.lease_transitions);
    assert_eq!(transitions, Some(i32::MAX));
}

#[tokio::test]
async fn replicas_with_different_numbers_of_shards_do_not_both_lead() {
    let (hub, (events, _acquired)) = (hub(), mpsc::channel(64));
    let (mut one, mut two) = (candidate(&hub, &events, "one", 1), candidate(&hub, &events, "two", 2));
    // Both have listed before one of them has written.
    let (first, second) = futures::join!(one.tick(), two.tick());
    assert!(first.is_ok() && second.is_ok(), "{first:?} {second:?}");
    assert!(one.leases_held.is_empty() || two.leases_held.is_empty());
}
