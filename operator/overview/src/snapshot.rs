//! The objects of a hub, as the watches reported them.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use knative_operator_runtime::error_text;
use knative_operator_shared::api::KnativeFleet;
use kube::core::DynamicObject;
use kube::runtime::watcher::{self, Event};
use serde_json::Value;

use super::parsed::Parsed;
pub use super::watched::Watched;

/// Namespace and name.
pub type Key = (String, String);

/// The objects of a hub.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    objects: BTreeMap<Watched, BTreeMap<Key, Stored>>,
    /// Why a kind can't be read.
    errors: BTreeMap<Watched, String>,
    listed: HashSet<Watched>,
    listing: BTreeMap<Watched, HashSet<Key>>,
}

/// An object, and what is parsed of it.
#[derive(Clone, Debug)]
struct Stored {
    object: Arc<Value>,
    parsed: Parsed,
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
        self.objects.get(&kind).into_iter().flatten().map(|(key, stored)| (key, &stored.object))
    }

    /// The object of `kind` with `key`.
    pub fn get(&self, kind: Watched, key: &Key) -> Option<&Arc<Value>> {
        self.objects.get(&kind)?.get(key).map(|stored| &stored.object)
    }

    /// The note about the resource of `kind` with `key`.
    pub fn note(&self, kind: Watched, key: &Key) -> Option<&str> {
        self.objects.get(&kind)?.get(key)?.parsed.note.as_deref()
    }

    /// The fleet with `key`, if it can be read.
    pub fn fleet(&self, key: &Key) -> Option<&KnativeFleet> {
        self.objects.get(&Watched::Fleets)?.get(key)?.parsed.fleet.as_deref()
    }

    /// What can't be read, and why.
    pub fn errors(&self) -> impl Iterator<Item = (Watched, &str)> {
        self.errors.iter().map(|(kind, error)| (*kind, error.as_str()))
    }

    /// Adds or replaces an object.
    pub fn set(&mut self, kind: Watched, object: Value) {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let key = (text("/metadata/namespace"), text("/metadata/name"));
        let parsed = Parsed::of(kind, &object);
        self.objects.entry(kind).or_default().insert(key, Stored { object: Arc::new(object), parsed });
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn object_is_parsed_again_when_it_changes() {
        let key = ("n".to_owned(), "s".to_owned());
        let object = |spec: Value| json!({"metadata": {"namespace": "n", "name": "s"}, "spec": spec});
        let mut snapshot = Snapshot::default();
        snapshot.set(Watched::Servings, object(json!({"ingress": {"kourier": {"enabled": true}}})));
        let note = |snapshot: &Snapshot| snapshot.note(Watched::Servings, &key).map(str::to_owned);
        assert!(note(&snapshot).unwrap().contains("no Service uses kourier"));
        assert_eq!(snapshot.note(Watched::Eventings, &key), None);
        snapshot.set(Watched::Servings, object(json!({"ingress": {"istio": {"enabled": true}}})));
        assert_eq!(note(&snapshot), None);

        let placement = json!({"placement": {"clusterSelector": {}}, "serving": {"spec": {"version": "1.23.0"}}});
        let mut fleet = object(placement);
        (fleet["apiVersion"], fleet["kind"]) = (json!("operator.knative.dev/v1alpha1"), json!("KnativeFleet"));
        snapshot.set(Watched::Fleets, fleet.clone());
        assert!(snapshot.fleet(&key).is_some_and(|fleet| fleet.spec.serving.is_some()));
        // A copy for another tab shares it.
        assert!(std::ptr::eq(snapshot.fleet(&key).unwrap(), snapshot.clone().fleet(&key).unwrap()));
        fleet["spec"] = json!("unreadable");
        snapshot.set(Watched::Fleets, fleet);
        assert!(snapshot.fleet(&key).is_none());
    }
}
