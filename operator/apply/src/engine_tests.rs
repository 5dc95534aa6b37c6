use std::sync::{Arc, Mutex};

use futures::FutureExt;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use kube::core::ObjectMeta;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::*;
use crate::observed::Seen;
use crate::served::wait_until_established;
use knative_operator_objects::plan::Rendered;
use knative_operator_objects::{CompactObject, Kinds, Owner};

/// Time limit of a test that would wait forever.
const LIMIT: Duration = Duration::from_secs(30);

/// A definition, a workload, and a custom resource if `with_resource`.
fn plan(with_resource: bool) -> Plan {
    let object = |value: Value| CompactObject::new(&value);
    let names = json!({"kind": "Thing", "plural": "things"});
    let spec = json!({"group": "g.io", "names": names, "scope": "Namespaced", "versions": [{"name": "v1"}]});
    let mut objects = vec![
        object(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.g.io"}, "spec": spec})),
        object(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "n"}})),
    ];
    let thing = json!({"apiVersion": "g.io/v1", "kind": "Thing", "metadata": {"name": "a", "namespace": "n"}});
    objects.extend(with_resource.then(|| object(thing)));
    let owner = Owner {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        name: "anchor".into(),
        uid: "1".into(),
        namespace: "n".into(),
    };
    Plan::new(Arc::new(Rendered::new(objects)), &owner)
}

/// A cluster without objects whose API server waits for `answer`, given the path of a request,
/// before it answers.
fn cluster<F: Future<Output = ()> + Send + 'static>(answer: impl Fn(String) -> F + Send + 'static) -> Client {
    let respond = move |request: Request<Body>| {
        let answered = answer(request.uri().path().to_owned());
        async move {
            answered.await;
            let object = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                "metadata": {"name": "a", "uid": "u", "resourceVersion": "1"}});
            let response = Response::builder().body(Body::from(object.to_string().into_bytes()));
            response.map_err(|error| error.to_string())
        }
    };
    Client::new(tower::service_fn(respond), "n")
}

fn is_definition(path: &str) -> bool {
    path.contains("/customresourcedefinitions/")
}

/// Applies all of `plan` on the cluster of `client`.
async fn apply_all(client: &Client, plan: &Plan) -> ApplyOutcome {
    let (kinds, observed) = (Kinds::default(), ObservedState::default());
    let target = target(client, plan, &kinds, &observed);
    let todo: Vec<_> = plan.items().iter().map(|item| (item, Action::Apply)).collect();
    let mut throttle = Throttle::default();
    let applied = apply(&target, &todo, |_| false, &mut throttle);
    tokio::time::timeout(LIMIT, applied).await.expect("it ends")
}

fn target<'a>(client: &'a Client, plan: &'a Plan, kinds: &'a Kinds, observed: &'a ObservedState) -> Target<'a> {
    observed.set_plan(plan, &ObjectId::new("", "ConfigMap", "n", "anchor"), "");
    Target {
        client,
        plan,
        kinds,
        observed,
        mark: "m",
        unreachable: std::sync::atomic::AtomicBool::new(false),
        refused_definitions: Mutex::default(),
    }
}

#[tokio::test]
async fn definitions_are_written_first() {
    let log: Arc<Mutex<Vec<&str>>> = Arc::default();
    let record = Arc::clone(&log);
    let client = cluster(move |path| {
        let log = Arc::clone(&record);
        async move {
            if !is_definition(&path) {
                return log.lock().unwrap().push("workload");
            }
            // What is sent at the same time arrives meanwhile.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            log.lock().unwrap().push("definition");
        }
    });
    assert_eq!(apply_all(&client, &plan(false)).await.applied.len(), 2);
    assert_eq!(*log.lock().unwrap(), ["definition", "workload"]);
}

#[tokio::test]
async fn definition_that_hangs_keeps_nothing_back() {
    let asked = Arc::new(Notify::new());
    let client = cluster(move |path| {
        let asked = Arc::clone(&asked);
        async move {
            if is_definition(&path) {
                asked.notified().await;
            } else {
                asked.notify_one();
            }
        }
    });
    assert_eq!(apply_all(&client, &plan(false)).await.applied.len(), 2);
}

#[tokio::test]
async fn custom_resource_follows_its_definition_at_once() {
    let (client, plan, kinds, observed) =
        (cluster(|_| async {}), plan(true), Kinds::default(), ObservedState::default());
    let target = target(&client, &plan, &kinds, &observed);
    let definition = plan.phase(Phase::Definitions).next().unwrap();
    let resource = plan.phase(Phase::CustomResources).next().unwrap();
    let kind = plan.kinds().get(&resource.gvk).unwrap();
    let report = |health: Health, version: u64| {
        let (uid, resource_version) = (Some("u".to_owned()), Some(version.to_string()));
        let meta = ObjectMeta { uid, resource_version, ..ObjectMeta::default() };
        observed.record_event(&definition.id, &meta, Seen { health: Some(health), replicas: None }, false);
    };
    let mut wait = std::pin::pin!(wait_until_established(&target, &kind));
    assert_eq!(wait.as_mut().now_or_never(), None);
    report(Health::Waiting("not yet".into()), 1);
    assert_eq!(wait.as_mut().now_or_never(), None);
    report(Health::Ready, 2);
    assert_eq!(wait.as_mut().now_or_never(), Some(Ok(())));
    // Also one that will not be.
    report(Health::Waiting("again".into()), 3);
    let mut wait = std::pin::pin!(wait_until_established(&target, &kind));
    assert_eq!(wait.as_mut().now_or_never(), None);
    report(Health::Failed("its names are taken".to_owned()), 4);
    assert!(matches!(wait.as_mut().now_or_never(), Some(Err(_))));
}
