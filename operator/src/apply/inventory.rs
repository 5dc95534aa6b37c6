//! Applied objects, for pruning and deletion. Pure; [`super::anchor`] stores them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::object::{Id, ObjectId};
use crate::render::plan::{Item, Plan};

/// Objects that were applied, or are about to be, by identity. The objects themselves carry their
/// state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory(pub BTreeMap<ObjectId, Entry>);

/// Inventory entry of an object. Two are equal if they are stored equally.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Entry {
    /// API version that it was applied with.
    #[serde(rename = "v")]
    pub version: String,
    /// Whether it is a completed Job, which is not created again after it was deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub done: bool,
    /// Whether it is a ClusterRole with an aggregation rule: it is deleted before the roles that it
    /// aggregates.
    #[serde(rename = "agg", default, skip_serializing_if = "std::ops::Not::not")]
    pub aggregated: bool,
    /// Whether the operator is deleting it, since an earlier plan did not contain it.
    #[serde(skip)]
    pub deleting: bool,
}

#[derive(Serialize, Deserialize)]
struct Row {
    #[serde(flatten)]
    id: Id,
    #[serde(flatten)]
    entry: Entry,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        let stored = |entry: &Self| (entry.done, entry.aggregated);
        self.version == other.version && stored(self) == stored(other)
    }
}

impl Eq for Entry {}

impl Entry {
    /// The entry for `item`.
    pub fn of(item: &Item) -> Self {
        let aggregated = item.id.kind == "ClusterRole" && item.object.parse().get("aggregationRule").is_some();
        Self { version: item.gvk.version.clone(), aggregated, done: false, deleting: false }
    }
}

impl Inventory {
    /// Adds entries for the `items` that have none, and updates the API version of the others.
    pub fn add<'i>(&mut self, items: impl Iterator<Item = &'i Item>) {
        for item in items {
            let known = self.0.entry(item.id.clone()).or_insert_with(|| Entry::of(item));
            known.version.clone_from(&item.gvk.version);
        }
    }

    /// Forgets that Jobs outside of `plan` are complete. They are about to be deleted, and run
    /// again if a later plan contains them, even if the response to the deletion is lost.
    pub fn forget_obsolete_jobs(&mut self, plan: &Plan) {
        self.0.iter_mut().filter(|(id, _)| plan.get(id).is_none()).for_each(|(_, entry)| entry.done = false);
    }

    /// The same inventory, sharing its identities with `plan` to save memory.
    #[must_use]
    pub fn share_ids(self, plan: &Plan) -> Self {
        let shared = |id: ObjectId| plan.get(&id).map_or(id, |item| item.id.clone());
        Self(self.0.into_iter().map(|(id, entry)| (shared(id), entry)).collect())
    }

    /// Serializes to JSON, one row per object.
    pub fn encode(&self) -> String {
        let rows: Vec<Row> = self.0.iter().map(|(id, entry)| Row { id: Id::clone(id), entry: entry.clone() }).collect();
        // Rows have string and boolean fields only, so they always serialize.
        serde_json::to_string(&rows).unwrap_or_default()
    }

    /// Parses a stored inventory. An unreadable one is an error: to ignore it would orphan the
    /// objects.
    pub fn decode(text: &str) -> Result<Self, serde_json::Error> {
        let rows: Vec<Row> = serde_json::from_str(text)?;
        Ok(Self(rows.into_iter().map(|row| (row.id.into(), row.entry)).collect()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use knative_operator_shared::api::{Knative, KnativeServing};
    use serde_json::json;

    use super::*;
    use crate::object::{CompactObject, Owner};
    use crate::render::plan::Rendered;

    #[test]
    fn inventory_round_trips() {
        let id = ObjectId::new("apps", "Deployment", "a", "b");
        let entry = Entry { version: "v1".into(), done: true, aggregated: true, deleting: false };
        let cluster = ObjectId::new("", "Namespace", "", "n");
        let inventory = Inventory([(id, entry), (cluster, Entry { version: "v1".into(), ..Entry::default() })].into());
        assert_eq!(Inventory::decode(&inventory.encode()).unwrap(), inventory);
        assert!(Inventory::decode("rubbish").is_err());
    }

    #[test]
    fn entry_has_the_version_that_was_applied_last() {
        let of = |api: &str| {
            let object = json!({"apiVersion": api, "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a", "namespace": "n"}});
            let owner = Owner::of(&Knative::Serving(KnativeServing::default()), "u");
            Plan::new(Arc::new(Rendered::new(vec![CompactObject::new(&object)])), &owner)
        };
        let mut inventory = Inventory::default();
        for version in ["v2beta2", "v2"] {
            inventory.add(of(&format!("autoscaling/{version}")).items().iter());
            assert_eq!(inventory.0.values().map(|entry| entry.version.as_str()).collect::<Vec<_>>(), [version]);
        }
    }

    #[test]
    fn obsolete_jobs_run_again_later() {
        let job =
            |name: &str| json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "n"}});
        let rendered = Rendered::new(vec![CompactObject::new(&job("migrate-1.1"))]);
        let owner = Owner::of(&Knative::Serving(KnativeServing::default()), "u");
        let plan = Plan::new(Arc::new(rendered), &owner);
        let id = |name: &str| ObjectId::new("batch", "Job", "n", name);
        let done = Entry { done: true, ..Entry::default() };
        let mut inventory = Inventory([(id("migrate-1.0"), done.clone()), (id("migrate-1.1"), done)].into());
        inventory.forget_obsolete_jobs(&plan);
        assert_eq!([id("migrate-1.0"), id("migrate-1.1")].map(|id| inventory.0[&id].done), [false, true]);
    }
}
