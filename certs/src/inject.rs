//! Writes the webhook configurations: injects the CA bundle, and removes the match condition with
//! which the chart suspends the webhooks during a migration.

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

/// Name of the match condition that is never true, which suspends a webhook: the API server doesn't
/// call it. The chart sets it when it replaces the Go operator's webhook, until all replicas of the
/// webhook have the new version.
const ROLLED_OUT: &str = "rolled-out";

/// The relevant fields of a webhook in a configuration.
struct WebhookEntry<'a> {
    name: &'a str,
    client_config: &'a WebhookClientConfig,
    match_conditions: Option<&'a [MatchCondition]>,
}

impl<'a> WebhookEntry<'a> {
    fn new(
        name: &'a str,
        client_config: &'a WebhookClientConfig,
        match_conditions: Option<&'a [MatchCondition]>,
    ) -> Self {
        Self { name, client_config, match_conditions }
    }

    /// Index of the match condition that suspends the webhook.
    fn suspending_condition(&self) -> Option<usize> {
        self.match_conditions.unwrap_or_default().iter().position(|condition| condition.name == ROLLED_OUT)
    }
}

/// The two configurations, with client and field manager.
#[derive(Clone)]
pub struct Configurations<'a> {
    /// Client of the cluster.
    pub client: &'a Client,
    /// Name of the ValidatingWebhookConfiguration.
    pub validating: &'a str,
    /// Name of the MutatingWebhookConfiguration.
    pub mutating: &'a str,
    /// Field manager.
    pub manager: &'a str,
}

impl Configurations<'_> {
    /// Sets `authority` (PEM) as `caBundle` in all webhooks, if given. Writes only differences, and
    /// skips configurations that don't exist. Returns whether a webhook is suspended.
    pub async fn inject(&self, authority: Option<&str>) -> kube::Result<bool> {
        let wanted = authority.map(|authority| ByteString(authority.as_bytes().to_vec()));
        let change = |index: usize, entry: &WebhookEntry<'_>| {
            let wanted = wanted.as_ref().filter(|wanted| entry.client_config.ca_bundle.as_ref() != Some(*wanted))?;
            Some(vec![
                json!({"op": "add", "path": format!("/webhooks/{index}/clientConfig/caBundle"), "value": wanted}),
            ])
        };
        self.update_both(change, "set caBundle").await
    }

    /// Removes the match condition of suspended webhooks.
    pub async fn resume(&self) -> kube::Result<()> {
        let change = |index: usize, entry: &WebhookEntry<'_>| {
            let condition = format!("/webhooks/{index}/matchConditions/{}", entry.suspending_condition()?);
            Some(vec![
                json!({"op": "test", "path": format!("{condition}/name"), "value": ROLLED_OUT}),
                json!({"op": "remove", "path": condition}),
            ])
        };
        self.update_both(change, "resumed").await.map(drop)
    }

    async fn update_both(
        &self,
        change: impl Fn(usize, &WebhookEntry<'_>) -> Option<Vec<Value>>,
        what: &str,
    ) -> kube::Result<bool> {
        let validating = self.update(self.validating, what, |found: &ValidatingWebhookConfiguration| {
            let entries = found.webhooks.iter().flatten();
            inspect(
                entries.map(|w| WebhookEntry::new(&w.name, &w.client_config, w.match_conditions.as_deref())),
                &change,
            )
        });
        let mutating = self.update(self.mutating, what, |found: &MutatingWebhookConfiguration| {
            let entries = found.webhooks.iter().flatten();
            inspect(
                entries.map(|w| WebhookEntry::new(&w.name, &w.client_config, w.match_conditions.as_deref())),
                &change,
            )
        });
        Ok(validating.await? | mutating.await?)
    }

    /// Writes the changes to the configuration `name`; returns whether it has a suspended webhook.
    async fn update<K>(
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
        let (suspending_condition, patch) = inspect(&found);
        if let Some(patch) = patch {
            configurations.patch(name, &patch_as(self.manager), &patch).await?;
            tracing::info!(configuration = name, what, "updated the webhook configuration");
        }
        Ok(suspending_condition)
    }
}

/// Whether one of `entries` is suspended, and a JSON patch with the operations of `change`. The
/// patch tests the name of each webhook, so that it fails if the order of the webhooks changed.
fn inspect<'a>(
    entries: impl Iterator<Item = WebhookEntry<'a>>,
    change: impl Fn(usize, &WebhookEntry<'a>) -> Option<Vec<Value>>,
) -> (bool, Option<Patch<()>>) {
    let (mut suspending_condition, mut operations) = (false, Vec::new());
    for (index, entry) in entries.enumerate() {
        suspending_condition |= entry.suspending_condition().is_some();
        if let Some(changes) = change(index, &entry) {
            operations.push(json!({"op": "test", "path": format!("/webhooks/{index}/name"), "value": entry.name}));
            operations.extend(changes);
        }
    }
    // The operations are well-formed, so the patch is.
    let patch = (!operations.is_empty())
        .then(|| serde_json::from_value::<json_patch::Patch>(operations.into()).ok().map(Patch::Json));
    (suspending_condition, patch.flatten())
}
