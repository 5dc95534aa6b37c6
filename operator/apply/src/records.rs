//! Records of observed objects, without locks.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::scale::Scale;
use super::{managed_fields, ownership, preserve};
use knative_operator_objects::health::Health;
use knative_operator_objects::plan::Plan;
use knative_operator_objects::{Digest, Id, Kind, ObjectId, version};

/// How an object drifted from what the operator applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drift {
    /// The field manager that wrote last besides the operator, if known.
    pub manager: Option<String>,
    /// Path of the first field that the operator doesn't own any more, if known.
    pub field: Option<String>,
}

/// The mark of an object: who applied it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The owner.
    Own,
    /// Another owner.
    Foreign,
    /// An earlier version, the Go operator, or somebody else.
    Absent,
}

/// Observed state of one object.
#[derive(Clone, Debug)]
pub struct ObservedObject {
    /// Hash of its uid, for comparison.
    pub uid: u64,
    /// Its resourceVersion.
    pub version: u64,
    /// Its generation.
    pub generation: i64,
    /// Digest in its annotation.
    pub digest: Option<Digest>,
    /// Whose mark it has.
    pub mark: Mark,
    /// Hash of the fields that the operator owns.
    pub fingerprint: u64,
    /// The same hash, right after the operator's last write.
    pub written_fingerprint: Option<u64>,
    /// How it differs from what the operator applied, unless the operator owns all its fields.
    pub drift: Option<Box<Drift>>,
    /// Whether the Go operator owns fields of it.
    pub go_operator_fields: bool,
    /// Its health, if its status tells.
    pub health: Option<Box<Health>>,
    /// Its number of replicas, if it has been available.
    pub scale: Option<Scale>,
    /// Whether the operator wrote it and no watch has reported it yet.
    pub unconfirmed: bool,
}

/// Observed state of all objects of one cluster.
#[derive(Debug, Default)]
pub struct Records {
    /// Objects of the plan, of earlier plans, and of the inventory store.
    pub objects: HashMap<ObjectId, ObservedObject>,
    /// Present objects of earlier plans: they may be in a later one again, and a watch does not
    /// report an unchanged object twice.
    pub former: HashSet<ObjectId>,
    /// Objects that were present at any time.
    pub once_present: HashSet<ObjectId>,
    /// The uid of an object whose deletion a watch reported last.
    pub deleted: HashMap<ObjectId, u64>,
    /// The plan; only its objects are recorded.
    pub plan: Option<Plan>,
    /// Recorded as well: the ConfigMap with the inventory, and its namespace.
    pub store: Option<ObjectId>,
    /// The namespace of the inventory store.
    pub namespace: Option<ObjectId>,
    /// Hash of the mark of the owner.
    pub mark: u64,
    /// Group, kind and namespace of each list, with its resourceVersion.
    pub listed_at: HashMap<(String, String, String), u64>,
    /// Group and kind of kinds that the API server doesn't serve.
    pub unserved: HashSet<(String, String)>,
    /// Kinds that may not be watched, with the reason.
    pub unwatchable: HashMap<(String, String), String>,
    /// Whether a watch failed since the flag was read last.
    pub watch_failed: bool,
}

/// A hash of `text`, a uid or a mark, for comparison.
pub fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

impl Records {
    /// Whether `id` would have been observed if it were present.
    pub fn is_listed(&self, id: &ObjectId) -> bool {
        let (group, kind) = (id.group.clone(), id.kind.clone());
        self.unserved.contains(&(group.clone(), kind.clone()))
            || self.listed_at.contains_key(&(group, kind, id.namespace.clone()))
    }

    /// Whether a list newer than the write `written` lacks `id`.
    pub fn is_missing_in_newer_list(&self, id: &ObjectId, written: &ObservedObject) -> bool {
        let listed_at = self.listed_at.get(&(id.group.clone(), id.kind.clone(), id.namespace.clone()));
        listed_at.is_some_and(|listed_at| *listed_at >= written.version)
            && self.objects.get(id).is_none_or(|have| have.uid != written.uid)
    }

    /// The plan's own copy of `id`, if it is one to record.
    pub fn shared_id(&self, id: &Id) -> Option<ObjectId> {
        let planned = self.plan.as_ref().and_then(|plan| plan.get(id)).map(|item| item.id.clone());
        planned
            .or_else(|| [&self.store, &self.namespace].into_iter().flatten().find(|besides| ***besides == *id).cloned())
            .or_else(|| self.former.get(id).cloned())
    }

    /// The uid of the plan's definition of `kind`, if it is established.
    pub fn established_definition_uid(&self, kind: &Kind) -> Option<u64> {
        let definition = self.plan.as_ref()?.definition(kind)?;
        self.objects.get(&definition.id).filter(|o| o.health.as_deref() == Some(&Health::Ready)).map(|o| o.uid)
    }

    /// How the object with `meta` differs from the plan.
    pub fn drift(&self, id: &ObjectId, meta: &ObjectMeta) -> Option<Drift> {
        let desired = self.plan.as_ref().and_then(|plan| Some(plan.object_of(plan.get(id)?)));
        let field = match (managed_fields::owned_fields(meta), desired) {
            (Some(fields), Some(desired)) => {
                Some(ownership::first_lost_field(fields, desired, &preserve::others_fields(&id.kind, meta))?)
            }
            _ => None,
        };
        Some(Drift { manager: managed_fields::last_other_manager(meta), field })
    }

    /// The observed state in `meta` and `health`.
    pub fn observe(&self, id: &Id, meta: &ObjectMeta, health: Option<Health>) -> ObservedObject {
        ObservedObject {
            uid: hash(meta.uid.as_deref().unwrap_or_default()),
            version: version(meta),
            generation: meta.generation.unwrap_or_default(),
            digest: ownership::digest(meta),
            mark: match ownership::mark(meta).map(hash) {
                None => Mark::Absent,
                Some(mark) if mark == self.mark => Mark::Own,
                Some(_) => Mark::Foreign,
            },
            fingerprint: ownership::fingerprint(meta),
            written_fingerprint: self.objects.get(id).and_then(|have| have.written_fingerprint),
            drift: None,
            go_operator_fields: managed_fields::has_go_operator_fields(meta),
            health: health.map(Box::new),
            scale: None,
            unconfirmed: false,
        }
    }

    /// Adds or replaces `id`.
    pub fn insert(&mut self, id: ObjectId, observed: ObservedObject) {
        // It is back: it had only lost the label that selects it.
        if self.deleted.get(&id) == Some(&observed.uid) {
            self.deleted.remove(&id);
        }
        if !self.former.contains(&id) {
            self.once_present.insert(id.clone());
        }
        self.objects.insert(id, observed);
    }

    /// Sets the plan and the inventory store to record.
    pub fn set_plan(&mut self, plan: &Plan, store: &ObjectId, mark: &str) {
        self.mark = hash(mark);
        let namespace = ObjectId::new("", "Namespace", "", &store.namespace);
        let is_recorded = |id: &ObjectId| plan.get(id).is_some() || id == store || *id == namespace;
        self.former.extend(self.objects.keys().filter(|id| !is_recorded(id)).cloned());
        self.once_present.retain(is_recorded);
        self.once_present.extend(self.former.extract_if(is_recorded));
        self.deleted.retain(|id, _| is_recorded(id));
        (self.plan, self.store, self.namespace) = (Some(plan.clone()), Some(store.clone()), Some(namespace));
    }

    /// Forgets the objects for which `is_present` is false.
    pub fn retain(&mut self, is_present: impl Fn(&ObjectId, &ObservedObject) -> bool) {
        self.objects.retain(|id, have| is_present(id, have));
        self.former.retain(|id| self.objects.contains_key(id));
    }
}
