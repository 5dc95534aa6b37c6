//! What the webhook writes to its configurations: the authority of its certificate, and, where the chart asks for it, that requests fail
//! without it.

use std::fmt::Debug;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Annotation of a configuration whose `failurePolicy` is `Ignore` until all replicas of the webhook are of this version: the chart sets it
/// where it replaces the Go operator's webhook.
const ENFORCE: &str = "operator.knative.dev/enforce";
const FAIL: &str = "Fail";

/// One webhook of a configuration, as far as it matters here.
struct Hook<'a> {
    name: &'a str,
    client_config: &'a WebhookClientConfig,
    failure_policy: Option<&'a str>,
}

/// The two configurations, and as whom they are written.
#[derive(Clone)]
pub struct Configurations<'a> {
    /// The client for their cluster.
    pub client: &'a Client,
    /// Name of the ValidatingWebhookConfiguration.
    pub validating: &'a str,
    /// Name of the MutatingWebhookConfiguration.
    pub mutating: &'a str,
    /// Field manager.
    pub manager: &'a str,
}

impl Configurations<'_> {
    /// Puts `authority` (PEM) into every webhook of both. Writes only what differs; a configuration that isn't there is left to whoever will
    /// create it. Whether one of them is still to be enforced.
    pub async fn inject(&self, authority: &str) -> kube::Result<bool> {
        let wanted = ByteString(authority.as_bytes().to_vec());
        let change = |hook: &Hook<'_>| {
            (hook.client_config.ca_bundle.as_ref() != Some(&wanted)).then(|| ("add", "clientConfig/caBundle", json!(wanted)))
        };
        Ok(self.validating(change, "caBundle set").await? | self.mutating(change, "caBundle set").await?)
    }

    /// Makes requests fail when the webhook doesn't answer, in those that are to be enforced.
    pub async fn enforce(&self) -> kube::Result<()> {
        let change =
            |hook: &Hook<'_>| hook.failure_policy.is_some_and(|policy| policy != FAIL).then(|| ("replace", "failurePolicy", json!(FAIL)));
        self.validating(change, "enforced").await?;
        self.mutating(change, "enforced").await.map(drop)
    }

    async fn validating(&self, change: impl Fn(&Hook<'_>) -> Option<Change>, what: &str) -> kube::Result<bool> {
        self.one(self.validating, what, |found: &ValidatingWebhookConfiguration| {
            let hooks = found.webhooks.iter().flatten();
            let hooks = hooks.map(|w| Hook { name: &w.name, client_config: &w.client_config, failure_policy: w.failure_policy.as_deref() });
            inspect(hooks, &change)
        })
        .await
    }

    async fn mutating(&self, change: impl Fn(&Hook<'_>) -> Option<Change>, what: &str) -> kube::Result<bool> {
        self.one(self.mutating, what, |found: &MutatingWebhookConfiguration| {
            let hooks = found.webhooks.iter().flatten();
            let hooks = hooks.map(|w| Hook { name: &w.name, client_config: &w.client_config, failure_policy: w.failure_policy.as_deref() });
            inspect(hooks, &change)
        })
        .await
    }

    /// Writes what `inspect` says of configuration `name`; whether it is still to be enforced.
    async fn one<K>(&self, name: &str, what: &str, inspect: impl Fn(&K) -> (bool, Option<Patch<()>>)) -> kube::Result<bool>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let configurations = Api::<K>::all(self.client.clone());
        let Some(found) = configurations.get_opt(name).await? else { return Ok(false) };
        let (lenient, patch) = inspect(&found);
        let lenient = lenient && found.annotations().contains_key(ENFORCE);
        if let Some(patch) = patch {
            let params = PatchParams { field_manager: Some(self.manager.to_owned()), ..PatchParams::default() };
            configurations.patch(name, &params, &patch).await?;
            tracing::info!(configuration = name, what, "webhook configuration written");
        }
        Ok(lenient)
    }
}

/// Operation, field of a webhook, and value of a JSON patch.
type Change = (&'static str, &'static str, Value);

/// Whether one of `hooks` lets requests pass when nobody answers, and a JSON patch that makes what `change` says; each webhook's name is tested, so
/// that an order that changed meanwhile fails the patch instead of hitting another webhook.
fn inspect<'a>(hooks: impl Iterator<Item = Hook<'a>>, change: impl Fn(&Hook<'a>) -> Option<Change>) -> (bool, Option<Patch<()>>) {
    let (mut lenient, mut operations) = (false, Vec::new());
    for (index, hook) in hooks.enumerate() {
        lenient |= hook.failure_policy.is_some_and(|policy| policy != FAIL);
        if let Some((operation, field, value)) = change(&hook) {
            operations.push(json!({"op": "test", "path": format!("/webhooks/{index}/name"), "value": hook.name}));
            operations.push(json!({"op": operation, "path": format!("/webhooks/{index}/{field}"), "value": value}));
        }
    }
    // Every operation above is well-formed, so the patch is.
    let patch = (!operations.is_empty()).then(|| serde_json::from_value::<json_patch::Patch>(operations.into()).ok().map(Patch::Json));
    (lenient, patch.flatten())
}
