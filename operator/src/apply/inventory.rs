//! What was applied. Pure; [`super::home`] stores it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::object::{Id, ObjectId};
use crate::plan::{Item, Plan};

/// What was applied or was going to be, by identity. What is so of each object, the object itself tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory(pub BTreeMap<ObjectId, Entry>);

/// What is remembered of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// API version that it was applied with.
    #[serde(rename = "v")]
    pub version: String,
    /// Whether it is a Job that has completed: it is not run again when it has gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub done: bool,
    /// Whether it is a ClusterRole whose rules the control plane aggregates: it is removed before those that it takes
    /// its rules from.
    #[serde(rename = "agg", default, skip_serializing_if = "std::ops::Not::not")]
    pub aggregated: bool,
}

#[derive(Serialize, Deserialize)]
struct Row {
    #[serde(flatten)]
    id: Id,
    #[serde(flatten)]
    entry: Entry,
}

impl Entry {
    /// What is remembered of `item`.
    pub fn of(item: &Item) -> Self {
        let aggregated = item.id.kind == "ClusterRole" && item.object.open().get("aggregationRule").is_some();
        Self { version: item.gvk.version.clone(), aggregated, done: false }
    }
}

impl Inventory {
    /// Remembers what isn't remembered yet of `items`.
    pub fn add<'i>(&mut self, items: impl Iterator<Item = &'i Item>) {
        for item in items {
            self.0.entry(item.id.clone()).or_insert_with(|| Entry::of(item));
        }
    }

    /// The same, which shares with `plan` what both have.
    #[must_use]
    pub fn sharing(self, plan: &Plan) -> Self {
        let shared = |id: ObjectId| plan.find(&id).map_or(id, |item| item.id.clone());
        Self(self.0.into_iter().map(|(id, entry)| (shared(id), entry)).collect())
    }

    /// As stored: JSON, one row an object.
    pub fn encode(&self) -> String {
        let rows: Vec<Row> = self.0.iter().map(|(id, entry)| Row { id: Id::clone(id), entry: entry.clone() }).collect();
        // Rows are plain text fields: serialising them can't fail.
        serde_json::to_string(&rows).unwrap_or_default()
    }

    /// Out of what is stored. Something unreadable is an error: forgetting what was applied would leave it behind.
    pub fn decode(text: &str) -> Result<Self, serde_json::Error> {
        let rows: Vec<Row> = serde_json::from_str(text)?;
        Ok(Self(rows.into_iter().map(|row| (row.id.into(), row.entry)).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read_again() {
        let id = ObjectId::new("apps", "Deployment", "a", "b");
        let entry = Entry { version: "v1".into(), done: true, aggregated: true };
        let cluster = ObjectId::new("", "Namespace", "", "n");
        let inventory = Inventory([(id, entry), (cluster, Entry { version: "v1".into(), ..Entry::default() })].into());
        assert_eq!(Inventory::decode(&inventory.encode()).unwrap(), inventory);
        assert!(Inventory::decode("rubbish").is_err());
    }
}
