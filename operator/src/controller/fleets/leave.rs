//! Clusters that leave a fleet, and the deletion of a fleet.

use std::collections::{BTreeSet, HashSet};

use knative_operator_shared::api::fleet::RemovalPolicy;
use knative_operator_shared::api::{ClusterProfileReference, KnativeFleet};
use knative_operator_shared::label::FLEET_FINALIZER;
use kube::Client;

use super::observe::Children;
use super::store::{StoredFleet, UnreadableFleet};
use super::write::{self, WriteError};
use crate::controller::context::Context;

/// Clusters with resources that are not part of the fleet any more, and those whose resources are
/// being deleted.
pub fn leaving(
    children: &Children,
    clusters: &[ClusterProfileReference],
) -> (BTreeSet<ClusterProfileReference>, BTreeSet<ClusterProfileReference>) {
    let clusters: HashSet<_> = clusters.iter().collect();
    let left = children.own.iter().filter(|((cluster, _), _)| !clusters.contains(cluster));
    let (mut leaving, mut removed) = (BTreeSet::new(), BTreeSet::new());
    for ((cluster, _), resource) in left {
        if resource.is_terminating() {
            removed.insert(cluster.clone())
        } else {
            leaving.insert(cluster.clone())
        };
    }
    removed.retain(|cluster| !leaving.contains(cluster));
    (leaving, removed)
}

/// Deletes or orphans the resources of `clusters`.
pub async fn remove(
    hub: &Client,
    policy: RemovalPolicy,
    children: &Children,
    clusters: &BTreeSet<ClusterProfileReference>,
) -> Result<(), WriteError> {
    let mut outcome = Ok(());
    for (_, resource) in
        children.own.iter().filter(|((cluster, _), resource)| clusters.contains(cluster) && !resource.is_terminating())
    {
        let removed = match policy {
            RemovalPolicy::Delete => write::delete(hub, resource).await,
            RemovalPolicy::Orphan => write::orphan(hub, resource).await,
        };
        // One that changed a moment ago doesn't keep the others; it is tried again.
        outcome = outcome.and(removed);
    }
    outcome
}

/// What the deletion of a fleet does to its clusters, if that can be read.
pub fn policy(stored: &StoredFleet) -> Option<RemovalPolicy> {
    match &stored.unreadable {
        None => Some(stored.fleet.spec.removal.policy),
        Some(unreadable) => unreadable.removal,
    }
}

/// Describes why `fleet` is left as it is, with its resources, and what to do.
pub fn describe(unreadable: &UnreadableFleet, fleet: &KnativeFleet) -> String {
    let message = &unreadable.message;
    if fleet.metadata.deletion_timestamp.is_none() {
        return format!("{message}. The clusters stay unchanged until you correct the fleet");
    }
    format!(
        "{message}. The operator doesn't know whether to uninstall, so nothing is deleted. Correct spec.removal, or install a version of the \
         operator that can read it"
    )
}

/// Deletes or orphans all resources, then removes the finalizer.
pub async fn finalize(
    cx: &Context,
    fleet: &KnativeFleet,
    children: &Children,
    policy: RemovalPolicy,
) -> Result<(), WriteError> {
    let finalizers = fleet.metadata.finalizers.clone().unwrap_or_default();
    if !finalizers.iter().any(|finalizer| finalizer == FLEET_FINALIZER) {
        return Ok(());
    }
    let all = children.own.keys().map(|(cluster, _)| cluster.clone()).collect();
    remove(&cx.hub, policy, children, &all).await?;
    if policy == RemovalPolicy::Delete && !children.own.is_empty() {
        return Ok(());
    }
    let others: Vec<String> = finalizers.into_iter().filter(|finalizer| finalizer != FLEET_FINALIZER).collect();
    write::finalizers(&cx.hub, fleet, &others).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use knative_operator_shared::api::{Component, Knative, KnativeServing};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn resource_that_changed_does_not_keep_the_others() {
        let requests = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&requests);
        let answer = move |_: Request<Body>| {
            // The first one has changed.
            let code = if count.fetch_add(1, Ordering::Relaxed) == 0 { 409 } else { 404 };
            async move {
                let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "", "reason": "", "code": code});
                let response = Response::builder().status(code).body(Body::from(status.to_string().into_bytes()));
                response.map_err(|error| error.to_string())
            }
        };
        let hub = Client::new(tower::service_fn(answer), "n");
        let mut children = Children::default();
        for name in ["a", "b", "c"] {
            let cluster = ClusterProfileReference { name: name.to_owned(), namespace: "f".to_owned() };
            let resource: KnativeServing = serde_json::from_value(json!({
                "apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
                "metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": "1"}, "spec": {},
            }))
            .unwrap();
            children.own.insert((cluster, Component::Serving), Arc::new(Knative::Serving(resource)));
        }
        let all = children.own.keys().map(|(cluster, _)| cluster.clone()).collect();
        assert!(remove(&hub, RemovalPolicy::Delete, &children, &all).await.is_err(), "it is tried again");
        assert_eq!(requests.load(Ordering::Relaxed), 3);
    }
}
