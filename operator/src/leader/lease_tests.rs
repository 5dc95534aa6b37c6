//! Leases of replicas with different settings.

use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::Value;

use super::*;

/// Stored Leases, by name.
type Stored = Arc<Mutex<BTreeMap<String, Value>>>;

/// An API server that has `leases` only. Each request lets others go first.
fn hub(leases: &Stored) -> Client {
    let leases = Arc::clone(leases);
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
        is_over: AtomicBool::new(false),
    }
}

#[tokio::test]
async fn lease_is_acquired_after_any_number_of_transitions() {
    let (hub, (events, _acquired)) = (hub(&Stored::default()), mpsc::channel(64));
    let mut candidate = candidate(&hub, &events, "one", 1);
    let metadata = ObjectMeta { name: Some("l".to_owned()), ..ObjectMeta::default() };
    let spec = LeaseSpec { lease_transitions: Some(i32::MAX), ..LeaseSpec::default() };
    candidate.acquire(0, Some(Lease { metadata, spec: Some(spec) })).await.unwrap();
    let transitions = candidate.leases_held.get(&0).and_then(|own| own.lease.spec.as_ref()?.lease_transitions);
    assert_eq!(transitions, Some(i32::MAX));
}

#[tokio::test]
async fn replicas_with_different_numbers_of_shards_do_not_both_lead() {
    let (hub, (events, _acquired)) = (hub(&Stored::default()), mpsc::channel(64));
    let (mut one, mut two) = (candidate(&hub, &events, "one", 1), candidate(&hub, &events, "two", 2));
    // Both have listed before one of them has written.
    let (first, second) = futures::join!(one.tick(), two.tick());
    assert!(first.is_ok() && second.is_ok(), "{first:?} {second:?}");
    assert!(one.leases_held.is_empty() || two.leases_held.is_empty());
}

#[tokio::test]
async fn deleted_lease_is_free_once_its_holder_must_have_ended() {
    let (leases, (events, _acquired)) = (Stored::default(), mpsc::channel(64));
    let hub = hub(&leases);
    let (mut one, mut two) = (candidate(&hub, &events, "one", 1), candidate(&hub, &events, "two", 1));
    one.tick().await.unwrap();
    two.tick().await.unwrap();
    leases.lock().unwrap().clear();
    two.tick().await.unwrap();
    assert_eq!((one.leases_held.len(), two.leases_held.len()), (1, 0));
    let past = Instant::now().checked_sub(TIMING.lease).unwrap();
    two.observed.values_mut().for_each(|(_, since)| *since = past);
    two.tick().await.unwrap();
    assert_eq!(two.leases_held.len(), 1);
}

#[tokio::test]
async fn replica_whose_lease_another_holds_ends_at_once() {
    let answer = |request: Request<Body>| async move {
        let (code, value) = match *request.method() {
            Method::GET => {
                let metadata = json!({"name": "l", "resourceVersion": "2"});
                (200, json!({"metadata": metadata, "spec": {"holderIdentity": "two"}}))
            }
            _ => (409, json!({"code": 409, "status": "Failure", "reason": "", "message": ""})),
        };
        let response = Response::builder().status(code).body(Body::from(value.to_string().into_bytes()));
        Ok::<_, std::convert::Infallible>(response.unwrap())
    };
    let (hub, (events, _acquired)) = (Client::new(tower::service_fn(answer), "n"), mpsc::channel(64));
    let mut one = candidate(&hub, &events, "one", 1);
    let metadata = ObjectMeta { resource_version: Some("1".to_owned()), ..ObjectMeta::default() };
    let lease = Lease { metadata, spec: Some(LeaseSpec::default()) };
    one.leases_held.insert(0, HeldLease { lease, renewed: Instant::now() });
    one.tick().await.unwrap();
    assert!(one.is_over.load(Ordering::Relaxed));
}
