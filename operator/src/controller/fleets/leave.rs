//! Clusters that leave a fleet, and the deletion of a fleet.

use std::collections::{BTreeSet, HashSet};

use knative_operator_shared::api::fleet::RemovalPolicy;
use knative_operator_shared::api::{ClusterProfileReference, KnativeFleet};
use knative_operator_shared::label::FLEET_FINALIZER;

use super::observe::Children;
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
    cx: &Context,
    fleet: &KnativeFleet,
    children: &Children,
    clusters: &BTreeSet<ClusterProfileReference>,
) -> Result<(), WriteError> {
    for (_, resource) in
        children.own.iter().filter(|((cluster, _), resource)| clusters.contains(cluster) && !resource.is_terminating())
    {
        match fleet.spec.removal.policy {
            RemovalPolicy::Delete => write::delete(&cx.hub, resource).await?,
            RemovalPolicy::Orphan => write::orphan(&cx.hub, resource).await?,
        }
    }
    Ok(())
}

/// Deletes or orphans all resources, then removes the finalizer.
pub async fn finalize(cx: &Context, fleet: &KnativeFleet, children: &Children) -> Result<(), WriteError> {
    let finalizers = fleet.metadata.finalizers.clone().unwrap_or_default();
    if !finalizers.iter().any(|finalizer| finalizer == FLEET_FINALIZER) {
        return Ok(());
    }
    let all = children.own.keys().map(|(cluster, _)| cluster.clone()).collect();
    remove(cx, fleet, children, &all).await?;
    if fleet.spec.removal.policy == RemovalPolicy::Delete && !children.own.is_empty() {
        return Ok(());
    }
    let others: Vec<String> = finalizers.into_iter().filter(|finalizer| finalizer != FLEET_FINALIZER).collect();
    write::finalizers(&cx.hub, fleet, &others).await?;
    Ok(())
}
