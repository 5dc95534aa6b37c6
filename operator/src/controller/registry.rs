//! Registry of all custom resources, so that two of one kind never install on the same cluster.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use knative_operator_shared::api::{Component, Knative};
use knative_operator_shared::name;

use crate::apply::places::Names;
use crate::object::ResourceKey;

/// All custom resources.
#[derive(Debug, Default)]
pub struct Registry {
    resources: RwLock<HashMap<ResourceKey, Arc<Knative>>>,
    /// Those whose target cluster was never known.
    unreadable: RwLock<HashMap<ResourceKey, Arc<Knative>>>,
    is_listed: AtomicBool,
}

impl Registry {
    /// Adds or replaces `resource`.
    pub fn set(&self, resource: Arc<Knative>) {
        let key = ResourceKey::of(&resource);
        self.unreadable.write().unwrap_or_else(PoisonError::into_inner).remove(&key);
        self.resources.write().unwrap_or_else(PoisonError::into_inner).insert(key, resource);
    }

    /// Adds `resource`, whose target cluster can't be read. What was known before stays.
    pub fn set_unreadable(&self, resource: Arc<Knative>) {
        let key = ResourceKey::of(&resource);
        let mut resources = self.resources.write().unwrap_or_else(PoisonError::into_inner);
        // Of a former resource of that name, nothing is true of this one.
        if resources.get(&key).is_some_and(|known| known.meta().uid != resource.meta().uid) {
            resources.remove(&key);
        }
        let is_known = resources.contains_key(&key);
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
        self.resources.read().unwrap_or_else(PoisonError::into_inner).contains_key(key)
            || self.unreadable.read().unwrap_or_else(PoisonError::into_inner).contains_key(key)
    }

    /// The resource of `key`, if its target cluster is known.
    pub fn get(&self, key: &ResourceKey) -> Option<Arc<Knative>> {
        self.resources.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Whether another resource with the name of `resource` was created since.
    pub fn has_successor(&self, resource: &Knative) -> bool {
        self.get(&ResourceKey::of(resource)).is_some_and(|known| known.meta().uid != resource.meta().uid)
    }

    /// The resources whose target cluster was never known.
    pub fn unreadable(&self) -> Vec<Arc<Knative>> {
        self.unreadable.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// All resources.
    pub fn all(&self) -> Vec<Arc<Knative>> {
        self.resources.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
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
        let resources = self.resources.read().unwrap_or_else(PoisonError::into_inner);
        let is_local = |(key, resource): &(&ResourceKey, &Arc<Knative>)| {
            key.component == component && resource.common().cluster_profile_ref.is_none()
        };
        let names = resources.iter().filter(is_local).map(|(key, _)| key);
        names.map(|key| (key.namespace.clone(), name::inventory(component, &key.name))).collect()
    }

    /// Whether any resource has the same target cluster as `resource`.
    pub fn has_resource_on_cluster_of(&self, resource: &Knative) -> bool {
        let target = &resource.common().cluster_profile_ref;
        self.resources
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .any(|other| other.common().cluster_profile_ref == *target)
    }

    /// Resources of the same kind and target cluster, apart from those that are terminating.
    fn competitors(&self, resource: &Knative) -> Vec<Arc<Knative>> {
        let (own, target) = (ResourceKey::of(resource), &resource.common().cluster_profile_ref);
        let all = self.resources.read().unwrap_or_else(PoisonError::into_inner);
        let competitor = |(key, other): &(&ResourceKey, &Arc<Knative>)| {
            **key != own
                && key.component == own.component
                && other.common().cluster_profile_ref == *target
                && !other.is_terminating()
        };
        all.iter().filter(competitor).map(|(_, other)| Arc::clone(other)).collect()
    }

    /// Keys of the competitors of `resource`, to reconcile when it changes.
    pub fn competitor_keys(&self, resource: &Knative) -> Vec<ResourceKey> {
        self.competitors(resource).iter().map(|r| ResourceKey::of(r)).collect()
    }
}
