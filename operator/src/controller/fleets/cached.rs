//! The state of the clusters of a fleet, which stays between passes as long as what it was computed
//! from: most clusters of a large fleet don't change between two passes.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use knative_operator_shared::api::{ClusterProfile, ClusterProfileReference, Component, Knative};
use knative_operator_shared::label::FLEET_REVISION;

use super::observe::{ChildKey, Children, FleetObservation, is_owned};
use knative_operator_fleet::child;
use knative_operator_fleet::member::{Applied, Contents, Member, Wanted};
use knative_operator_fleet::template::{ChildRecord, content_with};

/// The state of a resource, and what it was computed from.
pub struct ObservedChild {
    stored: Arc<Knative>,
    record: Arc<ChildRecord>,
    /// The content of its revision, which depends on the labels and properties of the cluster.
    wanted: Option<Arc<Wanted>>,
    components: Vec<Component>,
    applied: Applied,
}

/// The state of a cluster, and what it was computed from.
struct ObservedCluster {
    profile: Option<Arc<ClusterProfile>>,
    own: Vec<Option<Arc<Knative>>>,
    member: Member,
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
        if self.resources.len() > children.own.len() {
            self.resources.retain(|key, _| children.own.contains_key(key));
        }
        if self.clusters.len() > clusters.len() {
            self.clusters.retain(|cluster, _| clusters.contains(cluster));
        }
    }
}

impl FleetObservation<'_> {
    /// Keeps in `cache` what is still true of clusters that don't change. Before [`Self::member`].
    pub fn keep(&self, cache: &mut Cache) {
        let basis = Basis {
            generation: self.fleet.metadata.generation,
            components: self.components.clone(),
            revisions: self.contents.revisions.keys().map(|name| (*name).to_owned()).collect(),
        };
        if cache.basis != basis {
            cache.clusters.clear();
            cache.basis = basis;
        }
    }

    /// The state of `cluster`. Most clusters of a large fleet don't change between two passes.
    pub fn member(&self, cluster: &ClusterProfileReference, cache: &mut Cache) -> Member {
        let (profile, keys) = (self.profiles.get(cluster), self.components.iter().map(|one| (cluster.clone(), *one)));
        let keys: Vec<ChildKey> = keys.collect();
        let own: Vec<_> = keys.iter().map(|key| self.children.own.get(key)).collect();
        let depends_on_others = self.refused.contains_key(cluster)
            || keys.iter().any(|key| {
                let is_claimed = self.claims.contains_key(key) || self.occupied.contains(key);
                is_claimed || self.children.others.contains_key(key)
            });
        if depends_on_others {
            return self.observed(cluster, |key, stored| self.applied(key, stored, cache));
        }
        let is_same = |known: &&ObservedCluster| {
            let before = known.own.iter().map(|one| one.as_ref().map(Arc::as_ptr));
            known.profile.as_ref().map(Arc::as_ptr) == profile.map(Arc::as_ptr)
                && before.eq(own.iter().map(|one| one.map(Arc::as_ptr)))
        };
        if let Some(known) = cache.clusters.get(cluster).filter(is_same) {
            return known.member.clone();
        }
        let member = self.observed(cluster, |key, stored| self.applied(key, stored, cache));
        let own = own.into_iter().map(Option::<&Arc<Knative>>::cloned).collect();
        let known = ObservedCluster { profile: profile.cloned(), own, member: member.clone() };
        cache.clusters.insert(cluster.clone(), known);
        member
    }

    /// The state of the resource `stored` of `key`.
    pub fn applied(&self, key: &ChildKey, stored: &Arc<Knative>, cache: &mut Cache) -> Applied {
        let cluster = &key.0;
        let known = cache.resources.get(key).filter(|known| Arc::ptr_eq(&known.stored, stored));
        let record = known.map_or_else(|| Arc::new(child::record(stored)), |known| Arc::clone(&known.record));
        let wanted = self.contents.of(&record.revision, cluster, key.1);
        let components = self.components_of(cluster, &record);
        if let Some(known) = known
            && (&known.wanted, &known.components) == (&wanted, &components)
        {
            return known.applied.clone();
        }
        let manifest = self.manifest(key, &record);
        let mut applied = child::applied(stored, manifest.as_ref());
        applied.content = content_with(applied.content, components.iter().copied());
        let has_revision = stored.annotation(FLEET_REVISION).is_some();
        if !has_revision || !is_owned(self.fleet, stored) {
            match self.revision_of(cluster, key.1, &applied) {
                // Of another fleet, with the same content: it becomes one of this fleet.
                Some(revision) if has_revision => (applied.revision, applied.has_drifted) = (revision, true),
                // It is not a resource of the fleet yet.
                _ => (applied.content, applied.since, applied.outcome) = (0, jiff::Timestamp::UNIX_EPOCH, None),
            }
            // It depends on all revisions, and is not kept.
            return applied;
        }
        let stored = Arc::clone(stored);
        cache
            .resources
            .insert(key.clone(), ObservedChild { stored, record, wanted, components, applied: applied.clone() });
        applied
    }
}

#[cfg(test)]
#[path = "cached_tests.rs"]
mod tests;
