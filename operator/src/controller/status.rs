//! Writes the status, if it changed, and publishes events for changed conditions.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knative_operator_runtime::identity::patch_as;
use knative_operator_runtime::untyped::metadata_api;
use knative_operator_shared::api::{Knative, KnativeStatus};
use knative_operator_shared::condition::{self, READY, State, States};
use knative_operator_shared::label::{
    ALLOWED_GENERATION, CLUSTER_UID, FIELD_MANAGER, NAMESPACE_CONTENTS, PERMITTED_ON, REFUSED_VERSION,
};
use kube::Client;
use kube::api::Patch;
use serde_json::{Value, json};
use tracing::Instrument;

use super::conditions;
use super::context::Context;
use super::events::Events;
use super::outcome::{Outcome, Requeue};
use super::resolve;
use super::state::ReconcilerState;
use knative_operator_objects::version;
use knative_operator_overview::stalled;

/// An update of the status.
pub struct StatusUpdate {
    /// States of the conditions.
    pub states: States,
    /// The installed version, if it was determined.
    pub version: Option<String>,
    /// Sources of its manifests, if they were determined.
    pub manifests: Option<Vec<String>>,
    /// Whether it only waits for Deployments whose former replicas are available.
    pub is_rolling: bool,
}

/// Minimum interval of writes that change only messages.
const MESSAGE_INTERVAL: Duration = Duration::from_secs(1);

/// Time without status writes after a change of the spec. Scripts and controllers often write
/// several times in a row, and a status write in between would make theirs fail with a conflict.
const STATUS_DEBOUNCE: Duration = Duration::from_millis(250);
/// Maximum time that the status lags behind the spec for that reason.
const MAX_LAG: Duration = Duration::from_secs(2);

/// Result of a status update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StatusWrite {
    /// The status is up to date.
    Done,
    /// The write failed: try again.
    Failed,
    /// The spec changed a moment ago: try again after this time.
    Debounced(Duration),
    /// Only messages changed: try again after this time.
    Throttled(Duration),
}

/// Publishes the outcome of a reconcile; returns when the next one is due.
pub async fn publish_outcome(
    cx: &Context,
    resource: &Knative,
    state: &mut ReconcilerState,
    outcome: Outcome,
) -> Requeue {
    let states = conditions::states(conditions::stored(&state.status(resource).conditions), &outcome.result);
    // The status has the version once the API server has accepted every object; one on the way to
    // another, from which that one is installed, once it is Ready.
    let is_accepted = states.installed == State::True || outcome.result.completes_step();
    let release = outcome.release.filter(|_| is_accepted);
    let update = StatusUpdate {
        version: release.as_ref().map(|r| r.version.to_string()),
        manifests: release.map(|r| r.manifests),
        is_rolling: outcome.result.is_rolling(),
        states,
    };
    publish_update(cx, resource, state, &update, outcome.requeue).await
}

/// Publishes `update`; returns when the next reconcile is due, which would be `requeue` without it.
pub async fn publish_update(
    cx: &Context,
    resource: &Knative,
    state: &mut ReconcilerState,
    update: &StatusUpdate,
    requeue: Requeue,
) -> Requeue {
    let written = publish(cx, resource, state, update).await;
    let settles_in = stalled::component_settles_in(&state.status(resource).conditions, Timestamp::now());
    due(written, requeue, settles_in)
}

/// Publishes that a reconcile of `resource` panicked.
pub async fn publish_panic(cx: &Context, resource: &Knative, state: &mut ReconcilerState) {
    let mut states = conditions::stored(&state.status(resource).conditions);
    states.installed = State::not_met("Error", "the operator panicked, and tries again; its log has the place");
    let update = StatusUpdate { states, version: None, manifests: None, is_rolling: false };
    publish(cx, resource, state, &update).await;
}

/// When the next reconcile is due, which would be `requeue` if the status was `written` and nothing
/// settled later.
fn due(written: StatusWrite, requeue: Requeue, settles_in: Option<Duration>) -> Requeue {
    let requeue = match (requeue, settles_in) {
        (Requeue::AwaitChange, Some(rest)) => Requeue::After(rest),
        (Requeue::After(delay), Some(rest)) => Requeue::After(delay.min(rest)),
        (requeue, _) => requeue,
    };
    match (written, requeue) {
        (StatusWrite::Done, requeue)
        | (StatusWrite::Throttled(_), requeue @ Requeue::Retry)
        | (StatusWrite::Throttled(_) | StatusWrite::Debounced(_), requeue @ Requeue::Done) => requeue,
        (StatusWrite::Throttled(delay) | StatusWrite::Debounced(delay), Requeue::After(other)) => {
            Requeue::After(delay.min(other))
        }
        (StatusWrite::Throttled(delay) | StatusWrite::Debounced(delay), Requeue::AwaitChange)
        | (StatusWrite::Debounced(delay), Requeue::Retry) => Requeue::After(delay),
        (StatusWrite::Failed, _) => Requeue::Retry,
    }
}

/// Publishes `update` in metrics, in the status if it changed, and as an event for each changed
/// condition. [`publish_update`] sees to it that what is not written now is written soon.
async fn publish(cx: &Context, resource: &Knative, state: &mut ReconcilerState, update: &StatusUpdate) -> StatusWrite {
    // What is true of this one is not true of a resource that was created again with its name.
    if cx.registry.has_successor(resource) {
        return StatusWrite::Done;
    }
    cx.metrics.set_states(resource, &update.states);
    let old = state.status(resource);
    let mut new = status(&old, resource.meta().generation, update, Timestamp::now());
    let note = resource.common().cluster_profile_ref.as_ref().and_then(|reference| resolve::note(cx, reference));
    conditions::add_note(&mut new.conditions, note);
    if let Some(uid) = &state.cluster_uid {
        new.annotations.insert(CLUSTER_UID.to_owned(), uid.to_string());
    }
    if let Some(uid) = state.permitted_on.as_ref().filter(|_| cx.authors.is_some()) {
        new.annotations.insert(PERMITTED_ON.to_owned(), uid.to_string());
    }
    match &state.namespace_contents {
        Some(contents) if contents.is_empty() => drop(new.annotations.remove(NAMESPACE_CONTENTS)),
        Some(contents) => drop(new.annotations.insert(NAMESPACE_CONTENTS.to_owned(), contents.clone())),
        None => {}
    }
    match &state.refused_version {
        Some(refused) if refused.is_empty() => drop(new.annotations.remove(REFUSED_VERSION)),
        Some(refused) => drop(new.annotations.insert(REFUSED_VERSION.to_owned(), refused.clone())),
        None => {}
    }
    if let Some(generation) = state.allowed_generation {
        new.annotations.insert(ALLOWED_GENERATION.to_owned(), generation.to_string());
    }
    if new == old {
        state.behind_since = None;
        // After a restart, it is as the former process left it.
        state.warnings.is_rolling = update.is_rolling;
        return StatusWrite::Done;
    }
    // Write immediately while the operator stops.
    let quiet = state
        .observed_generation
        .filter(|(generation, _)| old.observed_generation != Some(*generation) && !cx.stop.is_cancelled());
    if let Some(rest) =
        quiet.map(|(_, changed)| STATUS_DEBOUNCE.saturating_sub(changed.elapsed())).filter(|rest| !rest.is_zero())
        && state.behind_since.get_or_insert_with(Instant::now).elapsed() < MAX_LAG
    {
        return StatusWrite::Debounced(rest);
    }
    let since = state.written_at.map_or(MESSAGE_INTERVAL, |at| at.elapsed());
    if since < MESSAGE_INTERVAL && without_messages(&new) == without_messages(&old) {
        return StatusWrite::Throttled(MESSAGE_INTERVAL.saturating_sub(since));
    }
    match write(&cx.hub, resource, &new, state.keeps_status).instrument(tracing::debug_span!("write_status")).await {
        Ok(meta) => {
            state.written_status = Some((version(&meta), new));
            (state.written_at, state.behind_since) = (Some(Instant::now()), None);
            let was_rolling = std::mem::replace(&mut state.warnings.is_rolling, update.is_rolling);
            publish_transitions(&cx.events, resource, &conditions::stored(&old.conditions), (update, was_rolling));
            StatusWrite::Done
        }
        // The resource is gone.
        Err(kube::Error::Api(answer)) if answer.code == 404 => StatusWrite::Done,
        Err(error) => {
            tracing::warn!(
                name = resource.name(),
                error = knative_operator_runtime::error_text(&error),
                "failed to write the status"
            );
            StatusWrite::Failed
        }
    }
}

/// Replaces the status with `new` at once; whether that was done.
pub async fn replace(cx: &Context, resource: &Knative, state: &mut ReconcilerState, new: KnativeStatus) -> bool {
    match write(&cx.hub, resource, &new, false).await {
        Ok(meta) => {
            state.written_status = Some((version(&meta), new));
            (state.written_at, state.behind_since) = (Some(Instant::now()), None);
            true
        }
        Err(error) => {
            let error = knative_operator_runtime::error_text(&error);
            tracing::warn!(name = resource.name(), error, "failed to write the status");
            false
        }
    }
}

/// `status` without messages and times.
fn without_messages(status: &KnativeStatus) -> KnativeStatus {
    let mut stripped = status.clone();
    for condition in &mut stripped.conditions {
        (condition.message, condition.last_transition_time) = (None, None);
    }
    stripped
}

/// The status after `update`.
fn status(before: &KnativeStatus, generation: Option<i64>, update: &StatusUpdate, now: Timestamp) -> KnativeStatus {
    KnativeStatus {
        observed_generation: generation,
        conditions: conditions::update(&before.conditions, &update.states, now),
        annotations: before.annotations.clone(),
        version: update.version.clone().or_else(|| before.version.clone()),
        manifests: update.manifests.clone().unwrap_or_else(|| before.manifests.clone()),
    }
}

/// Writes `status`; returns the metadata of the resource. `keeps`: leaves the fields that it lacks,
/// which can't be read.
async fn write(hub: &Client, resource: &Knative, status: &KnativeStatus, keeps: bool) -> kube::Result<ObjectMeta> {
    // A merge patch keeps absent fields, so they are set to null.
    let mut patch =
        if keeps { json!({}) } else { json!({"observedGeneration": null, "version": null, "manifests": null}) };
    if let (Some(patch), Value::Object(fields)) =
        (patch.as_object_mut(), serde_json::to_value(status).map_err(kube::Error::SerdeError)?)
    {
        patch.extend(fields);
    }
    if let Some(Value::Object(annotations)) = patch.get_mut("annotations") {
        for name in [NAMESPACE_CONTENTS, REFUSED_VERSION] {
            annotations.entry(name).or_insert(Value::Null);
        }
    }
    let api = metadata_api(hub, resource);
    let answer =
        api.patch_status(resource.name(), &patch_as(FIELD_MANAGER), &Patch::Merge(json!({"status": patch}))).await?;
    Ok(answer.metadata)
}

/// Publishes an event for each changed condition.
fn publish_transitions(
    events: &Events,
    resource: &Knative,
    before: &States,
    (update, was_rolling): (&StatusUpdate, bool),
) {
    let after = &update.states;
    let rolling = (was_rolling, update.is_rolling);
    let transition = |type_: &str, old: &State, new: &State| transition(events, resource, type_, (old, new), rolling);
    for ((type_, old), (_, new)) in before.each().into_iter().zip(after.each()) {
        transition(type_, old, new);
    }
    transition(READY, &condition::ready(before), &condition::ready(after));
}

fn transition(events: &Events, resource: &Knative, type_: &str, (old, new): (&State, &State), rolling: (bool, bool)) {
    let name = format!("{} {}", resource.component(), resource.name());
    match (old, new) {
        (_, State::True) if old != new => match type_ {
            condition::TARGET_CLUSTER_RESOLVED => match &resource.common().cluster_profile_ref {
                Some(reference) => {
                    events.normal(resource, type_, format!("Connected to the cluster of ClusterProfile {reference}"));
                }
                None => events.normal(resource, type_, "Installing on the local cluster"),
            },
            condition::INSTALL_SUCCEEDED => events.normal(resource, type_, "The API server accepted every object"),
            condition::DEPLOYMENTS_AVAILABLE => events.normal(resource, type_, "Every Deployment is available"),
            READY => events.normal(resource, type_, format!("{name} is ready")),
            _ => {}
        },
        // Ready repeats another condition. Waiting for Deployments is a warning only if they were
        // available before, or in a change, and are not.
        (_, State::False { reason, message }) if old != new && type_ != READY => {
            let (was, same) =
                (matches!(old, State::True), matches!(old, State::False { reason: r, .. } if r == reason));
            let (was_rolling, is_rolling) = rolling;
            if reason != "NotReady" || (was || was_rolling) && !is_rolling {
                events.warning(resource, reason, message.clone());
            } else if !same {
                events.normal(resource, "WaitingForDeployments", message.clone());
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_that_is_not_written_now_is_written_when_that_is_due() {
        let (soon, late) = (Duration::from_millis(250), Duration::from_secs(10));
        for written in [StatusWrite::Debounced(soon), StatusWrite::Throttled(soon)] {
            for requeue in [Requeue::After(late), Requeue::AwaitChange] {
                assert_eq!(due(written, requeue, None), Requeue::After(soon), "{written:?} {requeue:?}");
            }
            assert_eq!(due(written, Requeue::Done, None), Requeue::Done);
        }
        assert_eq!(due(StatusWrite::Debounced(late), Requeue::After(soon), None), Requeue::After(soon));
        assert_eq!(due(StatusWrite::Done, Requeue::After(late), Some(soon)), Requeue::After(soon));
        assert_eq!(due(StatusWrite::Failed, Requeue::AwaitChange, None), Requeue::Retry);
    }
}
