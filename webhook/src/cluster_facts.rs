//! Facts about the cluster that reviews use: the catalog of releases, the ClusterProfiles, and the
//! target clusters of resources.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use knative_operator_shared::api::{ClusterProfileReference, Component};
use knative_operator_shared::fleet::placement::Labels;
use knative_operator_shared::rules::{Catalog, Profile};

/// Namespace and name of a resource.
pub type Name = (String, String);
/// The target cluster of a resource; `None` is the local one.
pub type Target = Option<ClusterProfileReference>;

/// What reviews use of a ClusterProfile.
#[derive(Clone, Debug, Default)]
pub struct ProfileFacts {
    /// Whether it is healthy.
    pub healthy: bool,
    /// Its labels.
    pub labels: Labels,
}

#[derive(Debug, Default)]
struct Inner {
    catalog: Option<Arc<Catalog>>,
    /// ClusterProfiles; `None` until they are listed.
    profiles: Option<HashMap<ClusterProfileReference, ProfileFacts>>,
    targets: HashMap<(Component, Name), Target>,
    resources: BTreeMap<(Component, Target), BTreeSet<Name>>,
}

/// Facts about the cluster. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ClusterFacts(Arc<RwLock<Inner>>);

impl ClusterFacts {
    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Catalog of the releases that the operator can install, if known.
    pub fn catalog(&self) -> Option<Arc<Catalog>> {
        self.read().catalog.clone()
    }

    /// State of the ClusterProfile of `reference`, if known.
    pub fn profile(&self, reference: &ClusterProfileReference) -> Option<Profile> {
        let facts = self.read();
        Some(match facts.profiles.as_ref()?.get(reference) {
            None => Profile::Missing,
            Some(profile) if profile.healthy => Profile::Healthy,
            Some(_) => Profile::Unhealthy,
        })
    }

    /// All ClusterProfiles, with their labels, if known.
    pub fn profiles(&self) -> Option<Vec<(ClusterProfileReference, Labels)>> {
        let facts = self.read();
        let all = facts.profiles.as_ref()?.iter();
        Some(all.map(|(reference, profile)| (reference.clone(), profile.labels.clone())).collect())
    }

    /// Another resource of `component` than `name` with the target cluster `target`.
    pub fn competitor(&self, component: Component, target: &Target, name: &Name) -> Option<String> {
        let facts = self.read();
        let resources = facts.resources.get(&(component, target.clone()))?;
        resources.iter().find(|other| *other != name).map(|(namespace, name)| format!("{namespace}/{name}"))
    }

    /// Sets the catalog.
    pub fn set_catalog(&self, catalog: Option<Catalog>) {
        self.write().catalog = catalog.map(Arc::new);
    }

    /// Replaces all ClusterProfiles.
    pub fn set_profiles(&self, all: HashMap<ClusterProfileReference, ProfileFacts>) {
        self.write().profiles = Some(all);
    }

    /// Sets a ClusterProfile; `None` removes it.
    pub fn set_profile(&self, reference: ClusterProfileReference, profile: Option<ProfileFacts>) {
        if let Some(profiles) = &mut self.write().profiles {
            match profile {
                Some(profile) => drop(profiles.insert(reference, profile)),
                None => drop(profiles.remove(&reference)),
            }
        }
    }

    /// Sets the target cluster of a resource of `component`.
    pub fn set_target(&self, component: Component, name: Name, target: Target) {
        let mut facts = self.write();
        facts.remove(component, &name);
        facts.resources.entry((component, target.clone())).or_default().insert(name.clone());
        facts.targets.insert((component, name), target);
    }

    /// Removes a resource of `component`.
    pub fn remove_target(&self, component: Component, name: &Name) {
        self.write().remove(component, name);
    }

    /// Removes all resources of `component` except `names`.
    pub fn retain_targets(&self, component: Component, names: &HashSet<Name>) {
        let mut facts = self.write();
        let gone: Vec<Name> = facts
            .targets
            .keys()
            .filter(|(c, n)| *c == component && !names.contains(n))
            .map(|(_, n)| n.clone())
            .collect();
        gone.iter().for_each(|name| facts.remove(component, name));
    }
}

impl Inner {
    fn remove(&mut self, component: Component, name: &Name) {
        let Some(target) = self.targets.remove(&(component, name.clone())) else { return };
        let key = (component, target);
        if let Some(resources) = self.resources.get_mut(&key) {
            resources.remove(name);
            if resources.is_empty() {
                self.resources.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn competitor_has_same_kind_and_target() {
        let (facts, name) = (ClusterFacts::default(), |n: &str| ("ns".to_owned(), n.to_owned()));
        let spoke = Some(ClusterProfileReference { name: "a".into(), namespace: "f".into() });
        facts.set_target(Component::Serving, name("one"), spoke.clone());
        assert_eq!(facts.competitor(Component::Serving, &spoke, &name("two")).as_deref(), Some("ns/one"));
        assert_eq!(facts.competitor(Component::Serving, &spoke, &name("one")), None);
        assert_eq!(facts.competitor(Component::Eventing, &spoke, &name("two")), None);
        assert_eq!(facts.competitor(Component::Serving, &None, &name("two")), None);
        facts.set_target(Component::Serving, name("one"), None);
        assert_eq!(facts.competitor(Component::Serving, &spoke, &name("two")), None);
        facts.retain_targets(Component::Serving, &HashSet::new());
        assert_eq!(facts.competitor(Component::Serving, &None, &name("two")), None);
        assert_eq!(facts.profile(spoke.as_ref().unwrap()), None);
        facts.set_profiles(HashMap::new());
        assert_eq!(facts.profile(spoke.as_ref().unwrap()), Some(Profile::Missing));
    }
}
