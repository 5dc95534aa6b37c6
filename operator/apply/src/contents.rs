//! What others have put into a namespace that existed before an installation: it may read the
//! Secrets of the installation, or change its Pods.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use knative_operator_shared::text::{clip, one_line};
use kube::api::ListParams;
use kube::core::{ObjectList, PartialObjectMeta};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use super::MAX_NAME;
use super::error::ApplyError;
use super::managed_fields::owned_fields;
use super::pages::page;

/// Number of objects in a page of a list.
const PAGE: u32 = 100;
/// Maximum number of objects of a kind in a namespace that are looked at, and of configurations of
/// webhooks in a cluster.
const MAX_OBJECTS: usize = 100;
const MAX_CONFIGURATIONS: usize = 1000;
/// Time limit of the whole look.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Stands for the objects of a kind that were not looked at, in place of a name.
const MORE: &str = "(more)";
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
/// installed yet, and the admission webhooks that select it by its name. What is not looked at, of
/// very many, counts as found.
pub async fn of_others(client: &Client, namespace: &str) -> Result<Vec<String>, ApplyError> {
    let found = tokio::time::timeout(TIMEOUT, all_of_others(client, namespace)).await;
    found.unwrap_or_else(|_| Err(ApplyError::Other(format!("the API server did not list all within {TIMEOUT:?}"))))
}

async fn all_of_others(client: &Client, namespace: &str) -> Result<Vec<String>, ApplyError> {
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
        let (api, kind) = (&api, K::kind(&()));
        let list = |parameters: ListParams| async move { page(api, &parameters).await }.boxed();
        let (mut names, mut uids) = (Vec::new(), Vec::new());
        let is_controlled = |meta: &ObjectMeta| {
            let mut owners = meta.owner_references.iter().flatten();
            owners.any(|owner| owner.controller == Some(true) && self.uids.contains(&owner.uid))
        };
        let visit = |object: PartialObjectMeta<K>| {
            if !is_controlled(&object.metadata) {
                names.push(described(&kind, &object.metadata));
            }
            uids.extend(object.metadata.uid.filter(|uid| uid.len() <= MAX_UID));
        };
        let are_more = visit_pages(list, MAX_OBJECTS, visit).await.map_err(failed(&kind))?;
        self.found.extend(names);
        self.found.extend(are_more.then(|| format!("{kind} {MORE}")));
        self.uids.extend(uids);
        Ok(())
    }
}

/// Visits the objects of the pages of `list`, which has few of large objects, and at most `most`.
/// Whether there are more.
async fn visit_pages<'a, T: Clone>(
    list: impl Fn(ListParams) -> BoxFuture<'a, kube::Result<ObjectList<T>>>,
    most: usize,
    mut visit: impl FnMut(T),
) -> kube::Result<bool> {
    let (mut parameters, mut left) = (ListParams::default().limit(PAGE), most);
    loop {
        let listed = list(parameters.clone()).await?;
        let mut items = listed.items.into_iter();
        for object in items.by_ref().take(left) {
            left -= 1;
            visit(object);
        }
        match listed.metadata.continue_.filter(|next| !next.is_empty()) {
            _ if items.next().is_some() => return Ok(true),
            Some(_) if left == 0 => return Ok(true),
            Some(next) => parameters = parameters.continue_token(&next),
            None => return Ok(false),
        }
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
    let (api, kind, mut found) = (&Api::<K>::all(client.clone()), K::kind(&()), Vec::new());
    let list = |parameters: ListParams| async move { api.list(&parameters).await }.boxed();
    let visit = |one: K| {
        if owned_fields(one.meta()).is_none() && selectors(&one).into_iter().any(|selector| names(selector, namespace))
        {
            found.push(described(&kind, one.meta()));
        }
    };
    let are_more = visit_pages(list, MAX_CONFIGURATIONS, visit).await.map_err(failed(&kind))?;
    found.extend(are_more.then(|| format!("{kind} {MORE}")));
    Ok(found)
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
    use knative_operator_runtime::body::BodyError;
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
    async fn large_objects_hide_no_others() {
        // One account fits into a response, and the first one is in each namespace. Another cluster
        // has more than are looked at.
        for (count, expected) in [(3, vec!["ServiceAccount e-1", "ServiceAccount e-2"]), (1, vec![])] {
            let found = of_others(&accounts(count, 1), "n").await;
            assert_eq!(found, Ok(expected.into_iter().map(str::to_owned).collect()));
        }
        for count in [500, usize::MAX] {
            let found = of_others(&accounts(count, 100), "n").await.unwrap();
            assert_eq!((found.len(), found.last().map(String::as_str)), (100, Some("ServiceAccount (more)")));
        }
    }

    /// A cluster with `count` ServiceAccounts, of which `most` fit into a response; without end,
    /// its API server knows no pages.
    fn accounts(count: usize, most: usize) -> Client {
        let answer = move |request: Request<Body>| async move {
            let value = |key: &str| {
                let query = request.uri().query().unwrap_or_default();
                query.split('&').find_map(|part| part.strip_prefix(key)).and_then(|value| value.parse::<usize>().ok())
            };
            let (limit, start) = (value("limit=").unwrap_or_default(), value("continue=").unwrap_or_default());
            let is_asked = request.uri().path().ends_with("serviceaccounts");
            if is_asked && limit > most {
                return Err(BodyError::TooManyValues);
            }
            let end = if count == usize::MAX { 200 } else { count.min(start + limit) };
            let name = |index| if index == 0 { "default".to_owned() } else { format!("e-{index}") };
            let items: Vec<_> =
                (start..end).filter(|_| is_asked).map(|index| json!({"metadata": {"name": name(index)}})).collect();
            let more = is_asked && end < count && count != usize::MAX;
            let next = if more { end.to_string() } else { String::new() };
            let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {"continue": next}, "items": items});
            Ok(Response::new(Body::from(list.to_string().into_bytes())))
        };
        Client::new(tower::service_fn(answer), "n")
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
