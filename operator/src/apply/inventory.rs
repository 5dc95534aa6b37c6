//! What was applied. Pure; [`super::home`] stores it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::object::{Digest, ObjectId};
use crate::plan::Item;

/// What was applied, by identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory(pub BTreeMap<ObjectId, Entry>);

/// What is remembered of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// API version that it was applied with.
    #[serde(rename = "v")]
    pub version: String,
    /// Digest of what was applied; none while it is only meant to be.
    #[serde(rename = "d", default, skip_serializing_if = "Digest::is_none")]
    pub digest: Digest,
    /// What it was marked with afterwards.
    #[serde(rename = "m", default, skip_serializing_if = "Marker::is_none")]
    pub marker: Marker,
    /// Whether it is a Job that has completed: it is not run again when it has gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub done: bool,
    /// Whether it is a ClusterRole whose rules the control plane aggregates: it is removed before those that it takes
    /// its rules from.
    #[serde(rename = "agg", default, skip_serializing_if = "std::ops::Not::not")]
    pub aggregated: bool,
}

/// Changes whenever somebody changes the object: its uid and generation where it has one, else its resourceVersion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Marker(String);

impl Marker {
    /// The marker of an object with `meta`.
    pub fn of(meta: &ObjectMeta) -> Self {
        match meta.generation.filter(|g| *g > 0) {
            Some(generation) => Self(format!("g{generation}@{}", meta.uid.as_deref().unwrap_or_default())),
            None => Self(format!("v{}", meta.resource_version.as_deref().unwrap_or_default())),
        }
    }

    fn is_none(&self) -> bool {
        self.0.is_empty()
    }
}

#[derive(Serialize, Deserialize)]
struct Row {
    #[serde(flatten)]
    id: ObjectId,
    #[serde(flatten)]
    entry: Entry,
}

impl Entry {
    /// What is remembered of `item` before it is applied.
    pub fn meant(item: &Item) -> Self {
        let aggregated = item.object.get("aggregationRule").is_some();
        Self { version: item.gvk.version.clone(), aggregated, ..Self::default() }
    }

    /// What is remembered of `item` once it was applied.
    pub fn applied(item: &Item, meta: &ObjectMeta) -> Self {
        Self { digest: item.digest.clone(), marker: Marker::of(meta), ..Self::meant(item) }
    }
}

impl Inventory {
    /// As stored: JSON, one row an object.
    pub fn encode(&self) -> String {
        let rows: Vec<Row> = self.0.iter().map(|(id, entry)| Row { id: id.clone(), entry: entry.clone() }).collect();
        // Rows are plain text fields: serialising them can't fail.
        serde_json::to_string(&rows).unwrap_or_default()
    }

    /// Out of what is stored. Something unreadable is an error: forgetting what was applied would leave it behind.
    pub fn decode(text: &str) -> Result<Self, serde_json::Error> {
        let rows: Vec<Row> = serde_json::from_str(text)?;
        Ok(Self(rows.into_iter().map(|row| (row.id, row.entry)).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read_again() {
        let id = ObjectId { group: "apps".into(), kind: "Deployment".into(), namespace: "a".into(), name: "b".into() };
        let entry = Entry {
            version: "v1".into(),
            digest: Digest::of(&serde_json::json!({})),
            marker: Marker("g1@u".into()),
            done: true,
            aggregated: true,
        };
        let cluster = ObjectId { group: String::new(), kind: "Namespace".into(), namespace: String::new(), name: "n".into() };
        let inventory = Inventory([(id, entry), (cluster, Entry { version: "v1".into(), ..Entry::default() })].into());
        assert_eq!(Inventory::decode(&inventory.encode()).unwrap(), inventory);
        assert!(Inventory::decode("rubbish").is_err());
    }
}
