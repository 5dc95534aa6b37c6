//! Facts about the cluster that reviews use: the catalog of releases, the ClusterProfiles, and the
//! target clusters of resources.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use knative_operator_rules::{Catalog, Profile};
use knative_operator_shared::api::{ClusterProfileReference, Component};
use knative_operator_shared::fleet::selector::Traits;

/// Namespace and name of a resource.
pub type Name = (String, String);
/// The target cluster of a resource; `None` is the local one.
pub type TargetCluster = Option<ClusterProfileReference>;

/// What reviews use of a ClusterProfile.
#[derive(Clone, Debug, Default)]
pub struct ProfileFacts {
    /// Whether it is healthy.
    pub healthy: bool,
    /// What selectors look at.
    pub traits: Traits<'static>,
}

#[derive(Debug, Default)]
struct Inner {
    catalog: Option<Arc<Catalog>>,
    /// ClusterProfiles; `None` until they are listed.
    profiles: Option<HashMap<ClusterProfileReference, ProfileFacts>>,
    targets: HashMap<(Component, Name), TargetCluster>,
    /// Uids of the clusters of resources, as the operator published them.
    uids: HashMap<(Component, Name), String>,
    resources: BTreeMap<(Component, TargetCluster), BTreeSet<Name>>,
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

    /// All ClusterProfiles, with what selectors look at, if known.
    pub fn profiles(&self) -> Option<Vec<(ClusterProfileReference, Traits<'static>)>> {
        let facts = self.read();
        let all = facts.profiles.as_ref()?.iter();
        Some(all.map(|(reference, profile)| (reference.clone(), profile.traits.clone())).collect())
    }

    /// Another resource of `component` than `name` with the target cluster `target`.
    pub fn competitor(&self, component: Component, target: &TargetCluster, name: &Name) -> Option<String> {
        let facts = self.read();
        let resources = facts.resources.get(&(component, target.clone()))?;
        resources.iter().find(|other| *other != name).map(|(namespace, name)| format!("{namespace}/{name}"))
    }

    /// The resources that [`Self::competitor`] and [`Self::competitor_on_cluster`] would name, at
    /// most `most`.
    pub fn competitors(&self, component: Component, target: &TargetCluster, name: &Name, most: usize) -> Vec<Name> {
        let facts = self.read();
        let same = facts.resources.get(&(component, target.clone())).into_iter().flatten();
        let all = same.chain(facts.on_cluster(component, target, name)).filter(|other| *other != name);
        all.take(most).cloned().collect()
    }

    /// Another resource of `component` than `name`, in the same namespace, whose ClusterProfile is
    /// of the same cluster as `target`, and that ClusterProfile. Other namespaces don't count: a
    /// cluster that lies about its uid must not keep others from theirs.
    pub fn competitor_on_cluster(&self, component: Component, target: &TargetCluster, name: &Name) -> Option<String> {
        let facts = self.read();
        let other = facts.on_cluster(component, target, name)?;
        let profile = facts
            .targets
            .get(&(component, other.clone()))?
            .as_ref()
            .map_or_else(|| "the local cluster".to_owned(), |reference| format!("ClusterProfile {reference}"));
        Some(format!("{}/{}, by {profile}, which is the same cluster", other.0, other.1))
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

    /// Sets the target cluster of a resource of `component`, and its uid, if it is known.
    pub fn set_target(&self, component: Component, name: Name, target: TargetCluster, uid: Option<String>) {
        let mut facts = self.write();
        facts.remove(component, &name);
        if let Some(uid) = uid {
            facts.uids.insert((component, name.clone()), uid);
        }
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
    /// Another resource of `component` than `name`, in the same namespace, on the cluster of
    /// `target`.
    fn on_cluster(&self, component: Component, target: &TargetCluster, name: &Name) -> Option<&Name> {
        let of_target = Component::ALL
            .into_iter()
            .filter_map(|other| self.resources.get(&(other, target.clone())).map(|names| (other, names)));
        let uid = of_target
            .flat_map(|(other, names)| names.iter().map(move |name| (other, name.clone())))
            .find_map(|key| self.uids.get(&key))?;
        let is_on_cluster = |(key, other): &(&(Component, Name), &String)| {
            key.0 == component && key.1 != *name && key.1.0 == name.0 && *other == uid
        };
        self.uids.iter().find(is_on_cluster).map(|(key, _)| &key.1)
    }

    fn remove(&mut self, component: Component, name: &Name) {
        self.uids.remove(&(component, name.clone()));
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
    fn two_profiles_of_a_cluster_are_known_by_its_uid() {
        let name = |namespace: &str, name: &str| (namespace.to_owned(), name.to_owned());
        let profile = |name: &str| Some(ClusterProfileReference { name: name.into(), namespace: "f".into() });
        let facts = ClusterFacts::default();
        let set = |component, name, target, uid: &str| facts.set_target(component, name, target, Some(uid.to_owned()));
        set(Component::Serving, name("n", "a"), profile("a"), "1");
        set(Component::Serving, name("other", "a"), profile("c"), "1");
        let found = |target: &str, namespace: &str| {
            facts.competitor_on_cluster(Component::Serving, &profile(target), &name(namespace, "b"))
        };
        // Nothing is known about the second profile.
        assert_eq!(found("b", "n"), None);
        set(Component::Eventing, name("n", "e"), profile("b"), "1");
        let expected = "n/a, by ClusterProfile f/a, which is the same cluster";
        assert_eq!(found("b", "n").as_deref(), Some(expected));
        assert_eq!(found("b", "third"), None);
        set(Component::Eventing, name("n", "e"), profile("b"), "2");
        assert_eq!(found("b", "n"), None);
    }

    #[test]
    fn competitor_has_same_kind_and_target() {
        let (facts, name) = (ClusterFacts::default(), |n: &str| ("ns".to_owned(), n.to_owned()));
        let spoke = Some(ClusterProfileReference { name: "a".into(), namespace: "f".into() });
        facts.set_target(Component::Serving, name("one"), spoke.clone(), None);
        assert_eq!(facts.competitor(Component::Serving, &spoke, &name("two")).as_deref(), Some("ns/one"));
        assert_eq!(facts.competitor(Component::Serving, &spoke, &name("one")), None);
        assert_eq!(facts.competitor(Component::Eventing, &spoke, &name("two")), None);
        assert_eq!(facts.competitor(Component::Serving, &None, &name("two")), None);
        facts.set_target(Component::Serving, name("one"), None, None);
        assert_eq!(facts.competitor(Component::Serving, &spoke, &name("two")), None);
        facts.retain_targets(Component::Serving, &HashSet::new());
        assert_eq!(facts.competitor(Component::Serving, &None, &name("two")), None);
        assert_eq!(facts.profile(spoke.as_ref().unwrap()), None);
        facts.set_profiles(HashMap::new());
        assert_eq!(facts.profile(spoke.as_ref().unwrap()), Some(Profile::Missing));
    }
}
