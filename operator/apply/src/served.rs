//! Waits for kinds whose definition is new and not served yet.

use std::time::{Duration, Instant};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use knative_operator_runtime::error_text;
use knative_operator_runtime::identity::patch_as;
use knative_operator_shared::label::FIELD_MANAGER;
use kube::api::Patch;
use kube::core::{ApiResource, GroupVersionKind, Status};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::error::ApplyError;
use super::target::Target;
use super::throttle::Throttle;
use knative_operator_objects::Kind;
use knative_operator_objects::health::{self, Health, NOT_ESTABLISHED, WatchedObject};
use knative_operator_objects::plan::{Item, Phase};

/// Delay before a retry when a kind is not served yet.
pub const PAUSE: Duration = Duration::from_millis(100);
/// The first such delay of a write, which doubles each time.
const FIRST_RETRY: Duration = Duration::from_millis(20);
/// Interval of checks whether the API server refused a definition that is waited for.
const REFUSAL_INTERVAL: Duration = Duration::from_millis(50);
/// Interval at which the definition is read, and time limit.
const READ_INTERVAL: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(5);

/// Annotation that is set for a moment, to change a definition.
const TOUCHED: &str = "operator.knative.dev/touched";

/// Changes the definitions of the plan that are not established for a while: an API server that
/// stops right after it created one establishes it only when it changes.
pub async fn touch_unestablished(target: &Target<'_>, throttle: &mut Throttle, now: Instant) {
    let is_waiting = |item: &&Item| {
        let health = target.observed.health(&item.id);
        matches!(health, Some(Health::Waiting(wait)) if wait.reason == NOT_ESTABLISHED)
    };
    let waiting = target.plan.phase(Phase::Definitions).filter(is_waiting);
    let late: Vec<&Item> = waiting.filter(|item| throttle.request_touch(&item.id, now)).collect();
    let definitions: Api<CustomResourceDefinition> = Api::all(target.client.clone());
    let touches = late.into_iter().map(async |item| {
        for value in [json!(""), Value::Null] {
            let patch = Patch::Merge(json!({"metadata": {"annotations": {TOUCHED: value}}}));
            if let Err(error) = definitions.patch_metadata(&item.id.name, &patch_as(FIELD_MANAGER), &patch).await {
                tracing::debug!(definition = %item.id, error = error_text(&error), "cannot touch");
            }
        }
    });
    futures::future::join_all(touches).await;
}

/// Whether `error` means that the kind is not served, or its storage is not ready.
pub fn is_not_served(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    match status.code {
        404 => {
            status.message.contains("could not find the requested resource") || status.message == "404 page not found"
        }
        _ => is_initializing(status),
    }
}

/// Whether `status` means that the storage of a kind is initializing.
pub fn is_initializing(status: &Status) -> bool {
    status.code == 429 && status.message.contains("storage is (re)initializing")
}

/// Waits until the definition of `kind` is established, if the plan has it; the error tells why it
/// isn't.
pub async fn wait_until_established(target: &Target<'_>, kind: &Kind) -> Result<(), ApplyError> {
    let Some(definition) = target.plan.definition(kind) else { return Ok(()) };
    let (started, mut settled) = (Instant::now(), target.observed.settled_definitions());
    loop {
        match target.observed.health(&definition.id) {
            // The definition itself reports the reason.
            Some(Health::Failed(_)) => {
                return Err(ApplyError::Other(format!("its {} is not established", definition.id)));
            }
            None if target.is_refused(definition) => {
                let why = format!("{} is missing, because the API server refused it", definition.id);
                return Err(ApplyError::Other(why));
            }
            Some(Health::Waiting(_)) | None if started.elapsed() < TIMEOUT => {
                let _ = tokio::time::timeout(REFUSAL_INTERVAL, settled.changed()).await;
            }
            Some(Health::Waiting(wait)) => return Err(ApplyError::Other(format!("{}: {wait}", definition.id))),
            Some(Health::Ready) | None => return Ok(()),
        }
    }
}

/// Number of intervals of reads that `time` has.
fn intervals(time: Duration) -> u128 {
    time.as_millis() / READ_INTERVAL.as_millis()
}

/// Waits for a retry while `kind` is not served, since `since`; the error tells why it won't be.
pub async fn wait_until_served(client: &Client, kind: &Kind, since: Instant) -> Result<(), ApplyError> {
    let (before, name) = (since.elapsed(), format!("{}.{}", kind.resource.plural, kind.resource.group));
    // The delay doubles each time.
    tokio::time::sleep(before.clamp(FIRST_RETRY, READ_INTERVAL / 2)).await;
    let now = since.elapsed();
    let is_read_due = intervals(now) > intervals(before) || now >= TIMEOUT;
    if !is_read_due {
        return Ok(());
    }
    let gvk = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let definitions: Api<WatchedObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&gvk));
    let found = definitions.get_opt(&name).await;
    let found = found.map_err(|e| ApplyError::failed(format!("read CustomResourceDefinition {name}"), &e))?;
    let Some(found) = found else {
        let (kind, version) = (kind.resource.kind.clone(), kind.resource.api_version.clone());
        return Err(ApplyError::NoKind { kind, version });
    };
    let why = match health::of("CustomResourceDefinition", &found) {
        Some(Health::Failed(why)) => format!("CustomResourceDefinition {name} is not established: {why}"),
        Some(Health::Waiting(wait)) if now >= TIMEOUT => format!("CustomResourceDefinition {name}: {wait}"),
        _ if now >= TIMEOUT => {
            format!("version {} of {name} is not served after {} s", kind.resource.version, TIMEOUT.as_secs())
        }
        _ => return Ok(()),
    };
    Err(ApplyError::Other(why))
}

#[cfg(test)]
#[path = "served_tests.rs"]
mod tests;
