//! The objects of users whose definitions belong to an installation. They stay when it is
//! uninstalled, and those with finalizers can't be deleted any more without its controllers.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow::{self, Break, Continue};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use knative_operator_runtime::untyped;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};

use super::MAX_NAME;
use super::discover::{self, Group};
use super::error::ApplyError;
use super::inventory::Inventory;
use super::pages::page;
pub use super::users_objects::UsersObjects;
use knative_operator_objects::{Id, ObjectId};

/// Kinds that are counted in parallel.
const CONCURRENCY: usize = 8;
/// Time limit of the counts.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Number of objects in a page of a list, and maximum number of pages of a kind: users of the
/// cluster decide how many there are.
const PAGE: u32 = 500;
const MAX_PAGES: usize = 20;
/// Maximum number of objects whose controllers are looked for.
const MAX_DEPENDENTS: usize = 1000;

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// The objects that users create.
    pub objects: UsersObjects,
    /// Objects that go while Knative's controllers run: what users deleted, what Knative created
    /// for that, and, if they have no others, internal objects that are not installed and have
    /// finalizers. Internal ones without finalizers go in any case, or are not of objects of users:
    /// the `ClusterDomainClaims` of administrators, and the wildcard `Certificates` of namespaces.
    pub going: UsersObjects,
    /// Whether what goes stays as long as the installation: Knative created it for objects of that,
    /// such as for a Broker of an additional manifest.
    pub are_of_installed: bool,
    /// Kinds that can't be listed, as `plural.group`, or groups that can't be looked at: the
    /// account of the operator may have few permissions.
    pub unknown: BTreeSet<String>,
}

/// Plurals of kinds by group.
type Plurals = BTreeMap<String, Vec<String>>;

/// Counts the objects of the CustomResourceDefinitions in `inventory`.
pub async fn count(client: &Client, inventory: &Inventory) -> Result<Counted, ApplyError> {
    let mut plurals: Plurals = BTreeMap::new();
    for (plural, group) in inventory.entries.keys().filter_map(|id| of_definition(id)) {
        plurals.entry(group.to_owned()).or_default().push(plural.to_owned());
    }
    if plurals.is_empty() {
        return Ok(Counted::default());
    }
    let counted = tokio::time::timeout(TIMEOUT, count_all(client, &plurals, inventory)).await;
    // It is only asked for a message, unless the deletion waits for it.
    counted.unwrap_or_else(|_| Ok(Counted { unknown: plurals.into_keys().collect(), ..Counted::default() }))
}

async fn count_all(client: &Client, plurals: &Plurals, inventory: &Inventory) -> Result<Counted, ApplyError> {
    let groups = discover::groups(client).await;
    let groups = groups.map_err(|error| ApplyError::failed("list the API groups", &error))?;
    let (internal, of_users): (Vec<_>, Vec<_>) = groups.into_iter().partition(|group| is_internal(&group.0));
    let (mut found, mut unknown) = (Found::new(), BTreeSet::new());
    for group in &of_users {
        found.extend(count_group(client, group, plurals, inventory, &mut unknown).await?);
    }
    // Dependents are often more than what they depend on.
    found.sort_by_key(|(_, count)| *count);
    if !found.is_empty() && (!unknown.is_empty() || has_root(client, &found, plurals, inventory).await) {
        return Ok(Counted { objects: numbers(found), unknown, ..Counted::default() });
    }
    for group in &internal {
        found.extend(count_group(client, group, plurals, inventory, &mut unknown).await?);
    }
    let are_of_installed = !found.is_empty() && are_of_installed(client, &found, plurals, inventory).await;
    Ok(Counted { going: numbers(found), are_of_installed, unknown, ..Counted::default() })
}

/// Kinds with objects, and the number of these.
type Found = Vec<(ApiResource, u64)>;

fn numbers(found: Found) -> UsersObjects {
    let number = |(resource, count): (ApiResource, u64)| (format!("{}.{}", resource.plural, resource.group), count);
    found.into_iter().map(number).collect()
}

/// Whether an object of the kinds `found` stays unless somebody deletes it: it is not being
/// deleted, and no object of Knative controls it. If there is none, the garbage collector deletes
/// all. What can't be read stays.
async fn has_root(client: &Client, found: &[(ApiResource, u64)], plurals: &Plurals, inventory: &Inventory) -> bool {
    for (resource, _) in found {
        let stays = |meta: &ObjectMeta| if is_root(meta, plurals) { Break(()) } else { Continue(()) };
        if !matches!(visit_others(client, resource, inventory, stays).await, Ok(true)) {
            return true;
        }
    }
    false
}

/// Whether Knative created all objects of the kinds `found` for those of the installation.
async fn are_of_installed(
    client: &Client,
    found: &[(ApiResource, u64)],
    plurals: &Plurals,
    inventory: &Inventory,
) -> bool {
    let is_of_users = |id: &ObjectId| plurals.contains_key(&id.group) && !is_internal(&id.group);
    if !inventory.entries.keys().any(is_of_users) {
        return false;
    }
    let (mut dependents, mut count) = (BTreeMap::<_, Vec<_>>::new(), 0);
    for (resource, _) in found {
        let visit = |meta: &ObjectMeta| match with_controller(meta, resource) {
            Some((id, controller)) if count < MAX_DEPENDENTS => {
                dependents.entry(controller).or_default().push(id);
                count += 1;
                Continue(())
            }
            _ => Break(()),
        };
        if !matches!(visit_others(client, resource, inventory, visit).await, Ok(true)) {
            return false;
        }
    }
    let mut known: Vec<_> = dependents.keys().filter(|id| inventory.entries.contains_key(*id)).cloned().collect();
    while let Some(controller) = known.pop() {
        known.extend(dependents.remove(&controller).unwrap_or_default());
    }
    dependents.is_empty()
}

/// The object of `resource` with `meta`, and the object that controls it.
fn with_controller(meta: &ObjectMeta, resource: &ApiResource) -> Option<(ObjectId, ObjectId)> {
    let (namespace, name) = (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref()?);
    let owner = meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
    let (group, _) = owner.api_version.split_once('/')?;
    if [namespace, name, group, &owner.kind, &owner.name].iter().any(|text| text.len() > MAX_NAME) {
        return None;
    }
    let controller = ObjectId::new(group, &owner.kind, namespace, &owner.name);
    Some((ObjectId::new(&resource.group, &resource.kind, namespace, name), controller))
}

fn is_root(meta: &ObjectMeta, plurals: &Plurals) -> bool {
    let is_of_knative = |owner: &OwnerReference| {
        owner.controller == Some(true)
            && owner.api_version.split_once('/').is_some_and(|(group, _)| plurals.contains_key(group))
    };
    meta.deletion_timestamp.is_none() && !meta.owner_references.iter().flatten().any(is_of_knative)
}

/// Plural and group of the kind that the object `id` defines, if it is one of Knative: users create
/// objects of it, or Knative does for theirs.
pub fn of_definition(id: &Id) -> Option<(&str, &str)> {
    let names = id.name.split_once('.').filter(|_| id.kind == "CustomResourceDefinition");
    names.filter(|(_, group)| group.ends_with("knative.dev"))
}

/// Whether Knative creates the objects of `group`, not users.
fn is_internal(group: &str) -> bool {
    group.split('.').any(|part| part == "internal")
}

/// Number of the objects of `resource` that are not in `inventory`; of internal ones, those with
/// finalizers. Of very many, only the first ones are looked at.
async fn count_others(client: &Client, resource: &ApiResource, inventory: &Inventory) -> kube::Result<u64> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let is_kind = |id: &ObjectId| id.group == resource.group && id.kind == resource.kind;
    if !is_internal(&resource.group) && !inventory.entries.keys().any(is_kind) {
        return untyped::count(&api).await;
    }
    let mut count = 0;
    let add = |_: &ObjectMeta| {
        count += 1;
        Continue(())
    };
    let is_complete = visit_others(client, resource, inventory, add).await?;
    // Others may be behind those that were looked at.
    Ok(if is_complete { count } else { count.max(1) })
}

/// Calls `visit` for the objects of `resource` that are not in `inventory`; of internal ones, for
/// those with finalizers. Returns whether it was called for all: it did not end that, and they are
/// not too many.
async fn visit_others(
    client: &Client,
    resource: &ApiResource,
    inventory: &Inventory,
    mut visit: impl FnMut(&ObjectMeta) -> ControlFlow<()>,
) -> kube::Result<bool> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let mut parameters = ListParams::default().limit(PAGE);
    for _ in 0..MAX_PAGES {
        let page = page(&api, &parameters).await?;
        let mut others = page.items.iter().filter(|object| is_of_others(&object.metadata, resource, inventory));
        if others.any(|object| visit(&object.metadata).is_break()) {
            return Ok(false);
        }
        match page.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => parameters = parameters.continue_token(&next),
            None => return Ok(true),
        }
    }
    Ok(false)
}

fn is_of_others(meta: &ObjectMeta, resource: &ApiResource, inventory: &Inventory) -> bool {
    let (namespace, name) = (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
    let id = ObjectId::new(&resource.group, &resource.kind, namespace, name);
    let is_held = meta.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty());
    (is_held || !is_internal(&resource.group)) && !inventory.entries.contains_key(&id)
}

/// Counts the objects of the kinds `plurals` in `group`, and adds to `unknown` what can't be
/// listed.
async fn count_group(
    client: &Client,
    group: &Group,
    plurals: &Plurals,
    inventory: &Inventory,
    unknown: &mut BTreeSet<String>,
) -> Result<Found, ApplyError> {
    let name = &group.0;
    let Some(plurals) = plurals.get(name) else { return Ok(Found::new()) };
    let failed = |error: &kube::Error| ApplyError::failed(format!("count objects of {name}"), error);
    let served = match discover::kinds(client, group).await {
        Ok(served) => served,
        Err(kube::Error::Api(_)) => {
            unknown.insert(name.clone());
            return Ok(Found::new());
        }
        Err(error) => return Err(failed(&error)),
    };
    let resources = served.into_iter().filter(|served| served.listable).map(|served| served.kind.resource);
    let resources = resources.filter(|resource| plurals.contains(&resource.plural));
    let counts = resources.map(|resource| async move {
        let count = count_others(client, &resource, inventory).await;
        (resource, count)
    });
    let mut found = Found::new();
    let mut counts = std::pin::pin!(futures::stream::iter(counts).buffer_unordered(CONCURRENCY));
    while let Some((resource, count)) = counts.next().await {
        match count {
            Ok(0) => {}
            Ok(count) => found.push((resource, count)),
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(kube::Error::Api(_)) => drop(unknown.insert(format!("{}.{}", resource.plural, resource.group))),
            Err(error) => return Err(failed(&error)),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;
    use crate::inventory::Entry;

    #[test]
    fn internal_kinds_are_not_of_users() {
        for (name, expected) in [
            ("brokers.eventing.knative.dev", Some(false)),
            ("images.caching.internal.knative.dev", Some(true)),
            ("consumergroups.internal.kafka.eventing.knative.dev", Some(true)),
            ("gateways.example.com", None),
        ] {
            let id = ObjectId::new("apiextensions.k8s.io", "CustomResourceDefinition", "", name);
            assert_eq!(of_definition(&id).map(|(_, group)| is_internal(group)), expected, "{name}");
        }
    }

    #[tokio::test]
    async fn what_goes_is_no_object_of_users() {
        let object = |name: &str, finalizers: &[&str]| {
            let meta = json!({"name": name, "namespace": "n", "finalizers": finalizers});
            json!({"metadata": meta})
        };
        let of = |mut object: Value, kind: &str, name: &str| {
            let version = "serving.knative.dev/v1";
            object["metadata"]["ownerReferences"] =
                json!([{"apiVersion": version, "kind": kind, "name": name, "uid": "u", "controller": true}]);
            object
        };
        let group = |name: &str| {
            let version = json!({"groupVersion": format!("{name}/v1"), "version": "v1"});
            json!({"name": name, "versions": [version]})
        };
        let kind = |plural: &str, kind: &str| {
            let verbs = ["list"];
            json!({"name": plural, "singularName": "", "namespaced": true, "kind": kind, "verbs": verbs})
        };
        let respond = move |path: &str, query: &str, users_have: &[&str]| match path {
            "/apis" => {
                let groups = ["networking.internal.knative.dev", "serving.knative.dev"].map(group);
                json!({"kind": "APIGroupList", "groups": groups})
            }
            "/apis/networking.internal.knative.dev/v1" | "/apis/serving.knative.dev/v1" => {
                let claim = kind("clusterdomainclaims", "ClusterDomainClaim");
                let kinds =
                    [kind("certificates", "Certificate"), claim, kind("services", "Service"), kind("routes", "Route")];
                json!({"groupVersion": path.trim_start_matches("/apis/"), "resources": kinds})
            }
            _ => {
                let (items, next) = match path.rsplit('/').next() {
                    Some("services") if users_have.contains(&"service") => {
                        (vec![object("hello", &[]), object("own", &[])], "")
                    }
                    Some("services") => (vec![object("own", &[])], ""),
                    Some("routes") if !users_have.is_empty() => {
                        let routes = [("route", "hello"), ("own-route", "own")];
                        let routes = routes.iter().filter(|(what, _)| users_have.contains(what));
                        (routes.map(|(_, service)| of(object(service, &[]), "Service", service)).collect(), "")
                    }
                    Some("clusterdomainclaims") => (vec![object("example.com", &[])], ""),
                    // The first page has the one that is installed, and a wildcard certificate.
                    Some("certificates") if !query.contains("continue=") => {
                        (vec![object("installed", &["a"]), object("wildcard", &[])], "more")
                    }
                    Some("certificates") if users_have.contains(&"own-certificate") => {
                        (vec![of(object("route", &["a"]), "Route", "own")], "")
                    }
                    Some("certificates") => (vec![object("route", &["a"])], ""),
                    _ => (Vec::new(), ""),
                };
                json!({"kind": "List", "apiVersion": "v1", "metadata": {"continue": next}, "items": items})
            }
        };
        let definition = |name: &str| ObjectId::new("apiextensions.k8s.io", "CustomResourceDefinition", "", name);
        let ids = [
            definition("certificates.networking.internal.knative.dev"),
            definition("clusterdomainclaims.networking.internal.knative.dev"),
            definition("services.serving.knative.dev"),
            definition("routes.serving.knative.dev"),
            ObjectId::new("networking.internal.knative.dev", "Certificate", "n", "installed"),
            // One of `spec.additionalManifests`.
            ObjectId::new("serving.knative.dev", "Service", "n", "own"),
        ];
        let mut inventory = Inventory::default();
        inventory.entries.extend(ids.map(|id| (id, Entry::default())));
        let certificate = "1 certificates.networking.internal.knative.dev";
        let with_route = format!("{certificate}, 1 routes.serving.knative.dev");
        let both = "1 routes.serving.knative.dev, 1 services.serving.knative.dev";
        let with_routes = format!("{certificate}, 2 routes.serving.knative.dev");
        let cases: [(&[&str], &str, &str, bool); 6] = [
            (&[], "", certificate, false),
            (&["route"], "", &with_route, false),
            (&["service", "route"], both, "", false),
            // Of the Service of the installation, which is deleted afterwards.
            (&["own-route", "own-certificate"], "", &with_route, true),
            // What users deleted is still going.
            (&["own-route"], "", &with_route, false),
            (&["route", "own-route"], "", &with_routes, false),
        ];
        for (users_have, objects, going, are_of_installed) in cases {
            let answer = move |request: Request<Body>| {
                let uri = request.uri();
                let text = respond(uri.path(), uri.query().unwrap_or_default(), users_have).to_string();
                let response = Response::builder().body(Body::from(text.into_bytes()));
                async move { response.map_err(|error| error.to_string()) }
            };
            let counted = count(&Client::new(tower::service_fn(answer), "n"), &inventory).await.unwrap();
            assert_eq!((counted.objects.to_string().as_str(), counted.going.to_string().as_str()), (objects, going));
            assert_eq!((counted.are_of_installed, counted.unknown), (are_of_installed, BTreeSet::new()));
        }
    }
}
