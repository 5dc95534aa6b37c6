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
    /// The objects that there are.
    pub objects: UsersObjects,
    /// Kinds that can't be listed, as `plural.group`, or groups that can't be looked at: the
    /// account of the operator may have few permissions.
    pub unknown: BTreeSet<String>,
}

/// Counts the objects of the CustomResourceDefinitions in `inventory`.
pub async fn count(client: &Client, inventory: &Inventory) -> Result<Counted, ApplyError> {
    let mut plurals: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (plural, group) in inventory.entries.keys().filter_map(|id| of_definition(id)) {
        plurals.entry(group.to_owned()).or_default().push(plural.to_owned());
    }
    if plurals.is_empty() {
        return Ok(Counted::default());
    }
    let counted = tokio::time::timeout(TIMEOUT, count_all(client, &plurals)).await;
    // It is only asked for a message, unless the deletion waits for it.
    counted.unwrap_or_else(|_| Ok(Counted { unknown: plurals.into_keys().collect(), ..Counted::default() }))
}

async fn count_all(client: &Client, plurals: &BTreeMap<String, Vec<String>>) -> Result<Counted, ApplyError> {
    let groups = discover::groups(client).await;
    let groups = groups.map_err(|error| ApplyError::failed("list the API groups", &error))?;
    let mut all = Counted::default();
    for group in groups {
        if let Some(plurals) = plurals.get(&group.0) {
            count_group(client, &group, plurals, &mut all).await?;
        }
    }
    Ok(all)
}

/// Plural and group of the kind that the object `id` defines, if users create objects of it:
/// Knative's, and not internal ones.
pub fn of_definition(id: &Id) -> Option<(&str, &str)> {
    let names = id.name.split_once('.').filter(|_| id.kind == "CustomResourceDefinition");
    names.filter(|(_, group)| !group.split('.').any(|part| part == "internal") && group.ends_with("knative.dev"))
}

/// Counts the objects of the kinds `plurals` in `group`.
async fn count_group(
    client: &Client,
    group: &Group,
    plurals: &[String],
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
        (format!("{}.{}", resource.plural, resource.group), count)
    });
    let mut counts = std::pin::pin!(futures::stream::iter(counts).buffer_unordered(CONCURRENCY));
    while let Some((kind, count)) = counts.next().await {
        match count {
            Ok(0) => {}
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
    use knative_operator_objects::ObjectId;

    #[test]
    fn internal_kinds_are_not_of_users() {
        for (name, is_of_users) in [
            ("brokers.eventing.knative.dev", true),
            ("images.caching.internal.knative.dev", false),
            ("consumergroups.internal.kafka.eventing.knative.dev", false),
            ("gateways.example.com", false),
        ] {
            let id = ObjectId::new("apiextensions.k8s.io", "CustomResourceDefinition", "", name);
            assert_eq!(of_definition(&id).is_some(), is_of_users, "{name}");
        }
    }

    #[test]
    fn first_kinds_are_named() {
        let all = |count: u64| UsersObjects((0..count).map(|n| (format!("kind{n}.example.com"), n + 1)).collect());
        assert!(all(0).is_empty());
        assert_eq!(all(2).to_string(), "1 kind0.example.com, 2 kind1.example.com");
        assert!(all(7).to_string().ends_with("5 kind4.example.com and 2 more kinds"));
    }
}
