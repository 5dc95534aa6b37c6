//! What the webhook knows of its cluster beside a review: the releases, the ClusterProfiles, and which resource is for which cluster.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use knative_operator_shared::api::{ClusterProfileReference, Component};
use knative_operator_shared::rules::{Profile, Releases};

/// Namespace and name of a resource.
pub type Name = (String, String);
/// The cluster that a resource is for; none is the local one.
pub type Target = Option<ClusterProfileReference>;

#[derive(Debug, Default)]
struct Facts {
    releases: Option<Arc<Releases>>,
    /// Which ClusterProfiles there are, and whether each is healthy; nothing before all are known.
    profiles: Option<HashMap<ClusterProfileReference, bool>>,
    targets: HashMap<(Component, Name), Target>,
    residents: BTreeMap<(Component, Target), BTreeSet<Name>>,
}

/// What is known. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Known(Arc<RwLock<Facts>>);

impl Known {
    fn read(&self) -> RwLockReadGuard<'_, Facts> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Facts> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the operator can install, if it has said so.
    pub fn releases(&self) -> Option<Arc<Releases>> {
        self.read().releases.clone()
    }

    /// What `reference` refers to, if that is known.
    pub fn profile(&self, reference: &ClusterProfileReference) -> Option<Profile> {
        let facts = self.read();
        Some(match facts.profiles.as_ref()?.get(reference) {
            None => Profile::Missing,
            Some(false) => Profile::Unhealthy,
            Some(true) => Profile::Healthy,
        })
    }

    /// Another resource of `component` than `name` that is for `target`.
    pub fn rival(&self, component: Component, target: &Target, name: &Name) -> Option<String> {
        let facts = self.read();
        let residents = facts.residents.get(&(component, target.clone()))?;
        residents.iter().find(|other| *other != name).map(|(namespace, name)| format!("{namespace}/{name}"))
    }

    /// The operator can install `releases`.
    pub fn set_releases(&self, releases: Option<Releases>) {
        self.write().releases = releases.map(Arc::new);
    }

    /// These are all ClusterProfiles.
    pub fn all_profiles(&self, all: HashMap<ClusterProfileReference, bool>) {
        self.write().profiles = Some(all);
    }

    /// A ClusterProfile is `healthy`, or not; nothing: it is gone.
    pub fn set_profile(&self, reference: ClusterProfileReference, healthy: Option<bool>) {
        if let Some(profiles) = &mut self.write().profiles {
            match healthy {
                Some(healthy) => drop(profiles.insert(reference, healthy)),
                None => drop(profiles.remove(&reference)),
            }
        }
    }

    /// A resource of `component` is for `target`.
    pub fn set_target(&self, component: Component, name: Name, target: Target) {
        let mut facts = self.write();
        facts.forget(component, &name);
        facts.residents.entry((component, target.clone())).or_default().insert(name.clone());
        facts.targets.insert((component, name), target);
    }

    /// A resource of `component` is gone, or going.
    pub fn remove_target(&self, component: Component, name: &Name) {
        self.write().forget(component, name);
    }

    /// There are no others of `component` than `names`.
    pub fn only_targets(&self, component: Component, names: &HashSet<Name>) {
        let mut facts = self.write();
        let gone: Vec<Name> = facts
            .targets
            .keys()
            .filter(|(c, n)| *c == component && !names.contains(n))
            .map(|(_, n)| n.clone())
            .collect();
        gone.iter().for_each(|name| facts.forget(component, name));
    }
}

impl Facts {
    fn forget(&mut self, component: Component, name: &Name) {
        let Some(target) = self.targets.remove(&(component, name.clone())) else { return };
        let key = (component, target);
        if let Some(residents) = self.residents.get_mut(&key) {
            residents.remove(name);
            if residents.is_empty() {
                self.residents.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rival_is_another_one_of_the_same_kind_for_the_same_cluster() {
        let (known, name) = (Known::default(), |n: &str| ("ns".to_owned(), n.to_owned()));
        let spoke = Some(ClusterProfileReference { name: "a".into(), namespace: "f".into() });
        known.set_target(Component::Serving, name("one"), spoke.clone());
        assert_eq!(known.rival(Component::Serving, &spoke, &name("two")).as_deref(), Some("ns/one"));
        assert_eq!(known.rival(Component::Serving, &spoke, &name("one")), None);
        assert_eq!(known.rival(Component::Eventing, &spoke, &name("two")), None);
        assert_eq!(known.rival(Component::Serving, &None, &name("two")), None);
        known.set_target(Component::Serving, name("one"), None);
        assert_eq!(known.rival(Component::Serving, &spoke, &name("two")), None);
        known.only_targets(Component::Serving, &HashSet::new());
        assert_eq!(known.rival(Component::Serving, &None, &name("two")), None);
        assert_eq!(known.profile(spoke.as_ref().unwrap()), None);
        known.all_profiles(HashMap::new());
        assert_eq!(known.profile(spoke.as_ref().unwrap()), Some(Profile::Missing));
    }
}
