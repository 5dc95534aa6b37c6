//! All custom resources, so that two of one kind never install on the same cluster.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use knative_operator_shared::api::{Component, Knative};

/// Which custom resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Its kind.
    pub component: Component,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Key {
    /// The key of `resource`.
    pub fn of(resource: &Knative) -> Self {
        Self {
            component: resource.component(),
            namespace: resource.namespace().to_owned(),
            name: resource.name().to_owned(),
        }
    }
}

/// All custom resources.
#[derive(Debug, Default)]
pub struct Siblings(RwLock<HashMap<Key, Arc<Knative>>>);

impl Siblings {
    /// `resource` is as given.
    pub fn set(&self, resource: Arc<Knative>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(Key::of(&resource), resource);
    }

    /// The one of `key` is gone: what it was.
    pub fn remove(&self, key: &Key) -> Option<Arc<Knative>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(key)
    }

    /// Whether anything else is for the cluster of `resource`.
    pub fn on_same_cluster(&self, resource: &Knative) -> bool {
        let target = &resource.common().cluster_profile_ref;
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .any(|other| other.common().cluster_profile_ref == *target)
    }

    /// The others of the same kind for the same cluster that are not being deleted.
    fn rivals(&self, resource: &Knative) -> Vec<Arc<Knative>> {
        let (own, target) = (Key::of(resource), &resource.common().cluster_profile_ref);
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let rival = |(key, other): &(&Key, &Arc<Knative>)| {
            **key != own
                && key.component == own.component
                && other.common().cluster_profile_ref == *target
                && !other.deleting()
        };
        all.iter().filter(rival).map(|(_, other)| Arc::clone(other)).collect()
    }

    /// The oldest rival that is older than `resource`: that one's installation stands. Equal ages are decided by name.
    pub fn elder(&self, resource: &Knative) -> Option<Key> {
        let age = |r: &Knative| (r.meta().creation_timestamp.as_ref().map(|t| t.0), Key::of(r));
        let rivals = self.rivals(resource).into_iter().filter(|rival| age(rival) < age(resource));
        rivals.min_by_key(|rival| age(rival)).map(|rival| Key::of(&rival))
    }

    /// Whether another of the same kind uses the same cluster.
    pub fn shares(&self, resource: &Knative) -> bool {
        !self.rivals(resource).is_empty()
    }

    /// The keys of the rivals of `resource`: they may have to look again when it changes.
    pub fn rival_keys(&self, resource: &Knative) -> Vec<Key> {
        self.rivals(resource).iter().map(|r| Key::of(r)).collect()
    }
}
