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
use kube::{Api, Client, ResourceExt};
use serde_json::json;

/// The annotation of this operator's definitions, which those of the Go operator lack: while
/// `helm rollback` returns to it, its webhook is in use again.
const OWN: &str = "helm.sh/resource-policy";
/// Path of the Go operator's conversion webhook.
const PATH: &str = "/resource-conversion";

/// Delay before a retry.
const RETRY: Duration = Duration::from_secs(30);

/// Removes the conversion webhook from both definitions, if they have it and are this operator's,
/// with retries. If they don't have it, that costs one read each.
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
    let path = found.data.pointer("/spec/conversion/webhook/clientConfig/service/path");
    if path.is_none_or(|path| path != PATH) || !found.annotations().contains_key(OWN) {
        return Ok(());
    }
    let patch = json!({"spec": {"conversion": {"strategy": "None", "webhook": null}}});
    definitions.patch_metadata(name, &patch_as(FIELD_MANAGER), &Patch::Merge(patch)).await?;
    tracing::info!(definition = name, "removed the Go operator's conversion webhook");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use http::{Method, Request, Response};
    use kube::client::Body;
    use serde_json::Value;

    use super::*;

    /// The patches of definitions with `annotations` and the Go operator's conversion webhook.
    async fn patches(annotations: Value) -> Vec<Value> {
        let patches = Arc::<Mutex<Vec<Value>>>::default();
        let log = Arc::clone(&patches);
        let answers = tower::service_fn(move |request: Request<Body>| {
            let (log, annotations) = (Arc::clone(&log), annotations.clone());
            async move {
                if request.method() == Method::PATCH {
                    let body = request.into_body().collect_bytes().await.unwrap();
                    log.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
                }
                let service = json!({"name": "operator-webhook", "namespace": "n", "path": PATH});
                let found = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                    "metadata": {"name": "x", "annotations": annotations},
                    "spec": {"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"service": service}}}}});
                Ok::<_, Infallible>(Response::new(Body::from(found.to_string().into_bytes())))
            }
        });
        remove_conversion_webhook(Client::new(answers, "n")).await;
        patches.lock().unwrap().clone()
    }

    #[tokio::test]
    async fn definitions_of_a_rolled_back_release_keep_their_webhook() {
        let expected = json!({"spec": {"conversion": {"strategy": "None", "webhook": null}}});
        assert_eq!(patches(json!({(OWN): "keep"})).await, [expected.clone(), expected]);
        assert_eq!(patches(json!({"meta.helm.sh/release-name": "knative-operator"})).await, Vec::<Value>::new());
    }
}
