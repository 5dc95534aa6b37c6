//! The ClusterProfiles of the hub, from a watch.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use knative_operator_base::cluster_profile::{ClusterProfile, ClusterProfileReference, Properties};
use knative_operator_client::inventory::InventoryKind;

use super::error::{AccessError, Reason};

/// Why the ClusterProfiles are unknown.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Unlisted {
    /// No list was tried yet.
    #[error("ClusterProfiles have not been read yet")]
    NotYet,
    /// The hub has no such kind.
    #[error("{}", InventoryKind::ClusterProfile.not_served())]
    KindMissing,
    /// The list failed.
    #[error("cannot read ClusterProfiles: {0}")]
    Unreadable(String),
}

/// ClusterProfiles by name.
pub type Profiles = HashMap<ClusterProfileReference, Arc<ClusterProfile>>;

/// Numbers that are others when what selectors look at is another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// Increases when the labels of a ClusterProfile change, or one comes or goes.
    pub labels: u64,
    /// Increases when the properties of one change.
    pub properties: u64,
}

/// What the watch reported.
#[derive(Debug)]
struct Watched {
    listed: Result<(), Unlisted>,
    /// Shared with readers; copied if one changes while somebody reads.
    profiles: Arc<Profiles>,
    versions: Versions,
}

impl Default for Watched {
    fn default() -> Self {
        Self { listed: Err(Unlisted::NotYet), profiles: Arc::default(), versions: Versions::default() }
    }
}

/// The ClusterProfiles of the hub.
#[derive(Debug, Default)]
pub struct ClusterProfiles(RwLock<Watched>);

impl ClusterProfiles {
    fn write(&self) -> RwLockWriteGuard<'_, Watched> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> RwLockReadGuard<'_, Watched> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces all ClusterProfiles.
    pub fn reset(&self, all: Vec<ClusterProfile>) {
        let mut watched = self.write();
        watched.listed = Ok(());
        watched.profiles = Arc::new(all.into_iter().map(|p| (p.reference(), Arc::new(p))).collect());
        watched.versions.labels += 1;
    }

    /// Adds or replaces `profile`, and returns the former one.
    pub fn set(&self, profile: &Arc<ClusterProfile>) -> Option<Arc<ClusterProfile>> {
        let mut watched = self.write();
        let former = Arc::make_mut(&mut watched.profiles).insert(profile.reference(), Arc::clone(profile));
        match &former {
            Some(former) if labels(former) != labels(profile) => watched.versions.labels += 1,
            Some(former) if properties(former) != properties(profile) => watched.versions.properties += 1,
            Some(_) => {}
            None => watched.versions.labels += 1,
        }
        former
    }

    /// Removes the ClusterProfile of `reference`.
    pub fn remove(&self, reference: &ClusterProfileReference) {
        let mut watched = self.write();
        Arc::make_mut(&mut watched.profiles).remove(reference);
        watched.versions.labels += 1;
    }

    /// Records that the hub has no such kind.
    pub fn set_kind_missing(&self) {
        let mut watched = self.write();
        watched.listed = Err(Unlisted::KindMissing);
        watched.profiles = Arc::default();
        watched.versions.labels += 1;
    }

    /// Records that the list failed. Earlier ClusterProfiles stay.
    pub fn set_unreadable(&self, why: String) {
        let mut watched = self.write();
        if watched.listed.is_err() {
            watched.listed = Err(Unlisted::Unreadable(why));
        }
    }

    /// Whether a list was tried.
    pub fn are_listed(&self) -> bool {
        !matches!(self.read().listed, Err(Unlisted::NotYet))
    }

    /// All ClusterProfiles, once they were listed, with the versions of what selectors look at.
    pub fn all(&self) -> Result<(Versions, Arc<Profiles>), Unlisted> {
        let watched = self.read();
        watched.listed.clone()?;
        Ok((watched.versions, Arc::clone(&watched.profiles)))
    }

    /// The ClusterProfile of `reference`, if those of its namespace may be used: `namespaces` has
    /// it, or is empty.
    pub fn permitted(
        &self,
        reference: &ClusterProfileReference,
        namespaces: &[String],
    ) -> Result<Arc<ClusterProfile>, AccessError> {
        if namespaces.is_empty() || namespaces.contains(&reference.namespace) {
            return self.get(reference);
        }
        Err(AccessError::new(
            Reason::ClusterProfileNotPermitted,
            format!("ClusterProfile {reference} may not be used: namespace {} is not permitted", reference.namespace),
        ))
    }

    /// The ClusterProfile of `reference`.
    pub fn get(&self, reference: &ClusterProfileReference) -> Result<Arc<ClusterProfile>, AccessError> {
        let watched = self.read();
        if let Some(profile) = watched.profiles.get(reference) {
            return match profile.unreadable() {
                None => Ok(Arc::clone(profile)),
                Some(why) => Err(AccessError::new(
                    Reason::ClusterProfileUnavailable,
                    format!("this version can't read ClusterProfile {reference}: {why}"),
                )),
            };
        }
        Err(match &watched.listed {
            Ok(()) => {
                AccessError::new(Reason::ClusterProfileNotFound, format!("ClusterProfile {reference} does not exist"))
            }
            Err(Unlisted::KindMissing) => AccessError::new(
                Reason::ClusterProfileNotServed,
                format!("ClusterProfile {reference} does not exist: {}", InventoryKind::ClusterProfile.not_served()),
            ),
            Err(Unlisted::Unreadable(why)) => AccessError::new(
                Reason::ClusterProfileUnavailable,
                format!("cannot read ClusterProfile {reference}: {why}"),
            ),
            Err(Unlisted::NotYet) => AccessError::new(
                Reason::ClusterProfileUnavailable,
                format!("ClusterProfile {reference} has not been read yet"),
            ),
        })
    }
}

/// The labels of `profile`; none are the same as an empty map.
fn labels(profile: &ClusterProfile) -> Option<&BTreeMap<String, String>> {
    profile.metadata.labels.as_ref().filter(|labels| !labels.is_empty())
}

/// The properties of `profile`, and whether they can't be read.
fn properties(profile: &ClusterProfile) -> (Option<&Properties>, bool) {
    let properties = profile.status.as_ref().map(|status| &status.properties).filter(|known| !known.0.is_empty());
    (properties, profile.has_unreadable_properties())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn profile_that_was_not_read_is_unavailable_and_not_missing() {
        let (profiles, name) = (ClusterProfiles::default(), ["fleet", "a"]);
        let reference = ClusterProfileReference { namespace: name[0].to_owned(), name: name[1].to_owned() };
        let unresolved = || profiles.get(&reference).map(drop).unwrap_err();
        let found = unresolved();
        assert_eq!(found.reason, Reason::ClusterProfileUnavailable);
        assert!(found.message.contains("has not been read yet"), "{found}");
        profiles.set_unreadable("forbidden".to_owned());
        let found = unresolved();
        assert_eq!(found.reason, Reason::ClusterProfileUnavailable);
        assert!(found.message.contains("cannot read ClusterProfile fleet/a: forbidden"), "{found}");
        // A failure after a list is transient: what was read stays.
        profiles.reset(Vec::new());
        profiles.set_unreadable("forbidden".to_owned());
        assert_eq!(unresolved().reason, Reason::ClusterProfileNotFound);
    }

    #[test]
    fn versions_are_those_of_what_selectors_look_at() {
        let profiles = ClusterProfiles::default();
        profiles.reset(Vec::new());
        let after = |labels: Value, region: &str, heartbeat: &str| {
            let profile = json!({"metadata": {"name": "a", "namespace": "f", "labels": labels, "resourceVersion": heartbeat},
                "spec": {}, "status": {"properties": [{"name": "region", "value": region, "lastObservedTime": heartbeat}]}});
            profiles.set(&Arc::new(serde_json::from_value(profile).unwrap()));
            profiles.all().unwrap().0
        };
        let first = after(json!({"env": "prod"}), "eu", "1");
        assert_eq!(after(json!({"env": "prod"}), "eu", "2"), first);
        let moved = after(json!({"env": "prod"}), "us", "3");
        assert_eq!(moved, Versions { properties: first.properties + 1, ..first });
        let relabeled = after(json!({"env": "test"}), "us", "4");
        assert_eq!(relabeled, Versions { labels: moved.labels + 1, ..moved });
    }
}
