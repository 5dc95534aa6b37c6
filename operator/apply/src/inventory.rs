//! Applied objects, for pruning and deletion. Pure; [`super::anchor`] stores them.

use std::collections::BTreeMap;

use serde::de::Error;
use serde::{Deserialize, Serialize};

use knative_operator_objects::plan::{Item, Plan};
use knative_operator_objects::{Id, ObjectId};

/// Maximum number of objects of an installation.
pub const MAX_OBJECTS: usize = 5000;
/// Maximum length of a stored inventory in bytes, and of a name in it. Others may write the
/// ConfigMap; etcd stores no more than 1.5 MiB.
const MAX_LENGTH: usize = 3 << 19;
const MAX_NAME: usize = 253;

/// Objects that were applied, or are about to be, by identity. The objects themselves carry their
/// state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// One for each object.
    pub entries: BTreeMap<ObjectId, Entry>,
}

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

impl Row {
    /// Whether its parts can be those of the path of an object.
    fn is_valid(&self) -> bool {
        let Id { group, kind, namespace, name } = &self.id;
        let is_part = |part: &String| {
            let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'/' | b'%' | b'?' | b'#' | b'\\');
            part.len() <= MAX_NAME && part.bytes().all(is_plain) && !matches!(part.as_str(), "." | "..")
        };
        !name.is_empty() && [group, kind, namespace, name, &self.entry.version].into_iter().all(is_part)
    }
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
            let known = self.entries.entry(item.id.clone()).or_insert_with(|| Entry::of(item));
            known.version.clone_from(&item.gvk.version);
        }
    }

    /// Forgets that Jobs outside of `plan` are complete. They are about to be deleted, and run
    /// again if a later plan contains them, even if the response to the deletion is lost.
    pub fn forget_obsolete_jobs(&mut self, plan: &Plan) {
        self.entries.iter_mut().filter(|(id, _)| plan.get(id).is_none()).for_each(|(_, entry)| entry.done = false);
    }

    /// The same inventory, sharing its identities with `plan` to save memory.
    #[must_use]
    pub fn share_ids(self, plan: &Plan) -> Self {
        let shared = |id: ObjectId| plan.get(&id).map_or(id, |item| item.id.clone());
        Self { entries: self.entries.into_iter().map(|(id, entry)| (shared(id), entry)).collect() }
    }

    /// Whether it has more objects than can be stored.
    pub fn is_too_large(&self) -> bool {
        self.entries.len() > MAX_OBJECTS
    }

    /// Why it is too large, if objects that show whose they are were looked for.
    pub fn excess(&self) -> Option<String> {
        let why = || format!("the cluster has more than {MAX_OBJECTS} objects that claim to be of this resource");
        self.is_too_large().then(why)
    }

    /// Serializes to JSON, one row per object.
    pub fn encode(&self) -> String {
        let rows: Vec<Row> =
            self.entries.iter().map(|(id, entry)| Row { id: Id::clone(id), entry: entry.clone() }).collect();
        // Rows have string and boolean fields only, so they always serialize.
        serde_json::to_string(&rows).unwrap_or_default()
    }

    /// Parses a stored inventory. An unreadable one is an error: to ignore it would orphan the
    /// objects.
    pub fn decode(text: &str) -> Result<Self, serde_json::Error> {
        if text.len() > MAX_LENGTH {
            return Err(Error::custom(format!("it is longer than {MAX_LENGTH} bytes")));
        }
        let rows: Vec<Row> = serde_json::from_str(text)?;
        if rows.len() > MAX_OBJECTS {
            return Err(Error::custom(format!("it has more than {MAX_OBJECTS} objects")));
        }
        if let Some(index) = rows.iter().position(|row| !row.is_valid()) {
            return Err(Error::custom(format!("[{index}] is not the identity of an object")));
        }
        Ok(Self { entries: rows.into_iter().map(|row| (row.id.into(), row.entry)).collect() })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use knative_operator_shared::api::{Knative, KnativeServing};
    use serde_json::json;

    use super::*;
    use knative_operator_objects::plan::Rendered;
    use knative_operator_objects::{CompactObject, Owner};

    #[test]
    fn inventory_round_trips() {
        let id = ObjectId::new("apps", "Deployment", "a", "b");
        let entry = Entry { version: "v1".into(), done: true, aggregated: true, deleting: false };
        let cluster = ObjectId::new("", "Namespace", "", "n");
        let inventory =
            Inventory { entries: [(id, entry), (cluster, Entry { version: "v1".into(), ..Entry::default() })].into() };
        assert_eq!(Inventory::decode(&inventory.encode()).unwrap(), inventory);
        assert!(Inventory::decode("rubbish").is_err());
    }

    #[test]
    fn rows_that_are_no_objects_make_it_unreadable() {
        let decode = |field: &str, value: &str| {
            let mut row = json!({"g": "apps", "k": "Deployment", "ns": "n", "n": "a", "v": "v1"});
            row[field] = json!(value);
            Inventory::decode(&json!([row]).to_string())
        };
        for name in ["system:a", "A.b-c_d"] {
            assert!(decode("n", name).is_ok(), "{name}");
        }
        for part in ["..", ".", "a/b", "../../secrets/a", "a?watch=1", "a%2fb", "a#b", "a b", "a\n", "ä"] {
            for field in ["g", "k", "ns", "n", "v"] {
                let error = decode(field, part).unwrap_err().to_string();
                assert_eq!(error, "[0] is not the identity of an object", "{field} {part}");
            }
        }
        assert!(decode("n", "").is_err() && decode("n", &"a".repeat(254)).is_err() && decode("ns", "").is_ok());
    }

    #[test]
    fn size_is_limited() {
        let rows = |count: usize| {
            let row = |name: usize| json!({"k": "ConfigMap", "ns": "n", "n": name.to_string(), "v": "v1"});
            Inventory::decode(&json!((0..count).map(row).collect::<Vec<_>>()).to_string())
        };
        assert_eq!(rows(MAX_OBJECTS).unwrap().entries.len(), MAX_OBJECTS);
        assert_eq!(rows(MAX_OBJECTS + 1).unwrap_err().to_string(), "it has more than 5000 objects");
        let long = format!("[{}]", " ".repeat(MAX_LENGTH));
        assert_eq!(Inventory::decode(&long).unwrap_err().to_string(), "it is longer than 1572864 bytes");
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
            assert_eq!(inventory.entries.values().map(|entry| entry.version.as_str()).collect::<Vec<_>>(), [version]);
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
        let mut inventory =
            Inventory { entries: [(id("migrate-1.0"), done.clone()), (id("migrate-1.1"), done)].into() };
        inventory.forget_obsolete_jobs(&plan);
        assert_eq!([id("migrate-1.0"), id("migrate-1.1")].map(|id| inventory.entries[&id].done), [false, true]);
    }
}
