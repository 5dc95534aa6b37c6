//! Tests of clusters that leave, and of deletions.

use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use knative_operator_shared::api::{ClusterProfile, ClusterProfileSpec, Component, KnativeFleetStatus, KnativeServing};
use knative_operator_shared::condition::INSTALL_SUCCEEDED;
use knative_operator_shared::label::{CLUSTER_UID, CONFIRM_REMOVAL};
use kube::client::Body;
use serde_json::json;

use super::super::children::ChildKey;
use super::super::selected::Selected;
use super::super::sender::BATCH;
use super::*;
use crate::controller::conditions::OCCUPIED;

#[test]
fn only_installations_stay() {
    let reference = |name: &str| ClusterProfileReference { name: name.to_owned(), namespace: "f".to_owned() };
    let serving = |name: &str, uid: &str, version: &str, reason: &str| {
        let installed = if reason.is_empty() { "True" } else { "False" };
        let resource: KnativeServing = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "n"}, "spec": {},
            "status": {"version": version, "annotations": {CLUSTER_UID: uid},
                "conditions": [{"type": INSTALL_SUCCEEDED, "status": installed, "reason": reason}]},
        }))
        .unwrap();
        ((reference(name), Component::Serving), Arc::new(Knative::Serving(resource)))
    };
    let own = [
        serving("a", "1", "1.22.1", ""),
        // It failed to upgrade.
        serving("b", "2", "1.22.1", "Error"),
        // The same cluster as that of "a", as somebody says.
        serving("c", "1", "1.22.1", ""),
        serving("d", "1", "1.22.1", OCCUPIED),
        // Nothing is installed, or nobody has reached it.
        serving("e", "3", "", ""),
        serving("f", "", "", "Error"),
        serving("leaves", "4", "", ""),
        serving("leaves-too", "5", "1.22.1", ""),
        serving("g", "5", "1.22.1", ""),
    ];
    let children = Children::from_iter(own);
    let selected = ["a", "b", "c", "d", "e", "f", "g"].map(reference);
    let profile = Arc::new(ClusterProfile::new("a", ClusterProfileSpec::default()));
    let profiles = children.own().keys().map(|(cluster, _)| (cluster.clone(), Arc::clone(&profile))).collect();
    let left = children.left(&Selected::from(selected.to_vec()));
    let unselected = unselected(&children, &left, &profiles);
    assert_eq!((unselected.staying, unselected.leaving.len()), (2, 2));
}

#[test]
fn protected_fleet_that_is_deleted_keeps_its_resources() {
    let fleet = |protected: &str, deleted: Option<&str>| {
        serde_json::from_value::<KnativeFleet>(json!({
            "apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet", "spec": {"placement": {}},
            "metadata": {"name": "f", "namespace": "n", "finalizers": [FLEET_FINALIZER], "deletionTimestamp": deleted,
                "annotations": {PROTECTED: protected}},
        }))
        .unwrap()
    };
    let deleted = Some("2026-01-01T00:00:00Z");
    let message = protection(&fleet("true", deleted)).unwrap();
    assert!(message.contains("kubectl annotate knativefleet f -n n operator.knative.dev/protected-"), "{message}");
    assert_eq!(protection(&fleet("true", None)), None);
    assert_eq!(protection(&fleet("false", deleted)), None);
}

#[test]
fn deletion_of_a_fleet_uninstalls_from_many_clusters_once_it_is_confirmed() {
    let fleet = |annotations: &serde_json::Value| {
        serde_json::from_value::<KnativeFleet>(
            json!({"spec": {"placement": {}}, "metadata": {"name": "prod", "namespace": "n",
            "finalizers": [FLEET_FINALIZER], "deletionTimestamp": "2026-01-01T00:00:00Z", "annotations": annotations}}),
        )
        .unwrap()
    };
    let serving = |name: &str, finalizers: &[&str], version: Option<&str>| {
        let resource: KnativeServing = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "n", "finalizers": finalizers}, "spec": {},
            "status": {"version": version, "conditions": []},
        }))
        .unwrap();
        let cluster = ClusterProfileReference { name: name.to_owned(), namespace: "f".to_owned() };
        ((cluster, Component::Serving), Arc::new(Knative::Serving(resource)))
    };
    // The status of one is lost, and one has begun nothing.
    let own = [
        serving("a", &[], Some("1.22.1")),
        serving("b", &[Component::Serving.finalizer()], None),
        serving("c", &["other"], None),
    ];
    let children = Children::from_iter(own);
    let asked = |annotations: serde_json::Value, policy| unconfirmed(&fleet(&annotations), policy, &children);
    let message = asked(json!({}), RemovalPolicy::Delete).unwrap();
    assert!(message.contains("would uninstall from 2 clusters") && message.contains("confirm-removal=2"), "{message}");
    assert_eq!(asked(json!({CONFIRM_REMOVAL: "2"}), RemovalPolicy::Delete), None);
    assert!(asked(json!({CONFIRM_REMOVAL: "1"}), RemovalPolicy::Delete).is_some());
    assert_eq!(asked(json!({}), RemovalPolicy::Orphan), None);
    let mut shown = fleet(&json!({}));
    shown.status = Some(KnativeFleetStatus { installed: Some(7), ..KnativeFleetStatus::default() });
    let message = unconfirmed(&shown, RemovalPolicy::Delete, &children).unwrap();
    assert!(message.contains("from 7 clusters"), "{message}");
    assert_eq!(unconfirmed(&shown, RemovalPolicy::Delete, &Children::default()), None);
}

/// A resource of the fleet.
fn own(name: &str) -> (ChildKey, Arc<Knative>) {
    let cluster = ClusterProfileReference { name: name.to_owned(), namespace: "f".to_owned() };
    let resource: KnativeServing = serde_json::from_value(json!({
        "apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
        "metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": "1"}, "spec": {},
    }))
    .unwrap();
    ((cluster, Component::Serving), Arc::new(Knative::Serving(resource)))
}

#[tokio::test]
async fn resource_that_changed_does_not_keep_the_others() {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    let answer = move |request: Request<Body>| {
        // The first one is not the fleet's any more.
        let is_read = request.method() == "GET";
        let code = if count.fetch_add(usize::from(!is_read), Ordering::Relaxed) == 0 { 409 } else { 404 };
        async move {
            if is_read {
                let live = json!({"metadata": {"name": "a", "uid": "a", "resourceVersion": "2", "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Other", "name": "b", "uid": "b"}]}});
                return Response::builder().body(Body::from(live.to_string().into_bytes())).map_err(|e| e.to_string());
            }
            let body = request.into_body().collect_bytes().await.map_err(|error| error.to_string())?;
            let options: serde_json::Value = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
            // One that is not the fleet's any more stays.
            assert_eq!(options["preconditions"]["resourceVersion"], "1");
            let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "", "reason": "", "code": code});
            let response = Response::builder().status(code).body(Body::from(status.to_string().into_bytes()));
            response.map_err(|error| error.to_string())
        }
    };
    let hub = Client::new(tower::service_fn(answer), "n");
    let children = Children::from_iter(["a", "b", "c"].map(own));
    let all = children.own().keys().map(|(cluster, _)| cluster.clone()).collect();
    assert!(remove(&hub, (RemovalPolicy::Delete, false), &children, &all, &mut Sender::default()).await.is_err());
    assert_eq!(requests.load(Ordering::Relaxed), 3);
}

/// A hub that answers each request with the status `code`, and the number of requests.
fn answering(code: u16) -> (Client, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    let answer = move |_: Request<Body>| {
        count.fetch_add(1, Ordering::Relaxed);
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "", "reason": "", "code": code});
        async move { Response::builder().status(code).body(Body::from(status.to_string().into_bytes())) }
    };
    (Client::new(tower::service_fn(answer), "n"), requests)
}

/// A removal of so many clusters.
async fn removal(hub: &Client, count: usize) -> Result<Option<Duration>, WriteError> {
    let children: Children = (0..count).map(|number| own(&number.to_string())).collect();
    let all = children.own().keys().map(|(cluster, _)| cluster.clone()).collect();
    remove(hub, (RemovalPolicy::Delete, false), &children, &all, &mut Sender::default()).await
}

#[tokio::test]
async fn pass_makes_a_limited_number_of_deletions() {
    let (hub, requests) = answering(404);
    for (left, count) in [(Some(Duration::ZERO), BATCH + 1), (None, BATCH)] {
        let removed = removal(&hub, count).await;
        assert_eq!((removed.ok(), requests.swap(0, Ordering::Relaxed)), (Some(left), BATCH));
    }
}

#[tokio::test]
async fn hub_that_has_too_much_to_do_gets_few_deletions() {
    let (hub, requests) = answering(429);
    // None counts as removed.
    let again = removal(&hub, 100).await.unwrap().unwrap();
    assert!(!again.is_zero() && again <= Duration::from_secs(1), "{again:?}");
    // Each time half as many, then as many as are tried.
    assert_eq!(requests.load(Ordering::Relaxed), 16 + 8 + 4 + 2 + 16);
}

#[test]
fn cascade_is_remembered_when_the_garbage_collector_removed_its_finalizer() {
    let fleet = |finalizers: &[&str], deleted: Option<&str>| -> KnativeFleet {
        let meta = json!({"name": "f", "namespace": "n", "finalizers": finalizers, "deletionTimestamp": deleted});
        serde_json::from_value(json!({"metadata": meta, "spec": {"placement": {"clusterSelector": {}}}})).unwrap()
    };
    let time = Some("2026-01-01T00:00:00Z");
    assert!(is_orphaning(&fleet(&[ORPHAN, FLEET_FINALIZER], time)));
    assert!(!is_orphaning(&fleet(&[ORPHAN], None)) && !is_orphaning(&fleet(&[FLEET_FINALIZER], time)));
    let stored = StoredFleet { fleet: fleet(&[FLEET_FINALIZER], time), unreadable: None };
    assert_eq!(policy(&stored, true), Some(RemovalPolicy::Orphan));
    assert_eq!(policy(&stored, false), Some(RemovalPolicy::Delete));
}
