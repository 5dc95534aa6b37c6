//! The objects of users whose definitions belong to an installation. They stay when it is
//! uninstalled, and those with finalizers can't be deleted any more without its controllers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knative_operator_runtime::untyped;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};

use super::discover::{self, Group};
use super::error::ApplyError;
use super::inventory::Inventory;
use super::pages::page;
use knative_operator_objects::Id;

/// Kinds that are counted in parallel.
const CONCURRENCY: usize = 8;
/// Time limit of the counts.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of kinds that a message names.
const MAX_NAMED: usize = 5;
/// Objects of a page of internal ones, and maximum number of pages of a kind: their number is that
/// of all that users of the cluster create.
const PAGE: u32 = 500;
const MAX_PAGES: usize = 20;

/// Numbers of objects by kind, as `plural.group`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsersObjects(BTreeMap<String, u64>);

impl UsersObjects {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for UsersObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let named = all.len().min(MAX_NAMED);
        let more = if all.len() > named { format!(" and {} more kinds", all.len() - named) } else { String::new() };
        write!(f, "{}{more}", all[..named].join(", "))
    }
}

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// The objects that users create.
    pub objects: UsersObjects,
    /// Internal objects that are not installed and have finalizers: Knative creates them for those
    /// of users, and they go while its controllers run. Others need none, and some stay, such as
    /// the certificates of namespaces.
    pub internal: UsersObjects,
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
    let mut all = Counted::default();
    for group in groups {
        if let Some(plurals) = plurals.get(&group.0) {
            count_group(client, &group, plurals, inventory, &mut all).await?;
        }
    }
    Ok(all)
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

/// Number of the objects of `kind` in `group` that are installed.
fn installed(inventory: &Inventory, group: &str, kind: &str) -> u64 {
    inventory.entries.keys().filter(|id| id.group == group && id.kind == kind).count() as u64
}

/// Counts the objects of the kinds `plurals` in `group`.
async fn count_group(
    client: &Client,
    group: &Group,
    plurals: &[String],
    inventory: &Inventory,
    counted: &mut Counted,
) -> Result<(), ApplyError> {
    let name = &group.0;
    let failed = |error: &kube::Error| ApplyError::failed(format!("count objects of {name}"), error);
    let served = match discover::kinds(client, group).await {
        Ok(served) => served,
        Err(kube::Error::Api(_)) => {
            counted.unknown.insert(name.clone());
            return Ok(());
        }
        Err(error) => return Err(failed(&error)),
    };
    let resources = served.into_iter().filter(|served| served.listable).map(|served| served.kind.resource);
    let resources = resources.filter(|resource| plurals.contains(&resource.plural));
    let counts = resources.map(|resource| async move {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let count = if is_internal(name) {
            with_finalizers(&api, &resource, inventory).await
        } else {
            let others = |count: u64| count.saturating_sub(installed(inventory, &resource.group, &resource.kind));
            untyped::count(&api).await.map(others)
        };
        (format!("{}.{}", resource.plural, resource.group), count)
    });
    let mut counts = std::pin::pin!(futures::stream::iter(counts).buffer_unordered(CONCURRENCY));
    while let Some((kind, count)) = counts.next().await {
        match count {
            Ok(0) => {}
            Ok(count) if is_internal(name) => drop(counted.internal.0.insert(kind, count)),
            Ok(count) => drop(counted.objects.0.insert(kind, count)),
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(kube::Error::Api(_)) => drop(counted.unknown.insert(kind)),
            Err(error) => return Err(failed(&error)),
        }
    }
    Ok(())
}

/// Number of the objects of `resource` in `api` that have finalizers, and are not installed.
async fn with_finalizers(api: &Api<DynamicObject>, resource: &ApiResource, inventory: &Inventory) -> kube::Result<u64> {
    let has_finalizers = |meta: &ObjectMeta| meta.finalizers.iter().flatten().next().is_some();
    let is_installed = |meta: ObjectMeta| {
        let (namespace, name) = (meta.namespace.unwrap_or_default(), meta.name.unwrap_or_default());
        let id = Id { group: resource.group.clone(), kind: resource.kind.clone(), namespace, name };
        inventory.entries.contains_key(&id)
    };
    let (mut parameters, mut count) = (ListParams::default().limit(PAGE), 0);
    for _ in 0..MAX_PAGES {
        let page = page(api, &parameters).await?;
        let found = page.items.into_iter().map(|object| object.metadata).filter(has_finalizers);
        count += found.filter(|meta| !is_installed(meta.clone())).count() as u64;
        match page.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => parameters = parameters.continue_token(&next),
            None => break,
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;
    use crate::inventory::Entry;
    use knative_operator_objects::ObjectId;

    #[tokio::test]
    async fn internal_objects_count_that_only_controllers_remove() {
        const GROUP: &str = "networking.internal.knative.dev";
        let answer = |request: Request<Body>| async move {
            let version = json!({"groupVersion": format!("{GROUP}/v1alpha1"), "version": "v1alpha1"});
            let kind = |name: &str, kind: &str| json!({"name": name, "singularName": "", "namespaced": true, "kind": kind, "verbs": ["list"]});
            let object = |name: &str, finalizers: &[&str]| json!({"metadata": {"name": name, "namespace": "n", "finalizers": finalizers}});
            let list = |items: &[serde_json::Value], next: &str| json!({"kind": "List", "apiVersion": "v1", "metadata": {"continue": next}, "items": items});
            let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
            let value = match path.rsplit('/').next() {
                Some("apis") => json!({"kind": "APIGroupList", "groups": [{"name": GROUP, "versions": [version]}]}),
                Some("v1alpha1") => json!({"kind": "APIResourceList", "groupVersion": "x",
                    "resources": [kind("ingresses", "Ingress"), kind("certificates", "Certificate")]}),
                Some("ingresses") if query.contains("continue=") => list(&[object("b", &["x"])], ""),
                Some("ingresses") => {
                    list(&[object("a", &["x"]), object("none", &[]), object("installed", &["x"])], "n")
                }
                // That of a namespace, which nobody deletes.
                _ => list(&[object("wildcard", &[])], ""),
            };
            Response::builder().body(Body::from(value.to_string().into_bytes())).map_err(|error| error.to_string())
        };
        let mut inventory = Inventory::default();
        for (group, kind, namespace, name) in [
            ("apiextensions.k8s.io", "CustomResourceDefinition", "", "ingresses.networking.internal.knative.dev"),
            ("apiextensions.k8s.io", "CustomResourceDefinition", "", "certificates.networking.internal.knative.dev"),
            (GROUP, "Ingress", "n", "installed"),
        ] {
            inventory.entries.insert(ObjectId::new(group, kind, namespace, name), Entry::default());
        }
        let counted = count(&Client::new(tower::service_fn(answer), "n"), &inventory).await.unwrap();
        let expected = UsersObjects([(format!("ingresses.{GROUP}"), 2)].into());
        assert_eq!(counted, Counted { internal: expected, ..Counted::default() });
    }

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

    #[test]
    fn installed_objects_are_not_of_users() {
        let mut inventory = Inventory::default();
        for (kind, name) in [("Image", "queue-proxy"), ("Certificate", "c")] {
            let id = ObjectId::new("caching.internal.knative.dev", kind, "knative-serving", name);
            inventory.entries.insert(id, Entry::default());
        }
        assert_eq!(installed(&inventory, "caching.internal.knative.dev", "Image"), 1);
        assert_eq!(installed(&inventory, "networking.internal.knative.dev", "Image"), 0);
    }

    #[test]
    fn first_kinds_are_named() {
        let all = |count: u64| UsersObjects((0..count).map(|n| (format!("kind{n}.example.com"), n + 1)).collect());
        assert!(all(0).is_empty());
        assert_eq!(all(2).to_string(), "1 kind0.example.com, 2 kind1.example.com");
        assert!(all(7).to_string().ends_with("5 kind4.example.com and 2 more kinds"));
    }
}
