//! Writes the webhook configurations: injects the CA bundle, and removes the match condition with
//! which the chart suspends the webhooks during a migration.

use std::fmt::Debug;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::jiff::Timestamp;
use knative_operator_runtime::identity::patch_as;
use kube::api::Patch;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Name of the match condition that is never true, which suspends a webhook: the API server doesn't
/// call it. The chart sets it when it replaces the Go operator's webhook, until all replicas of the
/// webhook have the new version.
const ROLLED_OUT: &str = "rolled-out";

/// That the match condition suspends a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspension {
    /// The time in the condition, from which on the API server calls the webhook for changes, but
    /// not for deletions; `None` if it has no such time.
    pub until: Option<Timestamp>,
}

impl Suspension {
    fn of(condition: &MatchCondition) -> Self {
        let rest = condition.expression.split_once("timestamp('").map(|(_, rest)| rest);
        let text = rest.and_then(|rest| rest.split_once('\'')).map(|(text, _)| text);
        Self { until: text.and_then(|text| text.parse().ok()) }
    }

    /// That one of two webhooks is suspended: until the later time.
    fn or(self, other: Self) -> Self {
        Self { until: self.until.zip(other.until).map(|(one, other)| one.max(other)) }
    }

    /// Whether the time is over.
    pub fn is_over(self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| until < now)
    }
}

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

    fn suspension(&self) -> Option<Suspension> {
        let conditions = self.match_conditions.unwrap_or_default();
        conditions.iter().find(|condition| condition.name == ROLLED_OUT).map(Suspension::of)
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
    pub async fn inject(&self, authority: Option<&str>) -> kube::Result<Option<Suspension>> {
        let wanted = authority.map(|authority| ByteString(authority.as_bytes().to_vec()));
        let change = |index: usize, entry: &WebhookEntry<'_>| {
            let wanted = wanted.as_ref().filter(|wanted| entry.client_config.ca_bundle.as_ref() != Some(*wanted))?;
            Some(vec![
                json!({"op": "add", "path": format!("/webhooks/{index}/clientConfig/caBundle"), "value": wanted}),
            ])
        };
        self.update_both(change, "set caBundle").await
    }

    /// Whether a webhook is suspended.
    pub async fn suspension(&self) -> kube::Result<Option<Suspension>> {
        self.inject(None).await
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
    ) -> kube::Result<Option<Suspension>> {
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
        let both = [validating.await?, mutating.await?];
        Ok(both.into_iter().flatten().reduce(Suspension::or))
    }

    /// Writes the changes to the configuration `name`; returns whether it has a suspended webhook.
    async fn update<K>(
        &self,
        name: &str,
        what: &str,
        inspect: impl Fn(&K) -> (Option<Suspension>, Option<Patch<()>>),
    ) -> kube::Result<Option<Suspension>>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let configurations = Api::<K>::all(self.client.clone());
        let Some(found) = configurations.get_opt(name).await? else { return Ok(None) };
        let (suspension, patch) = inspect(&found);
        if let Some(patch) = patch {
            configurations.patch(name, &patch_as(self.manager), &patch).await?;
            tracing::info!(configuration = name, what, "updated the webhook configuration");
        }
        Ok(suspension)
    }
}

/// Whether one of `entries` is suspended, and a JSON patch with the operations of `change`. The
/// patch tests the name of each webhook, so that it fails if the order of the webhooks changed.
fn inspect<'a>(
    entries: impl Iterator<Item = WebhookEntry<'a>>,
    change: impl Fn(usize, &WebhookEntry<'a>) -> Option<Vec<Value>>,
) -> (Option<Suspension>, Option<Patch<()>>) {
    let (mut suspension, mut operations) = (None::<Suspension>, Vec::new());
    for (index, entry) in entries.enumerate() {
        if let Some(own) = entry.suspension() {
            suspension = Some(suspension.map_or(own, |other| other.or(own)));
        }
        if let Some(changes) = change(index, &entry) {
            operations.push(json!({"op": "test", "path": format!("/webhooks/{index}/name"), "value": entry.name}));
            operations.extend(changes);
        }
    }
    // The operations are well-formed, so the patch is.
    let patch = (!operations.is_empty())
        .then(|| serde_json::from_value::<json_patch::Patch>(operations.into()).ok().map(Patch::Json));
    (suspension, patch.flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspension_ends_at_the_time_in_the_condition() {
        let until = |expression: &str| {
            let condition = MatchCondition { name: ROLLED_OUT.to_owned(), expression: expression.to_owned() };
            Suspension::of(&condition)
        };
        let time = |text: &str| text.parse::<Timestamp>().unwrap();
        let suspension = until("timestamp(entry.time) > timestamp('2026-01-02T03:04:05Z')))");
        assert_eq!(suspension.until, Some(time("2026-01-02T03:04:05Z")));
        assert!(suspension.is_over(time("2026-01-02T03:04:06Z")) && !suspension.is_over(time("2026-01-02T03:04:05Z")));
        for unreadable in ["false", "timestamp('soon')", "timestamp('2026-01-02T03:04:05Z"] {
            assert_eq!(until(unreadable).until, None, "{unreadable}");
            assert!(!until(unreadable).is_over(time("2999-01-01T00:00:00Z")));
        }
        let later = until("timestamp('2027-01-01T00:00:00Z')");
        assert_eq!(suspension.or(later), later);
        assert_eq!(later.or(until("false")).until, None);
    }
}
