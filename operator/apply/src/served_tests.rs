//! A custom resource waits for its definition.

use std::sync::{Arc, Mutex};

use futures::FutureExt;
use http::{Request, Response};
use kube::client::Body;
use kube::core::ObjectMeta;

use super::*;
use crate::observed::{ObservedState, Seen};
use knative_operator_objects::plan::{Plan, Rendered};
use knative_operator_objects::{CompactObject, Kinds, ObjectId, Owner};
use knative_operator_shared::api::{Knative, KnativeServing};

/// A definition and a custom resource.
fn plan() -> Plan {
    let object = |value: Value| CompactObject::new(&value);
    let names = json!({"kind": "Thing", "plural": "things"});
    let spec = json!({"group": "g.io", "names": names, "scope": "Namespaced", "versions": [{"name": "v1"}]});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.g.io"}, "spec": spec});
    let thing = json!({"apiVersion": "g.io/v1", "kind": "Thing", "metadata": {"name": "a", "namespace": "n"}});
    let objects = vec![object(definition), object(thing)];
    let owner = Owner::of(&Knative::Serving(KnativeServing::default()), "");
    Plan::new(Arc::new(Rendered::new(objects)), &owner)
}

fn cluster() -> Client {
    let respond = |_: Request<Body>| async { Response::builder().status(404).body(Body::empty()) };
    Client::new(tower::service_fn(respond), "n")
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
async fn custom_resource_follows_its_definition_at_once() {
    let (client, plan, kinds, observed) = (cluster(), plan(), Kinds::default(), ObservedState::default());
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
