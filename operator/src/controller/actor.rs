//! The actor of one custom resource: its reconcile loop.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use knative_operator_runtime::backoff::Backoff;
use tokio::sync::{Notify, watch};
use tracing::{Instrument, Span};

use super::context::Context;
use super::desired::Desired;
use super::outcome::Requeue;
use super::reconcile;
use super::state::ReconcilerState;
use super::status;
use crate::diagnostics::Rest;

/// Delays after failed reconciles.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10));
/// Debounce time before a reconcile.
const CHANGE_DEBOUNCE: Duration = Duration::from_millis(20);

/// Runs until the resource is gone. `desired` has its newest state; `trigger` signals other
/// changes.
pub async fn run(cx: Arc<Context>, mut desired: watch::Receiver<Option<Desired>>, trigger: Arc<Notify>) {
    let mut state = ReconcilerState::default();
    let mut failures: u32 = 0;
    let records = cx.diagnostics.actor();
    loop {
        let Some(current) = desired.borrow_and_update().clone().filter(|_| !cx.stop.is_cancelled()) else { return };
        let (started, component) = (Instant::now(), current.component());
        let span = reconcile_span(&current);
        records.reconciling(&current);
        // Boxed, so that a waiting actor uses little memory.
        let reconciling = Box::pin(
            async {
                tracing::debug!("reconciling");
                let requeue = reconcile::reconcile(&cx, &current, &mut state).await;
                tracing::debug!(?requeue, "reconciled");
                requeue
            }
            .instrument(span.clone()),
        );
        let reconciled = AssertUnwindSafe(reconciling).catch_unwind().await;
        let has_panicked = reconciled.is_err();
        let requeue = if let Ok(requeue) = reconciled {
            requeue
        } else {
            // The state may be inconsistent, apart from the status that was written last.
            state = state.after_panic();
            cx.metrics.panicked(component);
            span.in_scope(|| tracing::error!("a reconcile panicked; restarting with empty state"));
            if current.unreadable.is_none() {
                // It may panic as well. A fleet that waits for the state must learn it.
                let publishing = Box::pin(status::publish_panic(&cx, &current, &mut state).instrument(span));
                drop(AssertUnwindSafe(publishing).catch_unwind().await);
            }
            Requeue::Retry
        };
        cx.metrics.reconciled(&current, started.elapsed(), requeue == Requeue::Retry);
        failures = if requeue == Requeue::Retry { failures + 1 } else { 0 };
        let delay = match requeue {
            Requeue::Done => return,
            Requeue::AwaitChange => None,
            Requeue::After(delay) => Some(delay),
            Requeue::Retry => Some(BACKOFF.after(failures)),
        };
        let delay = [delay, state.throttle.next_due(Instant::now())].into_iter().flatten().min();
        let observed = state.observer.as_ref().map(|(_, observer)| Arc::clone(&observer.observed));
        records.waiting(|| Rest {
            requeue: delay,
            failures,
            waiting: state.throttle.waiting(Instant::now()),
            to_delete: state.remaining.as_ref().map(|left| left.entries.len()),
            observed: observed.as_ref().map(Arc::downgrade),
        });
        let cluster_changed = async {
            match observed {
                Some(observed) => observed.changed().await,
                None => std::future::pending().await,
            }
        };
        let delay_elapsed = async {
            match delay {
                Some(delay) => tokio::time::sleep(delay.max(CHANGE_DEBOUNCE)).await,
                None => std::future::pending().await,
            }
        };
        if has_panicked {
            // Also if its own status wakes it.
            tokio::select! {
                () = cx.stop.cancelled() => return,
                () = tokio::time::sleep(BACKOFF.after(failures)) => continue,
            }
        }
        tokio::select! {
            changed = desired.changed() => if changed.is_err() { return },
            () = cx.stop.cancelled() => return,
            () = trigger.notified() => {}
            () = cluster_changed => {}
            () = delay_elapsed => {}
        }
        tokio::time::sleep(CHANGE_DEBOUNCE).await;
    }
}

/// The span of a reconcile of `resource`, whose fields each log line has.
fn reconcile_span(resource: &Desired) -> Span {
    let cluster = resource.common().cluster_profile_ref.as_ref().map(ToString::to_string);
    tracing::info_span!(
        "reconcile",
        kind = resource.component().kind(),
        namespace = resource.namespace(),
        name = resource.name(),
        cluster = cluster.as_deref().unwrap_or("local"),
        generation = resource.meta().generation.unwrap_or_default(),
        reconcile_id = format!("{:016x}", fastrand::u64(..)),
    )
}

#[cfg(test)]
mod tests {
    use knative_operator_shared::api::Component;
    use kube::core::DynamicObject;
    use serde_json::json;
    use tokio_util::task::AbortOnDropHandle;

    use super::*;
    use crate::controller::fleets::tests::{Received, context, hub, panics_once, until};

    #[tokio::test]
    async fn reconcile_that_panics_is_reported_and_tried_again() {
        let (hub, mut requests) = hub(Vec::new(), panics_once("/knativeservings/a/status"));
        let (cx, _) = context(&hub);
        // There is none.
        let watching = Arc::clone(&cx);
        let go_operator =
            AbortOnDropHandle::new(tokio::spawn(async move { watching.go_operator.watch(hub, "n").await }));
        let metadata = json!({"name": "a", "namespace": "n", "uid": "a", "generation": 2, "resourceVersion": "1"});
        let object: DynamicObject = serde_json::from_value(json!({"apiVersion": "operator.knative.dev/v1beta1",
            "kind": "KnativeServing", "metadata": metadata, "spec": {}}))
        .unwrap();
        let (_sender, desired) = watch::channel(Some(Desired::parse(Component::Serving, object)));
        let task = AbortOnDropHandle::new(tokio::spawn(run(cx, desired, Arc::default())));
        let message = |(_, path, body): &Received| {
            let conditions = body["status"]["conditions"].as_array().filter(|_| path.ends_with("/a/status"));
            let installed = conditions.into_iter().flatten().find(|one| one["type"] == "InstallSucceeded");
            installed.map(|one| one["message"].as_str().unwrap_or_default().to_owned())
        };
        let says = |text: &'static str| {
            move |request: &Received| {
                let is_current = request.2["status"]["observedGeneration"] == 2;
                is_current && message(request).is_some_and(|message| message.contains(text))
            }
        };
        until(&mut requests, says("the operator panicked")).await;
        // The next one reports what it finds.
        until(&mut requests, says("localInstallation")).await;
        drop((task, go_operator));
    }
}
