//! Removes the conversion webhook of the Go operator from the CustomResourceDefinitions. Helm can't
//! remove it if another tool installed them (`helm install --take-ownership`), and nothing serves
//! it any more. The kinds have one version, so the API server never converts.

use std::time::Duration;

use knative_operator_runtime::error_text;
use knative_operator_runtime::identity::patch_as;
use knative_operator_shared::api::Component;
use knative_operator_shared::label::{FIELD_MANAGER, GROUP};
use kube::api::Patch;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::json;

/// Path of the Go operator's conversion webhook.
const PATH: &str = "/resource-conversion";

/// Delay before a retry.
const RETRY: Duration = Duration::from_secs(30);

/// Removes the conversion webhook from both definitions, if they have it, with retries. If they
/// don't have it, that costs one read each.
pub async fn remove_conversion_webhook(client: Client) {
    let gvk = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let definitions: Api<DynamicObject> = Api::all_with(client, &ApiResource::from_gvk(&gvk));
    for component in Component::ALL {
        let name = format!("{}.{GROUP}", component.plural());
        while let Err(error) = remove_from_definition(&definitions, &name).await {
            tracing::warn!(
                definition = name,
                error = error_text(&error),
                "cannot remove the Go operator's conversion webhook"
            );
            tokio::time::sleep(RETRY).await;
        }
    }
}

async fn remove_from_definition(definitions: &Api<DynamicObject>, name: &str) -> kube::Result<()> {
    let Some(found) = definitions.get_opt(name).await? else { return Ok(()) };
    if found.data.pointer("/spec/conversion/webhook/clientConfig/service/path").is_none_or(|path| path != PATH) {
        return Ok(());
    }
    let patch = json!({"spec": {"conversion": {"strategy": "None", "webhook": null}}});
    definitions.patch_metadata(name, &patch_as(FIELD_MANAGER), &Patch::Merge(patch)).await?;
    tracing::info!(definition = name, "removed the Go operator's conversion webhook");
    Ok(())
}
