//! The kinds that an overview needs.

use knative_operator_runtime::inventory::InventoryKind;
use knative_operator_shared::label::{FLEET_VERSION, GROUP, VERSION};
use kube::core::{ApiResource, GroupVersionKind};

/// The kinds that an overview needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Watched {
    /// KnativeServings.
    Servings,
    /// KnativeEventings.
    Eventings,
    /// KnativeFleets.
    Fleets,
    /// ClusterProfiles.
    Profiles,
    /// PlacementDecisions.
    Decisions,
    /// Events of the operator.
    Events,
}

impl Watched {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::Servings, Self::Eventings, Self::Fleets, Self::Profiles, Self::Decisions, Self::Events];

    /// Kind and resource name. ClusterProfiles and PlacementDecisions may be served in another
    /// version: see [`Self::inventory`].
    pub fn resource(self) -> ApiResource {
        let (group, version, kind, plural) = match self {
            Self::Servings => (GROUP, VERSION, "KnativeServing", "knativeservings"),
            Self::Eventings => (GROUP, VERSION, "KnativeEventing", "knativeeventings"),
            Self::Fleets => (GROUP, FLEET_VERSION, "KnativeFleet", "knativefleets"),
            Self::Profiles => return InventoryKind::ClusterProfile.newest(),
            Self::Decisions => return InventoryKind::PlacementDecision.newest(),
            Self::Events => ("", "v1", "Event", "events"),
        };
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    }

    /// Whether a hub may lack the kind.
    pub fn is_optional(self) -> bool {
        matches!(self, Self::Fleets | Self::Profiles | Self::Decisions)
    }

    /// The kind of the Cluster Inventory API that it is. It is looked at in all namespaces: other
    /// namespaces than those of the resources have it.
    pub fn inventory(self) -> Option<InventoryKind> {
        match self {
            Self::Profiles => Some(InventoryKind::ClusterProfile),
            Self::Decisions => Some(InventoryKind::PlacementDecision),
            _ => None,
        }
    }
}
