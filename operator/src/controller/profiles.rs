//! The ClusterProfiles of the hub, as a watch tells them.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use knative_operator_shared::api::{ClusterProfile, ClusterProfileReference};
use knative_operator_shared::reason::Reason;

use crate::cluster::Unresolved;

/// What is known of ClusterProfiles.
#[derive(Debug, Default)]
enum Known {
    /// Nothing yet.
    #[default]
    Nothing,
    /// There is no such kind on the hub.
    NoSuchKind,
    /// They can't be read.
    Unreadable(String),
    /// All of them.
    All,
}

/// The ClusterProfiles of the hub.
#[derive(Debug, Default)]
pub struct Profiles(RwLock<(Known, HashMap<ClusterProfileReference, Arc<ClusterProfile>>)>);

/// The reference to `profile`.
pub fn reference(profile: &ClusterProfile) -> ClusterProfileReference {
    ClusterProfileReference {
        name: profile.metadata.name.clone().unwrap_or_default(),
        namespace: profile.metadata.namespace.clone().unwrap_or_default(),
    }
}

impl Profiles {
    fn change(&self, change: impl FnOnce(&mut Known, &mut HashMap<ClusterProfileReference, Arc<ClusterProfile>>)) {
        let mut inner = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let (known, profiles) = &mut *inner;
        change(known, profiles);
    }

    /// These are all that there are.
    pub fn reset(&self, all: Vec<ClusterProfile>) {
        self.change(|known, profiles| {
            *known = Known::All;
            *profiles = all.into_iter().map(|p| (reference(&p), Arc::new(p))).collect();
        });
    }

    /// `profile` is there.
    pub fn set(&self, profile: ClusterProfile) {
        self.change(|_, profiles| drop(profiles.insert(reference(&profile), Arc::new(profile))));
    }

    /// The one of `reference` is gone.
    pub fn remove(&self, reference: &ClusterProfileReference) {
        self.change(|_, profiles| drop(profiles.remove(reference)));
    }

    /// There is no such kind on the hub.
    pub fn no_such_kind(&self) {
        self.change(|known, profiles| {
            *known = Known::NoSuchKind;
            profiles.clear();
        });
    }

    /// They can't be read, because. What was read before stays.
    pub fn unreadable(&self, why: String) {
        self.change(|known, _| {
            if !matches!(known, Known::All) {
                *known = Known::Unreadable(why);
            }
        });
    }

    /// Whether it was tried to read them.
    pub fn looked(&self) -> bool {
        !matches!(self.0.read().unwrap_or_else(PoisonError::into_inner).0, Known::Nothing)
    }

    /// The one of `reference`.
    pub fn get(&self, reference: &ClusterProfileReference) -> Result<Arc<ClusterProfile>, Unresolved> {
        let inner = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let (known, profiles) = &*inner;
        if let Some(profile) = profiles.get(reference) {
            return Ok(Arc::clone(profile));
        }
        Err(match known {
            Known::All => Unresolved::new(
                Reason::ClusterProfileNotFound,
                format!("ClusterProfile {reference} does not exist; create it, or correct spec.clusterProfileRef"),
            ),
            Known::NoSuchKind => Unresolved::new(
                Reason::ClusterProfileNotFound,
                format!(
                    "ClusterProfile {reference} does not exist: the CRD clusterprofiles.multicluster.x-k8s.io is not installed on this cluster"
                ),
            ),
            Known::Unreadable(why) => Unresolved::new(
                Reason::ClusterProfileUnavailable,
                format!("ClusterProfile {reference} can't be read: {why}"),
            ),
            Known::Nothing => Unresolved::new(
                Reason::ClusterProfileUnavailable,
                format!("ClusterProfile {reference} has not been read yet"),
            ),
        })
    }
}
