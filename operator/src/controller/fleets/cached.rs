//! The state of the clusters of a fleet, which stays between passes as long as what it was computed
//! from: most clusters of a large fleet don't change between two passes.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use knative_operator_shared::api::{ClusterProfile, ClusterProfileReference, Component, Knative};
use knative_operator_shared::label::FLEET_REVISION;

use super::children::{ChildKey, Children, is_owned};
use super::observe::FleetObservation;
use knative_operator_fleet::child;
use knative_operator_fleet::member::{Applied, Contents, Member, Wanted};
use knative_operator_fleet::template::{ChildRecord, content_with};

/// The state of a cluster, and what it was computed from.
struct ObservedCluster {
    profile: Option<Arc<ClusterProfile>>,
    own: Vec<Option<Arc<Knative>>>,
    member: Member,
}

/// The state of a resource, and what it was computed from. It is the costly part of the state of
/// its cluster, and stays when the ClusterProfile changes, as with each heartbeat of its manager.
pub struct ObservedChild {
    stored: Arc<Knative>,
    record: Arc<ChildRecord>,
    /// The content of its revision, which depends on the labels and properties of the cluster.
    wanted: Option<Arc<Wanted>>,
    components: Vec<Component>,
    applied: Applied,
}

/// What the state of each cluster depends on, besides the cluster.
#[derive(Debug, Default, PartialEq, Eq)]
struct Basis {
    generation: Option<i64>,
    components: BTreeSet<Component>,
    revisions: Vec<String>,
}

/// States of the resources and clusters of a fleet, which stay as long as what they were computed
/// from.
#[derive(Default)]
pub struct Cache {
    resources: HashMap<ChildKey, ObservedChild>,
    clusters: HashMap<ClusterProfileReference, ObservedCluster>,
    basis: Basis,
}

impl Cache {
    /// Forgets others than `clusters`, and resources that are not in `children`: what was observed
    /// of a former resource is never taken for another one's.
    pub fn forget_others(&mut self, clusters: &HashSet<ClusterProfileReference>, children: &Children) {
        if self.resources.len() > children.own().len() {
            self.resources.retain(|key, _| children.own().contains_key(key));
        }
        if self.clusters.len() > clusters.len() {
            self.clusters.retain(|cluster, _| clusters.contains(cluster));
        }
    }
}

/// The states of the clusters of a fleet in a pass.
pub struct Observed<'a> {
    observation: &'a FleetObservation<'a>,
    cache: &'a mut Cache,
}

impl<'a> Observed<'a> {
    /// What `observation` tells, with what is in `cache` of clusters that did not change.
    pub fn new(observation: &'a FleetObservation<'a>, cache: &'a mut Cache) -> Self {
        let basis = Basis {
            generation: observation.fleet.metadata.generation,
            components: observation.components.clone(),
            revisions: observation.contents.revisions.keys().map(|name| (*name).to_owned()).collect(),
        };
        if cache.basis != basis {
            cache.clusters.clear();
            cache.basis = basis;
        }
        Self { observation, cache }
    }

    /// The state of `cluster`. Most clusters of a large fleet don't change between two passes.
    pub fn member(&mut self, cluster: &ClusterProfileReference) -> Member {
        let of = self.observation;
        let (profile, resources) = (of.profiles.get(cluster), of.resources(cluster));
        let depends_on_others = of.refused.contains_key(cluster)
            || resources.iter().any(|(key, _)| {
                let is_claimed = of.claims.contains_key(key) || of.occupied.contains(key);
                is_claimed || of.children.others.contains_key(key)
            });
        if depends_on_others {
            return of.observed(cluster, &resources, |key, stored| self.applied(key, stored));
        }
        let is_same = |known: &&ObservedCluster| {
            let before = known.own.iter().map(|one| one.as_ref().map(Arc::as_ptr));
            known.profile.as_ref().map(Arc::as_ptr) == profile.map(Arc::as_ptr)
                && before.eq(resources.iter().map(|(_, one)| one.map(Arc::as_ptr)))
        };
        if let Some(known) = self.cache.clusters.get(cluster).filter(is_same) {
            return known.member.clone();
        }
        let member = of.observed(cluster, &resources, |key, stored| self.applied(key, stored));
        let own = resources.iter().map(|(_, one)| one.cloned()).collect();
        let known = ObservedCluster { profile: profile.cloned(), own, member: member.clone() };
        self.cache.clusters.insert(cluster.clone(), known);
        member
    }

    /// The state of the resource `stored` of `key`.
    pub fn applied(&mut self, key: &ChildKey, stored: &Arc<Knative>) -> Applied {
        let (of, cluster) = (self.observation, &key.0);
        let known = self.cache.resources.get(key).filter(|known| Arc::ptr_eq(&known.stored, stored));
        let record = known.map_or_else(|| Arc::new(child::record(stored)), |known| Arc::clone(&known.record));
        let wanted = of.contents.of(&record.revision, cluster, key.1);
        let components = of.components_of(cluster, &record);
        if let Some(known) = known
            && (&known.wanted, &known.components) == (&wanted, &components)
        {
            return known.applied.clone();
        }
        let manifest = of.manifest(key, &record);
        let mut applied = child::applied(stored, manifest.as_ref());
        applied.content = content_with(applied.content, components.iter().copied());
        let has_revision = stored.annotation(FLEET_REVISION).is_some();
        if !has_revision || !is_owned(of.fleet, stored) {
            match of.revision_of(cluster, key.1, &applied) {
                // Of another fleet, with the same content: it becomes one of this fleet.
                Some(revision) if has_revision => (applied.revision, applied.has_drifted) = (revision, true),
                // It is not a resource of the fleet yet.
                _ => (applied.content, applied.since, applied.outcome) = (0, jiff::Timestamp::UNIX_EPOCH, None),
            }
            // It depends on all revisions, so it stays with the state of its cluster only.
            return applied;
        }
        let stored = Arc::clone(stored);
        let known = ObservedChild { stored, record, wanted, components, applied: applied.clone() };
        self.cache.resources.insert(key.clone(), known);
        applied
    }
}

#[cfg(test)]
#[path = "cached_tests.rs"]
mod tests;
