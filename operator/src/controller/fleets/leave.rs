//! Clusters that leave a fleet, and the deletion of a fleet.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use knative_operator_shared::api::fleet::RemovalPolicy;
use knative_operator_shared::api::{ClusterProfileReference, Knative, KnativeFleet};
use knative_operator_shared::label::{FLEET_FINALIZER, PROTECTED};
use knative_operator_shared::rules::is_protected;
use kube::Client;

use super::clusters::Profiles;
use super::observe::Children;
use super::publish::publish;
use super::state::{FleetState, Next};
use super::store::{StoredFleet, UnreadableFleet};
use super::write::{self, WriteError};
use crate::controller::context::Context;
use crate::fleet::status;

/// Finalizer of an object whose dependents stay (`kubectl delete --cascade=orphan`).
const ORPHAN: &str = "orphan";
/// Deletions at the same time.
const CONCURRENT_DELETIONS: usize = 16;

/// Clusters with resources of the fleet, by whether it selects them.
#[derive(Debug, Default)]
pub struct Unselected {
    /// Those whose ClusterProfile exists: they leave.
    pub leaving: BTreeSet<ClusterProfileReference>,
    /// Those whose ClusterProfile does not: nobody asked to uninstall, and the cluster can't be
    /// reached. They stay as they are, and are selected again when it is back.
    pub vanished: BTreeSet<ClusterProfileReference>,
    /// Number of clusters with resources that it selects.
    pub staying: usize,
}

impl Unselected {
    /// The clusters that vanished, with reason and message.
    pub fn described(&self) -> impl Iterator<Item = (ClusterProfileReference, (&'static str, String))> + '_ {
        let why = "the ClusterProfile does not exist any more; the installation stays, and is part of the fleet again when it is back; \
                   to uninstall, delete the resources of the cluster";
        self.vanished.iter().map(move |cluster| (cluster.clone(), ("ProfileMissing", why.to_owned())))
    }
}

/// The clusters with resources that are not among `clusters`, which the fleet selects.
pub fn unselected(children: &Children, clusters: &[ClusterProfileReference], profiles: &Profiles) -> Unselected {
    let clusters: HashSet<_> = clusters.iter().collect();
    let (mut unselected, mut staying) = (Unselected::default(), HashSet::new());
    for (cluster, _) in children.own.iter().filter(|(_, resource)| !resource.is_terminating()).map(|(key, _)| key) {
        match (clusters.contains(cluster), profiles.contains_key(cluster)) {
            (true, _) => drop(staying.insert(cluster)),
            (false, true) => drop(unselected.leaving.insert(cluster.clone())),
            (false, false) => drop(unselected.vanished.insert(cluster.clone())),
        }
    }
    unselected.staying = staying.len();
    unselected
}

/// Deletes or orphans the resources of `clusters`.
pub async fn remove(
    hub: &Client,
    policy: RemovalPolicy,
    children: &Children,
    clusters: &BTreeSet<ClusterProfileReference>,
) -> Result<(), WriteError> {
    let own = children.own.iter().filter(|(key, resource)| clusters.contains(&key.0) && !resource.is_terminating());
    let own: Vec<Arc<Knative>> = own.map(|(_, resource)| Arc::clone(resource)).collect();
    let removals = own.into_iter().map(|resource| async move {
        match policy {
            RemovalPolicy::Delete => write::delete(hub, &resource).await,
            RemovalPolicy::Orphan => write::orphan(hub, &resource).await,
        }
    });
    // One that changed a moment ago doesn't keep the others; it is tried again.
    let removed: Vec<_> = stream::iter(removals).buffer_unordered(CONCURRENT_DELETIONS).collect().await;
    removed.into_iter().collect()
}

/// What the deletion of a fleet does to its clusters, if that can be read.
pub fn policy(stored: &StoredFleet) -> Option<RemovalPolicy> {
    let finalizers = stored.fleet.metadata.finalizers.iter().flatten();
    if finalizers.into_iter().any(|finalizer| finalizer == ORPHAN) {
        return Some(RemovalPolicy::Orphan);
    }
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

/// A step of the deletion of a fleet; `None` if it isn't being deleted, or if what to delete is
/// unknown.
pub async fn delete(
    cx: &Context,
    stored: &StoredFleet,
    children: &Children,
    state: &mut FleetState,
) -> Result<Option<Next>, WriteError> {
    let fleet = &stored.fleet;
    if let Some(message) = protection(fleet) {
        let (old, generation) = (state.stored_status(fleet), fleet.metadata.generation);
        let status = status::protected(&old, generation, &message, Timestamp::now());
        return publish(cx, fleet, state, status).await.map(Some);
    }
    match policy(stored).filter(|_| fleet.metadata.deletion_timestamp.is_some()) {
        Some(policy) => finalize(cx, fleet, children, policy).await.map(|()| Some(Next::AwaitChange)),
        None => Ok(None),
    }
}

/// Why `fleet`, which is being deleted, keeps its resources: its deletion was not asked about,
/// since the webhook was away, or the CustomResourceDefinition was deleted.
fn protection(fleet: &KnativeFleet) -> Option<String> {
    let meta = &fleet.metadata;
    let is_ours = meta.finalizers.iter().flatten().any(|finalizer| finalizer == FLEET_FINALIZER);
    (meta.deletion_timestamp.is_some() && is_ours && is_protected(meta)).then(|| {
        let (namespace, name) = (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
        format!(
            "the fleet is being deleted, but the annotation {PROTECTED} protects it: nothing is uninstalled. To do what spec.removal.policy \
             says: kubectl annotate knativefleet {name} -n {namespace} {PROTECTED}-. To keep the installations: set spec.removal.policy to \
             Orphan before, and create the fleet again afterwards"
        )
    })
}

/// Deletes or orphans all resources, then removes the finalizer.
async fn finalize(
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use knative_operator_shared::api::{Component, KnativeServing};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

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
