//! Tests of what reviews tell whom.

use std::collections::HashMap;
use std::convert::Infallible;

use axum::http::{Request as HttpRequest, Response};
use knative_operator_shared::api::ClusterProfileReference;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::authorization::Mode;

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
    let object = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
        "metadata": {"name": "knative-serving", "namespace": "own"},
        "spec": {"version": version, "clusterProfileRef": {"name": "spoke", "namespace": "fleet"}}});
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "userInfo": {"username": "ed"}, "operation": "CREATE", "name": "knative-serving", "namespace": "own",
        "object": object, "kind": {"group": "operator.knative.dev", "version": "v1beta1", "kind": "KnativeServing"}}});
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
