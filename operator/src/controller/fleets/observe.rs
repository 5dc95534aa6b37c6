//! Observes the clusters of a fleet and their resources.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use knative_operator_shared::api::{ClusterProfile, ClusterProfileReference, Component, Knative, KnativeFleet};
use knative_operator_shared::fleet::placement::unhealthy;
use knative_operator_shared::fleet::selector::Traits;
use knative_operator_shared::fleet::stage::Stages;
use knative_operator_shared::label::{ADOPT, FLEET};
use serde_json::Value;

use super::children::{ChildKey, Children, is_owned};
use super::contents::CachedContents;
use knative_operator_fleet::child;
use knative_operator_fleet::member::{Applied, Child, Contents, Member, Refused};
use knative_operator_fleet::template::{ChildRecord, manifest};

/// Why a resource of `fleet` among `unreadable`, whose clusters are not known, keeps the fleet from
/// knowing what is installed.
pub fn lost_child(fleet: &KnativeFleet, unreadable: &[Arc<Knative>]) -> Option<String> {
    let lost = unreadable.iter().find(|resource| is_owned(fleet, resource))?;
    let (component, namespace, name) = (lost.component(), lost.namespace(), lost.name());
    Some(format!("{component} {namespace}/{name} of this fleet can't be read, so its cluster is not known; correct it"))
}

/// The other resource of a cluster that is being deleted, unless the fleet has one, too: what it
/// installed is being removed.
fn former(children: &Children, key: &ChildKey) -> Option<String> {
    let is_former = |other: &&Arc<Knative>| other.is_terminating() && !children.own().contains_key(key);
    let other = children.others.get(key).filter(is_former)?;
    let kind = other.component();
    Some(format!("{kind} {}/{}, which used the cluster, is being deleted", other.namespace(), other.name()))
}

/// What is known about the clusters of a fleet.
pub struct FleetObservation<'a> {
    /// The fleet.
    pub fleet: &'a KnativeFleet,
    /// The owner reference of its resources.
    pub owner: &'a Value,
    /// Its stages.
    pub stages: &'a Stages,
    /// Its components, those that it has resources of, and those that it may return to.
    pub components: BTreeSet<Component>,
    /// The ClusterProfiles.
    pub profiles: &'a HashMap<ClusterProfileReference, Arc<ClusterProfile>>,
    /// Its resources.
    pub children: &'a Children,
    /// The contents of its revisions.
    pub contents: &'a CachedContents<'a>,
    /// Writes that the API server refused.
    pub refused: &'a HashMap<ClusterProfileReference, Refused>,
    /// Clusters that older fleets select.
    pub claims: &'a HashMap<ChildKey, String>,
    /// Resources whose component another ClusterProfile of the fleet owns on the same cluster.
    pub occupied: &'a HashSet<ChildKey>,
}

/// The resources of a cluster that a fleet has, or may have.
pub type Resources<'a> = Vec<(ChildKey, Option<&'a Arc<Knative>>)>;

impl FleetObservation<'_> {
    /// The resources of `cluster`, by the components of the fleet.
    pub fn resources(&self, cluster: &ClusterProfileReference) -> Resources<'_> {
        let resource = |component: &Component| {
            let key = (cluster.clone(), *component);
            let stored = self.children.own().get(&key);
            (key, stored)
        };
        self.components.iter().map(resource).collect()
    }

    /// The state of `cluster`, with that of its `resources`, which `applied` finds.
    pub fn observed(
        &self,
        cluster: &ClusterProfileReference,
        resources: &Resources<'_>,
        mut applied: impl FnMut(&ChildKey, &Arc<Knative>) -> Applied,
    ) -> Member {
        let profile = self.profiles.get(cluster);
        let traits = Traits::of(profile.map(Arc::as_ref));
        let own = || resources.iter().filter_map(|(_, stored)| *stored);
        // Others may have a component that the fleet has dropped.
        let is_used = |component: Component, stored: Option<&Arc<Knative>>| {
            self.fleet.spec.components().any(|of| of == component) || stored.is_some()
        };
        let used = || resources.iter().filter(|(key, stored)| is_used(key.1, *stored));
        let unavailable = unhealthy(profile.map(Arc::as_ref))
            .or_else(|| own().find_map(|child| child::unreachable(child)))
            .or_else(|| used().find_map(|(key, _)| former(self.children, key)));
        let child = |(key, stored): &(ChildKey, Option<&Arc<Knative>>)| Child {
            component: key.1,
            conflict: self.conflict(key),
            applied: stored.map(|stored| applied(key, stored)),
        };
        let stage = self.stages.index_of(&traits);
        let children = resources.iter().filter(|(key, _)| !self.occupied.contains(key)).map(child).collect();
        Member {
            stage,
            place: self.stages.settings()[stage].place(&traits.labels),
            is_vouched_for: profile.is_some_and(|profile| profile.health().is_some()),
            unavailable,
            hub_fault: own().find_map(|child| child::hub_fault(child)),
            refused: self.refused.get(cluster).cloned(),
            ..Member::new(cluster.clone(), children)
        }
    }

    /// The other resource that uses a cluster, unless the fleet has one, too.
    fn conflict(&self, key: &ChildKey) -> Option<String> {
        let Some(other) = self.children.others.get(key).filter(|other| !other.is_terminating()) else {
            let older = self.claims.get(key).filter(|_| !self.children.own().contains_key(key))?;
            return Some(format!("the older KnativeFleet {older} selects the cluster, too"));
        };
        let fleet = other.meta().labels.as_ref().and_then(|labels| labels.get(FLEET));
        let of = fleet.map(|fleet| format!(" of KnativeFleet {fleet}")).unwrap_or_default();
        let fix = if other.meta().namespace == self.fleet.metadata.namespace && fleet.is_none() {
            format!("annotate it with {ADOPT}: \"true\", or delete it, which uninstalls Knative there")
        } else {
            "delete it, which uninstalls Knative there: a fleet adopts only resources in its own namespace that no other fleet manages".to_owned()
        };
        let kind = other.component();
        Some(format!("{kind} {}/{}{of} uses the cluster: {fix}", other.namespace(), other.name()))
    }

    /// The components of the revision of a resource of `cluster` with `record`. An earlier version
    /// recorded no update for a component that was added or dropped: there, those that it has.
    pub fn components_of(&self, cluster: &ClusterProfileReference, record: &ChildRecord) -> Vec<Component> {
        let data = self.contents.revisions.get(record.revision.as_str()).filter(|_| record.outcome.is_some());
        let has = |component: &Component| {
            let key = (cluster.clone(), *component);
            self.children.own().contains_key(&key) || self.occupied.contains(&key)
        };
        data.map_or_else(|| Component::ALL.into_iter().filter(has).collect(), |data| data.components().collect())
    }

    /// The revision with the content of `applied`.
    pub fn revision_of(
        &self,
        cluster: &ClusterProfileReference,
        component: Component,
        applied: &Applied,
    ) -> Option<String> {
        let has_content = |revision: &&&str| {
            let wanted = self.contents.of(revision, cluster, component);
            wanted.is_some_and(|wanted| wanted.content == applied.content && wanted.version == applied.version)
        };
        self.contents.revisions.keys().find(has_content).map(|revision| (*revision).to_owned())
    }

    /// The manifest of the resource for `key` with `record`; `None` if the revision is unknown.
    pub fn manifest(&self, key: &ChildKey, record: &ChildRecord) -> Option<Value> {
        let template = self.contents.template(&record.revision, &key.0, key.1)?;
        let meta = &self.fleet.metadata;
        let (namespace, name) = (meta.namespace.as_deref()?, meta.name.as_deref()?);
        let child = self.children.name(name, key);
        Some(manifest((namespace, name, self.owner), &child, &key.0, key.1, &template, record))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use knative_operator_rules as rules;
    use knative_operator_shared::label::{FLEET_CONTENT, FLEET_OUTCOME, FLEET_UPDATED_AT};
    use serde_json::json;

    use super::super::cached::Observed;
    use super::*;
    use crate::controller::registry::Registry;
    use knative_operator_fleet::revision::RevisionData;

    #[test]
    fn competitor_that_ends_matters_only_before_the_installation() {
        let cluster = ClusterProfileReference { name: "a".to_owned(), namespace: "f".to_owned() };
        let key = (cluster, Component::Serving);
        let serving = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
            "metadata": {"name": "a", "namespace": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}});
        let serving = Arc::new(rules::parse(Component::Serving, &serving).unwrap());
        let mut children = Children::default();
        children.others.insert(key.clone(), Arc::clone(&serving));
        assert!(former(&children, &key).is_some_and(|why| why.contains("n/a, which used the cluster")));
        children.replace(key.clone(), serving);
        assert_eq!(former(&children, &key), None);
    }

    #[test]
    fn component_that_is_dropped_changes_the_others() {
        let template = json!({"spec": {"version": "1.22.0"}});
        let data = |value: Value| serde_json::from_value::<RevisionData>(value).unwrap();
        let both = data(json!({"serving": template, "eventing": template}));
        let one = data(json!({"serving": template}));
        let cluster = ClusterProfileReference { name: "a".to_owned(), namespace: "f".to_owned() };
        let fleet: KnativeFleet = serde_json::from_value(json!({
            "apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet",
            "metadata": {"name": "prod", "namespace": "n", "uid": "1"},
            "spec": {"placement": {"clusterSelector": {}}, "serving": template},
        }))
        .unwrap();
        let owner =
            json!({"kind": "KnativeFleet", "apiVersion": "operator.knative.dev/v1alpha1", "name": "prod", "uid": "1"});
        let (profiles, cache) = (HashMap::new(), Mutex::default());
        let contents = CachedContents::new(BTreeMap::from([("both", &both), ("one", &one)]), &profiles, &[], &cache);
        let of = |revision| contents.of(revision, &cluster, Component::Serving).unwrap().content;
        assert_ne!(of("both"), of("one"), "the update is recorded in the other one");
        // With the outcome of this version, and as an earlier one wrote it.
        for (outcome, expected) in [(Some("Succeeded"), of("both")), (None, of("one"))] {
            let record = ChildRecord {
                revision: "both".to_owned(),
                previous: None,
                stage: None,
                outcome: outcome.and_then(|outcome| outcome.parse().ok()),
                updated_at: "2026-01-01T00:00:00Z".to_owned(),
                version: Some("1.22.0".to_owned()),
            };
            let template = contents.template("both", &cluster, Component::Serving).unwrap();
            let stored = manifest(("n", "prod", &owner), "a", &cluster, Component::Serving, &template, &record);
            let annotation = |name: &str| stored["metadata"]["annotations"].get(name).is_some();
            assert_eq!(
                [FLEET_CONTENT, FLEET_UPDATED_AT, FLEET_OUTCOME].map(annotation),
                [true, true, outcome.is_some()]
            );
            let stored = Arc::new(rules::parse(Component::Serving, &stored).unwrap());
            let registry = Registry::default();
            registry.set(Arc::clone(&stored));
            let mut children = Children::default();
            children.collect(&fleet, &registry);
            let observation = FleetObservation {
                fleet: &fleet,
                owner: &owner,
                stages: &Stages::of(&fleet.spec.rollout).unwrap(),
                components: BTreeSet::from(Component::ALL),
                profiles: &profiles,
                children: &children,
                contents: &contents,
                refused: &HashMap::new(),
                claims: &HashMap::new(),
                occupied: &HashSet::new(),
            };
            let key = (cluster.clone(), Component::Serving);
            let applied = Observed::new(&observation, &mut <_>::default()).applied(&key, &stored);
            assert_eq!((applied.content, applied.has_drifted), (expected, false), "{outcome:?}");
        }
    }
}
