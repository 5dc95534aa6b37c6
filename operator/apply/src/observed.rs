//! Observed state of one cluster, shared between the watches and the reconciler.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::sync::{Notify, watch};

use super::activity::{WatchState, Watches};
use super::differ::Observation;
pub use super::records::Drift;
use super::records::{Mark, ObservedObject, Records, hash};
use super::scale::Scale;
use super::watch::WatchTarget;
use knative_operator_objects::health::{Health, Replicas, TERMINATING};
use knative_operator_objects::plan::{CRD, Plan};
use knative_operator_objects::{Id, Kind, ObjectId};

/// What the spec and the status of a watched object tell.
#[derive(Debug, Default)]
pub struct Seen {
    /// Its health, if its status tells.
    pub health: Option<Health>,
    /// The replicas of a Deployment.
    pub replicas: Option<Replicas>,
}

/// Observed state, shared between the watches and the reconciler.
#[derive(Debug, Default)]
pub struct ObservedState {
    records: Mutex<Records>,
    /// The watches.
    pub watches: Watches,
    changed: Notify,
    /// Signals that a definition was established, or failed to be.
    settled: watch::Sender<()>,
}

impl ObservedState {
    fn lock(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What each watch does.
    pub fn watch_states(&self) -> Vec<WatchState> {
        let records = self.lock();
        self.watches.states(|target| records.objects.keys().filter(|id| target.selects(id)).count())
    }

    /// Sets the plan and the inventory store to record, and the mark of the owner.
    pub fn set_plan(&self, plan: &Plan, store: &ObjectId, mark: &str) {
        self.lock().set_plan(plan, store, mark);
    }

    /// Records that the API server doesn't serve the kind.
    pub fn mark_unserved(&self, group: &str, kind: &str) {
        let (mut records, key) = (self.lock(), (group.to_owned(), kind.to_owned()));
        records.unwatchable.remove(&key);
        records.unserved.insert(key);
    }

    /// Records that it is not known whether the API server serves the kind, for the reason `why`.
    pub fn record_undiscovered(&self, group: &str, kind: &str, why: String) {
        self.lock().unwatchable.insert((group.to_owned(), kind.to_owned()), why);
    }

    /// Changes when a definition is established, or fails to be.
    pub fn settled_definitions(&self) -> watch::Receiver<()> {
        self.settled.subscribe()
    }

    /// Waits until the plan's definition of `kind` is established again, with a different uid.
    pub async fn wait_until_defined(&self, kind: &Kind) {
        let (mut settled, before) = (self.settled_definitions(), self.lock().established_definition_uid(kind));
        while settled.changed().await.is_ok() {
            let now = self.lock().established_definition_uid(kind);
            if now.is_some() && now != before {
                return;
            }
        }
    }

    /// Observed state of `id`.
    pub fn observation(&self, id: &ObjectId) -> Observation {
        let records = self.lock();
        match records.objects.get(id) {
            Some(object) => Observation::Present {
                // What another owner or an earlier version applied is applied again.
                digest: object.digest.filter(|_| object.mark == Mark::Own),
                intact: object.drift.is_none() || object.written_fingerprint == Some(object.fingerprint),
            },
            None if records.is_listed(id) => Observation::Missing { was_present: records.once_present.contains(id) },
            None => Observation::Unknown,
        }
    }

    /// Whether `id` is present with another uid than `uid`, or was changed after `version`.
    pub fn has_changed_since(&self, id: &ObjectId, uid: &str, version: u64) -> bool {
        self.lock().objects.get(id).is_some_and(|o| o.uid != hash(uid) || o.version > version)
    }

    /// Whether an object has the mark of another owner, who may have taken the installation over.
    pub fn has_foreign_mark(&self) -> bool {
        // These are not applied again, and keep their mark.
        let keeps = |id: &ObjectId| matches!(id.kind.as_str(), "Job" | "Namespace");
        self.lock().objects.iter().any(|(id, object)| object.mark == Mark::Foreign && !keeps(id))
    }

    /// How `id` has drifted; `None` if it is absent.
    pub fn drift(&self, id: &ObjectId) -> Option<Drift> {
        self.lock().objects.get(id).map(|o| o.drift.as_deref().cloned().unwrap_or_default())
    }

    /// Whether this operator or the Go operator applied `id`.
    pub fn is_managed(&self, id: &ObjectId) -> bool {
        self.lock().objects.get(id).is_some_and(|o| o.go_operator_fields || o.digest.is_some())
    }

    /// Whether the Go operator owns fields of `id`.
    pub fn has_go_operator_fields(&self, id: &ObjectId) -> bool {
        self.lock().objects.get(id).is_some_and(|o| o.go_operator_fields)
    }

    /// Health of `id`, if it is present and its status tells.
    pub fn health(&self, id: &ObjectId) -> Option<Health> {
        self.lock().objects.get(id).and_then(|o| o.health.as_deref().cloned())
    }

    /// Until when Pods of the Deployment `id` may start that somebody else added, beyond `planned`,
    /// to those that were available; `None` if nobody did, or that time is over.
    pub fn starting_until(&self, id: &ObjectId, planned: impl FnOnce() -> i64) -> Option<Instant> {
        let scale = self.lock().objects.get(id)?.scale?;
        let until = scale.starting_until().filter(|until| *until > Instant::now())?;
        (scale.wanted > planned()).then_some(until)
    }

    /// Whether a watch has failed since the last call: the cluster may be unreachable.
    pub fn take_watch_failure(&self) -> bool {
        std::mem::take(&mut self.lock().watch_failed)
    }

    /// Whether the namespace of the inventory is terminating.
    pub fn is_namespace_terminating(&self) -> bool {
        let records = self.lock();
        let health =
            records.namespace.as_ref().and_then(|id| records.objects.get(id)).and_then(|o| o.health.as_deref());
        matches!(health, Some(Health::Waiting(wait)) if wait.reason == TERMINATING)
    }

    /// Waits until something changes.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Records the response to a write of `id`. Later watch events about earlier versions are
    /// ignored.
    pub fn record_write(&self, id: &ObjectId, meta: &ObjectMeta) {
        let mut records = self.lock();
        let mut observed = records.observe(id, meta, None);
        if records.deleted.get(id) == Some(&observed.uid) || records.is_missing_in_newer_list(id, &observed) {
            // It was deleted before the response arrived: a watch event or a newer list has shown
            // that, and nothing else will.
            drop(records);
            return self.notify();
        }
        (observed.written_fingerprint, observed.unconfirmed) = (Some(observed.fingerprint), true);
        let before = records.objects.get_mut(id);
        observed.health = before.as_ref().and_then(|have| match &have.health {
            // The health is unknown until the object's own controller has observed this generation.
            Some(_) if (have.generation, have.uid) != (observed.generation, observed.uid) => {
                Some(Box::new(Health::Waiting("its newest generation is not observed yet".into())))
            }
            same => same.clone(),
        });
        // More replicas that the operator asks for are an update.
        let is_same =
            |have: &&&mut ObservedObject| (have.generation, have.digest) == (observed.generation, observed.digest);
        observed.scale = before.as_ref().filter(is_same).and_then(|have| have.scale);
        match before {
            Some(have) if have.version >= observed.version => have.written_fingerprint = observed.written_fingerprint,
            _ => records.insert(id.clone(), observed),
        }
    }

    /// Why kinds can't be watched: one sentence for each kind for which `of`, given group and kind,
    /// is true.
    pub fn unwatchable(&self, of: impl Fn(&str, &str) -> bool) -> Vec<String> {
        let records = self.lock();
        let mut reasons: Vec<_> = records
            .unwatchable
            .iter()
            .filter(|((group, kind), _)| of(group, kind))
            .map(|(_, why)| why.clone())
            .collect();
        reasons.sort();
        reasons
    }

    /// Records that `kind` may not be watched.
    pub fn record_unwatchable(&self, kind: &Kind, why: &str) {
        let (plural, group) = (&kind.resource.plural, &kind.resource.group);
        let called = if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") };
        let why = format!("cannot watch {called}, so their state is unknown: {why}");
        self.lock().unwatchable.insert((group.clone(), kind.resource.kind.clone()), why);
    }

    /// Records that a watch failed: the cluster may be unreachable.
    pub fn record_watch_failure(&self) {
        self.lock().watch_failed = true;
    }

    /// Records a list of `kind` in `namespace` (empty for cluster-scoped kinds) at resourceVersion
    /// `listed_at`, with the objects in `present`. Objects that were written later may be missing;
    /// the watch that follows reports them.
    pub fn record_list(&self, selection: &WatchTarget, present: &HashSet<Id>, listed_at: u64) {
        let mut records = self.lock();
        let WatchTarget { kind, namespace, name } = selection;
        let (group, kind) = (&kind.resource.group, &kind.resource.kind);
        let unlabeled = records.plan.as_ref().map(|plan| plan.unlabeled().clone()).unwrap_or_default();
        let is_selected = |id: &ObjectId| if name.is_empty() { !unlabeled.contains(id) } else { id.name == *name };
        let is_other =
            |id: &ObjectId| id.group != *group || id.kind != *kind || id.namespace != *namespace || !is_selected(id);
        let is_later = |have: &ObservedObject| have.unconfirmed && have.version > listed_at;
        records.retain(|id, have| is_other(id) || present.contains(&**id) || is_later(have));
        if name.is_empty() || kind == "Namespace" {
            records.listed_at.insert((group.clone(), kind.clone(), namespace.clone()), listed_at);
        }
        records.unserved.remove(&(group.clone(), kind.clone()));
        records.unwatchable.remove(&(group.clone(), kind.clone()));
    }

    /// Records that the API server doesn't serve the kind. Objects written since stay: the kind is
    /// back then, and the watch reports it a little later.
    pub fn record_absent_kind(&self, kind: &Kind) {
        let mut records = self.lock();
        let is_other_kind = |id: &ObjectId| id.group != kind.resource.group || id.kind != kind.resource.kind;
        records.retain(|id, have| is_other_kind(id) || have.unconfirmed);
        records.unserved.insert((kind.resource.group.clone(), kind.resource.kind.clone()));
    }

    /// Whether the plan's object `id` lacks the label that selects a component's objects, so that
    /// only the watch of its name reports it.
    pub fn is_unlabeled(&self, id: &Id) -> bool {
        self.lock().plan.as_ref().is_some_and(|plan| plan.unlabeled().contains(id))
    }

    /// Wakes up the waiters in [`Self::changed`].
    pub fn notify(&self) {
        self.changed.notify_one();
    }

    /// Records a watch event or a listed object. An event about an earlier version than the
    /// recorded one is ignored; a list wins, except over unconfirmed writes.
    pub fn record_event(&self, id: &Id, meta: &ObjectMeta, seen: Seen, is_listed: bool) {
        let mut records = self.lock();
        // A hostile cluster may report any number of objects: only those of the plan are recorded.
        let Some(id) = records.shared_id(id) else { return };
        let mut observed = records.observe(&id, meta, seen.health);
        // What the operator changed is an update, and not scaled by somebody else.
        let is_same = |have: &&ObservedObject| (have.uid, have.digest) == (observed.uid, observed.digest);
        let before = records.objects.get(&id).filter(is_same).and_then(|have| have.scale);
        observed.scale = Scale::next(before, observed.health.as_deref(), seen.replicas, Instant::now());
        // The fields are as they were right after the write: no comparison needed.
        if observed.written_fingerprint != Some(observed.fingerprint) {
            observed.drift = records.drift(&id, meta).map(Box::new);
        }
        if records
            .objects
            .get(&id)
            .is_none_or(|have| have.version <= observed.version || (is_listed && !have.unconfirmed))
        {
            let is_settled = matches!(observed.health.as_deref(), Some(Health::Ready | Health::Failed(_)));
            let settles = id.kind == CRD.1 && is_settled;
            records.insert(id, observed);
            if settles {
                self.settled.send_replace(());
            }
        }
    }

    /// Records that a watch reported the deletion of `id`.
    pub fn record_deletion(&self, id: &Id, meta: &ObjectMeta) {
        let mut records = self.lock();
        let Some(id) = records.shared_id(id) else { return };
        let uid = hash(meta.uid.as_deref().unwrap_or_default());
        if records.objects.get(&id).is_some_and(|have| have.uid == uid) {
            records.objects.remove(&id);
            if records.former.remove(&id) {
                return;
            }
        }
        if records.former.contains(&id) {
            return;
        }
        records.once_present.insert(id.clone());
        records.deleted.insert(id, uid);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kube::core::{ApiResource, GroupVersionKind};

    use super::*;

    fn config_maps() -> Kind {
        Kind { resource: ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap")), namespaced: true }
    }

    fn id() -> ObjectId {
        ObjectId::new("", "ConfigMap", "a", "b")
    }

    fn meta(uid: &str, version: u64) -> ObjectMeta {
        ObjectMeta { uid: Some(uid.into()), resource_version: Some(version.to_string()), ..ObjectMeta::default() }
    }

    fn at(observed_state: &ObservedState) -> Option<(u64, u64)> {
        observed_state.lock().objects.get(&id()).map(|o| (o.uid, o.version))
    }

    #[test]
    fn object_deleted_before_write_response_is_missing() {
        let observed_state = ObservedState::default();
        observed_state.lock().store = Some(id());
        observed_state.record_event(&id(), &meta("2", 20), Seen::default(), false);
        for namespace in ["a", "other"] {
            observed_state.watches.add(&Arc::new(WatchTarget::labeled(config_maps(), namespace)));
        }
        assert_eq!(observed_state.watch_states().iter().map(|watch| watch.objects).collect::<Vec<_>>(), [1, 0]);
        observed_state.record_deletion(&id(), &meta("2", 21));
        observed_state.record_write(&id(), &meta("2", 20));
        assert_eq!(at(&observed_state), None);
        // A watch reports it present again.
        observed_state.record_event(&id(), &meta("2", 22), Seen::default(), false);
        observed_state.record_write(&id(), &meta("2", 23));
        assert_eq!(at(&observed_state), Some((hash("2"), 23)));
        observed_state.record_deletion(&id(), &meta("2", 24));
        observed_state.record_write(&id(), &meta("3", 25));
        assert_eq!(at(&observed_state), Some((hash("3"), 25)));
    }

    #[test]
    fn newer_list_without_object_marks_it_missing() {
        let observed_state = ObservedState::default();
        let (listed_at, none) = (
            |at| observed_state.record_list(&WatchTarget::labeled(config_maps(), "a"), &HashSet::new(), at),
            Observation::Missing { was_present: true },
        );
        observed_state.lock().store = Some(id());
        // No watch ran during the write and the deletion.
        observed_state.record_write(&id(), &meta("1", 20));
        listed_at(19);
        assert_eq!(at(&observed_state), Some((hash("1"), 20)));
        listed_at(21);
        assert_eq!((at(&observed_state), observed_state.observation(&id())), (None, none.clone()));
        // The response arrives after that list.
        observed_state.record_write(&id(), &meta("2", 21));
        assert_eq!((at(&observed_state), observed_state.observation(&id())), (None, none));
        observed_state.record_write(&id(), &meta("3", 22));
        assert_eq!(at(&observed_state), Some((hash("3"), 22)));
    }

    #[test]
    fn late_watch_event_does_not_undo_write() {
        let observed_state = ObservedState::default();
        observed_state.lock().store = Some(id());
        observed_state.record_event(
            &ObjectId::new("", "ConfigMap", "a", "other"),
            &meta("9", 9),
            Seen::default(),
            true,
        );
        assert_eq!(observed_state.lock().objects.len(), 0);
        observed_state.record_event(&id(), &meta("1", 10), Seen::default(), true);
        observed_state.record_deletion(&id(), &meta("1", 11));
        observed_state.record_write(&id(), &meta("2", 20));
        // The deletion of the first one, reported late.
        observed_state.record_event(&id(), &meta("1", 12), Seen::default(), false);
        observed_state.record_deletion(&id(), &meta("1", 13));
        assert_eq!(at(&observed_state), Some((hash("2"), 20)));
        // A list from before the write.
        observed_state.record_event(&id(), &meta("1", 10), Seen::default(), true);
        assert_eq!(at(&observed_state), Some((hash("2"), 20)));
        // Once confirmed, the watch decides, and a later list even with lower versions (a restored
        // cluster).
        observed_state.record_event(&id(), &meta("2", 20), Seen::default(), false);
        observed_state.record_event(&id(), &meta("3", 5), Seen::default(), true);
        assert_eq!(at(&observed_state), Some((hash("3"), 5)));
        observed_state.record_deletion(&id(), &meta("3", 6));
        assert_eq!(observed_state.observation(&id()), Observation::Unknown);
    }
}
