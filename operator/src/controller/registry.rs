//! Registry of all custom resources, so that two of one kind never install on the same cluster.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use knative_operator_shared::api::{ClusterProfileReference, Component, Knative};
use knative_operator_shared::name;

use super::hub_changes::fleets_of;
use knative_operator_apply::places::Names;
use knative_operator_objects::ResourceKey;

/// Custom resources, found by their key, their target cluster and their owners: no question costs
/// more, the more of them there are.
#[derive(Debug, Default)]
struct Indexed {
    resources: HashMap<ResourceKey, Arc<Knative>>,
    by_target: HashMap<ClusterProfileReference, Resources>,
    /// Those for the hub itself.
    local: Resources,
    /// By uid of the fleet that owns them.
    by_owner: HashMap<String, Resources>,
}

/// Resources by their keys.
type Resources = BTreeMap<ResourceKey, Arc<Knative>>;

impl Indexed {
    fn insert(&mut self, key: &ResourceKey, resource: Arc<Knative>) {
        self.remove(key);
        let indexed = match &resource.common().cluster_profile_ref {
            Some(target) => self.by_target.entry(target.clone()).or_default(),
            None => &mut self.local,
        };
        indexed.insert(key.clone(), Arc::clone(&resource));
        for fleet in fleets_of(&resource) {
            self.by_owner.entry(fleet.to_owned()).or_default().insert(key.clone(), Arc::clone(&resource));
        }
        self.resources.insert(key.clone(), resource);
    }

    fn remove(&mut self, key: &ResourceKey) -> Option<Arc<Knative>> {
        fn forget<K, Q>(index: &mut HashMap<K, Resources>, of: &Q, key: &ResourceKey)
        where
            K: Hash + Eq + Borrow<Q>,
            Q: Hash + Eq + ?Sized,
        {
            if let Some(resources) = index.get_mut(of) {
                resources.remove(key);
                if resources.is_empty() {
                    index.remove(of);
                }
            }
        }
        let resource = self.resources.remove(key)?;
        match &resource.common().cluster_profile_ref {
            Some(target) => forget(&mut self.by_target, target, key),
            None => drop(self.local.remove(key)),
        }
        for fleet in fleets_of(&resource) {
            forget(&mut self.by_owner, fleet, key);
        }
        Some(resource)
    }

    /// The resources with the target cluster `target`, or for the hub itself.
    fn on(&self, target: Option<&ClusterProfileReference>) -> impl Iterator<Item = (&ResourceKey, &Arc<Knative>)> {
        target.map_or(Some(&self.local), |target| self.by_target.get(target)).into_iter().flatten()
    }
}

/// All custom resources.
#[derive(Debug, Default)]
pub struct Registry {
    resources: RwLock<Indexed>,
    /// Those whose target cluster was never known.
    unreadable: RwLock<HashMap<ResourceKey, Arc<Knative>>>,
    is_listed: AtomicBool,
}

impl Registry {
    /// Adds or replaces `resource`.
    pub fn set(&self, resource: Arc<Knative>) {
        let key = ResourceKey::of(&resource);
        self.unreadable.write().unwrap_or_else(PoisonError::into_inner).remove(&key);
        self.resources.write().unwrap_or_else(PoisonError::into_inner).insert(&key, resource);
    }

    /// Adds `resource`, whose target cluster can't be read. What was known before stays.
    pub fn set_unreadable(&self, resource: Arc<Knative>) {
        let key = ResourceKey::of(&resource);
        let mut resources = self.resources.write().unwrap_or_else(PoisonError::into_inner);
        // Of a former resource of that name, nothing is true of this one.
        if resources.resources.get(&key).is_some_and(|known| known.meta().uid != resource.meta().uid) {
            resources.remove(&key);
        }
        let is_known = resources.resources.contains_key(&key);
        drop(resources);
        if !is_known {
            self.unreadable.write().unwrap_or_else(PoisonError::into_inner).insert(key, resource);
        }
    }

    /// Removes the resource of `key` and returns it.
    pub fn remove(&self, key: &ResourceKey) -> Option<Arc<Knative>> {
        self.unreadable.write().unwrap_or_else(PoisonError::into_inner).remove(key);
        self.resources.write().unwrap_or_else(PoisonError::into_inner).remove(key)
    }

    /// Whether the resource of `key` exists.
    pub fn contains(&self, key: &ResourceKey) -> bool {
        self.read().resources.contains_key(key)
            || self.unreadable.read().unwrap_or_else(PoisonError::into_inner).contains_key(key)
    }

    /// The resource of `key`, if its target cluster is known.
    pub fn get(&self, key: &ResourceKey) -> Option<Arc<Knative>> {
        self.read().resources.get(key).cloned()
    }

    /// Whether another resource with the name of `resource` was created since.
    pub fn has_successor(&self, resource: &Knative) -> bool {
        self.get(&ResourceKey::of(resource)).is_some_and(|known| known.meta().uid != resource.meta().uid)
    }

    /// The resources whose target cluster was never known.
    pub fn unreadable(&self) -> Vec<Arc<Knative>> {
        self.unreadable.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Calls `each` with the resources that the fleet with `uid` owns, in the order of their keys.
    pub fn for_each_owned(&self, uid: &str, mut each: impl FnMut(&ResourceKey, &Arc<Knative>)) {
        self.read().by_owner.get(uid).into_iter().flatten().for_each(|(key, resource)| each(key, resource));
    }

    /// Calls `each` with the resources whose target cluster is one of `clusters`.
    pub fn for_each_on<'c>(
        &self,
        clusters: impl Iterator<Item = &'c ClusterProfileReference>,
        mut each: impl FnMut(&ClusterProfileReference, &Arc<Knative>),
    ) {
        let all = self.read();
        for cluster in clusters {
            all.on(Some(cluster)).for_each(|(_, resource)| each(cluster, resource));
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Indexed> {
        self.resources.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of resources of `component` whose target cluster is known.
    pub fn count(&self, component: Component) -> usize {
        self.read().resources.keys().filter(|key| key.component == component).count()
    }

    /// Records that the resources of all components were listed.
    pub fn set_listed(&self) {
        self.is_listed.store(true, Ordering::Relaxed);
    }

    /// Whether the resources of all components were listed.
    pub fn is_listed(&self) -> bool {
        self.is_listed.load(Ordering::Relaxed)
    }

    /// The ConfigMaps with the inventories of the resources of `component` for the hub itself.
    pub fn local_inventories(&self, component: Component) -> Names {
        let all = self.read();
        let local = all.on(None).map(|(key, _)| key).filter(|key| key.component == component);
        local.map(|key| (key.namespace.clone(), name::inventory(component, &key.name))).collect()
    }

    /// Whether any resource has the same target cluster as `resource`.
    pub fn has_resource_on_cluster_of(&self, resource: &Knative) -> bool {
        self.read().on(resource.common().cluster_profile_ref.as_ref()).next().is_some()
    }

    /// Resources of the same kind and target cluster, apart from those that are terminating.
    fn competitors(&self, resource: &Knative) -> Vec<Arc<Knative>> {
        let (own, all) = (ResourceKey::of(resource), self.read());
        let competitor = |(key, other): &(&ResourceKey, &Arc<Knative>)| {
            **key != own && key.component == own.component && !other.is_terminating()
        };
        all.on(resource.common().cluster_profile_ref.as_ref())
            .filter(competitor)
            .map(|(_, other)| Arc::clone(other))
            .collect()
    }

    /// Keys of the competitors of `resource`, to reconcile when it changes.
    pub fn competitor_keys(&self, resource: &Knative) -> Vec<ResourceKey> {
        self.competitors(resource).iter().map(|r| ResourceKey::of(r)).collect()
    }
}
