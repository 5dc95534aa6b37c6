//! Tells the API server which authority the webhook's certificate is of: the caBundle of its configurations.

use std::fmt::Debug;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;

/// Puts `authority` (PEM) into every webhook of both configurations. Writes only what differs; a configuration that isn't
/// there is left to whoever will create it.
pub async fn inject(client: &Client, validating: &str, mutating: &str, authority: &str) -> kube::Result<()> {
    let wanted = ByteString(authority.as_bytes().to_vec());
    one(client, validating, |found: &ValidatingWebhookConfiguration| {
        patch(found.webhooks.iter().flatten().map(|w| (w.name.as_str(), &w.client_config)), &wanted)
    })
    .await?;
    one(client, mutating, |found: &MutatingWebhookConfiguration| {
        patch(found.webhooks.iter().flatten().map(|w| (w.name.as_str(), &w.client_config)), &wanted)
    })
    .await
}

/// Writes what `patch` says of configuration `name`.
async fn one<K>(client: &Client, name: &str, patch: impl Fn(&K) -> Option<Patch<()>>) -> kube::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let configurations = Api::<K>::all(client.clone());
    if let Some(patch) = configurations.get_opt(name).await?.and_then(|found| patch(&found)) {
        configurations.patch(name, &PatchParams::default(), &patch).await?;
        tracing::info!(configuration = name, "caBundle set");
    }
    Ok(())
}

/// A JSON patch that sets the bundle where it differs; each webhook's name is tested, so that an order that changed
/// meanwhile fails the patch instead of hitting another webhook.
fn patch<'a>(hooks: impl Iterator<Item = (&'a str, &'a WebhookClientConfig)>, wanted: &ByteString) -> Option<Patch<()>> {
    let mut operations = Vec::new();
    for (index, (name, config)) in hooks.enumerate() {
        if config.ca_bundle.as_ref() != Some(wanted) {
            operations.push(json!({"op": "test", "path": format!("/webhooks/{index}/name"), "value": name}));
            operations.push(json!({"op": "add", "path": format!("/webhooks/{index}/clientConfig/caBundle"), "value": wanted}));
        }
    }
    if operations.is_empty() {
        return None;
    }
    // Every operation above is well-formed, so the patch is.
    serde_json::from_value::<json_patch::Patch>(operations.into()).ok().map(Patch::Json)
}
