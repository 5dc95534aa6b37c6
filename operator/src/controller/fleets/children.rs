//! The resources of a fleet. They stay between passes, with what each pass asks about all of them:
//! only those that changed are collected again.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use knative_operator_shared::api::{ClusterProfileReference, Component, Knative, KnativeFleet};
use knative_operator_shared::label::{FLEET_LEFT_AT, FLEET_PREVIOUS, FLEET_REVISION};

use super::installed::is_occupied;
use super::selected::Selected;
use crate::controller::registry::Registry;
use knative_operator_fleet::child;
use knative_operator_fleet::template::child_name;
use knative_operator_objects::ResourceKey;

/// A cluster and a component.
pub type ChildKey = (ClusterProfileReference, Component);
/// A resource of a fleet.
type Own = (ChildKey, Arc<Knative>);

/// The resources of a fleet.
#[derive(Debug, Default)]
pub struct Children {
    /// Others that use a cluster.
    pub others: HashMap<ChildKey, Arc<Knative>>,
    own: BTreeMap<ChildKey, Arc<Knative>>,
    summary: Summary,
    /// The own resources that the watch has reported, in the order of the registry.
    reported: Vec<(ResourceKey, Arc<Knative>)>,
    /// What is reported of keys that have something else in `own`, in the order of replacement.
    replaced: Vec<(ChildKey, Option<Arc<Knative>>)>,
}

impl Children {
    /// Collects the resources of `fleet` among those of the hub, and no others. What is kept must
    /// be of the same fleet.
    pub fn collect(&mut self, fleet: &KnativeFleet, registry: &Registry) {
        for (key, reported) in std::mem::take(&mut self.replaced).into_iter().rev() {
            self.set(key, reported);
        }
        self.others.clear();
        let (gone, added) = self.compare(fleet, registry);
        let has_changed = !gone.is_empty() || !added.is_empty();
        gone.iter().for_each(|former| self.forget(former));
        added.into_iter().for_each(|(key, resource)| drop(self.set(key, Some(resource))));
        // Several for one key hide each other: the last one counts.
        if has_changed && self.own.len() != self.reported.len() {
            (self.own, self.summary) = <_>::default();
            let all: Vec<_> = self.reported.iter().map(|(_, resource)| Arc::clone(resource)).collect();
            let all = all.into_iter().filter_map(|resource| Some((key_of(&resource)?, resource)));
            all.for_each(|(key, resource)| drop(self.set(key, Some(resource))));
        }
    }

    /// Compares the resources that were reported with those of the hub now: which are gone, or
    /// became others, and which are new. The registry is locked meanwhile.
    fn compare(&mut self, fleet: &KnativeFleet, registry: &Registry) -> (Vec<Arc<Knative>>, Vec<Own>) {
        let mut known = std::mem::take(&mut self.reported).into_iter().peekable();
        let (mut gone, mut added) = (Vec::new(), Vec::new());
        registry.for_each_owned(fleet.metadata.uid.as_deref().unwrap_or_default(), |key, resource| {
            if let Some(same) = known.next_if(|(_, known)| Arc::ptr_eq(known, resource)) {
                return self.reported.push(same);
            }
            while let Some((_, former)) = known.next_if(|(known, _)| known <= key) {
                gone.push(former);
            }
            if let Some(own) = key_of(resource).filter(|_| is_owned(fleet, resource)) {
                self.reported.push((key.clone(), Arc::clone(resource)));
                added.push((own, Arc::clone(resource)));
            }
        });
        gone.extend(known.map(|(_, former)| former));
        (gone, added)
    }

    /// Adds the other resources of the hub that use the clusters that `fleet` has `selected` or
    /// `left`. Those of selected clusters that it may adopt become its own.
    pub fn add_others(
        &mut self,
        fleet: &KnativeFleet,
        (selected, left): (&Selected, &BTreeSet<ClusterProfileReference>),
        registry: &Registry,
    ) {
        let others = &mut self.others;
        registry.for_each_on(selected.clusters.iter().chain(left), |cluster, resource| {
            if is_owned(fleet, resource) {
                return;
            }
            let key = (cluster.clone(), resource.component());
            if !resource.is_terminating() || !others.contains_key(&key) {
                others.insert(key, Arc::clone(resource));
            }
        });
        let adopted = self.others.iter().filter(|(key, other)| {
            let is_free = !other.is_terminating() && child::is_adoptable(fleet, other);
            is_free && selected.set.contains(&key.0) && !self.own.contains_key(*key)
        });
        for key in adopted.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            if let Some(other) = self.others.remove(&key) {
                self.replace(key, other);
            }
        }
    }

    /// The fleet's own.
    pub fn own(&self) -> &BTreeMap<ChildKey, Arc<Knative>> {
        &self.own
    }

    /// Sets the own resource of `key` until resources are collected again.
    pub fn replace(&mut self, key: ChildKey, resource: Arc<Knative>) {
        let reported = self.set(key.clone(), Some(resource));
        self.replaced.push((key, reported));
    }

    /// The clusters of own resources that are not `selected`.
    pub fn left(&self, selected: &Selected) -> BTreeSet<ClusterProfileReference> {
        let clusters = self.own.keys().map(|(cluster, _)| cluster);
        clusters.filter(|cluster| !selected.set.contains(*cluster)).cloned().collect()
    }

    /// The number of clusters of own resources.
    pub fn clusters(&self) -> usize {
        self.summary.clusters.0.len()
    }

    /// Components of own resources.
    pub fn components(&self) -> impl Iterator<Item = Component> {
        self.summary.components.0.keys().copied()
    }

    /// Names of the revisions that own resources have, or return to.
    pub fn revisions(&self) -> BTreeSet<&str> {
        self.summary.revisions.0.keys().map(String::as_str).collect()
    }

    /// The number of clusters on which own resources have begun to install something, by
    /// ClusterProfile.
    pub fn installations(&self) -> i32 {
        i32::try_from(self.summary.begun.0.len()).unwrap_or(i32::MAX)
    }

    /// Whether the cluster of an own resource has another owner.
    pub fn has_occupied(&self) -> bool {
        !self.summary.occupied.0.is_empty()
    }

    /// Own resources with a time at which their cluster left the fleet.
    pub fn marked(&self) -> impl Iterator<Item = &ChildKey> {
        self.summary.marked.0.keys()
    }

    /// Name of the resource for `key`: that of the stored one, or a new name.
    pub fn name(&self, fleet: &str, key: &ChildKey) -> String {
        self.own.get(key).map_or_else(|| child_name(fleet, &key.0), |resource| resource.name().to_owned())
    }

    fn set(&mut self, key: ChildKey, resource: Option<Arc<Knative>>) -> Option<Arc<Knative>> {
        let former = self.own.remove(&key);
        if let Some(former) = &former {
            self.summary.change(&key, former, false);
        }
        if let Some(resource) = resource {
            self.summary.change(&key, &resource, true);
            self.own.insert(key, resource);
        }
        former
    }

    /// Removes `former`, which was reported, unless another one has its place.
    fn forget(&mut self, former: &Arc<Knative>) {
        if let Some(key) = key_of(former).filter(|key| self.own.get(key).is_some_and(|own| Arc::ptr_eq(own, former))) {
            self.set(key, None);
        }
    }
}

impl FromIterator<(ChildKey, Arc<Knative>)> for Children {
    fn from_iter<T: IntoIterator<Item = (ChildKey, Arc<Knative>)>>(own: T) -> Self {
        let mut children = Self::default();
        own.into_iter().for_each(|(key, resource)| children.replace(key, resource));
        children
    }
}

/// The cluster and the component of `resource`.
fn key_of(resource: &Knative) -> Option<ChildKey> {
    Some((resource.common().cluster_profile_ref.clone()?, resource.component()))
}

/// Whether `fleet` owns `resource`.
pub fn is_owned(fleet: &KnativeFleet, resource: &Knative) -> bool {
    let (meta, owner) = (resource.meta(), fleet.metadata.uid.as_deref());
    let mut owners = meta.owner_references.iter().flatten();
    // The webhook checks who writes references to this kind.
    let is_fleet = |kind: &str, uid: &str| kind == "KnativeFleet" && Some(uid) == owner;
    meta.namespace == fleet.metadata.namespace && owners.any(|reference| is_fleet(&reference.kind, &reference.uid))
}

/// How often there is a value.
#[derive(Debug, PartialEq, Eq)]
struct Tally<T>(BTreeMap<T, usize>);

impl<T> Default for Tally<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Ord> Tally<T> {
    fn change<Q>(&mut self, value: &Q, is_added: bool)
    where
        T: Borrow<Q>,
        Q: Ord + ToOwned<Owned = T> + ?Sized,
    {
        if is_added {
            *self.0.entry(value.to_owned()).or_default() += 1;
        } else if let Some(count) = self.0.get_mut(value) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(value);
            }
        }
    }
}

/// What passes ask about all own resources.
#[derive(Debug, Default, PartialEq, Eq)]
struct Summary {
    clusters: Tally<ClusterProfileReference>,
    components: Tally<Component>,
    /// Those that they have, or return to.
    revisions: Tally<String>,
    /// Clusters on which they have begun to install something.
    begun: Tally<ClusterProfileReference>,
    /// Those whose cluster has another owner.
    occupied: Tally<ChildKey>,
    /// Those with a time at which their cluster left the fleet.
    marked: Tally<ChildKey>,
}

impl Summary {
    /// Counts `resource`, or no longer.
    fn change(&mut self, key: &ChildKey, resource: &Knative, is_added: bool) {
        self.clusters.change(&key.0, is_added);
        self.components.change(&key.1, is_added);
        let revisions = [FLEET_REVISION, FLEET_PREVIOUS].into_iter().filter_map(|name| resource.annotation(name));
        revisions.for_each(|revision| self.revisions.change(revision, is_added));
        if is_occupied(resource) {
            self.occupied.change(key, is_added);
        } else if resource.has_begun() {
            self.begun.change(&key.0, is_added);
        }
        if resource.annotation(FLEET_LEFT_AT).is_some() {
            self.marked.change(key, is_added);
        }
    }
}

#[cfg(test)]
#[path = "children_tests.rs"]
mod tests;
