//! Revisions of a fleet: `ControllerRevision`s (`apps/v1`), identified by their content.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::ControllerRevision;
use knative_operator_shared::api::KnativeFleetSpec;
use knative_operator_shared::api::fleet::{FleetOverride, Template};
use knative_operator_shared::label::{FLEET, FLEET_FAILED};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::template::label_value;

/// Number of earlier revisions to keep, by default.
const HISTORY_LIMIT: usize = 10;

/// What a revision contains: the part of the spec that resources are made of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RevisionData {
    /// Template of the KnativeServing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serving: Option<Template>,
    /// Template of the KnativeEventing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eventing: Option<Template>,
    /// Overrides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<FleetOverride>,
}

/// A stored revision.
#[derive(Clone, Debug, PartialEq)]
pub struct Revision {
    /// Name of the ControllerRevision.
    pub name: String,
    /// Number: the newest has the highest.
    pub number: i64,
    /// Generation of the fleet in which its rollout failed.
    pub failed_generation: Option<i64>,
    /// Content.
    pub data: RevisionData,
}

impl RevisionData {
    /// The content of `spec`.
    pub fn of(spec: &KnativeFleetSpec) -> Self {
        let KnativeFleetSpec { serving, eventing, overrides, .. } = spec.clone();
        Self { serving, eventing, overrides }
    }

    /// Name of the revision of `fleet` with this content.
    pub fn name(&self, fleet: &str) -> String {
        let digest = Sha256::digest(json!(self).to_string());
        let digest: String = digest.iter().take(5).map(|byte| format!("{byte:02x}")).collect();
        format!("{fleet}-{digest}")
    }

    /// The ControllerRevision of `fleet` in `namespace`, owned by it.
    pub fn manifest(&self, namespace: &str, fleet: &str, owner: &Value, number: i64) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "ControllerRevision",
            "metadata": {"name": self.name(fleet), "namespace": namespace, "labels": {FLEET: label_value(fleet)}, "ownerReferences": [owner]},
            "revision": number,
            "data": self,
        })
    }
}

impl Revision {
    /// Parses `stored`; `None` if it has other content.
    pub fn parse(stored: &ControllerRevision) -> Option<Self> {
        let annotation = stored.metadata.annotations.as_ref().and_then(|all| all.get(FLEET_FAILED));
        Some(Self {
            name: stored.metadata.name.clone()?,
            number: stored.revision.unwrap_or_default(),
            failed_generation: annotation.and_then(|generation| generation.parse().ok()),
            data: serde_json::from_value(stored.data.0.clone()).ok()?,
        })
    }
}

/// The number of the next revision: one more than that of all others.
pub fn next_number<'r>(revisions: impl Iterator<Item = &'r Revision>) -> i64 {
    revisions.map(|revision| revision.number).max().unwrap_or_default() + 1
}

/// Names of the revisions to delete: the oldest beyond `limit`, unless they are `used`.
pub fn obsolete(revisions: &BTreeMap<String, Revision>, limit: Option<i32>, used: &BTreeSet<&str>) -> Vec<String> {
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(HISTORY_LIMIT);
    let mut unused: Vec<&Revision> = revisions.values().filter(|r| !used.contains(r.name.as_str())).collect();
    unused.sort_by_key(|revision| (revision.number, revision.name.clone()));
    let excess = unused.len().saturating_sub(limit);
    unused.into_iter().take(excess).map(|revision| revision.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(version: &str) -> RevisionData {
        let template =
            serde_json::from_value(json!({"spec": {"version": version, "config": {"b": {}, "a": {}}}})).unwrap();
        RevisionData { serving: Some(template), ..RevisionData::default() }
    }

    #[test]
    fn equal_content_is_the_same_revision() {
        let reordered: Template =
            serde_json::from_str(r#"{"spec": {"config": {"a": {}, "b": {}}, "version": "1.22"}}"#).unwrap();
        let other = RevisionData { serving: Some(reordered), ..RevisionData::default() };
        assert_eq!(data("1.22").name("prod"), other.name("prod"));
        assert_ne!(data("1.22").name("prod"), data("1.23").name("prod"));
        assert!(data("1.22").name("prod").starts_with("prod-"));
    }

    #[test]
    fn manifest_round_trips() {
        let mut manifest = data("1.22").manifest(
            "n",
            "prod",
            &json!({"apiVersion": "v1", "kind": "K", "name": "prod", "uid": "1"}),
            3,
        );
        manifest["metadata"]["annotations"] = json!({FLEET_FAILED: "7"});
        let revision = Revision::parse(&serde_json::from_value(manifest).unwrap()).unwrap();
        assert_eq!((revision.number, revision.failed_generation, &revision.data), (3, Some(7), &data("1.22")));
        assert_eq!(revision.name, data("1.22").name("prod"));
    }

    #[test]
    fn oldest_unused_revisions_are_obsolete() {
        let revision = |number: i64| Revision {
            name: number.to_string(),
            number,
            failed_generation: None,
            data: RevisionData::default(),
        };
        let revisions: BTreeMap<_, _> = (1..=6).map(|number| (number.to_string(), revision(number))).collect();
        assert_eq!(next_number(revisions.values()), 7);
        assert_eq!(obsolete(&revisions, Some(2), &BTreeSet::from(["1", "6"])), ["2", "3"]);
        assert!(obsolete(&revisions, None, &BTreeSet::new()).is_empty());
        assert_eq!(obsolete(&revisions, Some(0), &BTreeSet::from(["6"])).len(), 5);
    }
}
