//! Writes the status, if it has changed, and tells what has changed in events.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knative_operator_runtime::identity::patch_as;
use knative_operator_shared::api::{Component, Knative, KnativeEventing, KnativeServing, KnativeStatus};
use knative_operator_shared::condition::{self, DEPENDENTS, READY, State, States};
use knative_operator_shared::label::FIELD_MANAGER;
use kube::api::Patch;
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::actor::Memory;
use super::events::Events;
use super::{Context, verdict};
use crate::object::version;

/// What is to be told.
pub struct Report {
    /// The states.
    pub states: States,
    /// The version, if one was installed.
    pub version: Option<String>,
    /// Where its manifests came from, if one was installed.
    pub manifests: Option<Vec<String>>,
}

/// How soon words are changed again that only tell how far something has come.
const WORDS: Duration = Duration::from_secs(1);

/// How long nothing is written after the spec has changed. Scripts and controllers often change it several times in a row, and a write in
/// between would make theirs fail ("the object has been modified").
const QUIET: Duration = Duration::from_millis(250);
/// How long the status may be behind the spec for that reason: somebody may change it all the time.
const BEHIND: Duration = Duration::from_secs(2);

/// What became of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The status tells it.
    Yes,
    /// It could not be written: it is to be told again.
    No,
    /// The spec changed a moment ago: it is to be told again after this long.
    Quiet(Duration),
    /// It is too soon to write: it is to be told again after this long.
    Later(Duration),
}

/// Tells `report` in the status, if that changes, in metrics, and in an event for each state that has changed.
pub async fn publish(cx: &Context, resource: &Knative, memory: &mut Memory, report: &Report) -> Told {
    cx.metrics.told(resource, &report.states);
    let old = memory.status(resource);
    let new = status(&old, resource.meta().generation, report, Timestamp::now());
    if new == old {
        memory.behind = None;
        return Told::Yes;
    }
    // At the end there is no later.
    let quiet = memory
        .generation
        .filter(|(generation, _)| old.observed_generation != Some(*generation) && !cx.stop.is_cancelled());
    if let Some(rest) = quiet.map(|(_, changed)| QUIET.saturating_sub(changed.elapsed())).filter(|rest| !rest.is_zero())
        && memory.behind.get_or_insert_with(Instant::now).elapsed() < BEHIND
    {
        return Told::Quiet(rest);
    }
    let since = memory.told.map_or(WORDS, |told| told.elapsed());
    if since < WORDS && gist(&new) == gist(&old) {
        return Told::Later(WORDS.saturating_sub(since));
    }
    match write(&cx.hub, resource, &new).await {
        Ok(meta) => {
            memory.written = Some((version(&meta), new));
            (memory.told, memory.behind) = (Some(Instant::now()), None);
            tell(&cx.events, resource, &verdict::stored(&old.conditions), &report.states);
            Told::Yes
        }
        // The resource is gone.
        Err(kube::Error::Api(answer)) if answer.code == 404 => Told::Yes,
        Err(error) => {
            tracing::warn!(
                name = resource.name(),
                error = knative_operator_runtime::words(&error),
                "status not written"
            );
            Told::No
        }
    }
}

/// What of `status` is more than words.
fn gist(status: &KnativeStatus) -> KnativeStatus {
    let mut gist = status.clone();
    for condition in &mut gist.conditions {
        (condition.message, condition.last_transition_time) = (None, None);
    }
    gist
}

/// The status that tells `report`, where it was `before`.
fn status(before: &KnativeStatus, generation: Option<i64>, report: &Report, now: Timestamp) -> KnativeStatus {
    KnativeStatus {
        observed_generation: generation,
        conditions: condition::tell(&before.conditions, &report.states, now),
        annotations: before.annotations.clone(),
        version: report.version.clone().or_else(|| before.version.clone()),
        manifests: report.manifests.clone().unwrap_or_else(|| before.manifests.clone()),
    }
}

/// Writes `status`; the metadata of the resource afterwards.
async fn write(hub: &Client, resource: &Knative, status: &KnativeStatus) -> kube::Result<ObjectMeta> {
    // What has gone from the status is set to null: a merge patch would keep it.
    let mut patch = json!({"observedGeneration": null, "version": null, "manifests": null});
    if let (Some(patch), Value::Object(fields)) =
        (patch.as_object_mut(), serde_json::to_value(status).map_err(kube::Error::SerdeError)?)
    {
        patch.extend(fields);
    }
    let api = metadata_api(hub, resource);
    let answer =
        api.patch_status(resource.name(), &patch_as(FIELD_MANAGER), &Patch::Merge(json!({"status": patch}))).await?;
    Ok(answer.metadata)
}

/// The resource itself, of which only the metadata is read back.
pub fn metadata_api(hub: &Client, resource: &Knative) -> Api<PartialObjectMeta<DynamicObject>> {
    let kind = match resource.component() {
        Component::Serving => ApiResource::erase::<KnativeServing>(&()),
        Component::Eventing => ApiResource::erase::<KnativeEventing>(&()),
    };
    Api::namespaced_with(hub.clone(), resource.namespace(), &kind)
}

/// Tells each state that has changed.
fn tell(events: &Events, resource: &Knative, before: &States, after: &States) {
    for (type_, (old, new)) in DEPENDENTS.iter().zip(before.iter().zip(after)) {
        transition(events, resource, type_, old, new);
    }
    transition(events, resource, READY, &condition::ready(before), &condition::ready(after));
}

fn transition(events: &Events, resource: &Knative, type_: &str, old: &State, new: &State) {
    let name = format!("{} {}", resource.component(), resource.name());
    match (old, new) {
        (_, State::True) if old != new => match type_ {
            condition::TARGET_CLUSTER_RESOLVED => match &resource.common().cluster_profile_ref {
                Some(reference) => {
                    events.normal(resource, type_, format!("Connected to the cluster of ClusterProfile {reference}"));
                }
                None => events.normal(resource, type_, "Installing on the local cluster"),
            },
            condition::INSTALL_SUCCEEDED => events.normal(resource, type_, "Every object was accepted"),
            condition::DEPLOYMENTS_AVAILABLE => events.normal(resource, type_, "Every Deployment is available"),
            READY => events.normal(resource, type_, format!("{name} is ready")),
            _ => {}
        },
        // Ready says what one of the others says; waiting for Deployments is no reason to warn until they were there once.
        (_, State::False { reason, message }) if old != new && type_ != READY => {
            let (was, same) =
                (matches!(old, State::True), matches!(old, State::False { reason: r, .. } if r == reason));
            if reason != "NotReady" || was {
                events.warning(resource, reason, message.clone());
            } else if !same {
                events.normal(resource, "WaitingForDeployments", message.clone());
            }
        }
        _ => {}
    }
}
