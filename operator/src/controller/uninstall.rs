//! One step of a deletion: what it deletes, and what it leaves to whom.

use std::time::{Duration, Instant};

use knative_operator_shared::api::Knative;
use knative_operator_shared::label::{ON_DELETE, ORPHAN, OWNER, WAIT};
use knative_operator_shared::text::and_more;
use kube::Client;

use super::context::Context;
use super::deletion_error::DeletionError;
use super::desired::Desired;
use super::installed::{self, Lookup};
use super::owning_fleet::{self, Answer};
use super::state::{Cluster, ReconcilerState};
use super::unreachable::describe_installation;
use super::waited::Waited;
use super::{apply_events, draining, moved, namespace, orphan, resolve, unlabeled};
use knative_operator_apply::anchor::{InventoryStore, Stored};
use knative_operator_apply::claim::{Installed, Record};
use knative_operator_apply::inventory::Inventory;
use knative_operator_apply::store_error::StoreError;
use knative_operator_apply::{places, remove, users};
use knative_operator_objects::InstallationOwner;

/// Maximum number of objects named in the status.
const MAX_NAMED: usize = 5;
/// Interval of checks for objects of users.
pub const USERS_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Interval of checks for what goes with those that users deleted.
const GOING_CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// How long a deletion waits for that, if nothing asks for more.
const GOING_LIMIT: Duration = Duration::from_secs(30);

/// What a step of the deletion has done.
pub enum Deleted {
    /// Nothing is left of the installation.
    All,
    /// Nothing is left of what was found; for people.
    Found(String),
    /// Objects are left to delete; what the deletion waits for.
    Some(Option<String>),
    /// Nothing is deleted before the objects of users are gone; which, and when to look again.
    NotYet(String, Duration),
    /// The installation is not that of the resource.
    Nothing,
    /// The installation stays on the cluster; for people.
    Released(String),
}

/// Deletes the installation, or gives it up.
pub async fn delete_installation(
    cx: &Context,
    desired: &Desired,
    state: &mut ReconcilerState,
) -> Result<Deleted, DeletionError> {
    let resource = &*desired.resource;
    let cluster = resolve::resolve_target(cx, resource, state.suspect || state.remaining.is_none())
        .await
        .map_err(DeletionError::Unresolved)?;
    state.suspect = false;
    if let Some(unresolved) = moved::unidentified(resource, &cluster) {
        return Err(DeletionError::Unresolved(resolve::ResolveFailure::retry(unresolved)));
    }
    // The rest of a deletion on another cluster.
    if state.remaining_on != cluster.uid {
        (state.remaining, state.going, state.idle_checks) = (None, Waited::default(), 0);
        state.remaining_on.clone_from(&cluster.uid);
    }
    let _permit = cx
        .reconcile_permits
        .acquire(resource.namespace(), resource.common().cluster_profile_ref.as_ref(), &cx.metrics)
        .await;
    let located = namespace::resolve_namespace(cx, resource, state, &cluster.client).await?;
    let (resource, store) = (&*located, InventoryStore::of(&located));
    let (me, stored) = (cx.owner(resource), store.load(&cluster.client).await?);
    let has_installed = moved::has_installed(resource, &cluster);
    if let Some(left) = leave_to_owner(cx, resource, state, &cluster, &store, stored.as_ref()).await? {
        report_former(cx, resource, &cluster);
        return Ok(left);
    }
    if let Some(why) = orphan::objection(resource) {
        return Err(DeletionError::Failed(why));
    }
    let proof = installed::proof(resource, &store, stored.as_ref(), me, has_installed);
    let lookup = Lookup { cx, desired, cluster: &cluster, store: &store, stored: stored.as_ref(), proof: &proof };
    let why =
        reason_to_stay(cx, resource, state).await?.filter(|_| orphan::may_own_objects(stored.as_ref(), has_installed));
    if let Some(why) = why
        && !orphan::is_namespace_terminating(cx, resource, &store).await?
    {
        return release(&lookup, resource, state, &why).await;
    }
    if state.remaining.is_none()
        && let Some(waiting) = begin(&lookup, resource, state).await?
    {
        return Ok(waiting);
    }
    if let Some(left) = delete_objects(&lookup, resource, state).await? {
        return Ok(left);
    }
    if let Some(why) = state.excess.take() {
        return Err(DeletionError::Failed(format!("{why}; those found first are deleted")));
    }
    if let Some(left) = delete_namespace_and_anchor(&lookup).await? {
        return Ok(left);
    }
    report_former(cx, resource, &cluster);
    Ok(match std::mem::take(&mut state.unseen) {
        unseen if unseen.is_empty() => Deleted::All,
        unseen => Deleted::Found(format!(
            "Deleted the installed objects that were found, except for CustomResourceDefinitions. The operator could not look at {unseen}: look there \
             for objects with the label app.kubernetes.io/name={}",
            resource.component().canonical()
        )),
    })
}

/// Why the installation stays on the cluster without `resource`, for people.
async fn reason_to_stay(
    cx: &Context,
    resource: &Knative,
    state: &ReconcilerState,
) -> Result<Option<String>, DeletionError> {
    if orphan::is_requested(resource) {
        return Ok(Some(format!("as {ON_DELETE}={ORPHAN} asks")));
    }
    // What has begun goes on.
    if state.remaining.is_some() {
        return Ok(None);
    }
    match owning_fleet::answer(&cx.hub, resource).await? {
        Answer::Uninstall => Ok(None),
        Answer::Leave(why) => Ok(Some(why)),
        Answer::Keep(why) => Err(DeletionError::Kept(why)),
    }
}

/// The result if the installation on `cluster`, whose anchor is `stored`, is not that of
/// `resource`; `None` if it is. Fails if that can't be decided.
async fn leave_to_owner(
    cx: &Context,
    resource: &Knative,
    state: &ReconcilerState,
    cluster: &Cluster,
    store: &InventoryStore,
    stored: Option<&Stored>,
) -> Result<Option<Deleted>, DeletionError> {
    let Some(stored) = stored else { return Ok(None) };
    match &stored.anchor.record {
        Record::Owner(other) if !other.is_same(&cx.owner(resource)) => {
            let note = format!("Nothing is deleted on the cluster: {} there belongs to {other}", resource.component());
            // Others may write the record.
            let is_owner = moved::installed(resource, cluster.uid.as_deref()) == Installed::Here;
            if is_owner && !is_shown(&cluster.client, resource, other).await? {
                let left = describe_installation(state, resource);
                return Ok(Some(Deleted::Released(format!(
                    "{note}, as {} says, but not as the installed objects show. Left on the cluster: {left}. If the record is \
                     forged, and that owner is not just taking the installation over, correct the annotation {OWNER}, create the \
                     resource again, and delete it",
                    store.id()
                ))));
            }
            cx.events.normal(resource, "LeftToOwner", note);
            Ok(Some(Deleted::Nothing))
        }
        Record::Unreadable => {
            let terminating = orphan::is_namespace_terminating(cx, resource, store).await;
            if orphan::is_requested(resource) && !terminating? {
                return Ok(None);
            }
            Err(DeletionError::Failed(format!(
                "this version can't read the owner in the annotation {OWNER} of {}. Correct it, or annotate the resource with \
                 {ON_DELETE}={ORPHAN} to leave the installation on the cluster",
                store.id()
            )))
        }
        // Somebody else created it, or another hub with the same names.
        Record::Absent
            if !moved::has_installed(resource, cluster) && (moved::has_former(resource) || !stored.names(resource)) =>
        {
            let note =
                format!("Nothing is deleted on the cluster: nothing shows that {} is of this resource", store.id());
            cx.events.normal(resource, "LeftToOwner", note);
            Ok(Some(Deleted::Nothing))
        }
        Record::Owner(_) | Record::Absent => Ok(None),
    }
}

/// Leaves the installation on the cluster, for the reason `why`.
async fn release(
    lookup: &Lookup<'_>,
    resource: &Knative,
    state: &ReconcilerState,
    why: &str,
) -> Result<Deleted, DeletionError> {
    let Lookup { cx, cluster, store, stored, .. } = *lookup;
    // On a spoke, the objects belong to the anchor, which stays.
    let inventory = if store.is_remote() { Inventory::default() } else { lookup.inventory().await?.0 };
    if let Some(why) = inventory.excess() {
        return Err(DeletionError::Failed(why));
    }
    orphan::release(cx, resource, &cluster.client, store, stored, inventory).await?;
    let left = describe_installation(state, resource);
    report_former(cx, resource, cluster);
    Ok(Deleted::Released(format!("Uninstalled nothing, {why}. Left on the cluster: {left}")))
}

/// Finds out what to delete. The result if the deletion waits for the objects of users.
async fn begin(
    lookup: &Lookup<'_>,
    resource: &Knative,
    state: &mut ReconcilerState,
) -> Result<Option<Deleted>, DeletionError> {
    let (mut inventory, unseen) = lookup.inventory().await?;
    state.unseen = unseen;
    let counted = users::count(&lookup.cluster.client, &inventory).await?;
    let (of_users, unknown) = (counted.objects, counted.unknown.into_iter().collect::<Vec<_>>().join(", "));
    if orphan::waits(resource) && !unknown.is_empty() {
        let why =
            format!("{ON_DELETE}={WAIT} asks to wait for objects of users, and the operator may not list {unknown}");
        return Err(DeletionError::Failed(why));
    }
    if !of_users.is_empty() && orphan::waits(resource) {
        let what = format!("the objects of users: {of_users} to be deleted");
        return Ok(Some(Deleted::NotYet(what, USERS_CHECK_INTERVAL)));
    }
    // Without Knative's controllers, those with finalizers would stay, and keep the namespaces of
    // users.
    if !counted.going.is_empty() {
        let waited = state.going.look(Instant::now());
        if let Some(interval) = next_check(waited, orphan::waits(resource) && !counted.are_of_installed) {
            let what = format!("what users deleted, and what Knative created for it: {} to be deleted", counted.going);
            return Ok(Some(Deleted::NotYet(what, interval)));
        }
    }
    let left = if of_users.is_empty() { counted.going } else { of_users };
    if !left.is_empty() {
        let note = format!(
            "Objects of users stay on the cluster: {left}. Without Knative's controllers, those with finalizers can't be deleted. Next time, \
             {ON_DELETE}={WAIT} makes the deletion wait for them"
        );
        lookup.cx.events.warning(resource, "ObjectsOfUsersLeft", note);
    }
    state.excess = inventory.excess();
    inventory.entries.retain(|id, _| !remove::is_retained(id));
    if !inventory.entries.is_empty() {
        lookup.cx.events.normal(resource, "Uninstalling", format!("Deleting {} objects", inventory.entries.len()));
    }
    state.remaining = Some(inventory);
    Ok(None)
}

/// When to look again at what goes with objects of users; `None` if the deletion, which
/// has `waited` for that, goes on. Each look lists objects, and that may go on for days.
fn next_check(waited: Duration, waits: bool) -> Option<Duration> {
    if waited < GOING_LIMIT { Some(GOING_CHECK_INTERVAL) } else { waits.then_some(USERS_CHECK_INTERVAL) }
}

/// Deletes the objects of the last phase. The result if some are left, also of other phases.
async fn delete_objects(
    lookup: &Lookup<'_>,
    resource: &Knative,
    state: &mut ReconcilerState,
) -> Result<Option<Deleted>, DeletionError> {
    let Lookup { cx, cluster, proof, .. } = *lookup;
    let Some(inventory) = &mut state.remaining else { return Ok(Some(Deleted::Some(None))) };
    let before = inventory.entries.len();
    let removed = unlabeled::delete_last_phase(cx, resource, &cluster.client, proof, inventory).await;
    apply_events::publish_left(cx, resource, &removed.left);
    if inventory.entries.len() < before {
        state.idle_checks = 0;
    }
    if let Some((id, why)) = removed.refused.first() {
        return Err(DeletionError::Failed(format!("cannot delete {id}: {why}")));
    }
    let left = inventory.entries.len();
    if left > 0 {
        tracing::info!(name = resource.name(), left, "uninstalling");
        let named: Vec<_> = removed.remaining.iter().take(MAX_NAMED).map(ToString::to_string).collect();
        let more = and_more(left.saturating_sub(named.len()));
        let drains = draining::describe(&mut state.draining, &cluster.client, &removed.remaining).await;
        let drains = drains.map(|pods| format!(": {pods}")).unwrap_or_default();
        return Ok(Some(Deleted::Some(Some(format!("{}{more} to be deleted{drains}", named.join(", "))))));
    }
    Ok(None)
}

/// Deletes the namespace and the anchor. The result if one is left.
async fn delete_namespace_and_anchor(lookup: &Lookup<'_>) -> Result<Option<Deleted>, DeletionError> {
    let Lookup { cluster, store, stored, proof, .. } = *lookup;
    // The namespace goes first, and the anchor with it: until then, no other resource installs.
    if let Some(left) = store.delete_namespace(&cluster.client, proof).await? {
        return Ok(Some(Deleted::Some(Some(format!("{left} to be deleted")))));
    }
    if let Some(stored) = stored {
        match store.delete(&cluster.client, &stored.anchor).await {
            // Somebody else wrote it.
            Err(error) if error.is_conflict() => return Ok(Some(Deleted::Some(None))),
            deleted => deleted?,
        }
        let left = store.load(&cluster.client).await?;
        if let Some(finalizers) = left.and_then(|left| left.terminating) {
            let what = format!("{} with the finalizers {finalizers} to be deleted", store.id());
            return Ok(Some(Deleted::Some(Some(what))));
        }
    }
    Ok(None)
}

/// Whether the installed objects show that they are of `owner`. All who may write the anchor can
/// write its record, but not cluster-scoped objects.
async fn is_shown(client: &Client, resource: &Knative, owner: &InstallationOwner) -> Result<bool, StoreError> {
    Ok(places::marks(client, resource.component()).await?.contains(&owner.mark()))
}

/// Reports what stays on clusters that the ClusterProfile referred to before.
fn report_former(cx: &Context, resource: &Knative, cluster: &Cluster) {
    if let Some(note) = moved::left_behind(resource, cluster) {
        cx.metrics.orphaned(resource);
        cx.events.warning(resource, "Orphaned", note);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_without_end_looks_less_often() {
        let (early, late) = (Duration::from_secs(29), Duration::from_secs(30));
        assert_eq!([false, true].map(|waits| next_check(early, waits)), [Some(GOING_CHECK_INTERVAL); 2]);
        assert_eq!([false, true].map(|waits| next_check(late, waits)), [None, Some(USERS_CHECK_INTERVAL)]);
    }
}
