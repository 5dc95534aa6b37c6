//! Finds the objects of an installation whose inventory is lost: looks at all kinds for what shows
//! that it belongs to the owner.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knative_operator_shared::label::{APP_NAME, OWNER_DIGEST};
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta, Status};
use kube::{Api, Client};

use super::discover::{self, Served};
use super::error::{ApplyError, is_of_proxy};
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

/// API groups with a dot that Kubernetes itself serves. Others with the same domain are those of
/// CustomResourceDefinitions, such as gateway.networking.k8s.io.
const OF_KUBERNETES: [&str; 18] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
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
        let found = list(client, proof, &resource).await;
        (resource, found)
    });
    let mut lists = std::pin::pin!(futures::stream::iter(lists).buffer_unordered(CONCURRENCY));
    while let Some((resource, found)) = lists.next().await {
        match found {
            Ok((found, is_complete)) => {
                swept.inventory.entries.extend(found);
                if !is_complete {
                    swept.cannot_look_at(format!("all {}", name(&resource)));
                }
            }
            // Its definition is gone meanwhile, or it allows no list.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 405) => {}
            Err(kube::Error::Api(status)) if is_broken(&resource.group, &status) => {
                swept.cannot_look_at(name(&resource));
            }
            Err(error) => return Err(ApplyError::failed(format!("list {}", name(&resource)), &error)),
        }
        if swept.inventory.is_too_large() {
            break;
        }
    }
    Ok(swept)
}

/// Whether `status` is that of an API which doesn't work: one of others may be gone for good, such
/// as an aggregated API server or a conversion webhook, and one that refuses to list has no
/// objects. What a proxy answers says nothing about an API.
fn is_broken(group: &str, status: &Status) -> bool {
    // Kubernetes refuses definitions of groups without a dot.
    let is_of_kubernetes = !group.contains('.') || OF_KUBERNETES.contains(&group);
    let is_error = (status.code >= 500 && !is_of_kubernetes) || matches!(status.code, 400 | 403 | 406 | 415 | 422);
    is_error && !is_of_proxy(status)
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
        let found = discover::kinds(client, &group).await;
        (group.0, found)
    });
    let mut lookups = std::pin::pin!(futures::stream::iter(lookups).buffer_unordered(CONCURRENCY));
    let mut kinds = Vec::new();
    while let Some((group, found)) = lookups.next().await {
        let found = match found {
            Ok(found) => found,
            Err(kube::Error::Api(status)) if is_broken(&group, &status) => {
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

/// The objects of `resource` that show `proof`, and whether all of its objects were looked at. Ends
/// after more of them than an inventory can have.
async fn list(client: &Client, proof: &Proof, resource: &ApiResource) -> kube::Result<(Vec<(ObjectId, Entry)>, bool)> {
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

    #[test]
    fn apis_of_others_may_be_broken() {
        let broken = |group: &str, code: u16| is_broken(group, &Status { code, ..Status::default() });
        for group in ["", "apps", "batch", "networking.k8s.io", "rbac.authorization.k8s.io", "apiextensions.k8s.io"] {
            assert!(!broken(group, 500) && !broken(group, 503) && broken(group, 403), "{group}");
        }
        for group in [
            "groupsnapshot.storage.k8s.io",
            "gateway.networking.k8s.io",
            "metrics.k8s.io",
            "custom.metrics.k8s.io",
            "serving.knative.dev",
            "example.com",
        ] {
            assert!(broken(group, 500) && broken(group, 503) && !broken(group, 429), "{group}");
        }
    }

    #[test]
    fn answers_of_proxies_say_nothing_about_an_api() {
        let text = |code| Status::failure("no tunnel", "Failed to parse error data").with_code(code);
        for group in ["apps", "serving.knative.dev", "example.com"] {
            for code in [400, 502, 504] {
                assert!(!is_broken(group, &text(code)), "{group} {code}");
            }
        }
        // Of an aggregated API whose server is gone.
        assert!(is_broken("custom.metrics.k8s.io", &text(503)));
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
        let proof = Proof {
            marks: vec!["mine".to_owned()],
            former: Vec::new(),
            component: Component::Serving,
            owner: String::new(),
            unmarked: false,
            unlabeled: false,
        };
        let (found, is_complete) = list(&client, &proof, &resource).await.unwrap();
        assert_eq!((found.len(), is_complete), (6000, true));
        assert!(Inventory { entries: found.into_iter().collect() }.is_too_large());
    }

    #[test]
    fn only_objects_of_the_owner_are_found() {
        let proof = |unmarked| Proof {
            marks: vec!["mine".to_owned()],
            former: Vec::new(),
            component: Component::Serving,
            owner: String::new(),
            unmarked,
            unlabeled: false,
        };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
        let found = |unmarked: bool, patch: &Value| {
            let mut meta = json!({"name": "a", "annotations": {DIGEST: "x"}, "managedFields": [
                {"manager": FIELD_MANAGER, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {}}}]});
            json_patch::merge(&mut meta, patch);
            is_own(&proof(unmarked), &resource, &serde_json::from_value(meta).unwrap())
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
