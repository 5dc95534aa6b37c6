//! Deletes the webhook configurations when the namespace of the webhook is deleted: nobody answers
//! reviews any more, and the API server would refuse the requests. The namespace also owns them, so
//! that the garbage collector deletes them if no webhook runs then.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use knative_operator_runtime::error_text;
use knative_operator_runtime::identity::patch_as;
use knative_operator_runtime::watch::watch;
use kube::api::{DeleteParams, Patch};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;

/// Delay of the look whether the namespace owns the configurations: at first, doubled each time
/// until it does, and at most.
const OWN_DELAY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
/// The annotation of objects that Argo CD deploys.
const ARGO_CD_TRACKING: &str = "argocd.argoproj.io/tracking-id";
/// The label of objects that Argo CD deploys, if it tracks by label.
const ARGO_CD_LABEL: &str = "app.kubernetes.io/instance";
/// The annotation of objects of a Helm release.
const HELM_RELEASE: &str = "meta.helm.sh/release-name";
/// Delay before a retry.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Makes `namespace` own the configurations `validating` and `mutating`. Waits until it is being
/// deleted, then deletes the configurations `validating` and
/// `mutating`, and goes on waiting, until the task ends.
pub async fn retreat_with_namespace(client: &Client, manager: &str, namespace: &str, validating: &str, mutating: &str) {
    let config = watcher::Config::default().fields(&format!("metadata.name={namespace}"));
    let mut events = watch(Api::<PartialObjectMeta<Namespace>>::all(client.clone()), config);
    // The uid of the namespace, until it is being deleted.
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
                let owned = own::<MutatingWebhookConfiguration>(client, manager, mutating, of).await && owned;
                // Somebody may remove the reference, or let another tool deploy the configurations.
                delay = if owned { OWN_DELAY.1 } else { (delay * 2).min(OWN_DELAY.1) };
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

/// Makes the namespace with this name and uid own the configuration `name`, in place of any other
/// one: a namespace that is gone would delete it. Returns whether the owners are as they should be.
async fn own<K>(client: &Client, manager: &str, name: &str, namespace: (&str, &str)) -> bool
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let configurations = Api::<K>::all(client.clone());
    let owned = async {
        let Some(found) = configurations.get_metadata_opt(name).await? else { return Ok(false) };
        let before = found.metadata.owner_references.clone().unwrap_or_default();
        let after = owners(&found.metadata, namespace);
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

/// The owners that the configuration with `meta` should have: those that it has, with the namespace
/// of this name and uid, and no other namespace. No namespace if Argo CD deploys it: Argo CD
/// deletes no object with an owner, so the configuration would stay without a webhook, and refuse
/// requests.
fn owners(meta: &ObjectMeta, (name, uid): (&str, &str)) -> Vec<OwnerReference> {
    let own = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Namespace".to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    };
    let others = meta.owner_references.iter().flatten().filter(|owner| owner.kind != own.kind).cloned();
    others.chain((!is_of_argo_cd(meta)).then(|| own.clone())).collect()
}

/// Whether Argo CD deploys the object with `meta`: by its annotation, or by its default label,
/// which the chart doesn't set. An object of a Helm release may have the label for other reasons.
fn is_of_argo_cd(meta: &ObjectMeta) -> bool {
    let has = |all: &Option<BTreeMap<String, String>>, key| all.as_ref().is_some_and(|all| all.contains_key(key));
    has(&meta.annotations, ARGO_CD_TRACKING)
        || (has(&meta.labels, ARGO_CD_LABEL) && !has(&meta.annotations, HELM_RELEASE))
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
        let meta =
            |owners: &[OwnerReference]| ObjectMeta { owner_references: Some(owners.to_vec()), ..ObjectMeta::default() };
        let first = owners(&meta(&[of_user]), ("ns", "2"));
        assert_eq!(first.iter().map(|owner| owner.uid.as_str()).collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(owners(&meta(&first), ("ns", "2")), first);
        // Restored from a backup into a new namespace, or moved to another one.
        for (name, uid) in [("ns", "3"), ("other", "4")] {
            let again = owners(&meta(&first), (name, uid));
            assert_eq!(again.iter().map(|owner| owner.uid.as_str()).collect::<Vec<_>>(), ["1", uid]);
        }
    }

    #[test]
    fn namespace_owns_nothing_that_argo_cd_deletes() {
        let meta = |annotations: &[&str], labels: &[&str]| {
            let map = |keys: &[&str]| Some(keys.iter().map(|key| ((*key).to_owned(), "a".to_owned())).collect());
            let mut meta = ObjectMeta { annotations: map(annotations), labels: map(labels), ..ObjectMeta::default() };
            meta.owner_references = Some(owners(&ObjectMeta::default(), ("ns", "1")));
            meta
        };
        let owned = |annotations: &[&str], labels: &[&str]| !owners(&meta(annotations, labels), ("ns", "1")).is_empty();
        assert!(!owned(&[ARGO_CD_TRACKING], &[]));
        assert!(!owned(&[ARGO_CD_TRACKING, HELM_RELEASE], &[ARGO_CD_LABEL]));
        assert!(!owned(&[], &[ARGO_CD_LABEL]));
        assert!(owned(&[HELM_RELEASE], &[ARGO_CD_LABEL]));
        assert!(owned(&[HELM_RELEASE], &[]));
        assert!(owned(&[], &[]));
    }
}
