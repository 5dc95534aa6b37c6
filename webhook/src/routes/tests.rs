//! Tests of what reviews tell whom.

use std::borrow::Cow;
use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use axum::http::{Request as HttpRequest, Response};
use futures::future::{Either, join, select};
use knative_operator_shared::api::ClusterProfileReference;
use knative_operator_shared::fleet::selector::Traits;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::authorization::Mode;
use crate::cluster_facts::ProfileFacts;

/// The webhook on a hub with one KnativeServing, for a ClusterProfile that is gone; users have all
/// permissions, or none.
fn app(has_permission: bool) -> App {
    let service = tower::service_fn(move |_: HttpRequest<Body>| {
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {},
            "spec": {}, "status": {"allowed": has_permission}});
        async move { Ok::<_, Infallible>(Response::new(Body::from(review.to_string().into_bytes()))) }
    });
    let (facts, (metrics, _)) = (ClusterFacts::default(), Metrics::registered());
    let target = Some(ClusterProfileReference { namespace: "fleet".to_owned(), name: "spoke".to_owned() });
    facts.set_target(Component::Serving, ("theirs".to_owned(), "other".to_owned()), target, None);
    facts.set_profiles(HashMap::new());
    let client = Client::new(service, "default");
    let authorizer = Authorizer::new(Mode::Enforce, true, Vec::new(), client, metrics.clone());
    App::new(metrics, facts, authorizer, Live::none(), CancellationToken::new())
}

/// The response to a new KnativeServing with `version` on the cluster of the other one.
async fn respond(app: &App, webhook: Webhook, version: &str) -> Value {
    let spec = json!({"version": version, "clusterProfileRef": {"name": "spoke", "namespace": "fleet"}});
    create(app, webhook, ("KnativeServing", "v1beta1"), &spec).await
}

/// The response to a new resource of a kind with `spec`.
async fn create(app: &App, webhook: Webhook, (kind, version): (&str, &str), spec: &Value) -> Value {
    let object = json!({"apiVersion": format!("operator.knative.dev/{version}"), "kind": kind,
        "metadata": {"name": "new", "namespace": "own"}, "spec": spec});
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "userInfo": {"username": "ed"}, "operation": "CREATE", "name": "new", "namespace": "own",
        "object": object, "kind": {"group": "operator.knative.dev", "version": version, "kind": kind}}});
    let review = app.decide(webhook, review.to_string().as_bytes(), true).await;
    serde_json::to_value(review.unwrap()).unwrap()["response"].clone()
}

#[tokio::test]
async fn user_without_permission_learns_nothing_about_a_cluster() {
    let facts = ["already has", "theirs", "does not exist", "no condition"];
    for version in ["1.22", "x"] {
        for webhook in [Webhook::Mutate, Webhook::Validate] {
            let response = respond(&app(false), webhook, version).await.to_string();
            assert!(facts.iter().all(|fact| !response.contains(fact)), "{version}: {response}");
        }
        let response = respond(&app(false), Webhook::Validate, version).await;
        let message = response["status"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("user \"ed\" is not allowed to use ClusterProfile"), "{response}");
    }
    // The owner of the cluster learns it.
    let response = respond(&app(true), Webhook::Validate, "1.22").await.to_string();
    assert!(response.contains("already has a KnativeServing: theirs/other"), "{response}");
    assert!(response.contains("ClusterProfile fleet/spoke does not exist"), "{response}");
}

#[tokio::test]
async fn user_without_permission_learns_no_cluster_by_a_fleet() {
    let change = json!({"clusterSelector": {"matchLabels": {"env": "prod"}}, "serving": {"spec": {"high-availability": {"replicas": 0}}}});
    let spec = json!({"placement": {"clusterSelector": {}, "namespaces": ["*"]},
        "serving": {"spec": {"version": "1.22"}}, "overrides": [change]});
    let responses = async |has_permission: bool| {
        let app = app(has_permission);
        let traits = Traits { labels: Cow::Owned([("env".to_owned(), "prod".to_owned())].into()), ..Traits::default() };
        let reference = ClusterProfileReference { namespace: "secret".to_owned(), name: "zanzibar".to_owned() };
        app.facts.set_profiles(HashMap::from([(reference, ProfileFacts { healthy: true, traits })]));
        let mut all = String::new();
        for webhook in [Webhook::Mutate, Webhook::Validate] {
            all += &create(&app, webhook, ("KnativeFleet", "v1alpha1"), &spec).await.to_string();
        }
        all
    };
    let (named, hidden) = (responses(true).await, responses(false).await);
    assert!(named.contains("replicas") && named.contains("(cluster secret/zanzibar)"), "{named}");
    assert!(hidden.contains("is not allowed to use all ClusterProfiles"), "{hidden}");
    assert!(!hidden.contains("zanzibar") && !hidden.contains("(cluster"), "{hidden}");
}

#[tokio::test]
async fn nothing_is_looked_up_for_a_user_without_permission() {
    for (has_permission, expected) in [(false, 0), (true, 1)] {
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        // The other resource is deleted, and the watch has not reported it.
        let service = tower::service_fn(move |_: HttpRequest<Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            let list = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": []});
            async move { Ok::<_, Infallible>(Response::new(Body::from(list.to_string().into_bytes()))) }
        });
        let app = App { live: Live::new(Client::new(service, "default")), ..app(has_permission) };
        let response = respond(&app, Webhook::Validate, "1.22").await.to_string();
        assert!(!response.contains("already has"), "{response}");
        assert_eq!(requests.load(Ordering::Relaxed), expected, "{response}");
    }
}

#[tokio::test]
async fn large_resources_take_turns_and_small_ones_do_not_wait() {
    let (app, (end, ended)) = (app(true), mpsc::channel::<()>());
    let spec = |size: usize| json!({"clusterProfileRef": {"name": "spoke", "namespace": "fleet"}, "config": {"network": {"domain-template": "x".repeat(size)}}});
    let (small, large, is_answered) = (spec(10), spec(LARGE), AtomicBool::new(false));
    let serving = ("KnativeServing", "v1beta1");
    // A fleet of somebody else takes long.
    let busy = app.fleets.run("other", move || ended.recv().is_ok());
    let waiting = async {
        let response = create(&app, Webhook::Mutate, serving, &large).await;
        is_answered.store(true, Ordering::Relaxed);
        response
    };
    let both = pin!(join(busy, waiting));
    let small = pin!(create(&app, Webhook::Mutate, serving, &small));
    let (answer, both) = match select(both, small).await {
        Either::Right(answered) => answered,
        Either::Left(_) => panic!("the fleet ended early"),
    };
    assert!(answer["uid"] == "u" && !is_answered.load(Ordering::Relaxed), "{answer}");
    drop(end);
    assert_eq!(both.await.1["uid"], "u");
}

#[test]
fn log_of_a_refusal_is_short_and_says_what_it_lacks() {
    let violation = knative_operator_rules::READABLE.at("spec", "is wrong", "correct it");
    let short = Request { operation: "CREATE".to_owned(), name: "a".to_owned(), ..Request::default() };
    let expected = ["", "CREATE", "", "a", "spec: is wrong; correct it"];
    assert_eq!(logged(&short, &[&violation]), expected.map(str::to_owned));
    let long = "x".repeat(100_000);
    let request = Request { operation: long.clone(), namespace: long.clone(), name: long.clone(), ..short };
    let texts = logged(&request, &vec![&violation; 1000]);
    assert!(texts.iter().map(String::len).sum::<usize>() < 2048, "{texts:?}");
    assert_eq!(texts.iter().filter(|text| text.ends_with(" more bytes)")).count(), 4, "{texts:?}");
}
