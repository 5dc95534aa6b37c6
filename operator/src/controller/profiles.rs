//! The ClusterProfiles of the hub, from a watch.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use knative_operator_shared::api::cluster_profile::{ClusterProfileSpec, ClusterProfileStatus, ProfileCondition};
use knative_operator_shared::api::{ClusterProfile, ClusterProfileReference};
use knative_operator_shared::fleet::placement::HEALTHY;
use knative_operator_shared::reason::Reason;
use knative_operator_shared::strict;
use kube::core::DynamicObject;

use crate::cluster::Unresolved;

/// State of the watch.
#[derive(Debug, Default)]
enum WatchState {
    /// Not listed yet.
    #[default]
    Unlisted,
    /// The hub has no such kind.
    KindMissing,
    /// The list failed.
    Unreadable(String),
    /// Listed.
    Listed,
}

/// The ClusterProfiles of the hub.
#[derive(Debug, Default)]
pub struct ClusterProfiles(RwLock<(WatchState, HashMap<ClusterProfileReference, Arc<ClusterProfile>>)>);

/// The reference to `profile`.
pub fn reference(profile: &ClusterProfile) -> ClusterProfileReference {
    ClusterProfileReference {
        name: profile.metadata.name.clone().unwrap_or_default(),
        namespace: profile.metadata.namespace.clone().unwrap_or_default(),
    }
}

/// Annotation of a ClusterProfile in memory that this version can't read: the reason.
const UNREADABLE: &str = "unreadable";

/// Parses `object`. One that this version can't read has its metadata and the reason only, so that
/// it keeps no other from being read.
pub fn parse(object: &DynamicObject) -> ClusterProfile {
    let mut value = object.data.clone();
    // Metadata has string keys only, so it always serializes.
    value["metadata"] = serde_json::to_value(&object.metadata).unwrap_or_default();
    strict::read(&value).unwrap_or_else(|error| {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let mut profile = ClusterProfile::new(name, ClusterProfileSpec::default());
        profile.metadata = object.metadata.clone();
        let condition = ProfileCondition {
            type_: HEALTHY.to_owned(),
            status: "Unknown".to_owned(),
            message: format!("this version can't read the ClusterProfile: {error}"),
        };
        profile.metadata.annotations.get_or_insert_default().insert(UNREADABLE.to_owned(), error.to_string());
        profile.status = Some(ClusterProfileStatus { conditions: vec![condition], ..ClusterProfileStatus::default() });
        profile
    })
}

impl ClusterProfiles {
    fn change(&self, change: impl FnOnce(&mut WatchState, &mut HashMap<ClusterProfileReference, Arc<ClusterProfile>>)) {
        let mut inner = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let (state, profiles) = &mut *inner;
        change(state, profiles);
    }

    /// Replaces all ClusterProfiles.
    pub fn reset(&self, all: Vec<ClusterProfile>) {
        self.change(|state, profiles| {
            *state = WatchState::Listed;
            *profiles = all.into_iter().map(|p| (reference(&p), Arc::new(p))).collect();
        });
    }

    /// Adds or replaces `profile`.
    pub fn set(&self, profile: ClusterProfile) {
        self.change(|_, profiles| drop(profiles.insert(reference(&profile), Arc::new(profile))));
    }

    /// Removes the ClusterProfile of `reference`.
    pub fn remove(&self, reference: &ClusterProfileReference) {
        self.change(|_, profiles| drop(profiles.remove(reference)));
    }

    /// Records that the hub has no such kind.
    pub fn set_kind_missing(&self) {
        self.change(|state, profiles| {
            *state = WatchState::KindMissing;
            profiles.clear();
        });
    }

    /// Records that the list failed. Earlier ClusterProfiles stay.
    pub fn set_unreadable(&self, why: String) {
        self.change(|state, _| {
            if !matches!(state, WatchState::Listed) {
                *state = WatchState::Unreadable(why);
            }
        });
    }

    /// Whether a list was tried.
    pub fn are_listed(&self) -> bool {
        !matches!(self.0.read().unwrap_or_else(PoisonError::into_inner).0, WatchState::Unlisted)
    }

    /// All ClusterProfiles, once they were listed.
    ///
    /// # Errors
    ///
    /// Why they are unknown.
    pub fn all(&self) -> Result<Vec<(ClusterProfileReference, Arc<ClusterProfile>)>, String> {
        let inner = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let (state, profiles) = &*inner;
        match state {
            WatchState::Listed => {
                Ok(profiles.iter().map(|(reference, p)| (reference.clone(), Arc::clone(p))).collect())
            }
            WatchState::KindMissing => {
                Err("the CRD clusterprofiles.multicluster.x-k8s.io is not installed on this cluster".to_owned())
            }
            WatchState::Unreadable(why) => Err(format!("cannot read ClusterProfiles: {why}")),
            WatchState::Unlisted => Err("ClusterProfiles have not been read yet".to_owned()),
        }
    }

    /// The ClusterProfile of `reference`.
    pub fn get(&self, reference: &ClusterProfileReference) -> Result<Arc<ClusterProfile>, Unresolved> {
        let inner = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let (state, profiles) = &*inner;
        if let Some(profile) = profiles.get(reference) {
            return match profile.metadata.annotations.as_ref().and_then(|all| all.get(UNREADABLE)) {
                None => Ok(Arc::clone(profile)),
                Some(why) => Err(Unresolved::new(
                    Reason::ClusterProfileUnavailable,
                    format!("this version can't read ClusterProfile {reference}: {why}"),
                )),
            };
        }
        Err(match state {
            WatchState::Listed => Unresolved::new(
                Reason::ClusterProfileNotFound,
                format!("ClusterProfile {reference} does not exist; create it, or correct spec.clusterProfileRef"),
            ),
            WatchState::KindMissing => Unresolved::new(
                Reason::ClusterProfileNotFound,
                format!(
                    "ClusterProfile {reference} does not exist: the CRD clusterprofiles.multicluster.x-k8s.io is not installed on this cluster"
                ),
            ),
            WatchState::Unreadable(why) => Unresolved::new(
                Reason::ClusterProfileUnavailable,
                format!("cannot read ClusterProfile {reference}: {why}"),
            ),
            WatchState::Unlisted => Unresolved::new(
                Reason::ClusterProfileUnavailable,
                format!("ClusterProfile {reference} has not been read yet"),
            ),
        })
    }
}
