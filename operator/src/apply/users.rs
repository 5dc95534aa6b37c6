//! The objects of users whose definitions belong to an installation. They stay when it is
//! uninstalled, and those with finalizers can't be deleted any more without its controllers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use futures::{StreamExt, TryStreamExt};
use knative_operator_runtime::error_text;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, discovery};

use super::inventory::Inventory;
use crate::object::Id;

/// Kinds that are counted in parallel.
const CONCURRENCY: usize = 8;
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

/// Counts the objects of the CustomResourceDefinitions in `inventory`. The error is for people.
pub async fn count(client: &Client, inventory: &Inventory) -> Result<Counted, String> {
    let mut plurals: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (plural, group) in inventory.0.keys().filter_map(|id| of_definition(id)) {
        plurals.entry(group.to_owned()).or_default().push(plural.to_owned());
    }
    let counts = plurals.into_iter().map(|(group, plurals)| async move { count_group(client, &group, &plurals).await });
    let found: Vec<Counted> = futures::stream::iter(counts).buffer_unordered(CONCURRENCY).try_collect().await?;
    let mut all = Counted::default();
    for Counted { objects, unknown } in found {
        all.objects.0.extend(objects.0);
        all.unknown.extend(unknown);
    }
    Ok(all)
}

/// Plural and group of the kind that the object `id` defines, if users create objects of it: not of
/// internal kinds.
pub fn of_definition(id: &Id) -> Option<(&str, &str)> {
    let names = id.name.split_once('.').filter(|_| id.kind == "CustomResourceDefinition");
    names.filter(|(_, group)| !group.contains(".internal."))
}

/// Counts the objects of the kinds `plurals` in `group`.
async fn count_group(client: &Client, group: &str, plurals: &[String]) -> Result<Counted, String> {
    let failed = |error: &kube::Error| format!("cannot count objects of {group}: {}", error_text(error));
    let served = match discovery::group(client, group).await {
        Ok(served) => served,
        // The definitions are gone.
        Err(kube::Error::Discovery(_)) => return Ok(Counted::default()),
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Counted::default()),
        Err(kube::Error::Api(_)) => {
            return Ok(Counted { unknown: BTreeSet::from([group.to_owned()]), ..Counted::default() });
        }
        Err(error) => return Err(failed(&error)),
    };
    let mut counted = Counted::default();
    for (resource, _) in served.recommended_resources() {
        if !plurals.contains(&resource.plural) {
            continue;
        }
        let kind = format!("{}.{group}", resource.plural);
        match count_kind(client, &resource).await {
            Ok(0) => {}
            Ok(count) => drop(counted.objects.0.insert(kind, count)),
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(kube::Error::Api(_)) => drop(counted.unknown.insert(kind)),
            Err(error) => return Err(failed(&error)),
        }
    }
    Ok(counted)
}

async fn count_kind(client: &Client, resource: &ApiResource) -> kube::Result<u64> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let list = api.list_metadata(&ListParams::default().limit(1)).await?;
    let more = list.metadata.remaining_item_count.unwrap_or_default();
    Ok(list.items.len() as u64 + u64::try_from(more).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_kinds_are_named() {
        let all = |count: u64| UsersObjects((0..count).map(|n| (format!("kind{n}.example.com"), n + 1)).collect());
        assert!(all(0).is_empty());
        assert_eq!(all(2).to_string(), "1 kind0.example.com, 2 kind1.example.com");
        assert!(all(7).to_string().ends_with("5 kind4.example.com and 2 more kinds"));
    }
}
