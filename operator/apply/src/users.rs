//! The objects of users whose definitions belong to an installation. They stay when it is
//! uninstalled, and those with finalizers can't be deleted any more without its controllers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use futures::StreamExt;
use knative_operator_runtime::untyped;
use kube::{Api, Client};

use super::discover::{self, Group};
use super::error::ApplyError;
use super::inventory::Inventory;
use knative_operator_objects::Id;

/// Kinds that are counted in parallel.
const CONCURRENCY: usize = 8;
/// Time limit of the counts.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of kinds that a message names.
const MAX_NAMED: usize = 5;

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
    /// Internal objects that are not installed: Knative creates them for those of users. They go
    /// with them, those with finalizers while its controllers run.
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
        let count = untyped::count(&Api::all_with(client.clone(), &resource)).await;
        let others = |count: u64| count.saturating_sub(installed(inventory, &resource.group, &resource.kind));
        (format!("{}.{}", resource.plural, resource.group), count.map(others))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::Entry;
    use knative_operator_objects::ObjectId;

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
