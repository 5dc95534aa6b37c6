//! Finds the objects of an installation whose inventory is lost: looks at all kinds for what shows
//! that it belongs to the owner.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knative_operator_shared::label::{APP_NAME, OWNER_DIGEST};
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::{Api, Client};

use super::broken_api::Trial;
use super::discover::{self, Group, Served};
use super::error::ApplyError;
use super::inventory::{Entry, Inventory, MAX_OBJECTS};
use super::managed_fields::owned_fields;
use super::pages::page;
use super::proof::Proof;
use super::remove::NEVER;
use knative_operator_objects::ObjectId;

/// Number of objects in a page of a list.
const PAGE: u32 = 500;
/// Kinds that are looked at in parallel.
const CONCURRENCY: usize = 2;
/// What control planes and nodes write: none is part of a release, and there are many.
const OTHERS: [&str; 9] = [
    "componentstatuses",
    "controllerrevisions",
    "endpoints",
    "endpointslices",
    "events",
    "leases",
    "nodes",
    "pods",
    "replicasets",
];
/// Maximum number of pages of a list. A hostile API server may answer without end.
const MAX_PAGES: usize = 400;
/// Maximum number of kinds of a cluster, and of those that could not be looked at which are named.
const MAX_KINDS: usize = 10_000;
const MAX_UNKNOWN: usize = 500;
/// Time limit of a sweep.
const TIMEOUT: Duration = Duration::from_secs(300);

/// What a sweep found.
#[derive(Debug, Default)]
pub struct Swept {
    /// The objects of the installation. If they are more than an inventory can have, the sweep
    /// ended there: anybody may write what an object shows.
    pub inventory: Inventory,
    /// What the operator can't look at, as `plural.group` or the group: kinds that its account may
    /// not list, and those of others whose API doesn't work.
    pub unknown: BTreeSet<String>,
}

impl Swept {
    fn cannot_look_at(&mut self, what: String) {
        if self.unknown.len() < MAX_UNKNOWN {
            self.unknown.insert(what);
        }
    }
}

/// The objects on the cluster that show `proof`. Fails if something can't be looked at now, which
/// may have some.
pub async fn sweep(client: &Client, proof: &Proof) -> Result<Swept, ApplyError> {
    let limited = tokio::time::timeout(TIMEOUT, sweep_all(client, proof)).await;
    limited.unwrap_or_else(|_| Err(ApplyError::Other(format!("looking for its objects takes longer than {TIMEOUT:?}"))))
}

async fn sweep_all(client: &Client, proof: &Proof) -> Result<Swept, ApplyError> {
    let mut swept = Swept::default();
    let kinds = listable(client, &mut swept.unknown).await?;
    let lists = kinds.into_iter().map(|resource| async move {
        let found = list_or_give_up(client, proof, &resource).await;
        (resource, found)
    });
    let mut lists = std::pin::pin!(futures::stream::iter(lists).buffer_unordered(CONCURRENCY));
    while let Some((resource, found)) = lists.next().await {
        match found {
            Ok(Some((found, is_complete))) => {
                swept.inventory.entries.extend(found);
                if !is_complete {
                    swept.cannot_look_at(format!("all {}", name(&resource)));
                }
            }
            Ok(None) => swept.cannot_look_at(name(&resource)),
            // Its definition is gone meanwhile, or it allows no list.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 405) => {}
            Err(error) => return Err(ApplyError::failed(format!("list {}", name(&resource)), &error)),
        }
        if swept.inventory.is_too_large() {
            break;
        }
    }
    Ok(swept)
}

fn name(resource: &ApiResource) -> String {
    let group = if resource.group.is_empty() { String::new() } else { format!(".{}", resource.group) };
    format!("{}{group}", resource.plural)
}

/// The kinds that the cluster serves, each in one version.
async fn listable(client: &Client, unknown: &mut BTreeSet<String>) -> Result<Vec<ApiResource>, ApplyError> {
    let groups = discover::groups(client).await;
    let mut groups = groups.map_err(|error| ApplyError::failed("list the API groups of the cluster", &error))?;
    groups.push((String::new(), vec!["v1".to_owned()]));
    groups.retain(|(group, _)| !NEVER.contains(&group.as_str()));
    let lookups = groups.into_iter().map(|group| async move {
        let found = kinds_or_give_up(client, &group).await;
        (group.0, found)
    });
    let mut lookups = std::pin::pin!(futures::stream::iter(lookups).buffer_unordered(CONCURRENCY));
    let mut kinds = Vec::new();
    while let Some((group, found)) = lookups.next().await {
        let found = match found {
            Ok(Some(found)) => found,
            Ok(None) => {
                unknown.insert(group);
                continue;
            }
            Err(error) => return Err(ApplyError::failed(format!("look at API group {group}"), &error)),
        };
        let is_looked_at = |served: &Served| served.listable && !OTHERS.contains(&served.kind.resource.plural.as_str());
        kinds.extend(found.into_iter().filter(is_looked_at).map(|served| served.kind.resource));
        if kinds.len() > MAX_KINDS || unknown.len() > MAX_UNKNOWN {
            return Err(ApplyError::Other(format!(
                "the cluster serves more than {MAX_KINDS} kinds, or more than {MAX_UNKNOWN} API groups that can't be looked at"
            )));
        }
    }
    Ok(kinds)
}

/// All kinds of `group`; `None` if its API doesn't work.
async fn kinds_or_give_up(client: &Client, group: &Group) -> kube::Result<Option<Vec<Served>>> {
    let mut trial = Trial::new(client, &group.0);
    loop {
        match discover::kinds(client, group).await {
            Ok(found) => return Ok(Some(found)),
            Err(error) => {
                if trial.is_broken(error).await? {
                    return Ok(None);
                }
            }
        }
    }
}

/// The same as [`list`]; `None` if the API of `resource` doesn't work.
async fn list_or_give_up(client: &Client, proof: &Proof, resource: &ApiResource) -> kube::Result<Option<Found>> {
    let mut trial = Trial::new(client, &resource.group);
    loop {
        match list(client, proof, resource).await {
            Ok(found) => return Ok(Some(found)),
            Err(error) => {
                if trial.is_broken(error).await? {
                    return Ok(None);
                }
            }
        }
    }
}

/// Objects, and whether all were looked at.
type Found = (Vec<(ObjectId, Entry)>, bool);

/// The objects of `resource` that show `proof`, and whether all of its objects were looked at. Ends
/// after more of them than an inventory can have.
async fn list(client: &Client, proof: &Proof, resource: &ApiResource) -> kube::Result<Found> {
    let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client.clone(), resource);
    let (mut parameters, mut found) = (ListParams::default().limit(PAGE), Vec::new());
    for _ in 0..MAX_PAGES {
        let page = page(&api, &parameters).await?;
        let own = page.items.into_iter().map(|object| object.metadata).filter(|meta| is_own(proof, resource, meta));
        found.extend(own.map(|meta| {
            // What the operator applied, by field.
            let aggregated = owned_fields(&meta).is_some_and(|fields| fields.get("f:aggregationRule").is_some());
            let (namespace, name) = (meta.namespace.unwrap_or_default(), meta.name.unwrap_or_default());
            let id = ObjectId::new(&resource.group, &resource.kind, &namespace, &name);
            (id, Entry { version: resource.version.clone(), aggregated, ..Entry::default() })
        }));
        match page.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) if found.len() <= MAX_OBJECTS => parameters = parameters.continue_token(&next),
            _ => return Ok((found, true)),
        }
    }
    Ok((found, false))
}

/// Whether the object with `meta` is part of the installation. Without an inventory, one without a
/// mark is only if it has the label of the component, and this operator applied it: a Go operator
/// on the cluster may have installed its own meanwhile.
fn is_own(proof: &Proof, resource: &ApiResource, meta: &ObjectMeta) -> bool {
    let has_mark = meta.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(OWNER_DIGEST));
    let label = meta.labels.as_ref().and_then(|labels| labels.get(APP_NAME));
    let is_labeled = label.is_some_and(|label| label == proof.component.canonical());
    (has_mark || is_labeled && owned_fields(meta).is_some()) && proof.objection(&resource.kind, meta).is_none()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use knative_operator_shared::api::Component;
    use knative_operator_shared::label::{DIGEST, FIELD_MANAGER};
    use kube::client::Body;
    use kube::core::GroupVersionKind;
    use serde_json::{Value, json};

    use super::*;

    /// A client of the cluster that answers each path with a status and a body.
    fn cluster(answer: impl Fn(&str) -> (u16, String) + Clone + Send + Sync + 'static) -> Client {
        let answer = move |request: Request<Body>| {
            let (code, body) = answer(request.uri().path());
            let mut response = Response::new(Body::from(body.into_bytes()));
            *response.status_mut() = code.try_into().unwrap();
            async move { Ok::<_, Infallible>(response) }
        };
        Client::new(tower::service_fn(answer), "n")
    }

    fn proof() -> Proof {
        Proof {
            marks: vec!["mine".to_owned()],
            former: Vec::new(),
            component: Component::Serving,
            owner: String::new(),
            unmarked: false,
            unlabeled: false,
        }
    }

    /// A cluster with an aggregated API that answers with 502 and text, about its kinds or about
    /// the objects of one. `is_reached`: whether its own API server is reached.
    fn with_broken_api(has_kinds: bool, is_reached: bool) -> Client {
        let resource = |plural: &str, kind: &str| json!({"name": plural, "singularName": "", "namespaced": true, "kind": kind, "verbs": ["list"]});
        let kinds = move |version: &str, resource: &Value| json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": [resource]});
        cluster(move |path| {
            let body = match path {
                "/apis" => {
                    let version = json!({"groupVersion": "custom.metrics.k8s.io/v1", "version": "v1"});
                    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [{"name": "custom.metrics.k8s.io", "versions": [version]}]})
                }
                "/api/v1" => kinds("v1", &resource("configmaps", "ConfigMap")),
                "/apis/custom.metrics.k8s.io/v1" if has_kinds => {
                    kinds("custom.metrics.k8s.io/v1", &resource("values", "Value"))
                }
                "/api/v1/namespaces/kube-system" if is_reached => {
                    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "kube-system"}})
                }
                "/api/v1/configmaps" => {
                    let managed = json!({"manager": FIELD_MANAGER, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}});
                    let meta = json!({"name": "a", "namespace": "n", "annotations": {DIGEST: "x", OWNER_DIGEST: "mine"}, "managedFields": [managed]});
                    json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "items": [{"metadata": meta}]})
                }
                _ => return (502, "Bad Gateway".to_owned()),
            };
            (200, body.to_string())
        })
    }

    #[tokio::test]
    async fn broken_aggregated_api_does_not_hide_the_other_objects() {
        for (has_kinds, expected) in [(true, "values.custom.metrics.k8s.io"), (false, "custom.metrics.k8s.io")] {
            let swept = sweep(&with_broken_api(has_kinds, true), &proof()).await.unwrap();
            let found: Vec<String> = swept.inventory.entries.keys().map(ToString::to_string).collect();
            assert_eq!(found, ["ConfigMap n/a"]);
            assert_eq!(swept.unknown, BTreeSet::from([expected.to_owned()]));
            // The same text, of a tunnel that doesn't reach the API server.
            let failed = sweep(&with_broken_api(has_kinds, false), &proof()).await.unwrap_err().to_string();
            assert!(failed.contains("custom.metrics.k8s.io"), "{failed}");
        }
    }

    #[tokio::test]
    async fn sweep_ends_with_more_objects_than_an_inventory_has() {
        let answer = |request: Request<Body>| async move {
            let object = |name: usize| {
                json!({"metadata": {"name": name.to_string(), "namespace": "n", "annotations": {DIGEST: "x", OWNER_DIGEST: "mine"},
                    "managedFields": [{"manager": FIELD_MANAGER, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}]}})
            };
            let query = request.uri().query().unwrap_or_default();
            let page: usize = query.split_once("continue=").map_or(0, |(_, page)| page.parse().unwrap());
            let items: Vec<Value> = (0..1000).map(|number| object(page * 1000 + number)).collect();
            let list = json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                "metadata": {"continue": (page + 1).to_string()}, "items": items});
            Ok::<_, Infallible>(Response::new(Body::from(list.to_string().into_bytes())))
        };
        let client = Client::new(tower::service_fn(answer), "n");
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
        let (found, is_complete) = list(&client, &proof(), &resource).await.unwrap();
        assert_eq!((found.len(), is_complete), (6000, true));
        assert!(Inventory { entries: found.into_iter().collect() }.is_too_large());
    }

    #[test]
    fn only_objects_of_the_owner_are_found() {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
        let found = |unmarked: bool, patch: &Value| {
            let mut meta = json!({"name": "a", "annotations": {DIGEST: "x"}, "managedFields": [
                {"manager": FIELD_MANAGER, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {}}}]});
            json_patch::merge(&mut meta, patch);
            is_own(&Proof { unmarked, ..proof() }, &resource, &serde_json::from_value(meta).unwrap())
        };
        let marked = |mark: &str| json!({"annotations": {OWNER_DIGEST: mark}});
        let labeled = |name: &str| json!({"labels": {APP_NAME: name}});
        assert!(found(false, &marked("mine")) && !found(true, &marked("another")));
        assert!(!found(false, &labeled("knative-serving")) && found(true, &labeled("knative-serving")));
        assert!(!found(true, &labeled("knative-eventing")) && !found(true, &json!({})));
        // A Go operator installed it.
        let mut of_go_operator = labeled("knative-serving");
        of_go_operator["managedFields"] = json!([{"manager": "manifestival", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}]);
        assert!(!found(true, &of_go_operator));
        // A copy with the mark, by somebody else.
        let mut copied = marked("mine");
        copied["managedFields"] = json!([]);
        assert!(!found(true, &copied));
    }
}
