//! Deletes an installation, then removes the finalizer of the custom resource.

use std::time::Duration;

use jiff::Timestamp;
use knative_operator_runtime::backoff::Backoff;
use knative_operator_shared::api::Knative;
use knative_operator_shared::condition::{State, States};
use knative_operator_shared::label::{ON_DELETE, ON_UNREACHABLE, ORPHAN, OWNER, WAIT};
use knative_operator_shared::text::and_more;
use kube::Client;

use super::conditions::ReconcileResult;
use super::context::Context;
use super::deletion_error::DeletionError;
use super::desired::Desired;
use super::draining;
use super::finalizers::remove_finalizer;
use super::installed::{self, Lookup};
use super::outcome::{Outcome, Requeue};
use super::owning_fleet::{self, Answer};
use super::state::{Cluster, ReconcilerState};
use super::status::{self, StatusUpdate};
use super::unreachable::{
    ORPHAN_DELAY, counts_as_unreachable, describe_installation, unreachable_since, waiting_message,
};
use super::{apply_events, conditions, moved, namespace, orphan, resolve, unlabeled};
use knative_operator_apply::anchor::{InventoryStore, Stored};
use knative_operator_apply::claim::{Installed, Record};
use knative_operator_apply::inventory::Inventory;
use knative_operator_apply::store_error::StoreError;
use knative_operator_apply::{places, remove, users};
use knative_operator_objects::InstallationOwner;

/// Maximum number of objects named in the status.
const MAX_NAMED: usize = 5;
/// Longest interval of checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Intervals of checks while objects are terminating and none is gone.
const CHECKS: Backoff = Backoff::new(Duration::from_millis(100), CHECK_INTERVAL);

/// Interval of checks for objects of users.
const USERS_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Performs one step of the deletion.
pub async fn finalize(cx: &Context, desired: &Desired, state: &mut ReconcilerState) -> Requeue {
    let resource = &*desired.resource;
    let finalizer = resource.component().finalizer();
    if !resource.meta().finalizers.iter().flatten().any(|f| f == finalizer) {
        return Requeue::Done;
    }
    // Stop watching: deletions are no drift now.
    state.observer = None;
    if let Some(message) = orphan::protection(resource) {
        let outcome = Outcome::new(ReconcileResult::Blocked("Protected", message), Requeue::AwaitChange);
        return status::publish_outcome(cx, resource, state, outcome).await;
    }
    match delete_installation(cx, desired, state).await {
        Ok(Deleted::Released(note)) => {
            let publish_event = || {
                cx.events.warning(resource, "Orphaned", note);
                cx.metrics.orphaned(resource);
            };
            remove_finalizer(cx, resource, publish_event).await
        }
        Ok(Deleted::Found(note)) => {
            remove_finalizer(cx, resource, || cx.events.warning(resource, "Uninstalled", note)).await
        }
        Ok(Deleted::Nothing) => remove_finalizer(cx, resource, || {}).await,
        Ok(Deleted::All) => {
            let publish_event = || {
                cx.events.normal(
                    resource,
                    "Uninstalled",
                    "Deleted all installed objects, except for CustomResourceDefinitions",
                );
            };
            remove_finalizer(cx, resource, publish_event).await
        }
        Ok(Deleted::NotYet(what)) => {
            publish_progress(cx, resource, state, what, Requeue::After(USERS_CHECK_INTERVAL)).await
        }
        Ok(Deleted::Some(what)) => {
            state.idle_checks += 1;
            let requeue = Requeue::After(CHECKS.exact(state.idle_checks));
            match what {
                Some(what) => publish_progress(cx, resource, state, what, requeue).await,
                None => requeue,
            }
        }
        Err(DeletionError::Unresolved(failure)) => {
            state.suspect = true;
            let since = unreachable_since(state, resource);
            let orphan_requested = resource.annotation(ON_UNREACHABLE) == Some(ORPHAN);
            let is_unreachable = counts_as_unreachable(cx, resource, failure.unresolved.reason);
            if orphan_requested && is_unreachable && Timestamp::now().duration_since(since) >= ORPHAN_DELAY {
                let note = format!(
                    "Removed the finalizer, as {ON_UNREACHABLE}={ORPHAN} requests; the cluster has been unreachable since {since}: {}. Left on the cluster: {}",
                    failure.unresolved.message,
                    describe_installation(state, resource)
                );
                return remove_finalizer(cx, resource, || {
                    cx.events.warning(resource, "Orphaned", note);
                    cx.metrics.orphaned(resource);
                })
                .await;
            }
            state.remaining = None;
            let message = if is_unreachable {
                waiting_message(state, resource, &failure.unresolved.message, since)
            } else {
                failure.unresolved.message.clone()
            };
            let mut states = conditions::stored(&state.status(resource).conditions);
            states.resolved = State::not_met(failure.unresolved.reason.as_str(), message);
            let requeue = if orphan_requested { Requeue::After(CHECK_INTERVAL) } else { failure.requeue() };
            publish_states(cx, resource, state, states, requeue).await
        }
        Err(DeletionError::Kept(why)) => {
            let result = ReconcileResult::Blocked("DeletionNotConfirmed", why);
            let outcome = Outcome::new(result, Requeue::After(USERS_CHECK_INTERVAL));
            status::publish_outcome(cx, resource, state, outcome).await
        }
        Err(DeletionError::Failed(why)) => {
            state.suspect = true;
            state.remaining = None;
            let mut states = conditions::stored(&state.status(resource).conditions);
            states.installed = State::not_met("Error", format!("Uninstall failed with message: {why}"));
            publish_states(cx, resource, state, states, Requeue::Retry).await
        }
    }
}

async fn publish_states(
    cx: &Context,
    resource: &Knative,
    state: &mut ReconcilerState,
    states: States,
    requeue: Requeue,
) -> Requeue {
    let update = StatusUpdate { states, version: None, manifests: None };
    status::publish_update(cx, resource, state, &update, requeue).await
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

/// What a step of the deletion has done.
enum Deleted {
    /// Nothing is left of the installation.
    All,
    /// Nothing is left of what was found; for people.
    Found(String),
    /// Objects are left to delete; what the deletion waits for.
    Some(Option<String>),
    /// Nothing is deleted before the objects of users are gone; which.
    NotYet(String),
    /// The installation is not that of the resource.
    Nothing,
    /// The installation stays on the cluster; for people.
    Released(String),
}

/// Deletes the installation, or gives it up.
async fn delete_installation(
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
        (state.remaining, state.idle_checks) = (None, 0);
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
        // On a spoke, the objects belong to the anchor, which stays.
        let inventory = if store.is_remote() { Inventory::default() } else { lookup.inventory().await?.0 };
        if let Some(why) = inventory.excess() {
            return Err(DeletionError::Failed(why));
        }
        orphan::release(cx, resource, &cluster.client, &store, stored.as_ref(), inventory).await?;
        let left = describe_installation(state, resource);
        report_former(cx, resource, &cluster);
        return Ok(Deleted::Released(format!("Uninstalled nothing, {why}. Left on the cluster: {left}")));
    }
    if state.remaining.is_none() {
        let (mut inventory, unseen) = lookup.inventory().await?;
        state.unseen = unseen;
        let counted = users::count(&cluster.client, &inventory).await?;
        let (of_users, unknown) = (counted.objects, counted.unknown.into_iter().collect::<Vec<_>>().join(", "));
        if orphan::waits(resource) && !unknown.is_empty() {
            let why = format!(
                "{ON_DELETE}={WAIT} asks to wait for objects of users, and the operator may not list {unknown}"
            );
            return Err(DeletionError::Failed(why));
        }
        if !of_users.is_empty() && orphan::waits(resource) {
            return Ok(Deleted::NotYet(format!("the objects of users: {of_users} to be deleted")));
        }
        if !of_users.is_empty() {
            let note = format!(
                "Objects of users stay on the cluster: {of_users}. Without Knative's controllers, those with finalizers can't be deleted. Next time, \
                 {ON_DELETE}={WAIT} makes the deletion wait for them"
            );
            cx.events.warning(resource, "ObjectsOfUsersLeft", note);
        }
        state.excess = inventory.excess();
        inventory.entries.retain(|id, _| !remove::is_retained(id));
        if !inventory.entries.is_empty() {
            cx.events.normal(resource, "Uninstalling", format!("Deleting {} objects", inventory.entries.len()));
        }
        state.remaining = Some(inventory);
    }
    let Some(inventory) = &mut state.remaining else { return Ok(Deleted::Some(None)) };
    let before = inventory.entries.len();
    let removed = unlabeled::delete_last_phase(cx, resource, &cluster.client, &proof, inventory).await;
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
        return Ok(Deleted::Some(Some(format!("{}{more} to be deleted{drains}", named.join(", ")))));
    }
    if let Some(why) = state.excess.take() {
        return Err(DeletionError::Failed(format!("{why}; those found first are deleted")));
    }
    // The namespace goes first, and the anchor with it: until then, no other resource installs.
    if let Some(left) = store.delete_namespace(&cluster.client, &proof).await? {
        return Ok(Deleted::Some(Some(format!("{left} to be deleted"))));
    }
    if let Some(stored) = &stored {
        match store.delete(&cluster.client, &stored.anchor).await {
            // Somebody else wrote it.
            Err(error) if error.is_conflict() => return Ok(Deleted::Some(None)),
            deleted => deleted?,
        }
        let left = store.load(&cluster.client).await?;
        if let Some(finalizers) = left.and_then(|left| left.terminating) {
            let what = format!("{} with the finalizers {finalizers} to be deleted", store.id());
            return Ok(Deleted::Some(Some(what)));
        }
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

/// Publishes that the deletion waits for `what`.
async fn publish_progress(
    cx: &Context,
    resource: &Knative,
    state: &mut ReconcilerState,
    what: String,
    requeue: Requeue,
) -> Requeue {
    let mut states = conditions::stored(&state.status(resource).conditions);
    states.resolved = State::True;
    states.installed = State::unknown_because("Uninstalling", format!("Waiting for {what}"));
    states.available = State::unknown_because("Uninstalling", "being uninstalled");
    publish_states(cx, resource, state, states, requeue).await
}
