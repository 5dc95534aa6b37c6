//! Passes over fleets on a hub that refuses a write, and passes that panic.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{Method, Request, Response};
use knative_operator_cluster_access::connections::Connections;
use knative_operator_cluster_access::credential::CredentialFetcher;
use knative_operator_cluster_access::secret::SecretReader;
use knative_operator_objects::Hub;
use knative_operator_overview::unresolved::ANNOTATIONS;
use knative_operator_release::{Bundle, Downloads, HostPolicy, Library};
use knative_operator_render::Settings;
use knative_operator_rules as rules;
use knative_operator_runtime::fence::Fence;
use knative_operator_runtime::install_crypto;
use knative_operator_shared::api::{ClusterProfile, Component, Knative};
use knative_operator_shared::label::{FIELD_MANAGER, FLEET_FINALIZER, FLEET_LEFT_AT};
use kube::Client;
use kube::client::Body;
use prometheus_client::registry::Registry as Exported;
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::store::StoredFleet;
use super::*;
use crate::controller::concurrency::ReconcilePermits;
use crate::controller::events::Events;
use crate::controller::hub_changes::HubChanges;
use crate::controller::registry::Registry;
use crate::controller::render_cache::RenderCache;
use crate::diagnostics::Diagnostics;
use crate::metrics::Metrics;
use crate::startup::go_operator::GoOperator;
use knative_operator_cluster_access::profiles::ClusterProfiles;

#[path = "removal_policy_tests.rs"]
mod removal_policy;

/// Time limit of each wait.
const LIMIT: Duration = Duration::from_secs(60);
/// Why the hub refuses a write.
const WHY: &str = "a policy refuses it";

/// Method, path and body of a request.
pub type Received = (Method, String, Value);

/// For [`hub`]: the first request with the path `suffix` panics, and so what waits for its answer.
pub fn panics_once(suffix: &'static str) -> impl Fn(&Method, &str) -> Option<u16> {
    let has_panicked = AtomicBool::new(false);
    let fails = move |path: &str| path.ends_with(suffix) && !has_panicked.swap(true, Ordering::Relaxed);
    move |_, path| fails(path).then(|| panic!("a fault"))
}

/// A hub with `fleets`, and the requests that it receives. What `refused` has a code for is
/// refused; on watches, nothing happens.
pub fn hub(
    fleets: Vec<Value>,
    refused: impl Fn(&Method, &str) -> Option<u16> + Send + Sync + 'static,
) -> (Client, UnboundedReceiver<Received>) {
    let (sender, requests) = mpsc::unbounded_channel();
    let shared = Arc::new((fleets, refused));
    let answer = move |request: Request<Body>| {
        let (shared, sender) = (Arc::clone(&shared), sender.clone());
        async move {
            let (fleets, refused) = &*shared;
            let (parts, body) = request.into_parts();
            if parts.uri.query().is_some_and(|query| query.contains("watch=")) {
                return std::future::pending::<Result<Response<Body>, String>>().await;
            }
            let (method, path) = (parts.method, parts.uri.path().to_owned());
            let body = body.collect_bytes().await.map_err(|error| error.to_string())?;
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            // Err means that the test has ended.
            let _ = sender.send((method.clone(), path.clone(), body.clone()));
            let (code, answer) = match refused(&method, &path) {
                Some(code) => (code, status("Failure", code)),
                None => (200, accepted(fleets, &method, &path, &body)),
            };
            let response = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
            response.map_err(|error| error.to_string())
        }
    };
    (Client::new(tower::service_fn(answer), "n"), requests)
}

fn status(status: &str, code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": status, "message": WHY, "reason": "", "code": code})
}

/// The answer of a hub with `fleets` to a request that it accepts.
fn accepted(fleets: &[Value], method: &Method, path: &str, body: &Value) -> Value {
    if *method == Method::GET {
        let items = if path.ends_with("/knativefleets") { fleets } else { &[][..] };
        return json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": items});
    }
    if *method == Method::DELETE {
        return status("Success", 200);
    }
    // The object as it is stored: of others than fleets, all that is written.
    let name = path.split('/').skip_while(|part| *part != "knativefleets").nth(1);
    let mut object =
        fleets.iter().find(|fleet| fleet["metadata"]["name"].as_str() == name).cloned().unwrap_or_default();
    json_patch::merge(&mut object, body);
    object
}

/// What passes on `hub` share, and the metrics.
pub fn context(hub: &Client) -> (Arc<Context>, Exported) {
    install_crypto();
    let (metrics, exported) = Metrics::registered();
    let (namespace, program) = ("n".to_owned(), FIELD_MANAGER);
    let secrets =
        SecretReader { hub: hub.clone(), namespace, requires_binding: true, annotations: ANNOTATIONS, program };
    let fetcher = CredentialFetcher { secrets, timeout: LIMIT, metrics: Arc::new(metrics.clone()) };
    let library = Library {
        bundle: Bundle::in_memory(PathBuf::new(), BTreeMap::new()),
        downloads: Downloads::new(LIMIT, HostPolicy::any()).unwrap(),
        archive: None,
        keeps_installed: false,
    };
    let context = Context {
        hub: hub.clone(),
        hub_identity: Hub::default(),
        library,
        settings: Settings::default(),
        providers: None,
        profile_namespaces: Vec::new(),
        allows_http_servers: false,
        rendered: RenderCache::default(),
        profiles: ClusterProfiles::default(),
        connections: Connections::new(fetcher, Fence::default().gate()),
        registry: Registry::default(),
        manages_fleets: true,
        installs_locally: false,
        refuses_used_namespaces: false,
        authors: None,
        hub_changes: HubChanges::default(),
        go_operator: GoOperator::default(),
        events: Events::start(hub.clone(), "operator".to_owned()),
        metrics,
        diagnostics: Diagnostics::default(),
        watching: knative_operator_apply::observer::Watching::default(),
        shards: 1,
        reconcile_permits: ReconcilePermits::new(1),
        stop: CancellationToken::new(),
    };
    (Arc::new(context), exported)
}

/// The fleet `name`, of the clusters of production. What leaves it is uninstalled at once.
fn fleet(name: &str) -> Value {
    json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet",
    "metadata": {"name": name, "namespace": "n", "uid": name, "generation": 3, "resourceVersion": "1", "finalizers": [FLEET_FINALIZER]},
    "spec": {
        "placement": {"clusterSelector": {"matchLabels": {"env": "prod"}}}, "serving": {"spec": {"version": "1.22.1"}},
        "removal": {"gracePeriodSeconds": 0, "maxAtOnce": "100%"},
    }})
}

fn profile(name: &str, env: &str) -> ClusterProfile {
    let profile = json!({"metadata": {"name": name, "namespace": "n", "labels": {"env": env}}, "spec": {},
        "status": {"conditions": [{"type": "ControlPlaneHealthy", "status": "True"}]}});
    serde_json::from_value(profile).unwrap()
}

/// The resource of the fleet `prod` for the cluster `name`, which left it.
fn resource(name: &str) -> Arc<Knative> {
    let owner =
        json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet", "name": "prod", "uid": "prod"});
    let resource = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
        "metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": "1", "ownerReferences": [owner],
            "annotations": {FLEET_LEFT_AT: "2020-01-01T00:00:00Z"}},
        "spec": {"clusterProfileRef": {"name": name, "namespace": "n"}}});
    Arc::new(rules::parse(Component::Serving, &resource).unwrap())
}

/// The same with a finalizer.
fn with_finalizer(name: &str, finalizer: &str) -> Arc<Knative> {
    let mut resource = Knative::clone(&resource(name));
    if let Knative::Serving(serving) = &mut resource {
        serving.metadata.finalizers = Some(vec![finalizer.to_owned()]);
    }
    Arc::new(resource)
}

/// A ClusterProfile without labels, whose cluster nobody reaches.
fn lost(name: &str) -> ClusterProfile {
    let lost = json!({"metadata": {"name": name, "namespace": "n"}, "spec": {},
        "status": {"conditions": [{"type": "ControlPlaneHealthy", "status": "Unknown"}]}});
    serde_json::from_value(lost).unwrap()
}

/// The requests up to the first one that `is_last`.
pub async fn until(requests: &mut UnboundedReceiver<Received>, is_last: impl Fn(&Received) -> bool) -> Vec<Received> {
    let mut received: Vec<Received> = Vec::new();
    let all = async {
        loop {
            let request = requests.recv().await.unwrap();
            let is_end = is_last(&request);
            received.push(request);
            if is_end {
                break;
            }
        }
    };
    let is_in_time = tokio::time::timeout(LIMIT, all).await.is_ok();
    assert!(is_in_time, "{received:#?}");
    received
}

/// Whether `request` publishes the state of the fleet `name`.
fn publishes((method, path, body): &Received, name: &str) -> bool {
    let conditions = body["status"]["conditions"].as_array();
    *method == Method::PATCH
        && path.ends_with(&format!("/knativefleets/{name}/status"))
        && conditions.is_some_and(|conditions| !conditions.is_empty())
}

#[tokio::test]
async fn refused_deletion_keeps_neither_the_status_nor_other_clusters() {
    let is_refused = |method: &Method, path: &str| (*method == Method::DELETE && path.ends_with("/b")).then_some(403);
    let (hub, mut requests) = hub(Vec::from([fleet("prod")]), is_refused);
    let (cx, _) = context(&hub);
    // One cluster is new, and two have left.
    cx.profiles.reset(Vec::from([profile("a", "prod"), profile("b", "test"), profile("c", "test")]));
    ["b", "c"].into_iter().for_each(|name| cx.registry.set(resource(name)));
    let stored = StoredFleet { fleet: serde_json::from_value(fleet("prod")).unwrap(), unreadable: None };
    let (store, selections, mut state) = (Store::default(), Selections::default(), FleetState::default());
    let pass = Box::pin(reconcile::reconcile(&cx, &store, &stored, &selections, &mut state));
    assert_eq!(pass.await, Next::Retry);

    let is_event = |(_, path, body): &Received| path.ends_with("/events") && body["reason"] == "ReconcileFailed";
    let received = until(&mut requests, is_event).await;
    let note = received.last().and_then(|(.., body)| body["note"].as_str()).unwrap_or_default();
    assert!(note.contains(WHY), "{note}");
    let paths = |of: &Method| {
        let own = received.iter().filter(|(method, ..)| method == of);
        own.map(|(_, path, _)| path.rsplit('/').next().unwrap_or_default()).collect::<Vec<_>>()
    };
    let mut deleted = paths(&Method::DELETE);
    deleted.sort_unstable();
    assert_eq!(deleted, ["b", "c"]);
    assert!(paths(&Method::PATCH).iter().any(|name| name.starts_with("prod-a-")), "{received:#?}");

    // The status is published after that, and has what is left to do.
    let last = received.iter().rposition(|(method, ..)| *method == Method::DELETE).unwrap();
    let published = received[last..].iter().find(|request| publishes(request, "prod"));
    let status = published.map(|(.., body)| &body["status"]).unwrap();
    assert_eq!((&status["observedGeneration"], &status["clusters"]), (&json!(3), &json!(1)), "{status}");
    let conditions = status["conditions"].as_array().unwrap();
    let pending = conditions.iter().find(|condition| condition["type"] == "RemovalPending").unwrap();
    assert!(pending["status"] == "True" && pending["message"].as_str().unwrap().contains("n/b"), "{pending}");
}

#[tokio::test]
async fn cluster_that_left_in_an_outage_is_not_removed() {
    let (hub, mut requests) = hub(Vec::from([fleet("prod")]), |_, _| None);
    let (cx, _) = context(&hub);
    cx.profiles.reset(Vec::from([profile("a", "prod"), lost("b")]));
    cx.registry.set(with_finalizer("b", Component::Serving.finalizer()));
    let stored = StoredFleet { fleet: serde_json::from_value(fleet("prod")).unwrap(), unreadable: None };
    let (store, selections, mut state) = (Store::default(), Selections::default(), FleetState::default());
    Box::pin(reconcile::reconcile(&cx, &store, &stored, &selections, &mut state)).await;
    let mut received = Vec::new();
    while let Ok(request) = requests.try_recv() {
        received.push(request);
    }
    assert!(received.iter().all(|(method, ..)| *method != Method::DELETE), "{received:#?}");
    // Its grace period, which was over, begins when it is available.
    let record = received.iter().find(|(_, path, _)| path.ends_with("/knativeservings/b"));
    let annotations = record.map(|(.., body)| &body["metadata"]["annotations"]).unwrap();
    assert_eq!(annotations.get(FLEET_LEFT_AT), Some(&Value::Null));
    let (.., body) = received.iter().rev().find(|request| publishes(request, "prod")).unwrap();
    let conditions = body["status"]["conditions"].as_array().unwrap();
    let pending = conditions.iter().find(|condition| condition["type"] == "RemovalPending").unwrap();
    assert_eq!((&pending["status"], &pending["reason"]), (&json!("True"), &json!("Unavailable")), "{pending}");
    assert!(pending["message"].as_str().unwrap().contains("n/b"), "{pending}");
}

#[tokio::test]
async fn cluster_that_left_in_an_outage_stays_only_if_something_began_there() {
    for (finalizer, is_expected) in [(Component::Serving.finalizer(), true), ("example.com/other", false)] {
        let (hub, mut requests) = hub(Vec::from([fleet("prod")]), |_, _| None);
        let (cx, _) = context(&hub);
        cx.profiles.reset(Vec::from([profile("a", "prod"), lost("b")]));
        cx.registry.set(with_finalizer("b", finalizer));
        let stored = StoredFleet { fleet: serde_json::from_value(fleet("prod")).unwrap(), unreadable: None };
        let (store, selections, mut state) = (Store::default(), Selections::default(), FleetState::default());
        Box::pin(reconcile::reconcile(&cx, &store, &stored, &selections, &mut state)).await;
        let mut reasons = Vec::new();
        while let Ok(request) = requests.try_recv() {
            if publishes(&request, "prod") {
                let conditions = request.2["status"]["conditions"].as_array().unwrap().iter();
                let pending = conditions.filter(|condition| condition["type"] == "RemovalPending");
                reasons.extend(pending.map(|pending| pending["reason"].clone()));
            }
        }
        assert_eq!(reasons.contains(&json!("Unavailable")), is_expected, "{finalizer}: {reasons:?}");
    }
}

#[tokio::test]
async fn no_removal_starts_before_the_times_of_clusters_that_wait_are_removed() {
    for (is_refused, expected) in [(false, 1), (true, 0)] {
        let refuses = move |method: &Method, path: &str| {
            (is_refused && *method == Method::PATCH && path.ends_with("/knativeservings/b")).then_some(403)
        };
        let (hub, mut requests) = hub(Vec::from([fleet("prod")]), refuses);
        let (cx, _) = context(&hub);
        cx.profiles.reset(Vec::from([profile("a", "prod"), lost("b"), profile("c", "test")]));
        cx.registry.set(with_finalizer("b", Component::Serving.finalizer()));
        cx.registry.set(resource("c"));
        let stored = StoredFleet { fleet: serde_json::from_value(fleet("prod")).unwrap(), unreadable: None };
        let (store, selections, mut state) = (Store::default(), Selections::default(), FleetState::default());
        Box::pin(reconcile::reconcile(&cx, &store, &stored, &selections, &mut state)).await;
        let mut deleted = 0;
        while let Ok((method, ..)) = requests.try_recv() {
            deleted += usize::from(method == Method::DELETE);
        }
        assert_eq!(deleted, expected, "{is_refused}");
    }
}

#[tokio::test]
async fn no_time_passes_in_passes_that_do_not_know_the_clusters() {
    let (hub, _requests) = hub(Vec::from([fleet("prod")]), |_, _| None);
    let (cx, _) = context(&hub);
    let mut invalid: KnativeFleet = serde_json::from_value(fleet("prod")).unwrap();
    invalid.spec.serving = None;
    let valid = serde_json::from_value(fleet("prod")).unwrap();
    let [valid, invalid] = [valid, invalid].map(|fleet| StoredFleet { fleet, unreadable: None });
    let (store, selections, mut state) = (Store::default(), Selections::default(), FleetState::default());
    // ClusterProfiles are not listed yet; then the spec is invalid, for a moment.
    for (stored, is_known) in [(&valid, false), (&valid, true), (&invalid, false), (&valid, true)] {
        Box::pin(reconcile::reconcile(&cx, &store, stored, &selections, &mut state)).await;
        assert_eq!(state.unknown_since.is_none(), is_known);
        cx.profiles.reset(Vec::from([profile("a", "prod")]));
    }
}

#[tokio::test]
async fn refused_finalizer_keeps_no_status() {
    let refused = |code: u16| {
        move |method: &Method, path: &str| {
            (*method == Method::PATCH && path.ends_with("/knativefleets/prod")).then_some(code)
        }
    };
    for (code, expected) in [(403, true), (500, true), (409, false)] {
        let (hub, mut requests) = hub(Vec::from([fleet("prod")]), refused(code));
        let (cx, _) = context(&hub);
        cx.profiles.reset(Vec::from([profile("a", "prod")]));
        let mut fleet: KnativeFleet = serde_json::from_value(fleet("prod")).unwrap();
        fleet.metadata.finalizers = None;
        let stored = StoredFleet { fleet, unreadable: None };
        let (store, selections, mut state) = (Store::default(), Selections::default(), FleetState::default());
        let pass = Box::pin(reconcile::reconcile(&cx, &store, &stored, &selections, &mut state));
        // A fleet that changed is read again.
        let next = if expected { Next::After(state::REFUSED_RETRY) } else { Next::Retry };
        assert_eq!(pass.await, next, "{code}");
        let mut received = Vec::new();
        while let Ok(request) = requests.try_recv() {
            received.push(request);
        }
        let published = received.iter().rev().find(|request| publishes(request, "prod"));
        assert_eq!(published.is_some(), expected, "{code}: {received:#?}");
        let Some((.., body)) = published else { continue };
        let conditions = body["status"]["conditions"].as_array().unwrap();
        let of = |type_: &str| conditions.iter().find(|condition| condition["type"] == type_).unwrap();
        assert_eq!(
            (&of("Progressing")["reason"], &of("Stalled")["reason"]),
            (&json!("FinalizerNotStored"), &json!("FinalizerNotStored"))
        );
        assert!(of("Ready")["message"].as_str().unwrap().contains(WHY), "{body}");
        assert_eq!(body["status"]["clusters"], 1);
        // Nothing is installed that the deletion of the fleet would uninstall.
        let is_resource = |(_, path, _): &&Received| path.contains("/knativeservings/");
        assert_eq!(received.iter().filter(is_resource).count(), 0, "{received:#?}");
    }
}

#[tokio::test]
async fn fleet_whose_pass_panics_is_tried_again_and_stops_no_other() {
    let (hub, mut requests) = hub(Vec::from(["a", "b"].map(fleet)), panics_once("/knativefleets/a/status"));
    let (cx, exported) = context(&hub);
    cx.registry.set_listed();
    cx.profiles.reset(Vec::new());
    let task = AbortOnDropHandle::new(tokio::spawn(run(Arc::clone(&cx))));
    // Nothing changes meanwhile.
    let received = until(&mut requests, |request| publishes(request, "a")).await;
    assert!(received.iter().any(|request| publishes(request, "b")), "{received:#?}");
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &exported).unwrap();
    assert!(text.contains("knative_operator_reconcile_panics_total{kind=\"KnativeFleet\"} 1\n"), "{text}");
    drop(task);
}
