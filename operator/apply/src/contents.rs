//! What others have put into a namespace that existed before an installation: it may read the
//! Secrets of the installation, or change its Pods.

use std::collections::BTreeSet;
use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use knative_operator_shared::text::{clip, one_line};
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use super::MAX_NAME;
use super::error::ApplyError;
use super::managed_fields::owned_fields;
use super::pages::page;

/// Maximum number of objects of a kind that are read.
const PAGE: u32 = 100;
/// Maximum length of the list in bytes, which others determine.
const MAX_TEXT: usize = 512;
/// Maximum length of a uid in bytes: those of an API server are not longer.
const MAX_UID: usize = 64;
/// The account that each namespace has. Knative's Pods have others.
const DEFAULT_ACCOUNT: &str = "ServiceAccount default";
/// Label of each namespace with its name, set by the API server.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// What [`of_others`] lists: API groups and resources.
pub const LISTED: [(&str, &str); 11] = [
    ("rbac.authorization.k8s.io", "rolebindings"),
    ("", "serviceaccounts"),
    ("apps", "deployments"),
    ("apps", "statefulsets"),
    ("apps", "daemonsets"),
    ("batch", "cronjobs"),
    ("batch", "jobs"),
    ("apps", "replicasets"),
    ("", "pods"),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
];

/// Names the RoleBindings, ServiceAccounts and workloads in `namespace`, in which nothing is
/// installed yet, and the admission webhooks that select it by its name.
pub async fn of_others(client: &Client, namespace: &str) -> Result<Vec<String>, ApplyError> {
    let mut all = Listing { client, namespace, uids: BTreeSet::new(), found: Vec::new() };
    // One after another: each may be large.
    all.list::<RoleBinding>().await?;
    // It controls nothing.
    all.uids.clear();
    // Who made one with the name of Knative's may have a token of it, also without a RoleBinding.
    all.list::<ServiceAccount>().await?;
    all.found.retain(|object| object != DEFAULT_ACCOUNT);
    all.uids.clear();
    all.list::<Deployment>().await?;
    all.list::<StatefulSet>().await?;
    all.list::<DaemonSet>().await?;
    all.list::<CronJob>().await?;
    all.list::<Job>().await?;
    all.list::<ReplicaSet>().await?;
    all.list::<Pod>().await?;
    all.found.extend(webhooks(client, namespace).await?);
    Ok(all.found)
}

/// The names of `found` for people; empty if there are none.
pub fn text(found: &[String]) -> String {
    clip(&one_line(&found.join(", ")), MAX_TEXT)
}

/// Whether `found` may be an installation, and not only who may do what in the namespace.
pub fn may_be_installation(found: &[String]) -> bool {
    found.iter().any(|object| !["RoleBinding ", "ServiceAccount "].iter().any(|kind| object.starts_with(kind)))
}

/// What is listed in a namespace.
struct Listing<'a> {
    client: &'a Client,
    namespace: &'a str,
    /// Uids of all that is listed.
    uids: BTreeSet<String>,
    /// Kind and name of what nothing else in the list controls.
    found: Vec<String>,
}

impl Listing<'_> {
    /// Lists objects of a kind, without those that an object controls that was listed before: it
    /// stands for them. All who may write an object can name any other one as its controller, such
    /// as a ConfigMap, or one that it controls itself.
    async fn list<K>(&mut self) -> Result<(), ApplyError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let api = Api::<K>::namespaced(self.client.clone(), self.namespace);
        let listed = page(&api, &ListParams::default().limit(PAGE)).await.map_err(failed(&K::kind(&())))?;
        let all: Vec<ObjectMeta> = listed.items.into_iter().take(PAGE as usize).map(|object| object.metadata).collect();
        let uids = &self.uids;
        let is_controlled = |meta: &ObjectMeta| {
            let mut owners = meta.owner_references.iter().flatten();
            owners.any(|owner| owner.controller == Some(true) && uids.contains(&owner.uid))
        };
        let others = all.iter().filter(|meta| !is_controlled(meta));
        let names = others.map(|meta| described(&K::kind(&()), meta));
        self.found.extend(names);
        self.uids.extend(all.into_iter().filter_map(|meta| meta.uid).filter(|uid| uid.len() <= MAX_UID));
        Ok(())
    }
}

/// Kind and name of an object.
fn described(kind: &str, meta: &ObjectMeta) -> String {
    format!("{kind} {}", clip(meta.name.as_deref().unwrap_or_default(), MAX_NAME))
}

/// The admission webhooks that select `namespace` by its name.
async fn webhooks(client: &Client, namespace: &str) -> Result<Vec<String>, ApplyError> {
    // One after another: each may be large.
    let mut found = configurations::<ValidatingWebhookConfiguration>(client, namespace, |one| {
        one.webhooks.iter().flatten().filter_map(|webhook| webhook.namespace_selector.as_ref()).collect()
    })
    .await?;
    let mutating = configurations::<MutatingWebhookConfiguration>(client, namespace, |one| {
        one.webhooks.iter().flatten().filter_map(|webhook| webhook.namespace_selector.as_ref()).collect()
    });
    found.extend(mutating.await?);
    Ok(found)
}

/// The configurations of others of which one of the `selectors` selects `namespace` by its name.
async fn configurations<K>(
    client: &Client,
    namespace: &str,
    selectors: impl Fn(&K) -> Vec<&LabelSelector>,
) -> Result<Vec<String>, ApplyError>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let kind = K::kind(&());
    let listed = Api::<K>::all(client.clone()).list(&ListParams::default().limit(PAGE)).await.map_err(failed(&kind))?;
    let others = listed.items.iter().take(PAGE as usize).filter(|one| {
        owned_fields(one.meta()).is_none() && selectors(one).into_iter().any(|selector| names(selector, namespace))
    });
    Ok(others.map(|one| described(&kind, one.meta())).collect())
}

/// Whether `selector` selects `namespace` by its name.
fn names(selector: &LabelSelector, namespace: &str) -> bool {
    let is_label = selector.match_labels.iter().flatten().any(|(key, value)| key == NAME_LABEL && value == namespace);
    let is_listed = selector.match_expressions.iter().flatten().any(|requirement| {
        requirement.key == NAME_LABEL
            && requirement.operator == "In"
            && requirement.values.iter().flatten().any(|value| value == namespace)
    });
    is_label || is_listed
}

fn failed(kind: &str) -> impl FnOnce(kube::Error) -> ApplyError {
    move |error| ApplyError::failed(format!("list {kind}"), &error)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    #[test]
    fn workloads_may_be_an_installation() {
        let found = ["RoleBinding a", "ServiceAccount b", "Deployment controller"].map(str::to_owned);
        assert!(may_be_installation(&found) && !may_be_installation(&found[..2]) && !may_be_installation(&[]));
        let expected = "RoleBinding a, ServiceAccount b, Deployment controller";
        assert_eq!((text(&found).as_str(), text(&[]).as_str()), (expected, ""));
    }

    #[tokio::test]
    async fn what_others_run_is_found_whatever_controls_it() {
        let object = |name: &str, uid: &str, controller: &str| {
            let owner =
                json!([{"apiVersion": "v1", "kind": "Any", "name": "a", "uid": controller, "controller": true}]);
            json!({"metadata": {"name": name, "uid": uid, "ownerReferences": owner}})
        };
        let answer = move |request: Request<Body>| {
            let items = match request.uri().path().rsplit('/').next() {
                Some("rolebindings") => vec![object("binding", "b", "none")],
                Some("serviceaccounts") => vec![object("default", "d", "none"), object("controller", "s", "b")],
                Some("deployments") => vec![object("web", "1", "none")],
                Some("replicasets") => vec![object("web-1", "2", "1"), object("circle", "3", "4")],
                Some("pods") => [
                    ("web-1-a", "5", "2"),
                    ("of-binding", "6", "b"),
                    ("of-account", "7", "s"),
                    ("of-config-map", "8", "c"),
                ]
                .map(|(name, uid, controller)| object(name, uid, controller))
                .to_vec(),
                Some("jobs") => vec![object("circle", "4", "3")],
                _ => Vec::new(),
            };
            let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items});
            async move {
                Response::builder().body(Body::from(list.to_string().into_bytes())).map_err(|error| error.to_string())
            }
        };
        let found = of_others(&Client::new(tower::service_fn(answer), "n"), "n").await.unwrap();
        let expected = [
            "RoleBinding binding",
            "ServiceAccount controller",
            "Deployment web",
            "Job circle",
            "Pod of-binding",
            "Pod of-account",
            "Pod of-config-map",
        ];
        assert_eq!(found, expected);
    }

    #[tokio::test]
    async fn names_of_a_hostile_cluster_are_cut() {
        let answer = |request: Request<Body>| async move {
            let metadata = json!({"name": "a ".repeat(1 << 20), "uid": "u".repeat(1 << 20)});
            let of_accounts = request.uri().path().ends_with("serviceaccounts");
            let items = vec![json!({"metadata": metadata}); if of_accounts { 3 } else { 0 }];
            let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items});
            Response::builder().body(Body::from(list.to_string().into_bytes())).map_err(|error| error.to_string())
        };
        let found = of_others(&Client::new(tower::service_fn(answer), "n"), "n").await.unwrap();
        assert_eq!(found.len(), 3);
        assert!(found.iter().map(String::len).sum::<usize>() < 3 * 300, "{found:?}");
    }

    #[tokio::test]
    async fn requests_are_those_that_are_listed() {
        let requested: Arc<Mutex<BTreeSet<(String, String)>>> = Arc::default();
        let record = Arc::clone(&requested);
        let answer = move |request: Request<Body>| {
            // `/api/v1/…` or `/apis/GROUP/v1/…`, with the resource at the end.
            let path: Vec<_> = request.uri().path().split('/').collect();
            let group = if path[1] == "apis" { path[2] } else { "" };
            record.lock().unwrap().insert((group.to_owned(), path[path.len() - 1].to_owned()));
            async move {
                let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []});
                let response = Response::builder().body(Body::from(list.to_string().into_bytes()));
                response.map_err(|error| error.to_string())
            }
        };
        let client = Client::new(tower::service_fn(answer), "n");
        assert_eq!(of_others(&client, "n").await, Ok(Vec::new()));
        let listed = LISTED.map(|(group, resource)| (group.to_owned(), resource.to_owned()));
        assert_eq!(*requested.lock().unwrap(), BTreeSet::from(listed));
    }
}
