//! What the webhook writes to its configurations: the authority of its certificate, and, where the chart has them ask nobody during a
//! migration, that they ask it.

use std::fmt::Debug;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use knative_operator_runtime::identity::patch_as;
use kube::api::Patch;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Name of the match condition that is never true: with it a configuration asks nobody. The chart sets it where it replaces the Go operator's
/// webhook, until all replicas of the webhook are of this version.
const ROLLED_OUT: &str = "rolled-out";

/// One webhook of a configuration, as far as it matters here.
struct Hook<'a> {
    name: &'a str,
    client_config: &'a WebhookClientConfig,
    match_conditions: Option<&'a [MatchCondition]>,
}

impl<'a> Hook<'a> {
    fn new(
        name: &'a str,
        client_config: &'a WebhookClientConfig,
        match_conditions: Option<&'a [MatchCondition]>,
    ) -> Self {
        Self { name, client_config, match_conditions }
    }

    /// Index of the match condition that keeps it from being asked.
    fn suspended(&self) -> Option<usize> {
        self.match_conditions.unwrap_or_default().iter().position(|condition| condition.name == ROLLED_OUT)
    }
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
    /// Puts `authority` (PEM) into every webhook of both, if there is one. Writes only what differs; a configuration that isn't there is left to
    /// whoever will create it. Whether one of them asks nobody yet.
    pub async fn inject(&self, authority: Option<&str>) -> kube::Result<bool> {
        let wanted = authority.map(|authority| ByteString(authority.as_bytes().to_vec()));
        let change = |index: usize, hook: &Hook<'_>| {
            let wanted = wanted.as_ref().filter(|wanted| hook.client_config.ca_bundle.as_ref() != Some(*wanted))?;
            Some(vec![
                json!({"op": "add", "path": format!("/webhooks/{index}/clientConfig/caBundle"), "value": wanted}),
            ])
        };
        self.both(change, "caBundle set").await
    }

    /// Has those that ask nobody ask the webhook.
    pub async fn enforce(&self) -> kube::Result<()> {
        let change = |index: usize, hook: &Hook<'_>| {
            let condition = format!("/webhooks/{index}/matchConditions/{}", hook.suspended()?);
            Some(vec![
                json!({"op": "test", "path": format!("{condition}/name"), "value": ROLLED_OUT}),
                json!({"op": "remove", "path": condition}),
            ])
        };
        self.both(change, "enforced").await.map(drop)
    }

    async fn both(&self, change: impl Fn(usize, &Hook<'_>) -> Option<Vec<Value>>, what: &str) -> kube::Result<bool> {
        let validating = self.one(self.validating, what, |found: &ValidatingWebhookConfiguration| {
            let hooks = found.webhooks.iter().flatten();
            inspect(hooks.map(|w| Hook::new(&w.name, &w.client_config, w.match_conditions.as_deref())), &change)
        });
        let mutating = self.one(self.mutating, what, |found: &MutatingWebhookConfiguration| {
            let hooks = found.webhooks.iter().flatten();
            inspect(hooks.map(|w| Hook::new(&w.name, &w.client_config, w.match_conditions.as_deref())), &change)
        });
        Ok(validating.await? | mutating.await?)
    }

    /// Writes what `inspect` says of configuration `name`; whether it asks nobody yet.
    async fn one<K>(
        &self,
        name: &str,
        what: &str,
        inspect: impl Fn(&K) -> (bool, Option<Patch<()>>),
    ) -> kube::Result<bool>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let configurations = Api::<K>::all(self.client.clone());
        let Some(found) = configurations.get_opt(name).await? else { return Ok(false) };
        let (suspended, patch) = inspect(&found);
        if let Some(patch) = patch {
            configurations.patch(name, &patch_as(self.manager), &patch).await?;
            tracing::info!(configuration = name, what, "webhook configuration written");
        }
        Ok(suspended)
    }
}

/// Whether one of `hooks` asks nobody, and a JSON patch of the operations that `change` says; each webhook's name is tested, so that an order
/// that changed meanwhile fails the patch instead of hitting another webhook.
fn inspect<'a>(
    hooks: impl Iterator<Item = Hook<'a>>,
    change: impl Fn(usize, &Hook<'a>) -> Option<Vec<Value>>,
) -> (bool, Option<Patch<()>>) {
    let (mut suspended, mut operations) = (false, Vec::new());
    for (index, hook) in hooks.enumerate() {
        suspended |= hook.suspended().is_some();
        if let Some(changes) = change(index, &hook) {
            operations.push(json!({"op": "test", "path": format!("/webhooks/{index}/name"), "value": hook.name}));
            operations.extend(changes);
        }
    }
    // Every operation above is well-formed, so the patch is.
    let patch = (!operations.is_empty())
        .then(|| serde_json::from_value::<json_patch::Patch>(operations.into()).ok().map(Patch::Json));
    (suspended, patch.flatten())
}
