//! Resources that are in the way of a new one, and may have been deleted: the watch reports it
//! later.

use futures::future::join_all;
use knative_operator_rules as rules;
use knative_operator_runtime::untyped::api_resource;
use knative_operator_shared::api::Component;
use kube::Api;
use kube::api::ListParams;
use kube::core::DynamicObject;

use crate::admission::component;
use crate::cluster_facts::{ClusterFacts, Name};
use crate::live::Live;
use crate::request::Request;

/// Maximum number of resources that are looked up for a review.
const MAX: usize = 4;

/// Removes resources with the target cluster of the resource that `request` creates from `facts`,
/// if they don't exist any more. Returns whether there were some. If the API server doesn't answer,
/// all stay.
pub async fn forget_deleted(live: &Live, facts: &ClusterFacts, request: &Request) -> bool {
    let Some(component) = component(request) else { return false };
    let Ok(new) = rules::parse(component, &request.object) else { return false };
    let own: Name = (new.namespace().to_owned(), new.name().to_owned());
    let others = facts.competitors(component, &new.common().cluster_profile_ref, &own, MAX);
    // At the same time: the API server waits for the review.
    let are_gone = join_all(others.iter().map(|other| is_gone(live, component, other))).await;
    let mut found = false;
    for (other, _) in others.iter().zip(are_gone).filter(|(_, gone)| *gone) {
        facts.remove_target(component, other);
        found = true;
    }
    found
}

/// Whether a resource of `component` doesn't exist any more.
async fn is_gone(live: &Live, component: Component, (namespace, name): &Name) -> bool {
    let select = ListParams::default().fields(&format!("metadata.name={name}"));
    let list = live.read(async |client| {
        let api: Api<DynamicObject> = Api::namespaced_with(client, namespace, &api_resource(component));
        api.list_metadata(&select).await
    });
    matches!(list.await, Ok(Some(list)) if list.items.is_empty())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use axum::http::{Request as HttpRequest, Response};
    use knative_operator_shared::api::ClusterProfileReference;
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};
    use tokio::sync::Barrier;

    use super::*;
    use crate::admission::validate;
    use crate::request;

    /// An API server that has the resources `names`.
    fn live(names: &'static [&'static str]) -> Live {
        let service = tower::service_fn(move |request: HttpRequest<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let there = names.iter().filter(|name| query.ends_with(**name));
            let items: Vec<Value> = there.map(|name| json!({"metadata": {"name": name, "namespace": "b"}})).collect();
            let list = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": items});
            async move { Ok::<_, Infallible>(Response::new(Body::from(list.to_string().into_bytes()))) }
        });
        Live::new(Client::new(service, "default"))
    }

    /// Whether a resource with the target cluster of `others`, which the watch has, is admitted.
    async fn is_admitted(live: Live, others: &[&str]) -> bool {
        let target = Some(ClusterProfileReference { namespace: "fleet".to_owned(), name: "spoke".to_owned() });
        let facts = ClusterFacts::default();
        for other in others {
            facts.set_target(Component::Serving, ("b".to_owned(), (*other).to_owned()), target.clone(), None);
        }
        let object = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
            "metadata": {"name": "knative-serving", "namespace": "a"},
            "spec": {"clusterProfileRef": {"name": "spoke", "namespace": "fleet"}}});
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "userInfo": {"username": "u"}, "operation": "CREATE", "name": "knative-serving", "namespace": "a", "object": object,
            "kind": {"group": "operator.knative.dev", "version": "v1beta1", "kind": "KnativeServing"}}});
        let request = request::parse(review.to_string().as_bytes()).unwrap();
        assert!(validate(&request, &facts).iter().any(|violation| violation.rule.id == "one-target"));
        let _ = forget_deleted(&live, &facts, &request).await;
        !validate(&request, &facts).iter().any(|violation| violation.rule.id == "one-target")
    }

    #[tokio::test]
    async fn deleted_resource_keeps_nobody_out() {
        assert!(is_admitted(live(&[]), &["other"]).await);
        assert!(!is_admitted(live(&["other"]), &["other"]).await);
        assert!(!is_admitted(Live::none(), &["other"]).await, "what can't be read is not taken for deleted");
    }

    #[tokio::test]
    async fn several_are_looked_up_at_the_same_time() {
        // An API server that answers once it is asked about both.
        let both = Arc::new(Barrier::new(2));
        let list =
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": []});
        let service = tower::service_fn(move |_: HttpRequest<Body>| {
            let (both, answer) = (Arc::clone(&both), list.to_string());
            async move {
                both.wait().await;
                Ok::<_, Infallible>(Response::new(Body::from(answer.into_bytes())))
            }
        });
        assert!(is_admitted(Live::new(Client::new(service, "default")), &["one", "other"]).await);
    }
}
