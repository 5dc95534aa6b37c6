//! Registry of all custom resources, so that two of one kind never install on the same cluster.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use knative_operator_shared::api::Knative;

use crate::object::ResourceKey;

/// All custom resources.
#[derive(Debug, Default)]
pub struct Registry(RwLock<HashMap<ResourceKey, Arc<Knative>>>, AtomicBool);

impl Registry {
    /// Adds or replaces `resource`.
    pub fn set(&self, resource: Arc<Knative>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(ResourceKey::of(&resource), resource);
    }

    /// Removes the resource of `key` and returns it.
    pub fn remove(&self, key: &ResourceKey) -> Option<Arc<Knative>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(key)
    }

    /// All resources.
    pub fn all(&self) -> Vec<Arc<Knative>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Records that the resources of all components were listed.
    pub fn set_listed(&self) {
        self.1.store(true, Ordering::Relaxed);
    }

    /// Whether the resources of all components were listed.
    pub fn is_listed(&self) -> bool {
        self.1.load(Ordering::Relaxed)
    }

    /// Whether any resource has the same target cluster as `resource`.
    pub fn has_resource_on_cluster_of(&self, resource: &Knative) -> bool {
        let target = &resource.common().cluster_profile_ref;
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .any(|other| other.common().cluster_profile_ref == *target)
    }

    /// Resources of the same kind and target cluster, apart from those that are terminating.
    fn competitors(&self, resource: &Knative) -> Vec<Arc<Knative>> {
        let (own, target) = (ResourceKey::of(resource), &resource.common().cluster_profile_ref);
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let competitor = |(key, other): &(&ResourceKey, &Arc<Knative>)| {
            **key != own
                && key.component == own.component
                && other.common().cluster_profile_ref == *target
                && !other.is_terminating()
        };
        all.iter().filter(competitor).map(|(_, other)| Arc::clone(other)).collect()
    }

    /// The oldest competitor older than `resource`, which owns the installation. Names decide
    /// between equal ages.
    pub fn owner(&self, resource: &Knative) -> Option<ResourceKey> {
        let age = |r: &Knative| (r.meta().creation_timestamp.as_ref().map(|t| t.0), ResourceKey::of(r));
        let competitors = self.competitors(resource).into_iter().filter(|competitor| age(competitor) < age(resource));
        competitors.min_by_key(|competitor| age(competitor)).map(|competitor| ResourceKey::of(&competitor))
    }

    /// Whether another resource of the same kind has the same target cluster.
    pub fn has_competitor(&self, resource: &Knative) -> bool {
        !self.competitors(resource).is_empty()
    }

    /// Keys of the competitors of `resource`, to reconcile when it changes.
    pub fn competitor_keys(&self, resource: &Knative) -> Vec<ResourceKey> {
        self.competitors(resource).iter().map(|r| ResourceKey::of(r)).collect()
    }
}
