//! Revisions of a fleet: `ControllerRevision`s (`apps/v1`), identified by their content. Only those
//! that the fleet owns as their controller, whose name is that of their content, and whose content
//! the operator recorded in the status of the fleet, are its own: others are never rolled out,
//! rolled back to, or deleted. Everybody who may create a ControllerRevision can do the rest.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::ControllerRevision;
use knative_operator_shared::api::fleet::KnativeFleetStatus;
use knative_operator_shared::fleet::content::MAX_HISTORY;
pub use knative_operator_shared::fleet::content::RevisionData;
use knative_operator_shared::label::{FLEET, FLEET_FAILED};
use serde_json::{Value, json};

use super::template::label_value;
use super::unreadable::{self, UnreadableRevision};

/// Number of earlier revisions to keep, by default.
const HISTORY_LIMIT: usize = 10;
/// Number of recorded contents that are kept although no revision is known.
const UNKNOWN_LIMIT: usize = 10;

/// Revisions by name.
pub type Revisions = BTreeMap<String, Revision>;

/// A stored revision.
#[derive(Clone, Debug, PartialEq)]
pub struct Revision {
    /// Name of the ControllerRevision.
    pub name: String,
    /// Number: the newest has the highest.
    pub number: i64,
    /// Generation of the fleet in which its rollout failed.
    pub failed_generation: Option<i64>,
    /// Uid of the fleet that is its controller.
    pub owner: Option<String>,
    /// Value of the label with the name of the fleet.
    pub label: String,
    /// Content.
    pub data: RevisionData,
}

/// A fleet: its name, its uid and its status.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    /// Name.
    pub name: &'a str,
    /// Uid.
    pub uid: &'a str,
    /// Status, which only the operator writes.
    pub status: &'a KnativeFleetStatus,
}

impl Owner<'_> {
    /// Whether the operator stored the content of `revision` for this fleet.
    fn has_stored(&self, revision: &Revision) -> bool {
        let KnativeFleetStatus { revisions, current_revision, update_revision, .. } = self.status;
        match revisions {
            Some(names) => {
                names.contains(&revision.data.name(self.name, self.uid))
                    || [current_revision, update_revision].contains(&&Some(revision.name.clone()))
            }
            // An earlier version rolled it out, and recorded nothing: all count, once.
            None => update_revision.is_some(),
        }
    }
}

impl Revision {
    /// Parses `stored`.
    ///
    /// # Errors
    ///
    /// The field that this version can't read, and why.
    pub fn parse(stored: &ControllerRevision) -> Result<Self, UnreadableRevision> {
        let meta = &stored.metadata;
        let annotation = meta.annotations.as_ref().and_then(|all| all.get(FLEET_FAILED));
        let mut owners = meta.owner_references.iter().flatten();
        let owner = owners.find(|owner| owner.controller == Some(true) && owner.kind == "KnativeFleet");
        let owner = owner.map(|owner| owner.uid.clone());
        let data = match unreadable::read(&stored.data.0) {
            Ok(data) => data,
            Err((field, why)) => return Err(UnreadableRevision { owner, field, why }),
        };
        Ok(Self {
            name: meta.name.clone().unwrap_or_default(),
            number: stored.revision.unwrap_or_default(),
            failed_generation: annotation.and_then(|generation| generation.parse().ok()),
            owner,
            label: meta.labels.as_ref().and_then(|all| all.get(FLEET)).cloned().unwrap_or_default(),
            data,
        })
    }

    /// Whether it is a revision of `fleet`.
    pub fn is_of(&self, fleet: Owner<'_>) -> bool {
        self.claims(fleet) && fleet.has_stored(self)
    }

    /// Whether it says so, and has the name of its content.
    fn claims(&self, fleet: Owner<'_>) -> bool {
        self.owner.as_deref() == Some(fleet.uid) && self.data.has_name(&self.name, fleet.name, fleet.uid)
    }
}

/// The ControllerRevision called `name` of `fleet` in `namespace` with `data`, owned by it.
pub fn manifest(
    (namespace, fleet, owner): (&str, &str, &Value),
    name: &str,
    data: &RevisionData,
    number: i64,
) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision",
        "metadata": {"name": name, "namespace": namespace, "labels": {FLEET: label_value(fleet)}, "ownerReferences": [owner]},
        "revision": number,
        "data": data,
    })
}

/// The revisions of `fleet` among `all` of its namespace.
pub fn own(all: &Revisions, fleet: Owner<'_>) -> Revisions {
    let own = all.iter().filter(|(_, revision)| revision.is_of(fleet));
    own.map(|(name, revision)| (name.clone(), revision.clone())).collect()
}

/// Revisions among `all` that claim to be of `fleet`, and are not used, with the reason. Those of
/// another fleet, also of a former one with this name, claim nothing.
pub fn ignored<'r>(all: &'r Revisions, fleet: Owner<'_>) -> Vec<(&'r str, &'static str)> {
    let label = label_value(fleet.name);
    let reason = |revision: &Revision| match revision.owner.as_deref() {
        Some(uid) if uid == fleet.uid && !revision.claims(fleet) => Some("its name is not that of its content"),
        Some(uid) if uid == fleet.uid && !fleet.has_stored(revision) => Some("the operator did not store it"),
        None if revision.label == label => Some("the fleet is not its controller"),
        _ => None,
    };
    all.iter().filter_map(|(name, revision)| Some((name.as_str(), reason(revision)?))).collect()
}

/// The contents to record in the status of `fleet`, which has the revisions `own` and rolls
/// `update` out. Those that were recorded before stay, since the store may not know them yet.
pub fn recorded(own: &Revisions, update: &RevisionData, fleet: Owner<'_>) -> Vec<String> {
    let name = |data: &RevisionData| data.name(fleet.name, fleet.uid);
    let known: BTreeSet<String> = own.values().map(|revision| name(&revision.data)).chain([name(update)]).collect();
    let mut all = fleet.status.revisions.clone().unwrap_or_default();
    let new: Vec<String> = known.iter().filter(|name| !all.contains(name)).cloned().collect();
    all.extend(new);
    let mut excess = all.len().saturating_sub(known.len() + UNKNOWN_LIMIT);
    all.retain(|name| {
        let is_dropped = excess > 0 && !known.contains(name);
        excess -= usize::from(is_dropped);
        !is_dropped
    });
    all
}

/// Name of the revision of `fleet` with `data`: that of the one among `own` with equal content,
/// which may be of an earlier version, or a new name.
pub fn name_of(own: &Revisions, data: &RevisionData, fleet: Owner<'_>) -> String {
    let equal = own.values().filter(|revision| revision.data == *data).max_by_key(|revision| revision.number);
    equal.map_or_else(|| data.name(fleet.name, fleet.uid), |revision| revision.name.clone())
}

/// The number of the next revision: one more than that of all others.
pub fn next_number<'r>(revisions: impl Iterator<Item = &'r Revision>) -> i64 {
    revisions.map(|revision| revision.number).max().unwrap_or_default().saturating_add(1)
}

/// Names of the revisions whose rollout failed. A rollout that begins now is none of them: that of
/// revision `update` since a generation. An earlier version marked the revision, with the
/// generation of the fleet.
pub fn failed(
    own: &Revisions,
    status: &KnativeFleetStatus,
    (update, since): (&str, i64),
    generation: i64,
) -> Vec<String> {
    let Some(failed) = &status.failed_revisions else {
        let marked = own.get(update).and_then(|revision| revision.failed_generation);
        return marked.filter(|marked| *marked == generation).map(|_| update.to_owned()).into_iter().collect();
    };
    let is_same = status.update_revision.as_deref() == Some(update) && status.rollout_generation == Some(since);
    let is_failed = |name: &&String| own.contains_key(*name) && (is_same || *name != update);
    failed.iter().filter(is_failed).cloned().collect()
}

/// Names of the revisions to delete: the oldest beyond `limit`, unless they are `used`.
pub fn obsolete(revisions: &Revisions, limit: Option<i32>, used: &BTreeSet<&str>) -> Vec<String> {
    let limit = limit.and_then(|limit| usize::try_from(limit.min(MAX_HISTORY)).ok()).unwrap_or(HISTORY_LIMIT);
    let mut unused: Vec<&Revision> = revisions.values().filter(|r| !used.contains(r.name.as_str())).collect();
    unused.sort_by_key(|revision| (revision.number, revision.name.clone()));
    let excess = unused.len().saturating_sub(limit);
    unused.into_iter().take(excess).map(|revision| revision.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A status that an earlier version wrote.
    fn earlier() -> KnativeFleetStatus {
        KnativeFleetStatus { update_revision: Some("prod-0".to_owned()), ..KnativeFleetStatus::default() }
    }

    /// The fleet with `status`.
    fn prod(status: &KnativeFleetStatus) -> Owner<'_> {
        Owner { name: "prod", uid: "1", status }
    }

    fn data(version: &str) -> RevisionData {
        let template =
            serde_json::from_value(json!({"spec": {"version": version, "config": {"b": {}, "a": {}}}})).unwrap();
        RevisionData { serving: Some(template), ..RevisionData::default() }
    }

    /// A revision called `name` with the content of `version`, as it is stored; `owner` is patched.
    fn stored(name: &str, version: &str, number: i64, owner: &Value) -> (String, Revision) {
        let mut reference = json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet", "name": "prod", "uid": "1", "controller": true});
        json_patch::merge(&mut reference, owner);
        let manifest = manifest(("n", "prod", &reference), name, &data(version), number);
        (name.to_owned(), Revision::parse(&serde_json::from_value(manifest).unwrap()).unwrap())
    }

    fn new_name(version: &str) -> String {
        data(version).name("prod", "1")
    }

    #[test]
    fn manifest_round_trips() {
        let status = earlier();
        let prod = prod(&status);
        let (name, owner) = (
            new_name("1.22"),
            json!({"apiVersion": "v1", "kind": "KnativeFleet", "name": "prod", "uid": "1", "controller": true}),
        );
        let mut manifest = manifest(("n", "prod", &owner), &name, &data("1.22"), 3);
        manifest["metadata"]["annotations"] = json!({FLEET_FAILED: "7"});
        let revision = Revision::parse(&serde_json::from_value(manifest).unwrap()).unwrap();
        assert_eq!((revision.number, revision.failed_generation, &revision.data), (3, Some(7), &data("1.22")));
        assert_eq!((revision.name.as_str(), revision.label.as_str()), (name.as_str(), "prod"));
        assert!(revision.is_of(prod));
    }

    #[test]
    fn upgrade_of_the_operator_keeps_the_revision() {
        let status = earlier();
        let prod = prod(&status);
        let (earlier, none) = (data("1.22").earlier_name("prod"), json!({}));
        let all = Revisions::from([stored(&earlier, "1.22", 4, &none)]);
        let own = own(&all, prod);
        assert_eq!(name_of(&own, &data("1.22"), prod), earlier, "nothing is rolled out");
        // The next content has a new name.
        let next = name_of(&own, &data("1.23"), prod);
        assert_eq!(next, new_name("1.23"));
        // After a way back to the earlier version and another upgrade, the newest counts.
        let all = Revisions::from([stored(&new_name("1.22"), "1.22", 3, &none), stored(&earlier, "1.22", 4, &none)]);
        assert_eq!(name_of(&super::own(&all, prod), &data("1.22"), prod), earlier);
    }

    #[test]
    fn content_is_compared_and_not_only_the_name() {
        let status = earlier();
        let prod = prod(&status);
        // Another content with the same short name, as somebody can find it.
        let (name, mut revision) = stored(&data("1.22").earlier_name("prod"), "1.22", 1, &json!({}));
        revision.data = data("1.23");
        let all = Revisions::from([(name.clone(), revision)]);
        assert!(own(&all, prod).is_empty());
        assert_eq!(ignored(&all, prod), [(name.as_str(), "its name is not that of its content")]);
        assert_eq!(name_of(&own(&all, prod), &data("1.22"), prod), new_name("1.22"));
        // Also if it is taken for one of the fleet.
        assert_eq!(name_of(&all, &data("1.22"), prod), new_name("1.22"));
    }

    #[test]
    fn revisions_that_the_fleet_does_not_control_are_ignored() {
        let status = earlier();
        let prod = prod(&status);
        let name = new_name("1.22");
        for (owner, reason) in [
            (json!({"controller": false}), Some("the fleet is not its controller")),
            (json!({"controller": null}), Some("the fleet is not its controller")),
            (json!({"kind": "ConfigMap"}), Some("the fleet is not its controller")),
            // Of a former fleet with this name.
            (json!({"uid": "2"}), None),
        ] {
            let all = Revisions::from([stored(&name, "1.22", 1, &owner)]);
            assert!(own(&all, prod).is_empty(), "{owner}");
            let expected: Vec<_> = reason.map(|reason| (name.as_str(), reason)).into_iter().collect();
            assert_eq!(ignored(&all, prod), expected, "{owner}");
        }
        let all = Revisions::from([stored(&name, "1.22", i64::MAX, &json!({}))]);
        assert_eq!((own(&all, prod).len(), ignored(&all, prod).len()), (1, 0));
        assert_eq!(next_number(all.values()), i64::MAX);
    }

    #[test]
    fn oldest_unused_revisions_are_obsolete() {
        let revisions: Revisions =
            (1..=6).map(|number| stored(&number.to_string(), "1.22", number, &json!({}))).collect();
        assert_eq!(next_number(revisions.values()), 7);
        assert_eq!(obsolete(&revisions, Some(2), &BTreeSet::from(["1", "6"])), ["2", "3"]);
        assert!(obsolete(&revisions, None, &BTreeSet::new()).is_empty());
        assert_eq!(obsolete(&revisions, Some(0), &BTreeSet::from(["6"])).len(), 5);
        let many: Revisions = (0..150).map(|number| stored(&number.to_string(), "1.22", number, &json!({}))).collect();
        assert_eq!(obsolete(&many, Some(i32::MAX), &BTreeSet::new()).len(), 50);
    }

    #[test]
    fn only_contents_that_the_operator_stored_count() {
        let none = json!({});
        let named = |version: &str, number| stored(&new_name(version), version, number, &none);
        let all = Revisions::from([named("1.21", 1), named("1.22", 2), named("1.23", i64::MAX)]);
        let earlier_name = data("1.20").earlier_name("prod");
        let all: Revisions = all.into_iter().chain([stored(&earlier_name, "1.20", 0, &none)]).collect();
        let is_stored = |status: &KnativeFleetStatus, version: &str| {
            super::own(&all, prod(status)).values().any(|revision| revision.data == data(version))
        };
        // Nothing was rolled out yet: what is there is of somebody else.
        assert!(own(&all, prod(&KnativeFleetStatus::default())).is_empty());
        let mut status = KnativeFleetStatus { revisions: Some(vec![new_name("1.21")]), ..earlier() };
        status.current_revision = Some(earlier_name);
        for (version, expected) in [("1.20", true), ("1.21", true), ("1.22", false), ("1.23", false)] {
            assert_eq!(is_stored(&status, version), expected, "{version}");
        }
        let ignored = ignored(&all, prod(&status));
        assert!(ignored.contains(&(new_name("1.23").as_str(), "the operator did not store it")), "{ignored:?}");
        // What an earlier version rolled out is recorded with the first revision of this one.
        let before = earlier();
        let names = recorded(&own(&all, prod(&before)), &data("1.24"), prod(&before));
        assert_eq!(names.len(), 5);
        assert!(["1.20", "1.21", "1.23", "1.24"].into_iter().all(|version| names.contains(&new_name(version))));
        // Those of no known revision are dropped, the oldest first.
        let old: Vec<String> = (0..30).map(|number| format!("prod-{number}")).collect();
        status.revisions = Some(old.iter().cloned().chain([new_name("1.21")]).collect());
        let names = recorded(&own(&all, prod(&status)), &data("1.24"), prod(&status));
        assert_eq!((names.len(), names.first()), (UNKNOWN_LIMIT + 3, old.get(20)));
        assert!(["1.20", "1.21", "1.24"].into_iter().all(|version| names.contains(&new_name(version))));
    }
}
