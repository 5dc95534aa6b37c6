//! Clusters that leave a fleet, and the deletion of a fleet.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use knative_operator_rules::is_protected;
use knative_operator_shared::api::fleet::{Removal, RemovalPolicy};
use knative_operator_shared::api::{ClusterProfileReference, Knative, KnativeFleet};
use knative_operator_shared::fleet::deletion;
use knative_operator_shared::label::{FLEET_FINALIZER, PROTECTED};
use kube::Client;

use super::children::Children;
use super::installed::installed_on;
use super::publish::publish;
use super::sender::{List, Sender};
use super::state::{FleetState, Next, RETRY};
use super::store::{StoredFleet, UnreadableFleet};
use super::write::{self, WriteError};
use crate::controller::context::Context;
use crate::controller::owning_fleet::is_namespace_terminating;
use knative_operator_cluster_access::profiles::Profiles;
use knative_operator_fleet::absence::Gone;
use knative_operator_fleet::status;

/// Finalizer of an object whose dependents stay (`kubectl delete --cascade=orphan`).
const ORPHAN: &str = "orphan";

/// Clusters with resources of the fleet, by whether it selects them.
#[derive(Debug, Default)]
pub struct Unselected {
    /// Those whose ClusterProfile exists: they leave.
    pub leaving: BTreeSet<ClusterProfileReference>,
    /// Those whose ClusterProfile does not: nobody asked to uninstall, and the cluster can't be
    /// reached. They stay as they are, and are selected again when it is back.
    pub vanished: BTreeSet<ClusterProfileReference>,
    /// Number of clusters with an installation that it selects, if others leave. Several
    /// ClusterProfiles may be of one cluster, or of none.
    pub staying: usize,
}

impl Unselected {
    /// The clusters that vanished, with reason and message.
    pub fn described(&self) -> impl Iterator<Item = (ClusterProfileReference, (&'static str, String))> + '_ {
        let why = "the ClusterProfile does not exist any more; the installation stays, and is part of the fleet again when it is back; \
                   to uninstall, delete the resources of the cluster";
        self.vanished.iter().map(move |cluster| (cluster.clone(), ("ProfileMissing", why.to_owned())))
    }

    /// Clusters that are not part of the fleet any more.
    pub fn gone(&self) -> impl Iterator<Item = (&ClusterProfileReference, Gone)> + Clone {
        let vanished = self.vanished.iter().map(|cluster| (cluster, Gone::Vanished));
        self.leaving.iter().map(|cluster| (cluster, Gone::Left)).chain(vanished)
    }
}

/// The clusters of resources that the fleet has `left`, because it does not select them.
pub fn unselected(children: &Children, left: &BTreeSet<ClusterProfileReference>, profiles: &Profiles) -> Unselected {
    // Most fleets have none, and nothing else asks how many stay.
    if left.is_empty() {
        return Unselected::default();
    }
    let mut unselected = Unselected::default();
    let (mut staying, mut leaving) = (HashSet::new(), HashSet::new());
    for ((cluster, _), resource) in children.own().iter().filter(|(_, resource)| !resource.is_terminating()) {
        if !left.contains(cluster) {
            staying.extend(installed_on(resource));
        } else if profiles.contains_key(cluster) {
            leaving.extend(installed_on(resource));
            unselected.leaving.insert(cluster.clone());
        } else {
            unselected.vanished.insert(cluster.clone());
        }
    }
    unselected.staying = staying.difference(&leaving).count();
    unselected
}

/// Deletes or orphans the first resources of `clusters`; returns the time until the next ones, if
/// there are more. `is_last`: their namespace is being deleted.
pub async fn remove(
    hub: &Client,
    (policy, is_last): (RemovalPolicy, bool),
    children: &Children,
    clusters: &BTreeSet<ClusterProfileReference>,
    sender: &mut Sender,
) -> Result<Option<Duration>, WriteError> {
    let own = children.own().iter().filter(|(key, resource)| clusters.contains(&key.0) && !resource.is_terminating());
    let own: Vec<Arc<Knative>> = own.map(|(_, resource)| Arc::clone(resource)).collect();
    // One that changed a moment ago doesn't keep the others; it is tried again.
    let sent = sender.send(List::Removals, own, |resource| async move {
        let removed = match policy {
            RemovalPolicy::Delete => write::delete(hub, &resource).await,
            RemovalPolicy::Orphan => write::orphan(hub, &resource, is_last).await,
        };
        ((), removed)
    });
    let sent = sent.await;
    sent.results.into_iter().try_for_each(|((), removed)| removed).map(|()| sent.again)
}

/// Whether `fleet` is being deleted with `--cascade=orphan`, until the garbage collector has
/// orphaned its resources.
pub fn is_orphaning(fleet: &KnativeFleet) -> bool {
    let mut finalizers = fleet.metadata.finalizers.iter().flatten();
    fleet.metadata.deletion_timestamp.is_some() && finalizers.any(|finalizer| finalizer == ORPHAN)
}

/// What the deletion of a fleet does to its clusters, if that can be read. `is_orphaning`: whether
/// it was deleted with `--cascade=orphan`.
pub fn policy(stored: &StoredFleet, is_orphaning: bool) -> Option<RemovalPolicy> {
    if is_orphaning {
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
    state.is_orphaning |= is_orphaning(fleet);
    if let Some(message) = protection(fleet) {
        let (old, generation) = (state.stored_status(fleet), fleet.metadata.generation);
        let status = status::protected(&old, generation, &message, Timestamp::now());
        return publish(cx, fleet, state, status).await.map(Some);
    }
    let policy = policy(stored, state.is_orphaning).filter(|_| fleet.metadata.deletion_timestamp.is_some());
    if let Some(message) = policy.and_then(|policy| unconfirmed(fleet, policy, children)) {
        let (old, generation) = (state.stored_status(fleet), fleet.metadata.generation);
        let status = status::unconfirmed(&old, generation, &message, Timestamp::now());
        return publish(cx, fleet, state, status).await.map(Some);
    }
    if policy == Some(RemovalPolicy::Delete) && !children.own().is_empty() {
        let (old, left) = (state.stored_status(fleet), children.installations());
        publish(cx, fleet, state, status::deleting(&old, fleet.metadata.generation, left, Timestamp::now())).await?;
    }
    match policy {
        Some(policy) => finalize(cx, fleet, children, policy, &mut state.sender).await.map(Some),
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

/// Why `fleet`, which is being deleted with `policy`, keeps its resources: nobody confirmed that it
/// uninstalls from all its clusters.
fn unconfirmed(fleet: &KnativeFleet, policy: RemovalPolicy, children: &Children) -> Option<String> {
    let meta = &fleet.metadata;
    // With `--cascade=orphan`, the garbage collector may have taken all resources away.
    if children.own().is_empty() || !meta.finalizers.iter().flatten().any(|finalizer| finalizer == FLEET_FINALIZER) {
        return None;
    }
    // The number that the webhook showed, too: it must not pass because there are fewer now.
    let shown = fleet.status.as_ref().and_then(|status| status.installed).unwrap_or_default();
    let installed = usize::try_from(children.installations().max(shown)).unwrap_or_default();
    let removal = Removal { policy, ..fleet.spec.removal.clone() };
    let (message, fix) = deletion::unconfirmed(meta, &removal, installed)?;
    Some(format!(
        "the fleet is being deleted, which {message}: nothing is uninstalled, and the rollout is stopped; {fix}"
    ))
}

/// Deletes or orphans all resources, then removes the finalizer; returns when to continue.
async fn finalize(
    cx: &Context,
    fleet: &KnativeFleet,
    children: &Children,
    policy: RemovalPolicy,
    sender: &mut Sender,
) -> Result<Next, WriteError> {
    let finalizers = fleet.metadata.finalizers.clone().unwrap_or_default();
    if !finalizers.iter().any(|finalizer| finalizer == FLEET_FINALIZER) {
        return Ok(Next::AwaitChange);
    }
    let all = children.own().keys().map(|(cluster, _)| cluster.clone()).collect();
    let namespace = fleet.metadata.namespace.as_deref().unwrap_or_default();
    let is_last = policy == RemovalPolicy::Orphan && is_namespace_terminating(&cx.hub, namespace).await?;
    if let Some(again) = remove(&cx.hub, (policy, is_last), children, &all, sender).await? {
        return Ok(Next::After(again));
    }
    if policy == RemovalPolicy::Delete && !children.own().is_empty() {
        // What was written a moment ago may be gone without a change that the watch reports.
        return Ok(Next::After(RETRY));
    }
    let others: Vec<String> = finalizers.into_iter().filter(|finalizer| finalizer != FLEET_FINALIZER).collect();
    write::finalizers(&cx.hub, fleet, &others).await?;
    Ok(Next::AwaitChange)
}

#[cfg(test)]
#[path = "leave_tests.rs"]
mod tests;
