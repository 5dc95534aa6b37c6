//! The clusters of fleets.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use knative_operator_shared::api::{ClusterProfile, ClusterProfileReference, Component, KnativeFleet};
use knative_operator_shared::fleet::placement;

use super::store::{FleetKey, Store};

/// ClusterProfiles by name.
pub type Profiles = HashMap<ClusterProfileReference, Arc<ClusterProfile>>;

/// Clusters that fleets select, and may not have.
pub type Unpermitted = HashMap<FleetKey, BTreeSet<ClusterProfileReference>>;

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
    unpermitted: &Unpermitted,
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
        let key =
            (other.metadata.namespace.clone().unwrap_or_default(), other.metadata.name.clone().unwrap_or_default());
        let (name, refused) = (format!("{}/{}", key.0, key.1), unpermitted.get(&key));
        let selected = clusters(other, store, profiles).unwrap_or_default();
        for cluster in selected.into_iter().filter(|cluster| !refused.is_some_and(|all| all.contains(cluster))) {
            for component in &components {
                claims.entry((cluster.clone(), *component)).or_insert_with(|| name.clone());
            }
        }
    }
    claims
}
