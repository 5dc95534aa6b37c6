//! Deletes an installation, then removes the finalizer of the custom resource.

use std::time::Duration;

use jiff::Timestamp;
use knative_operator_runtime::backoff::Backoff;
use knative_operator_shared::api::Knative;
use knative_operator_shared::condition::{State, States};
use knative_operator_shared::label::{ON_UNREACHABLE, ORPHAN};

use super::conditions::{self, ReconcileResult};
use super::context::Context;
use super::deletion_error::DeletionError;
use super::desired::Desired;
use super::finalizers::remove_finalizer;
use super::orphan;
use super::outcome::{Outcome, Requeue};
use super::state::ReconcilerState;
use super::status::{self, StatusUpdate};
use super::uninstall::{Deleted, USERS_CHECK_INTERVAL, delete_installation};
use super::unreachable::{
    ORPHAN_DELAY, counts_as_unreachable, describe_installation, unreachable_since, waiting_message,
};

/// Longest interval of checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Intervals of checks while objects are terminating and none is gone.
const CHECKS: Backoff = Backoff::new(Duration::from_millis(100), CHECK_INTERVAL);

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
        Ok(Deleted::NotYet(what, interval)) => {
            publish_progress(cx, resource, state, what, Requeue::After(interval)).await
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
            state.interrupt_deletion();
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
            state.interrupt_deletion();
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
    let update = StatusUpdate { states, version: None, manifests: None, is_rolling: false };
    status::publish_update(cx, resource, state, &update, requeue).await
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
