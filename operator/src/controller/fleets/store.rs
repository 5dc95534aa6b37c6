//! Fleets, approvals, revisions and decisions, from watches.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll, select_all};
use k8s_openapi::api::apps::v1::ControllerRevision;
use knative_operator_rules as rules;
use knative_operator_runtime::backoff::Backoff;
use knative_operator_runtime::error_text;
use knative_operator_runtime::inventory::InventoryKind;
use knative_operator_runtime::watch::is_kind_missing;
use knative_operator_shared::api::fleet::{Placement, Removal, RemovalPolicy};
use knative_operator_shared::api::{Component, KnativeFleet, KnativeFleetSpec};
use knative_operator_shared::label::{FLEET, FLEET_VERSION, GROUP};
use knative_operator_shared::strict;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use serde_json::{Value, json};

use knative_operator_fleet::approval::{Approval, Approved, Rollout};
use knative_operator_fleet::revision::{Revision, Revisions};
use knative_operator_fleet::unreadable::UnreadableRevision;
use knative_operator_runtime::constant_backoff::ConstantBackoff;

/// Delay before a failed watch is retried.
const RETRY: Duration = Duration::from_secs(1);
/// Delay before a watch whose definition may be missing is retried.
const RETRY_MISSING: Backoff = Backoff::new(Duration::from_secs(10), Duration::from_secs(10));

/// Namespace and name.
pub type FleetKey = (String, String);

/// The kinds that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Watched {
    Fleets,
    Approvals,
    Revisions,
    Decisions,
}

/// A stored fleet.
#[derive(Clone, Debug)]
pub struct StoredFleet {
    /// The fleet. If it is invalid: its metadata and status, and the spec that was readable last,
    /// which is empty if none was since the process started.
    pub fleet: KnativeFleet,
    /// Why it can't be parsed, if it is invalid.
    pub unreadable: Option<UnreadableFleet>,
}

/// Why a fleet can't be parsed: an older definition admitted it, or it is of a newer version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableFleet {
    /// Field, problem and fix.
    pub message: String,
    /// What its deletion does to its clusters, if that can be parsed.
    pub removal: Option<RemovalPolicy>,
}

/// An event of one of the watches.
pub struct StoreEvent(Watched, Result<Event<DynamicObject>, watcher::Error>);

/// The fleets that an event concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Concerned {
    None,
    One(FleetKey),
    /// Those in a namespace.
    Namespace(String),
    All,
}

impl Watched {
    /// The fleets that an object of this kind called `key` concerns, if it is new, gone, or changed
    /// for all of them.
    fn concerned(self, key: FleetKey) -> Concerned {
        match self {
            Self::Fleets | Self::Decisions => Concerned::All,
            Self::Approvals | Self::Revisions => Concerned::Namespace(key.0),
        }
    }
}

/// What the watches reported.
#[derive(Debug, Default)]
pub struct Store {
    /// Fleets.
    pub fleets: HashMap<FleetKey, StoredFleet>,
    /// Approvals, with their namespace.
    pub approvals: HashMap<FleetKey, Approval>,
    /// Revisions by namespace, then by name, also those of no fleet.
    pub revisions: HashMap<String, Revisions>,
    /// Revisions that this version can't read.
    pub unreadable_revisions: HashMap<FleetKey, UnreadableRevision>,
    /// PlacementDecisions.
    pub decisions: HashMap<FleetKey, Value>,
    listed: HashSet<Watched>,
    listing: HashMap<Watched, HashSet<FleetKey>>,
    has_decisions: bool,
    decisions_version: u64,
}

impl Store {
    /// A number that is another one when PlacementDecisions are others.
    pub fn decisions_version(&self) -> u64 {
        self.decisions_version
    }

    /// Whether everything was listed. PlacementDecisions may be unknown.
    pub fn is_listed(&self) -> bool {
        [Watched::Fleets, Watched::Approvals, Watched::Revisions].iter().all(|kind| self.listed.contains(kind))
    }

    /// Whether PlacementDecisions are known.
    pub fn has_decisions(&self) -> bool {
        self.has_decisions
    }

    /// Whether a fleet takes its clusters from PlacementDecisions.
    pub fn uses_decisions(&self) -> bool {
        self.fleets.values().any(|stored| stored.fleet.spec.placement.decision.is_some())
    }

    /// The revisions and stages of `fleet` that are approved: it rolls `digest` out since a
    /// generation.
    pub fn approved(&self, fleet: &KnativeFleet, digest: &str, since: i64) -> Approved {
        let meta = &fleet.metadata;
        let (name, uid) = (meta.name.as_deref().unwrap_or_default(), meta.uid.as_deref().unwrap_or_default());
        let created = meta.creation_timestamp.as_ref().map(|time| time.0);
        let rollout = Rollout { fleet: name, uid, created, digest, since };
        let all = self.approvals.iter().filter(|((namespace, _), _)| Some(namespace) == meta.namespace.as_ref());
        rollout.approved(all.map(|(_, approval)| approval))
    }

    /// Records `event`; returns the fleets that it concerns.
    pub fn record(&mut self, StoreEvent(kind, event): StoreEvent) -> Concerned {
        if kind == Watched::Decisions {
            self.decisions_version += 1;
        }
        let key = |object: &DynamicObject| {
            (object.metadata.namespace.clone().unwrap_or_default(), object.metadata.name.clone().unwrap_or_default())
        };
        match event {
            Ok(Event::Init) => {
                self.listing.insert(kind, HashSet::new());
                Concerned::None
            }
            Ok(Event::InitApply(object)) => {
                self.listing.entry(kind).or_default().insert(key(&object));
                self.set(kind, key(&object), object);
                Concerned::None
            }
            Ok(Event::InitDone) => {
                let listed = self.listing.remove(&kind).unwrap_or_default();
                self.retain(kind, &listed);
                self.listed.insert(kind);
                self.has_decisions |= kind == Watched::Decisions;
                Concerned::All
            }
            Ok(Event::Apply(object)) => {
                let key = key(&object);
                let what = |store: &Self| {
                    let fleet = store.fleets.get(&key).filter(|_| kind == Watched::Fleets);
                    fleet.map(what_others_see)
                };
                let before = what(self);
                self.set(kind, key.clone(), object);
                let concerns_others = kind != Watched::Fleets || before != what(self);
                if concerns_others { kind.concerned(key) } else { Concerned::One(key) }
            }
            Ok(Event::Delete(object)) => {
                let key = key(&object);
                self.remove(kind, &key);
                kind.concerned(key)
            }
            Err(error) => {
                if kind == Watched::Decisions && is_kind_missing(&error) {
                    if std::mem::take(&mut self.has_decisions) {
                        return Concerned::All;
                    }
                } else {
                    tracing::warn!(?kind, error = error_text(&error), "watch interrupted");
                }
                Concerned::None
            }
        }
    }

    fn set(&mut self, kind: Watched, key: FleetKey, object: DynamicObject) {
        let value = serde_json::to_value(object).unwrap_or_default();
        match kind {
            Watched::Fleets => {
                let stored = StoredFleet::parse(&value, self.fleets.get(&key).map(|before| &before.fleet));
                self.fleets.insert(key, stored);
            }
            Watched::Approvals => {
                if let Ok(spec) = strict::read(&value["spec"]) {
                    let created = value["metadata"]["creationTimestamp"].as_str();
                    let created = created.and_then(|created| created.parse().ok());
                    self.approvals.insert(key, Approval { spec, created });
                }
            }
            Watched::Revisions => {
                self.remove(kind, &key);
                let revision = serde_json::from_value::<ControllerRevision>(value).ok();
                match revision.as_ref().map(Revision::parse) {
                    Some(Ok(revision)) => drop(self.revisions.entry(key.0).or_default().insert(key.1, revision)),
                    Some(Err(unreadable)) => drop(self.unreadable_revisions.insert(key, unreadable)),
                    None => {}
                }
            }
            Watched::Decisions => drop(self.decisions.insert(key, value)),
        }
    }

    fn remove(&mut self, kind: Watched, key: &FleetKey) {
        match kind {
            Watched::Fleets => drop(self.fleets.remove(key)),
            Watched::Approvals => drop(self.approvals.remove(key)),
            Watched::Revisions => {
                self.revisions.get_mut(&key.0).map(|all| all.remove(&key.1));
                self.unreadable_revisions.remove(key);
            }
            Watched::Decisions => drop(self.decisions.remove(key)),
        }
    }

    fn retain(&mut self, kind: Watched, listed: &HashSet<FleetKey>) {
        match kind {
            Watched::Fleets => self.fleets.retain(|key, _| listed.contains(key)),
            Watched::Approvals => self.approvals.retain(|key, _| listed.contains(key)),
            Watched::Revisions => {
                for (namespace, all) in &mut self.revisions {
                    all.retain(|name, _| listed.contains(&(namespace.clone(), name.clone())));
                }
                self.unreadable_revisions.retain(|key, _| listed.contains(key));
            }
            Watched::Decisions => self.decisions.retain(|key, _| listed.contains(key)),
        }
    }
}

/// What matters to other fleets, which may select the same clusters.
fn what_others_see(stored: &StoredFleet) -> (Option<String>, bool, Placement, Vec<Component>) {
    let (meta, spec) = (&stored.fleet.metadata, &stored.fleet.spec);
    let is_ending = meta.deletion_timestamp.is_some();
    (meta.uid.clone(), is_ending, spec.placement.clone(), spec.components().collect())
}

impl StoredFleet {
    /// Parses `value`; `before` is the fleet as it was stored before.
    fn parse(value: &Value, before: Option<&KnativeFleet>) -> Self {
        let message = match rules::parse_fleet(value) {
            Ok(fleet) => return Self { fleet, unreadable: None },
            Err(violation) => violation.to_string(),
        };
        let bare = json!({"metadata": value["metadata"], "spec": {"placement": {}}});
        let mut fleet: KnativeFleet =
            serde_json::from_value(bare).unwrap_or_else(|_| KnativeFleet::new("", KnativeFleetSpec::default()));
        fleet.status = serde_json::from_value(value["status"].clone()).ok();
        if let Some(before) = before.filter(|before| before.metadata.uid == fleet.metadata.uid) {
            fleet.spec = before.spec.clone();
            fleet.status = fleet.status.or_else(|| before.status.clone());
        }
        let removal = Some(&value["spec"]["removal"]).filter(|removal| !removal.is_null());
        let removal = match removal.map(strict::read::<Removal>) {
            None if value["spec"].is_object() => Some(RemovalPolicy::default()),
            None | Some(Err(_)) => None,
            Some(Ok(removal)) => Some(removal.policy),
        };
        Self { fleet, unreadable: Some(UnreadableFleet { message, removal }) }
    }
}

/// A watch of the hub.
type Watch = BoxStream<'static, StoreEvent>;

/// Watches the hub, apart from PlacementDecisions. Each watch backs off by itself.
pub fn watch(client: &Client) -> SelectAll<Watch> {
    let own = |kind, name, plural| {
        let gvk = GroupVersionKind::gvk(GROUP, FLEET_VERSION, name);
        watch_kind(client, kind, &ApiResource::from_gvk_with_plural(&gvk, plural))
    };
    let revisions = ApiResource::erase::<ControllerRevision>(&());
    select_all([
        own(Watched::Fleets, "KnativeFleet", "knativefleets"),
        own(Watched::Approvals, "KnativeFleetApproval", "knativefleetapprovals"),
        watch_kind(client, Watched::Revisions, &revisions),
    ])
}

/// Watches PlacementDecisions. Their definition may be missing, come later, and go.
pub fn watch_decisions(client: &Client) -> Watch {
    InventoryKind::PlacementDecision
        .watch(client, watcher::Config::default(), RETRY_MISSING)
        .modify(|object| object.metadata.managed_fields = None)
        .map(|event| StoreEvent(Watched::Decisions, event))
        .boxed()
}

fn watch_kind(client: &Client, kind: Watched, resource: &ApiResource) -> Watch {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let config = watcher::Config::default();
    let config = if kind == Watched::Revisions { config.labels(FLEET) } else { config };
    watcher(api, config)
        .modify(|object| object.metadata.managed_fields = None)
        .backoff(ConstantBackoff(RETRY))
        .map(move |event| StoreEvent(kind, event))
        .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_fleet_keeps_what_was_readable() {
        let fleet = |uid: &str, spec: Value| {
            json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet",
                "metadata": {"name": "a", "namespace": "b", "uid": uid}, "spec": spec, "status": {"clusters": 3}})
        };
        let spec = |removal: &Value, selector: &Value| json!({"placement": {"clusterSelector": selector}, "serving": {"spec": {}}, "removal": removal});
        let (all, wrong) = (json!({}), json!(7));
        let before = StoredFleet::parse(&fleet("1", spec(&json!({"policy": "Orphan"}), &all)), None);
        assert_eq!(before.unreadable, None);
        let removal = |stored: &StoredFleet| stored.unreadable.as_ref().map(|unreadable| unreadable.removal);
        for (policy, selector, expected) in [
            (json!({"policy": "Retain"}), &all, None),
            (json!("Orphan"), &all, None),
            (json!({"policy": "Orphan"}), &wrong, Some(RemovalPolicy::Orphan)),
            (Value::Null, &wrong, Some(RemovalPolicy::Delete)),
        ] {
            let stored = StoredFleet::parse(&fleet("1", spec(&policy, selector)), Some(&before.fleet));
            assert_eq!((removal(&stored), &stored.fleet.spec), (Some(expected), &before.fleet.spec), "{policy}");
            assert_eq!(stored.fleet.status.map(|status| status.clusters), Some(3));
            let other = StoredFleet::parse(&fleet("2", spec(&policy, selector)), Some(&before.fleet));
            assert_eq!(other.fleet.spec, KnativeFleetSpec::default(), "another fleet of the same name");
        }
        let without_spec = StoredFleet::parse(&fleet("1", json!("later")), Some(&before.fleet));
        assert_eq!(removal(&without_spec), Some(None));
    }
}

#[cfg(test)]
#[path = "newer_tests.rs"]
mod newer;
