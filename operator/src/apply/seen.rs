//! What is seen on one cluster, shared between the watches and whoever decides.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::sync::{Notify, watch};

use super::differ::Sight;
use super::{ownership, preserve, takeover};
use crate::health::{GOING, Health};
use crate::object::{Digest, Id, Kind, ObjectId, version};
use crate::plan::{DEFINITIONS, Plan};

/// What is seen of one object.
#[derive(Clone, Debug)]
struct Observed {
    /// Of its uid: only whether it is the same matters.
    uid: u64,
    version: u64,
    generation: i64,
    digest: Option<Digest>,
    /// What is ours of it, as a number.
    fingerprint: u64,
    /// What was ours of it right after it was written.
    written: Option<u64>,
    /// Whether all that is to be ours is.
    covered: bool,
    /// Who wrote to it last beside us, if not all that is to be ours is.
    other: Option<Box<str>>,
    /// Whether the Go operator holds fields of it.
    go: bool,
    health: Option<Box<Health>>,
    /// Whether it was written by ourselves and no watch has told of it yet.
    unconfirmed: bool,
}

#[derive(Debug, Default)]
struct Sights {
    objects: HashMap<ObjectId, Observed>,
    /// What was there at any time.
    ever: HashSet<ObjectId>,
    /// The uid of what a watch told to be gone, last.
    gone: HashMap<ObjectId, u64>,
    /// What is to be there: of nothing else is anything kept.
    expected: Option<Plan>,
    /// What is looked at besides: the home of the inventory, and its namespace.
    home: Option<ObjectId>,
    namespace: Option<ObjectId>,
    /// Group, kind and namespace of what was listed, and the resourceVersion as of which it was.
    listed: HashMap<(String, String, String), u64>,
    /// Group and kind of what there is none of at all.
    unserved: HashSet<(String, String)>,
    /// Kinds that may not be watched, and why.
    blind: HashMap<(String, String), String>,
    trouble: bool,
}

/// What is seen, shared between the watches and whoever decides.
#[derive(Debug, Default)]
pub struct Seen {
    sights: Mutex<Sights>,
    changed: Notify,
    /// Tells that a definition was established.
    established: watch::Sender<()>,
}

impl Seen {
    fn lock(&self) -> MutexGuard<'_, Sights> {
        self.sights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on `plan` is to be there, and `home` is looked at besides.
    pub fn expect(&self, plan: &Plan, home: &ObjectId) {
        let mut sights = self.lock();
        (sights.expected, sights.home) = (Some(plan.clone()), Some(home.clone()));
        let namespace = ObjectId::new("", "Namespace", "", &home.namespace);
        sights.namespace = Some(namespace.clone());
        let wanted = |id: &ObjectId| plan.find(id).is_some() || id == home || *id == namespace;
        sights.objects.retain(|id, _| wanted(id));
        sights.ever.retain(wanted);
        sights.gone.retain(|id, _| wanted(id));
    }

    /// There is no such kind, and so nothing of it.
    pub fn none_of(&self, group: &str, kind: &str) {
        self.lock().unserved.insert((group.to_owned(), kind.to_owned()));
    }

    /// Waits until `kind` is defined by the plan's own definition, and by another one than now.
    pub async fn defined(&self, kind: &Kind) {
        let (mut told, before) = (self.established.subscribe(), self.lock().definition(kind));
        while told.changed().await.is_ok() {
            let now = self.lock().definition(kind);
            if now.is_some() && now != before {
                return;
            }
        }
    }

    /// What is seen of `id`.
    pub fn sight(&self, id: &ObjectId) -> Sight {
        let sights = self.lock();
        match sights.objects.get(id) {
            Some(seen) => {
                Sight::Present { digest: seen.digest, intact: seen.covered || seen.written == Some(seen.fingerprint) }
            }
            None if sights.known(id) => Sight::Missing { lost: sights.ever.contains(id) },
            None => Sight::Unknown,
        }
    }

    /// Whether `id` is seen with another uid than `uid`.
    pub fn is_other(&self, id: &ObjectId, uid: &str) -> bool {
        self.lock().objects.get(id).is_some_and(|o| o.uid != hashed(uid))
    }

    /// Who has taken fields of `id` from us, as far as that is known.
    pub fn thief(&self, id: &ObjectId) -> Option<String> {
        self.lock().objects.get(id).and_then(|o| o.other.as_deref().map(str::to_owned))
    }

    /// Whether `id` was applied by us, or by the Go operator.
    pub fn is_ours(&self, id: &ObjectId) -> bool {
        self.lock().objects.get(id).is_some_and(|o| o.go || o.digest.is_some())
    }

    /// Whether the Go operator holds fields of `id`.
    pub fn is_go(&self, id: &ObjectId) -> bool {
        self.lock().objects.get(id).is_some_and(|o| o.go)
    }

    /// Whether `id` works, if it is seen and says so.
    pub fn health(&self, id: &ObjectId) -> Option<Health> {
        self.lock().objects.get(id).and_then(|o| o.health.as_deref().cloned())
    }

    /// Whether a watch has failed since this was asked last: the cluster may be away.
    pub fn take_trouble(&self) -> bool {
        std::mem::take(&mut self.lock().trouble)
    }

    /// Whether the namespace that the inventory is in is being deleted.
    pub fn is_namespace_going(&self) -> bool {
        let sights = self.lock();
        let health = sights.namespace.as_ref().and_then(|id| sights.objects.get(id)).and_then(|o| o.health.as_deref());
        matches!(health, Some(Health::Waiting(wait)) if wait.why == GOING)
    }

    /// Waits until something has changed.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// `id` was written and is now as `meta` says. What a watch tells later about an earlier state is then ignored.
    pub fn written(&self, id: &ObjectId, meta: &ObjectMeta) {
        let mut sights = self.lock();
        let mut observed = sights.observed(id, meta, None);
        if sights.gone.get(id) == Some(&observed.uid) || sights.is_unlisted(id, &observed) {
            // It was deleted before the answer came: the watch has told of that, or a later list lacks it, and nobody tells more of it.
            drop(sights);
            return self.tell();
        }
        (observed.written, observed.unconfirmed) = (Some(observed.fingerprint), true);
        let before = sights.objects.get_mut(id);
        observed.health = before.as_ref().and_then(|have| match &have.health {
            // Whether it works is not known before its own controller has looked at this generation.
            Some(_) if (have.generation, have.uid) != (observed.generation, observed.uid) => {
                Some(Box::new(Health::Waiting("its newest generation is not observed yet".into())))
            }
            same => same.clone(),
        });
        match before {
            Some(have) if have.version >= observed.version => have.written = observed.written,
            _ => sights.insert(id.clone(), observed),
        }
    }

    /// Which of the kinds that `of` is true for, given group and kind, may not be watched, and why: one sentence each.
    pub fn blind(&self, of: impl Fn(&str, &str) -> bool) -> Vec<String> {
        let sights = self.lock();
        let mut told: Vec<_> =
            sights.blind.iter().filter(|((group, kind), _)| of(group, kind)).map(|(_, why)| why.clone()).collect();
        told.sort();
        told
    }

    /// `kind` may not be watched, because.
    pub fn forbidden(&self, kind: &Kind, why: &str) {
        let (plural, group) = (&kind.resource.plural, &kind.resource.group);
        let called = if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") };
        let why = format!("{called} can't be watched, so nobody knows what becomes of them: {why}");
        self.lock().blind.insert((group.clone(), kind.resource.kind.clone()), why);
    }

    /// A watch failed: the cluster may be away.
    pub fn failed(&self) {
        self.lock().trouble = true;
    }

    /// All of `kind` in `namespace` (empty for what lives in none) was listed as of resourceVersion `listed`: `there` is what there was. What was written later
    /// may be missing in it; the watch that follows tells of it.
    pub fn all(&self, kind: &Kind, namespace: &str, there: &HashSet<Id>, listed: u64) {
        let mut sights = self.lock();
        let (group, kind) = (&kind.resource.group, &kind.resource.kind);
        let other = |id: &ObjectId| id.group != *group || id.kind != *kind || id.namespace != namespace;
        let later = |have: &Observed| have.unconfirmed && have.version > listed;
        sights.objects.retain(|id, have| other(id) || there.contains(&**id) || later(have));
        sights.listed.insert((group.clone(), kind.clone(), namespace.to_owned()), listed);
        sights.unserved.remove(&(group.clone(), kind.clone()));
        sights.blind.remove(&(group.clone(), kind.clone()));
    }

    /// There is no such kind (any more), and so nothing of it, but for what was written since: then there is the kind again, and the watch
    /// hears of it a little later.
    pub fn unknown(&self, kind: &Kind) {
        let mut sights = self.lock();
        let other = |id: &ObjectId| id.group != kind.resource.group || id.kind != kind.resource.kind;
        sights.objects.retain(|id, have| other(id) || have.unconfirmed);
        sights.unserved.insert((kind.resource.group.clone(), kind.resource.kind.clone()));
    }

    /// Something has changed: whoever waits for it goes on.
    pub fn tell(&self) {
        self.changed.notify_one();
    }

    /// A watch told of `id`. An event about an earlier state than the known one is late; a list is how things are, but
    /// for what was written while it was made.
    pub fn told(&self, id: &Id, meta: &ObjectMeta, health: Option<Health>, listed: bool) {
        let mut sights = self.lock();
        // A hostile cluster may tell of any number of objects: only those that are asked for are remembered.
        let Some(id) = sights.wanted(id) else { return };
        let mut observed = sights.observed(&id, meta, health);
        // What is as it was right after it was written need not be compared.
        if observed.written != Some(observed.fingerprint) {
            let fields = ownership::ours(meta);
            let covers = |plan: &Plan| {
                let desired = plan.find(&id).map(|item| plan.open(item));
                let taken = preserve::taken(&id.kind, meta);
                fields.zip(desired).is_some_and(|(fields, desired)| ownership::covers(fields, desired, &taken))
            };
            observed.covered = sights.expected.as_ref().is_some_and(covers);
            observed.other = ownership::other(meta).map(String::into_boxed_str);
        }
        if sights.objects.get(&id).is_none_or(|have| have.version <= observed.version || (listed && !have.unconfirmed))
        {
            let established = id.kind == DEFINITIONS.1 && observed.health.as_deref() == Some(&Health::Ready);
            sights.insert(id, observed);
            if established {
                self.established.send_replace(());
            }
        }
    }

    /// A watch told that `id` is gone.
    pub fn gone(&self, id: &Id, meta: &ObjectMeta) {
        let mut sights = self.lock();
        let Some(id) = sights.wanted(id) else { return };
        let uid = hashed(meta.uid.as_deref().unwrap_or_default());
        if sights.objects.get(&id).is_some_and(|have| have.uid == uid) {
            sights.objects.remove(&id);
        }
        sights.ever.insert(id.clone());
        sights.gone.insert(id, uid);
    }
}

fn hashed(uid: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    hasher.finish()
}

impl Sights {
    /// Whether `id` would be seen if it were there.
    fn known(&self, id: &ObjectId) -> bool {
        let (group, kind) = (id.group.clone(), id.kind.clone());
        self.unserved.contains(&(group.clone(), kind.clone()))
            || self.listed.contains_key(&(group, kind, id.namespace.clone()))
    }

    /// Whether `id`, which was as `written`, was gone when its kind was listed later.
    fn is_unlisted(&self, id: &ObjectId, written: &Observed) -> bool {
        let listed = self.listed.get(&(id.group.clone(), id.kind.clone(), id.namespace.clone()));
        listed.is_some_and(|listed| *listed >= written.version)
            && self.objects.get(id).is_none_or(|have| have.uid != written.uid)
    }

    /// The identity that everybody shares, if it is one that is asked for.
    fn wanted(&self, id: &Id) -> Option<ObjectId> {
        let planned = self.expected.as_ref().and_then(|plan| plan.find(id)).map(|item| item.id.clone());
        planned
            .or_else(|| [&self.home, &self.namespace].into_iter().flatten().find(|besides| ***besides == *id).cloned())
    }

    /// The uid of the definition of `kind`, if the plan has one and it is established.
    fn definition(&self, kind: &Kind) -> Option<u64> {
        let definition = self.expected.as_ref()?.definition(kind)?;
        self.objects.get(&definition.id).filter(|o| o.health.as_deref() == Some(&Health::Ready)).map(|o| o.uid)
    }

    fn observed(&self, id: &Id, meta: &ObjectMeta, health: Option<Health>) -> Observed {
        Observed {
            uid: hashed(meta.uid.as_deref().unwrap_or_default()),
            version: version(meta),
            generation: meta.generation.unwrap_or_default(),
            digest: ownership::digest(meta),
            fingerprint: ownership::fingerprint(meta),
            written: self.objects.get(id).and_then(|have| have.written),
            covered: false,
            other: None,
            go: takeover::is_due(meta),
            health: health.map(Box::new),
            unconfirmed: false,
        }
    }

    fn insert(&mut self, id: ObjectId, observed: Observed) {
        // It had only lost the label that it is watched by.
        if self.gone.get(&id) == Some(&observed.uid) {
            self.gone.remove(&id);
        }
        self.ever.insert(id.clone());
        self.objects.insert(id, observed);
    }
}

#[cfg(test)]
mod tests {
    use kube::core::{ApiResource, GroupVersionKind};

    use super::*;

    fn id() -> ObjectId {
        ObjectId::new("", "ConfigMap", "a", "b")
    }

    fn meta(uid: &str, version: u64) -> ObjectMeta {
        ObjectMeta { uid: Some(uid.into()), resource_version: Some(version.to_string()), ..ObjectMeta::default() }
    }

    fn at(seen: &Seen) -> Option<(u64, u64)> {
        seen.lock().objects.get(&id()).map(|o| (o.uid, o.version))
    }

    #[test]
    fn what_is_deleted_before_the_answer_to_its_write_comes_is_missing() {
        let seen = Seen::default();
        seen.lock().home = Some(id());
        seen.told(&id(), &meta("2", 20), None, false);
        seen.gone(&id(), &meta("2", 21));
        seen.written(&id(), &meta("2", 20));
        assert_eq!(at(&seen), None);
        // Told to be there again, it is.
        seen.told(&id(), &meta("2", 22), None, false);
        seen.written(&id(), &meta("2", 23));
        assert_eq!(at(&seen), Some((hashed("2"), 23)));
        seen.gone(&id(), &meta("2", 24));
        seen.written(&id(), &meta("3", 25));
        assert_eq!(at(&seen), Some((hashed("3"), 25)));
    }

    #[test]
    fn what_a_list_lacks_that_is_newer_than_the_write_is_missing() {
        let seen = Seen::default();
        let kind =
            Kind { resource: ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap")), namespaced: true };
        let (listed, none) = (|at| seen.all(&kind, "a", &HashSet::new(), at), Sight::Missing { lost: true });
        seen.lock().home = Some(id());
        // Nobody watched when it was written, nor when it was deleted.
        seen.written(&id(), &meta("1", 20));
        listed(19);
        assert_eq!(at(&seen), Some((hashed("1"), 20)));
        listed(21);
        assert_eq!((at(&seen), seen.sight(&id())), (None, none.clone()));
        // The answer comes after that list.
        seen.written(&id(), &meta("2", 21));
        assert_eq!((at(&seen), seen.sight(&id())), (None, none));
        seen.written(&id(), &meta("3", 22));
        assert_eq!(at(&seen), Some((hashed("3"), 22)));
    }

    #[test]
    fn what_a_watch_tells_late_does_not_undo_a_write() {
        let seen = Seen::default();
        seen.lock().home = Some(id());
        seen.told(&ObjectId::new("", "ConfigMap", "a", "other"), &meta("9", 9), None, true);
        assert_eq!(seen.lock().objects.len(), 0);
        seen.told(&id(), &meta("1", 10), None, true);
        seen.gone(&id(), &meta("1", 11));
        seen.written(&id(), &meta("2", 20));
        // The end of the first one, told late.
        seen.told(&id(), &meta("1", 12), None, false);
        seen.gone(&id(), &meta("1", 13));
        assert_eq!(at(&seen), Some((hashed("2"), 20)));
        // A list that was made before the write.
        seen.told(&id(), &meta("1", 10), None, true);
        assert_eq!(at(&seen), Some((hashed("2"), 20)));
        // Confirmed, it follows the watch, and a later list even to lower versions (a cluster that was restored).
        seen.told(&id(), &meta("2", 20), None, false);
        seen.told(&id(), &meta("3", 5), None, true);
        assert_eq!(at(&seen), Some((hashed("3"), 5)));
        seen.gone(&id(), &meta("3", 6));
        assert_eq!(seen.sight(&id()), Sight::Unknown);
    }
}
