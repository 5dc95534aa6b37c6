//! Deletes the webhook configurations when the namespace of the webhook is deleted: nobody answers
//! reviews any more, and the API server would refuse the requests. The namespace also owns them, so
//! that the garbage collector deletes them if no webhook runs then.

use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use knative_operator_runtime::error_text;
use knative_operator_runtime::identity::patch_as;
use knative_operator_runtime::watch::watch;
use kube::api::{DeleteParams, Patch};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;

/// Delay of the look whether the namespace owns the configurations, until it does: at first,
/// doubled each time, and at most.
const OWN_DELAY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
/// Delay before a retry.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Makes `namespace` own the configurations `validating` and `mutating`. Waits until it is being
/// deleted, then deletes the configurations `validating` and
/// `mutating`, and goes on waiting, until the task ends.
pub async fn retreat_with_namespace(client: &Client, manager: &str, namespace: &str, validating: &str, mutating: &str) {
    let config = watcher::Config::default().fields(&format!("metadata.name={namespace}"));
    let mut events = watch(Api::<PartialObjectMeta<Namespace>>::all(client.clone()), config);
    // The uid of the namespace, until it owns both.
    let (mut owner, mut delay) = (None, OWN_DELAY.0);
    loop {
        let due = async {
            match owner {
                Some(_) => tokio::time::sleep(delay).await,
                None => std::future::pending().await,
            }
        };
        let event = tokio::select! {
            event = events.next() => event,
            () = due => {
                let of = (namespace, owner.as_deref().unwrap_or_default());
                let owned = own::<ValidatingWebhookConfiguration>(client, manager, validating, of).await;
                if own::<MutatingWebhookConfiguration>(client, manager, mutating, of).await && owned {
                    owner = None;
                }
                delay = (delay * 2).min(OWN_DELAY.1);
                continue;
            }
        };
        match event {
            Some(Ok(watcher::Event::Apply(found) | watcher::Event::InitApply(found))) => {
                if found.metadata.deletion_timestamp.is_none() {
                    (owner, delay) = (found.metadata.uid, OWN_DELAY.0);
                    continue;
                }
                owner = None;
                tracing::warn!(namespace, "the namespace is being deleted, so the webhook configurations are deleted");
                delete::<ValidatingWebhookConfiguration>(client, validating).await;
                delete::<MutatingWebhookConfiguration>(client, mutating).await;
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => tracing::warn!(namespace, error = error_text(&error), "watch interrupted"),
            None => return,
        }
    }
}

/// Makes the namespace with this name and uid own the configuration `name`, in place of another one
/// with that name: a namespace that is gone would delete it. Returns whether it does.
async fn own<K>(client: &Client, manager: &str, name: &str, namespace: (&str, &str)) -> bool
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let configurations = Api::<K>::all(client.clone());
    let owned = async {
        let Some(found) = configurations.get_metadata_opt(name).await? else { return Ok(false) };
        let before = found.metadata.owner_references.unwrap_or_default();
        let after = owners(&before, namespace);
        if after == before {
            return Ok(true);
        }
        let patch = json!({"metadata": {"ownerReferences": after, "resourceVersion": found.metadata.resource_version}});
        configurations.patch_metadata(name, &patch_as(manager), &Patch::Merge(patch)).await.map(|_| true)
    };
    match owned.await {
        Ok(is_owned) => is_owned,
        // Somebody changed it since: again.
        Err(kube::Error::Api(status)) if status.code == 409 => false,
        Err(error) => {
            let kind = K::kind(&());
            tracing::warn!(kind = %kind, name, error = error_text(&error), "cannot let the namespace own the webhook configuration");
            false
        }
    }
}

/// `before` with the namespace of this name and uid, and no other namespace.
fn owners(before: &[OwnerReference], (name, uid): (&str, &str)) -> Vec<OwnerReference> {
    let own = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Namespace".to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    };
    let others = before.iter().filter(|owner| owner.kind != own.kind || owner.name != own.name).cloned();
    others.chain([own.clone()]).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_with_this_uid_is_the_only_one_that_owns() {
        let of_user = OwnerReference { kind: "ConfigMap".to_owned(), uid: "1".to_owned(), ..OwnerReference::default() };
        let first = owners(std::slice::from_ref(&of_user), ("ns", "2"));
        assert_eq!(first.iter().map(|owner| owner.uid.as_str()).collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(owners(&first, ("ns", "2")), first);
        // Restored from a backup into a new namespace.
        let again = owners(&first, ("ns", "3"));
        assert_eq!(again.iter().map(|owner| owner.uid.as_str()).collect::<Vec<_>>(), ["1", "3"]);
    }
}
