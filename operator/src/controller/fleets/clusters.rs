//! The clusters of fleets.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use knative_operator_runtime::inventory::InventoryKind;
use knative_operator_shared::api::fleet::Placement;
use knative_operator_shared::api::{ClusterProfileReference, KnativeFleet};
use knative_operator_shared::fleet::placement::{self, UnknownProperties, dividing_field};
use knative_operator_shared::fleet::placement_error::{DecisionError, PlacementError};
use knative_operator_shared::fleet::selector::Traits;

use super::children::ChildKey;
use super::selected::Selected;
use super::store::{FleetKey, Store};
use knative_operator_cluster_access::profiles::{Profiles, Versions};

/// Why the clusters of a fleet are unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownClusters {
    /// The selectors don't tell.
    #[error("spec.placement.{0}")]
    Placement(PlacementError),
    /// The hub has no PlacementDecisions.
    #[error("{}", InventoryKind::PlacementDecision.not_served())]
    NotServed,
    /// The decision doesn't tell.
    #[error(transparent)]
    Decision(#[from] DecisionError),
    /// Properties decide about a cluster, and are not known.
    #[error("{0}")]
    Properties(UnknownProperties),
}

/// Clusters, or why they are unknown.
type Located = Result<Arc<Selected>, UnknownClusters>;

/// What a selection was computed from.
#[derive(Debug)]
struct Basis {
    placement: Placement,
    /// The field that selects by properties outside of the placement.
    dividing: Option<String>,
    /// Versions of the labels of ClusterProfiles, of their properties if it selects by them, and of
    /// PlacementDecisions.
    labels: u64,
    properties: Option<u64>,
    decisions: u64,
}

/// The clusters that all fleets select, computed once for each change of what they depend on.
#[derive(Debug, Default)]
pub struct Selections {
    /// Clusters that fleets select, and may not have.
    pub unpermitted: HashMap<FleetKey, BTreeSet<ClusterProfileReference>>,
    known: Mutex<HashMap<FleetKey, (Basis, Located)>>,
}

impl Selections {
    /// Forgets fleets that are gone.
    pub fn retain(&mut self, exists: impl Fn(&FleetKey) -> bool) {
        self.unpermitted.retain(|key, _| exists(key));
        self.known.get_mut().unwrap_or_else(PoisonError::into_inner).retain(|key, _| exists(key));
    }

    /// The clusters of `fleet`, given the ClusterProfiles and their versions.
    ///
    /// # Errors
    ///
    /// Why they are unknown.
    pub fn of(&self, fleet: &KnativeFleet, store: &Store, (versions, profiles): (Versions, &Profiles)) -> Located {
        let (placement, dividing) = (&fleet.spec.placement, dividing_field(&fleet.spec));
        let uses_properties = placement.property_selector.is_some() || dividing.is_some();
        let properties = uses_properties.then_some(versions.properties);
        let (labels, decisions) = (versions.labels, store.decisions_version());
        // Each pass asks about the older fleets, too.
        let is_same = |of: &Basis| {
            let is_same = of.placement == *placement && of.dividing == dividing;
            is_same && (of.labels, of.properties, of.decisions) == (labels, properties, decisions)
        };
        let (key, mut known) = (key(fleet), self.known.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some((_, selected)) = known.get(&key).filter(|(of, _)| is_same(of)) {
            return selected.clone();
        }
        let selected = clusters(fleet, store, profiles).map(|clusters| Arc::new(Selected::from(clusters)));
        let basis = Basis { placement: placement.clone(), dividing, labels, properties, decisions };
        known.insert(key, (basis, selected.clone()));
        selected
    }

    /// The clusters among `own` that fleets older than `fleet` select, with the oldest of them.
    pub fn claims<'c>(
        &self,
        fleet: &KnativeFleet,
        store: &Store,
        profiles: (Versions, &Profiles),
        own: &(impl Iterator<Item = &'c ClusterProfileReference> + Clone),
    ) -> HashMap<ChildKey, String> {
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
            let (key, components) = (key(other), other.spec.components().collect::<BTreeSet<_>>());
            let (name, refused) = (format!("{}/{}", key.0, key.1), self.unpermitted.get(&key));
            let selected = self.of(other, store, profiles);
            // If its clusters are not known, each one that it may select is its own.
            let claims_it = |cluster: &ClusterProfileReference| match &selected {
                Ok(selected) => selected.set.contains(cluster),
                Err(_) => may_select(other, cluster, profiles.1),
            };
            let is_refused = |cluster| refused.is_some_and(|all| all.contains(cluster));
            for cluster in own.clone().filter(|cluster| claims_it(cluster) && !is_refused(*cluster)) {
                for component in &components {
                    claims.entry((cluster.clone(), *component)).or_insert_with(|| name.clone());
                }
            }
        }
        claims
    }
}

fn key(fleet: &KnativeFleet) -> FleetKey {
    (fleet.metadata.namespace.clone().unwrap_or_default(), fleet.metadata.name.clone().unwrap_or_default())
}

/// Whether `fleet` may select `cluster`, if its clusters are not known.
fn may_select(fleet: &KnativeFleet, cluster: &ClusterProfileReference, profiles: &Profiles) -> bool {
    let namespace = fleet.metadata.namespace.as_deref().unwrap_or_default();
    let traits = Traits::of(profiles.get(cluster).map(Arc::as_ref));
    placement::may_select(&fleet.spec.placement, namespace, cluster, &traits.labels)
}

/// Whether `fleet` selects one of `references` now, or can't know.
pub fn selects<'r>(
    fleet: &KnativeFleet,
    profiles: &Profiles,
    references: impl Iterator<Item = &'r ClusterProfileReference>,
) -> bool {
    let namespace = fleet.metadata.namespace.as_deref().unwrap_or_default();
    let traits = references.filter_map(|one| Some((one, Traits::of(Some(profiles.get(one)?)))));
    placement::selected(&fleet.spec.placement, namespace, traits).map_or(true, |selected| !selected.is_empty())
}

/// The clusters of the fleet.
fn clusters(
    fleet: &KnativeFleet,
    store: &Store,
    profiles: &Profiles,
) -> Result<Vec<ClusterProfileReference>, UnknownClusters> {
    let namespace = fleet.metadata.namespace.as_deref().unwrap_or_default();
    let clusters = match &fleet.spec.placement.decision {
        None => {
            let traits = profiles.iter().map(|(reference, profile)| (reference, Traits::of(Some(profile))));
            let selected = placement::selected(&fleet.spec.placement, namespace, traits);
            selected.map_err(UnknownClusters::Placement)?
        }
        Some(_) if !store.has_decisions() => return Err(UnknownClusters::NotServed),
        Some(decision) => {
            let of = decision.namespace.as_deref().unwrap_or(namespace);
            placement::decided(decision, of, store.decisions.values())?
        }
    };
    let traits = clusters.iter().filter_map(|cluster| Some((cluster, Traits::of(Some(profiles.get(cluster)?)))));
    match UnknownProperties::find(&fleet.spec, traits) {
        None => Ok(clusters),
        Some(unknown) => Err(UnknownClusters::Properties(unknown)),
    }
}
