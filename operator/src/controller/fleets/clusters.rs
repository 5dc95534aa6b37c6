//! The clusters of fleets.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use knative_operator_shared::api::{ClusterProfile, ClusterProfileReference, Component, KnativeFleet};
use knative_operator_shared::fleet::placement;

use super::store::Store;

/// ClusterProfiles by name.
pub type Profiles = HashMap<ClusterProfileReference, Arc<ClusterProfile>>;

/// The clusters of the fleet.
pub fn clusters(
    fleet: &KnativeFleet,
    store: &Store,
    profiles: &Profiles,
) -> Result<Vec<ClusterProfileReference>, String> {
    let namespace = fleet.metadata.namespace.as_deref().unwrap_or_default();
    let Some(decision) = &fleet.spec.placement.decision else {
        let profiles = profiles.iter().map(|(reference, profile)| (reference, profile.metadata.labels.as_ref()));
        return placement::selected(&fleet.spec.placement, namespace, profiles)
            .map_err(|e| format!("spec.placement.clusterSelector: {e}"));
    };
    if !store.has_decisions() {
        return Err("the CRD placementdecisions.multicluster.x-k8s.io is not installed on this cluster".to_owned());
    }
    let of = decision.namespace.as_deref().unwrap_or(namespace);
    placement::decided(&decision.key, of, store.decisions.values())
}

/// The clusters that fleets older than `fleet` select, with the oldest of them.
pub fn claims(
    fleet: &KnativeFleet,
    store: &Store,
    profiles: &Profiles,
) -> HashMap<(ClusterProfileReference, Component), String> {
    let age = |fleet: &KnativeFleet| {
        let meta = &fleet.metadata;
        (meta.creation_timestamp.clone().map(|time| time.0), meta.namespace.clone(), meta.name.clone())
    };
    let mut older: Vec<&KnativeFleet> = store
        .fleets
        .values()
        .map(|stored| &stored.fleet)
        .filter(|other| other.metadata.deletion_timestamp.is_none() && age(other) < age(fleet))
        .collect();
    older.sort_by_key(|other| age(other));
    let mut claims = HashMap::new();
    for other in older {
        let components: BTreeSet<Component> = other.spec.components().collect();
        let name = format!(
            "{}/{}",
            other.metadata.namespace.as_deref().unwrap_or_default(),
            other.metadata.name.as_deref().unwrap_or_default()
        );
        for cluster in clusters(other, store, profiles).unwrap_or_default() {
            for component in &components {
                claims.entry((cluster.clone(), *component)).or_insert_with(|| name.clone());
            }
        }
    }
    claims
}
