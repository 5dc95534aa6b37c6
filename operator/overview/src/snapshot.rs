//! The objects of a hub, as the watches reported them.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use knative_operator_runtime::error_text;
use knative_operator_runtime::inventory::InventoryKind;
use knative_operator_shared::label::{FLEET_VERSION, GROUP, VERSION};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::watcher::{self, Event};
use serde_json::Value;

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

/// Namespace and name.
pub type Key = (String, String);

/// The objects of a hub.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    objects: BTreeMap<Watched, BTreeMap<Key, Arc<Value>>>,
    /// Why a kind can't be read.
    errors: BTreeMap<Watched, String>,
    listed: HashSet<Watched>,
    listing: BTreeMap<Watched, HashSet<Key>>,
}

/// What an event changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// Nothing that is shown.
    Nothing,
    /// The objects, or what can't be read.
    Changed,
    /// The API server did not answer.
    Disconnected,
}

impl Snapshot {
    /// Whether each kind was listed, or can't be.
    pub fn is_complete(&self) -> bool {
        self.listed.len() == Watched::ALL.len()
    }

    /// The objects of `kind`.
    pub fn all(&self, kind: Watched) -> impl Iterator<Item = (&Key, &Arc<Value>)> {
        self.objects.get(&kind).into_iter().flatten()
    }

    /// The object of `kind` with `key`.
    pub fn get(&self, kind: Watched, key: &Key) -> Option<&Arc<Value>> {
        self.objects.get(&kind)?.get(key)
    }

    /// What can't be read, and why.
    pub fn errors(&self) -> impl Iterator<Item = (Watched, &str)> {
        self.errors.iter().map(|(kind, error)| (*kind, error.as_str()))
    }

    /// Adds or replaces an object.
    pub fn set(&mut self, kind: Watched, object: Value) {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let key = (text("/metadata/namespace"), text("/metadata/name"));
        self.objects.entry(kind).or_default().insert(key, Arc::new(object));
    }

    /// Records `event` about `kind`.
    pub fn record(&mut self, kind: Watched, event: Result<Event<DynamicObject>, watcher::Error>) -> Recorded {
        let key = |object: &DynamicObject| {
            (object.metadata.namespace.clone().unwrap_or_default(), object.metadata.name.clone().unwrap_or_default())
        };
        match event {
            Ok(Event::Init) => {
                self.listing.insert(kind, HashSet::new());
                return Recorded::Nothing;
            }
            Ok(Event::InitApply(object)) => {
                self.listing.entry(kind).or_default().insert(key(&object));
                self.set(kind, serde_json::to_value(object).unwrap_or_default());
                return Recorded::Nothing;
            }
            Ok(Event::InitDone) => {
                let kept = self.listing.remove(&kind).unwrap_or_default();
                self.objects.entry(kind).or_default().retain(|key, _| kept.contains(key));
                self.errors.remove(&kind);
                self.listed.insert(kind);
            }
            Ok(Event::Apply(object)) => self.set(kind, serde_json::to_value(object).unwrap_or_default()),
            Ok(Event::Delete(object)) => drop(self.objects.entry(kind).or_default().remove(&key(&object))),
            Err(error) => return self.failed(kind, &error),
        }
        Recorded::Changed
    }

    fn failed(&mut self, kind: Watched, error: &watcher::Error) -> Recorded {
        let status = match error {
            watcher::Error::InitialListFailed(kube::Error::Api(status))
            | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => status,
            // The watch is listed again.
            watcher::Error::WatchError(_) => return Recorded::Nothing,
            _ => return Recorded::Disconnected,
        };
        match status.code {
            404 if kind.is_optional() => drop(self.errors.remove(&kind)),
            404 => {
                let message = "the CRD is not installed on this cluster; install the operator's Helm chart".to_owned();
                self.errors.insert(kind, message);
            }
            401 | 403 => drop(self.errors.insert(kind, status.message.clone())),
            _ => {
                if !self.listed.contains(&kind) {
                    self.errors.insert(kind, error_text(error));
                }
                return Recorded::Nothing;
            }
        }
        self.objects.remove(&kind);
        self.listed.insert(kind);
        Recorded::Changed
    }
}
