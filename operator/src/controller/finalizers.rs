//! The finalizer of a custom resource, by which its deletion waits for that of the installation.

use std::time::Duration;

use knative_operator_runtime::identity::patch_as;
use knative_operator_runtime::untyped::metadata_api;
use knative_operator_shared::api::Knative;
use knative_operator_shared::label::FIELD_MANAGER;
use kube::api::Patch;
use serde_json::json;

use super::context::Context;
use super::outcome::Requeue;

/// Interval of checks whether the resource is gone.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Attempts to add the finalizer to a resource that changes all the time.
const FINALIZER_ATTEMPTS: usize = 10;

/// Removes the finalizer, then calls `publish_event`.
pub async fn remove_finalizer(cx: &Context, resource: &Knative, publish_event: impl FnOnce()) -> Requeue {
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

/// Replaces the finalizers with `others`; whether that was done. A conflict is no error: the watch
/// reports the change, and the next step retries.
async fn set_finalizers(cx: &Context, resource: &Knative, others: &[String]) -> kube::Result<bool> {
    let patch = json!({"metadata": {"finalizers": others, "resourceVersion": resource.meta().resource_version}});
    let api = metadata_api(&cx.hub, resource);
    match api.patch(resource.name(), &patch_as(FIELD_MANAGER), &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
        other => other.map(|_| true),
    }
}

/// Adds the finalizer, if missing. Each write has the resourceVersion that was read.
pub async fn add_finalizer(cx: &Context, resource: &Knative) -> kube::Result<()> {
    let finalizer = resource.component().finalizer();
    let api = metadata_api(&cx.hub, resource);
    let (mut meta, mut attempts) = (resource.meta().clone(), 0);
    loop {
        let mut finalizers = meta.finalizers.unwrap_or_default();
        if finalizers.iter().any(|f| f == finalizer) {
            return Ok(());
        }
        finalizers.push(finalizer.to_owned());
        let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": meta.resource_version}});
        match api.patch(resource.name(), &patch_as(FIELD_MANAGER), &Patch::Merge(patch)).await {
            Err(kube::Error::Api(status)) if status.code == 409 && attempts < FINALIZER_ATTEMPTS => {
                meta = api.get_metadata(resource.name()).await?.metadata;
                if meta.uid != resource.meta().uid {
                    // Another resource has its name now.
                    return Err(kube::Error::Api(status));
                }
                attempts += 1;
            }
            Err(error) => return Err(error),
            Ok(_) => break,
        }
    }
    cx.events.normal(resource, "FinalizerUpdate", format!("Updated \"{}\" finalizers", resource.name()));
    Ok(())
}
