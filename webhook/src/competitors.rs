//! Resources that are in the way of a new one, and may have been deleted: the watch reports it
//! later.

use knative_operator_rules as rules;
use knative_operator_runtime::untyped::api_resource;
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
    let mut found = false;
    for other in facts.competitors(component, &new.common().cluster_profile_ref, &own, MAX) {
        let (namespace, name) = &other;
        let select = ListParams::default().fields(&format!("metadata.name={name}"));
        let list = live.read(async |client| {
            let api: Api<DynamicObject> = Api::namespaced_with(client, namespace, &api_resource(component));
            api.list_metadata(&select).await
        });
        if matches!(list.await, Ok(Some(list)) if list.items.is_empty()) {
            facts.remove_target(component, &other);
            found = true;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::http::{Request as HttpRequest, Response};
    use knative_operator_shared::api::{ClusterProfileReference, Component};
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};

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

    /// Whether a resource with the target cluster of `other`, which the watch has, is admitted.
    async fn is_admitted(live: Live) -> bool {
        let target = Some(ClusterProfileReference { namespace: "fleet".to_owned(), name: "spoke".to_owned() });
        let facts = ClusterFacts::default();
        facts.set_target(Component::Serving, ("b".to_owned(), "other".to_owned()), target, None);
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
        assert!(is_admitted(live(&[])).await);
        assert!(!is_admitted(live(&["other"])).await);
        assert!(!is_admitted(Live::none()).await, "what can't be read is not taken for deleted");
    }
}
