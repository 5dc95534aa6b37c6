//! Deletes an installation, then removes the finalizer of the custom resource.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use knative_operator_runtime::identity::patch_as;
use knative_operator_shared::api::Knative;
use knative_operator_shared::condition::{State, States, TARGET_CLUSTER_RESOLVED};
use knative_operator_shared::label::{FIELD_MANAGER, ON_UNREACHABLE, ORPHAN};
use knative_operator_shared::version::Version;
use kube::api::Patch;
use serde_json::json;

use super::context::Context;
use super::outcome::Requeue;
use super::state::ReconcilerState;
use super::status::{self, StatusUpdate};
use super::{conditions, namespace, resolve};
use crate::apply::anchor::InventoryStore;
use crate::apply::inventory::Inventory;
use crate::apply::remove;
use crate::object::Kinds;
use crate::object::Owner;
use crate::render;
use crate::render::plan::Plan;

/// Maximum number of objects named in the status.
const MAX_NAMED: usize = 5;
/// Interval of checks while objects are terminating: at first, doubled while none is gone, and at
/// most.
const FIRST_CHECK: Duration = Duration::from_millis(100);
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Time that a cluster must be unreachable before its resource is orphaned, so that a short outage
/// does not count.
const ORPHAN_DELAY: SignedDuration = SignedDuration::from_secs(10);

/// Performs one step of the deletion.
pub async fn finalize(cx: &Context, resource: &Knative, state: &mut ReconcilerState) -> Requeue {
    let finalizer = resource.component().finalizer();
    if !resource.meta().finalizers.iter().flatten().any(|f| f == finalizer) {
        return Requeue::Done;
    }
    // Stop watching: deletions are no drift now.
    state.observer = None;
    match delete_installation(cx, resource, state).await {
        Ok(true) => {
            let publish_event = || {
                cx.events.normal(
                    resource,
                    "Uninstalled",
                    "Deleted all installed objects, except for CustomResourceDefinitions",
                );
            };
            remove_finalizer(cx, resource, publish_event).await
        }
        Ok(false) => {
            state.idle_checks += 1;
            let interval = FIRST_CHECK * 2u32.saturating_pow(state.idle_checks.min(8) - 1);
            Requeue::After(interval.min(CHECK_INTERVAL))
        }
        Err(DeletionError::Unresolved(failure)) => {
            state.suspect = true;
            let since = unreachable_since(state, resource);
            let orphan_requested = resource
                .meta()
                .annotations
                .as_ref()
                .is_some_and(|a| a.get(ON_UNREACHABLE).is_some_and(|v| v == ORPHAN));
            if orphan_requested && Timestamp::now().duration_since(since) >= ORPHAN_DELAY {
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
            let message = waiting_message(state, resource, &failure.unresolved.message, since);
            let mut states = conditions::stored(&state.status(resource).conditions);
            states[1] = State::not_met(failure.unresolved.reason.as_str(), message);
            publish_states(cx, resource, state, states).await;
            if orphan_requested { Requeue::After(CHECK_INTERVAL) } else { failure.requeue() }
        }
        Err(DeletionError::Failed(why)) => {
            state.suspect = true;
            state.remaining = None;
            let mut states = conditions::stored(&state.status(resource).conditions);
            states[2] = State::not_met("Error", format!("Uninstall failed with message: {why}"));
            publish_states(cx, resource, state, states).await;
            Requeue::Retry
        }
    }
}

/// Removes the finalizer, then calls `publish_event`.
async fn remove_finalizer(cx: &Context, resource: &Knative, publish_event: impl FnOnce()) -> Requeue {
    let finalizer = resource.component().finalizer();
    let others: Vec<String> =
        resource.meta().finalizers.iter().flatten().filter(|f| *f != finalizer).cloned().collect();
    match set_finalizers(cx, resource, &others).await {
        Ok(true) => {
            publish_event();
            Requeue::After(CHECK_INTERVAL)
        }
        Ok(false) => Requeue::After(CHECK_INTERVAL),
        Err(error) => {
            tracing::warn!(
                name = resource.name(),
                error = knative_operator_runtime::error_text(&error),
                "failed to remove the finalizer"
            );
            Requeue::Retry
        }
    }
}

/// Since when the cluster of `resource` has been unreachable, from its condition; now, if it has
/// none.
fn unreachable_since(state: &ReconcilerState, resource: &Knative) -> Timestamp {
    let current = state.status(resource);
    let condition = current.conditions.iter().find(|c| c.type_ == TARGET_CLUSTER_RESOLVED && c.status == "False");
    condition.and_then(|c| c.last_transition_time.as_ref()?.parse().ok()).unwrap_or_else(Timestamp::now)
}

/// Describes the installation, as far as it is known without the cluster.
fn describe_installation(state: &ReconcilerState, resource: &Knative) -> String {
    let version = resource.status().and_then(|s| s.version.as_deref());
    let version = version.map_or_else(|| "partly installed".to_owned(), |v| format!("version {v}"));
    let known =
        state.anchor.as_ref().map(|(_, inventory)| format!("{} objects of ", inventory.0.len())).unwrap_or_default();
    let component = resource.component();
    format!("{known}{component}, {version}, in namespace {} and cluster-scoped", resource.target_namespace())
}

/// Message of a deletion that waits: the reason, since when, and how to continue without the
/// cluster.
fn waiting_message(state: &ReconcilerState, resource: &Knative, why: &str, since: Timestamp) -> String {
    let (kind, name, namespace) =
        (resource.component().kind().to_ascii_lowercase(), resource.name(), resource.namespace());
    format!(
        "{why}; the deletion has been waiting for the cluster since {since}, so that it leaves nothing behind ({}), and continues when the cluster is reachable. \
         To delete the resource and leave its objects on the cluster: kubectl annotate {kind} {name} -n {namespace} {ON_UNREACHABLE}={ORPHAN} \
         (an event and a metric record them); or, without a record: \
         kubectl patch {kind} {name} -n {namespace} --type=merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'",
        describe_installation(state, resource)
    )
}

async fn publish_states(cx: &Context, resource: &Knative, state: &mut ReconcilerState, states: States) {
    // The deletion is retried in any case.
    status::publish(cx, resource, state, &StatusUpdate { states, version: None, manifests: None }).await;
}

/// Deletes the installation; whether nothing is left.
async fn delete_installation(
    cx: &Context,
    resource: &Knative,
    state: &mut ReconcilerState,
) -> Result<bool, DeletionError> {
    let cluster = resolve::resolve_target(cx, resource, state.suspect || state.remaining.is_none())
        .await
        .map_err(DeletionError::Unresolved)?;
    state.suspect = false;
    let _permit = cx.reconcile_permits.acquire(&cx.metrics).await;
    let failed = |error| DeletionError::Failed(knative_operator_runtime::error_text(&error));
    let located = namespace::resolve_namespace(cx, resource, state, &cluster.client).await.map_err(failed)?;
    let (resource, store) = (&*located, InventoryStore::of(&located));
    if state.remaining.is_none() {
        let stored = store.load(&cluster.client).await.map_err(failed)?;
        // An empty inventory: nothing was installed, or everything is deleted apart from the
        // namespace of a spoke; or the Go operator, which keeps no inventory, installed it.
        let mut inventory = match stored {
            Some((_, inventory)) if !inventory.0.is_empty() => inventory,
            Some(_) => go_operator_inventory(cx, resource).await.map_err(DeletionError::Failed)?,
            None if resource.common().cluster_profile_ref.is_none() => {
                go_operator_inventory(cx, resource).await.map_err(DeletionError::Failed)?
            }
            None => Inventory::default(),
        };
        inventory.0.retain(|id, _| !remove::is_retained(id));
        if cx.registry.has_competitor(resource) {
            // Another resource of this kind uses the same cluster, and keeps the shared objects.
            inventory.0.retain(|id, _| !id.namespace.is_empty() && id.namespace == resource.namespace());
        }
        if !inventory.0.is_empty() {
            cx.events.normal(resource, "Uninstalling", format!("Deleting {} objects", inventory.0.len()));
        }
        state.remaining = Some(inventory);
    }
    let Some(inventory) = &mut state.remaining else { return Ok(false) };
    let before = inventory.0.len();
    let removed = remove::delete_last_phase(&cluster.client, &Kinds::default(), inventory).await;
    if inventory.0.len() < before {
        state.idle_checks = 0;
    }
    if let Some((id, why)) = removed.refused.first() {
        return Err(DeletionError::Failed(format!("cannot delete {id}: {why}")));
    }
    let left = inventory.0.len();
    if left > 0 {
        tracing::info!(name = resource.name(), left, "uninstalling");
        let named: Vec<_> = removed.remaining.iter().take(MAX_NAMED).map(ToString::to_string).collect();
        let more = if left > named.len() { format!(" and {} more", left - named.len()) } else { String::new() };
        publish_progress(cx, resource, state, format!("{}{more}", named.join(", "))).await;
        return Ok(false);
    }
    let gone = store.delete(&cluster.client).await.map_err(failed)?;
    if !gone {
        publish_progress(cx, resource, state, format!("Namespace {}", resource.target_namespace())).await;
    }
    Ok(gone)
}

/// Objects that the Go operator installed: those of the version in the status, since it keeps no
/// inventory.
pub async fn go_operator_inventory(cx: &Context, resource: &Knative) -> Result<Inventory, String> {
    let Some(version) = resource.status().and_then(|s| s.version.as_deref()) else { return Ok(Inventory::default()) };
    let failed = |why: String| format!("cannot list the objects of the Go operator: {why}");
    let version: Version = version.parse().map_err(|_| failed(format!("status.version {version} is not a version")))?;
    let release = cx.library.release(resource, &version).await.map_err(|e| failed(e.to_string()))?;
    let objects = render::objects(resource, &version, release.objects(), &cx.settings);
    let mut inventory = Inventory::default();
    let plan = Plan::new(Arc::new(objects.map_err(|e| failed(e.to_string()))?), &Owner::of(resource, ""));
    inventory.add(plan.items().iter());
    Ok(inventory)
}

/// Publishes which objects are left.
async fn publish_progress(cx: &Context, resource: &Knative, state: &mut ReconcilerState, left: String) {
    let mut states = conditions::stored(&state.status(resource).conditions);
    states[1] = State::True;
    states[2] = State::unknown_because("Uninstalling", format!("Waiting for {left} to be deleted"));
    states[4] = State::unknown_because("Uninstalling", "being uninstalled");
    status::publish(cx, resource, state, &StatusUpdate { states, version: None, manifests: None }).await;
}

/// Why a deletion does not make progress.
enum DeletionError {
    Unresolved(resolve::ResolveFailure),
    Failed(String),
}

/// Replaces the finalizers with `others`; whether that was done. A conflict is no error: the watch
/// reports the change, and the next step retries.
async fn set_finalizers(cx: &Context, resource: &Knative, others: &[String]) -> kube::Result<bool> {
    let patch = json!({"metadata": {"finalizers": others, "resourceVersion": resource.meta().resource_version}});
    let api = status::metadata_api(&cx.hub, resource);
    match api.patch(resource.name(), &patch_as(FIELD_MANAGER), &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
        other => other.map(|_| true),
    }
}

/// Adds the finalizer, if missing. Each write has the resourceVersion that was read.
pub async fn add_finalizer(cx: &Context, resource: &Knative) -> kube::Result<()> {
    let finalizer = resource.component().finalizer();
    let api = status::metadata_api(&cx.hub, resource);
    let mut meta = resource.meta().clone();
    loop {
        let mut finalizers = meta.finalizers.unwrap_or_default();
        if finalizers.iter().any(|f| f == finalizer) {
            return Ok(());
        }
        finalizers.push(finalizer.to_owned());
        let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": meta.resource_version}});
        match api.patch(resource.name(), &patch_as(FIELD_MANAGER), &Patch::Merge(patch)).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                meta = api.get_metadata(resource.name()).await?.metadata;
            }
            Err(error) => return Err(error),
            Ok(_) => break,
        }
    }
    cx.events.normal(resource, "FinalizerUpdate", format!("Updated \"{}\" finalizers", resource.name()));
    Ok(())
}
