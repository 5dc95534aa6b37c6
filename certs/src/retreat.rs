//! Deletes the webhook configurations when the namespace of the webhook is deleted: nobody answers
//! reviews any more, and the API server would refuse the requests.

use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Namespace;
use knative_operator_runtime::error_text;
use knative_operator_runtime::watch::watch;
use kube::api::DeleteParams;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

/// Delay before a retry.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Waits until `namespace` is being deleted, then deletes the configurations `validating` and
/// `mutating`, and goes on waiting, until the task ends.
pub async fn retreat_with_namespace(client: &Client, namespace: &str, validating: &str, mutating: &str) {
    let config = watcher::Config::default().fields(&format!("metadata.name={namespace}"));
    let mut events = watch(Api::<PartialObjectMeta<Namespace>>::all(client.clone()), config);
    while let Some(event) = events.next().await {
        let found = match event {
            Ok(watcher::Event::Apply(found) | watcher::Event::InitApply(found)) => found,
            Ok(_) => continue,
            Err(error) => {
                tracing::warn!(namespace, error = error_text(&error), "watch interrupted");
                continue;
            }
        };
        if found.metadata.deletion_timestamp.is_some() {
            tracing::warn!(namespace, "the namespace is being deleted, so the webhook configurations are deleted");
            delete::<ValidatingWebhookConfiguration>(client, validating).await;
            delete::<MutatingWebhookConfiguration>(client, mutating).await;
        }
    }
}

/// Deletes the configuration `name`. The account of the webhook may be gone at any time.
async fn delete<K>(client: &Client, name: &str)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let configurations = Api::<K>::all(client.clone());
    for _ in 0..10 {
        match configurations.delete(name, &DeleteParams::default()).await {
            Ok(_) => return,
            Err(kube::Error::Api(status)) if status.code == 404 => return,
            Err(error) => {
                let kind = K::kind(&());
                tracing::warn!(kind = %kind, name, error = error_text(&error), "cannot delete the webhook configuration");
            }
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
}
