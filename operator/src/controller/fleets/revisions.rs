//! The revisions of a fleet: which are its own, which are used, and what it rolls out.

use std::collections::{BTreeMap, BTreeSet};

use knative_operator_shared::api::{Component, KnativeFleet, KnativeFleetStatus};
use knative_operator_shared::version::Version;

use super::children::Children;
use super::state::FleetState;
use super::store::Store;
use super::write::{self, WriteError};
use crate::controller::context::Context;
use knative_operator_fleet::child;
use knative_operator_fleet::revision::{self, Owner, RevisionData, Revisions};
use knative_operator_fleet::versions::{self, VersionSources};

/// Names of the revisions that are used: those of the resources, the update, and those that were
/// rolled out.
pub fn used<'a>(
    of_children: &BTreeSet<&'a str>,
    update: &'a str,
    rolled_out: [&'a Option<String>; 2],
) -> BTreeSet<&'a str> {
    let others = [update].into_iter().chain(rolled_out.into_iter().flatten().map(String::as_str));
    of_children.iter().copied().chain(others).collect()
}

/// The components that the fleet has installed, and those of the revisions `used` among `known`: a
/// cluster may return to one with a component that no cluster has any more.
pub fn components(
    children: &Children,
    known: &BTreeMap<&str, &RevisionData>,
    used: &BTreeSet<&str>,
) -> BTreeSet<Component> {
    let of_revisions = used.iter().filter_map(|name| known.get(name)).flat_map(|data| data.components());
    children.components().chain(of_revisions).collect()
}

/// What `fleet` rolls out, with the versions that its spec means now.
pub fn resolved(
    cx: &Context,
    fleet: &KnativeFleet,
    revisions: &Revisions,
    status: &KnativeFleetStatus,
    children: &Children,
    available: &[(Component, Vec<Version>)],
) -> RevisionData {
    let before = status.update_revision.as_ref().and_then(|update| revisions.get(update));
    let (before, data) = (before.map(|revision| &revision.data), RevisionData::of(&fleet.spec));
    // A version is parsed for each resource: not in each pass.
    let needs_installed = versions::needs_installed(&data, before);
    let own = children.own().iter().filter(|_| needs_installed);
    let installed = own.filter_map(|((_, component), child)| Some((*component, child::known_version(child)?)));
    let installed: Vec<_> = installed.collect();
    let sources = VersionSources {
        available,
        before,
        installed: &installed,
        keeps_installed: cx.library.keeps_installed || versions::are_stopped(&fleet.spec, status),
    };
    versions::resolved(data, &sources)
}

/// The revisions of `fleet` with `status`. Publishes an event, once, about each one that only
/// claims to be.
pub fn own_revisions(
    cx: &Context,
    store: &Store,
    fleet: &KnativeFleet,
    status: &KnativeFleetStatus,
    state: &mut FleetState,
) -> Revisions {
    let namespace = fleet.metadata.namespace.as_deref().unwrap_or_default();
    let Some(all) = store.revisions.get(namespace) else { return Revisions::new() };
    state.ignored.retain(|name| all.contains_key(name));
    for (name, reason) in revision::ignored(all, of(fleet, status)) {
        if state.ignored.insert(name.to_owned()) {
            cx.events.warning(fleet, "RevisionIgnored", format!("ControllerRevision {name} is not used: {reason}"));
        }
    }
    revision::own(all, of(fleet, status))
}

/// Why a revision can't be read that `fleet` with `status` rolls out or rolled out last, or that
/// one of its `children` has or returns to; `None` if all can. Without it, what the clusters have
/// is not known.
pub fn unreadable(
    store: &Store,
    fleet: &KnativeFleet,
    children: &Children,
    status: &KnativeFleetStatus,
) -> Option<String> {
    if store.unreadable_revisions.is_empty() {
        return None;
    }
    let KnativeFleetStatus { current_revision, update_revision, .. } = status;
    let used = used(&children.revisions(), "", [current_revision, update_revision]);
    let meta = &fleet.metadata;
    let own = store.unreadable_revisions.iter().filter(|((namespace, name), revision)| {
        let is_own = meta.namespace.as_ref() == Some(namespace) && revision.owner == meta.uid;
        is_own && used.contains(name.as_str())
    });
    let ((namespace, name), why) = own.min_by_key(|(key, _)| *key)?;
    Some(format!(
        "ControllerRevision {namespace}/{name} of this fleet can't be read: {why}. Nothing is changed until it can: install a version of \
         the operator that reads it, or, to go on without this revision, delete it: kubectl delete controllerrevision {name} -n {namespace}"
    ))
}

/// Records `update` in the status of `fleet` before any cluster gets it: after a crash, another
/// revision may be the update. Returns whether that was necessary.
pub async fn record(
    cx: &Context,
    fleet: &KnativeFleet,
    revisions: &Revisions,
    update: &RevisionData,
    status: &mut KnativeFleetStatus,
) -> Result<bool, WriteError> {
    let recorded = Some(revision::recorded(revisions, update, of(fleet, status)));
    if status.revisions == recorded {
        return Ok(false);
    }
    status.revisions = recorded;
    write::status(&cx.hub, fleet, status).await.map(|()| true)
}

/// `fleet` with `status` as the owner of revisions.
pub fn of<'a>(fleet: &'a KnativeFleet, status: &'a KnativeFleetStatus) -> Owner<'a> {
    Owner { name: fleet.metadata.name.as_deref().unwrap_or_default(), uid: of_uid(fleet), status }
}

/// Uid of `fleet`.
pub fn of_uid(fleet: &KnativeFleet) -> &str {
    fleet.metadata.uid.as_deref().unwrap_or_default()
}

/// Deletes the `obsolete` revisions of `fleet`, also from `status`; returns the first error.
pub async fn delete_obsolete(
    cx: &Context,
    fleet: &KnativeFleet,
    revisions: &Revisions,
    obsolete: Vec<String>,
    status: &mut KnativeFleetStatus,
    state: &mut FleetState,
) -> Option<WriteError> {
    let (namespace, name) = (fleet.metadata.namespace.as_deref(), fleet.metadata.name.as_deref().unwrap_or_default());
    let mut failed = None;
    for obsolete in obsolete {
        // It is no revision of somebody else until the watch reports its deletion.
        state.ignored.insert(obsolete.clone());
        match write::delete_revision(&cx.hub, namespace.unwrap_or_default(), &obsolete).await {
            Ok(()) => {
                let name = revisions.get(&obsolete).map(|revision| revision.data.name(name, of_uid(fleet)));
                status.revisions.iter_mut().for_each(|names| names.retain(|other| Some(other) != name.as_ref()));
            }
            Err(error) => {
                state.ignored.remove(&obsolete);
                failed = failed.or(Some(error));
            }
        }
    }
    failed
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use knative_operator_rules as rules;
    use knative_operator_shared::api::ClusterProfileReference;
    use knative_operator_shared::label::{FLEET_PREVIOUS, FLEET_REVISION};
    use serde_json::{Value, json};

    use super::*;
    use knative_operator_fleet::unreadable::UnreadableRevision;

    #[test]
    fn fleet_stops_for_a_revision_that_it_uses_and_can_not_read() {
        let fleet = |uid: &str| -> KnativeFleet {
            let meta = json!({"name": "prod", "namespace": "n", "uid": uid});
            serde_json::from_value(json!({"metadata": meta, "spec": {"placement": {}}})).unwrap()
        };
        let mut store = Store::default();
        let unreadable = |field: &str| UnreadableRevision {
            owner: Some("1".to_owned()),
            field: field.to_owned(),
            why: "invalid type".to_owned(),
        };
        for (name, field) in [("before", "data.overrides[0].serving"), ("unused", "data")] {
            store.unreadable_revisions.insert(("n".to_owned(), name.to_owned()), unreadable(field));
        }
        let resource = json!({
            "apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing", "spec": {},
            "metadata": {"name": "a", "namespace": "n", "annotations": {FLEET_REVISION: "one", FLEET_PREVIOUS: "before"}},
        });
        let resource = Arc::new(rules::parse(Component::Serving, &resource).unwrap());
        let key = (ClusterProfileReference { name: "a".to_owned(), namespace: "f".to_owned() }, Component::Serving);
        let children = Children::from_iter([(key, resource)]);
        let status = KnativeFleetStatus::default();
        let why = super::unreadable(&store, &fleet("1"), &children, &status).unwrap();
        let expected =
            "ControllerRevision n/before of this fleet can't be read: data.overrides[0].serving: invalid type";
        assert!(why.starts_with(expected), "{why}");
        // Those of another fleet, and those that nothing has.
        assert_eq!(super::unreadable(&store, &fleet("2"), &children, &status), None);
        assert_eq!(super::unreadable(&store, &fleet("1"), &Children::default(), &status), None);
        let status = KnativeFleetStatus { current_revision: Some("unused".to_owned()), ..status };
        assert!(super::unreadable(&store, &fleet("1"), &Children::default(), &status).is_some());
    }

    #[test]
    fn component_that_no_cluster_has_any_more_can_be_restored() {
        let data = |value: Value| serde_json::from_value::<RevisionData>(value).unwrap();
        let both = data(json!({"serving": {"spec": {}}, "eventing": {"spec": {}}}));
        let one = data(json!({"serving": {"spec": {}}}));
        let known = BTreeMap::from([("both", &both), ("one", &one)]);
        let resource = json!({
            "apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing", "spec": {},
            "metadata": {"name": "a", "namespace": "n", "annotations": {FLEET_REVISION: "one", FLEET_PREVIOUS: "both"}},
        });
        let resource = Arc::new(rules::parse(Component::Serving, &resource).unwrap());
        let key = (ClusterProfileReference { name: "a".to_owned(), namespace: "f".to_owned() }, Component::Serving);
        let children = Children::from_iter([(key, resource)]);
        let all = |children: &Children, current: &Option<String>| {
            components(children, &known, &used(&children.revisions(), "one", [current, &None])).len()
        };
        assert_eq!(all(&children, &Some("one".to_owned())), 2, "a cluster returns to it");
        assert_eq!(all(&Children::default(), &Some("both".to_owned())), 2, "new clusters get it");
        assert_eq!(all(&Children::default(), &Some("one".to_owned())), 1);
    }
}
