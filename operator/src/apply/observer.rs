//! Sees what is there: one watch a kind, by the component's label; metadata only, but for the kinds whose status says
//! whether they work.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{StreamExt, pin_mut};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{DynamicObject, GroupVersionKind, PartialObjectMeta};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::differ::Sight;
use super::{ownership, takeover};
use crate::health::{self, Health};
use crate::kinds::Kinds;
use crate::object::{Digest, Kind, ObjectId, version};
use crate::packed::Packed;
use crate::plan::Item;

/// How long a watch lasts at most, in seconds: a silent spoke shows within this and five more.
const WATCH_SECONDS: u32 = 240;

/// What is seen of one object.
#[derive(Clone, Debug)]
struct Observed {
    uid: String,
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
    other: Option<String>,
    /// Whether the Go operator holds fields of it.
    go: bool,
    health: Option<Health>,
    /// Whether it was written by ourselves and no watch has told of it yet.
    unconfirmed: bool,
}

#[derive(Debug, Default)]
struct Sights {
    objects: HashMap<ObjectId, Observed>,
    /// What was there at any time.
    ever: HashSet<ObjectId>,
    /// What is to be there.
    expected: HashMap<ObjectId, Packed>,
    listed: HashSet<(String, String)>,
    trouble: bool,
}

/// What is seen, shared between the watches and whoever decides.
#[derive(Debug, Default)]
pub struct Seen {
    sights: Mutex<Sights>,
    changed: Notify,
}

impl Seen {
    fn lock(&self) -> MutexGuard<'_, Sights> {
        self.sights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on `items` are to be there.
    pub fn expect<'i>(&self, items: impl Iterator<Item = &'i Item>) {
        self.lock().expected = items.map(|item| (item.id.clone(), item.object.clone())).collect();
    }

    /// There is no such kind, and so nothing of it.
    pub fn none_of(&self, group: &str, kind: &str) {
        self.lock().listed.insert((group.to_owned(), kind.to_owned()));
    }

    /// What is seen of `id`.
    pub fn sight(&self, id: &ObjectId) -> Sight {
        let sights = self.lock();
        match sights.objects.get(id) {
            Some(seen) => Sight::Present { digest: seen.digest.clone(), intact: seen.covered || seen.written == Some(seen.fingerprint) },
            None if sights.listed.contains(&(id.group.clone(), id.kind.clone())) => Sight::Missing { lost: sights.ever.contains(id) },
            None => Sight::Unknown,
        }
    }

    /// The uid of `id`, if it is seen.
    pub fn uid(&self, id: &ObjectId) -> Option<String> {
        self.lock().objects.get(id).map(|o| o.uid.clone())
    }

    /// Who has taken fields of `id` from us, as far as that is known.
    pub fn thief(&self, id: &ObjectId) -> Option<String> {
        self.lock().objects.get(id).and_then(|o| o.other.clone())
    }

    /// Whether the Go operator holds fields of `id`.
    pub fn is_go(&self, id: &ObjectId) -> bool {
        self.lock().objects.get(id).is_some_and(|o| o.go)
    }

    /// Whether `id` works, if it is seen and says so.
    pub fn health(&self, id: &ObjectId) -> Option<Health> {
        self.lock().objects.get(id).and_then(|o| o.health.clone())
    }

    /// Whether a watch has failed since this was asked last: the cluster may be away.
    pub fn take_trouble(&self) -> bool {
        std::mem::take(&mut self.lock().trouble)
    }

    /// Waits until something has changed.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// `id` was written and is now as `meta` says. What a watch tells later about an earlier state is then ignored.
    pub fn written(&self, id: &ObjectId, meta: &ObjectMeta) {
        let mut sights = self.lock();
        let mut observed = sights.observed(id, meta, None);
        (observed.written, observed.unconfirmed) = (Some(observed.fingerprint), true);
        let before = sights.objects.get_mut(id);
        observed.health = before.as_ref().and_then(|have| match &have.health {
            // Whether it works is not known before its own controller has looked at this generation.
            Some(_) if (have.generation, &have.uid) != (observed.generation, &observed.uid) => {
                Some(Health::Waiting("its newest generation is not observed yet".to_owned()))
            }
            same => same.clone(),
        });
        match before {
            Some(have) if have.version >= observed.version => have.written = observed.written,
            _ => sights.insert(id.clone(), observed),
        }
    }

    /// A watch told of `id`. An event about an earlier state than the known one is late; a list is how things are, but
    /// for what was written while it was made.
    fn told(&self, id: ObjectId, meta: &ObjectMeta, health: Option<Health>, listed: bool) {
        let mut sights = self.lock();
        let mut observed = sights.observed(&id, meta, health);
        // What is as it was right after it was written need not be compared.
        if observed.written != Some(observed.fingerprint) {
            let fields = ownership::ours(meta);
            let covers = |desired: &Packed| fields.is_some_and(|fields| ownership::covers(fields, &desired.open()));
            observed.covered = sights.expected.get(&id).is_some_and(covers);
            observed.other = ownership::other(meta);
        }
        if sights.objects.get(&id).is_none_or(|have| have.version <= observed.version || (listed && !have.unconfirmed)) {
            sights.insert(id, observed);
        }
    }

    fn gone(&self, id: &ObjectId, meta: &ObjectMeta) {
        let mut sights = self.lock();
        if sights.objects.get(id).is_some_and(|have| Some(have.uid.as_str()) == meta.uid.as_deref()) {
            sights.objects.remove(id);
        }
    }
}

impl Sights {
    fn observed(&self, id: &ObjectId, meta: &ObjectMeta, health: Option<Health>) -> Observed {
        Observed {
            uid: meta.uid.clone().unwrap_or_default(),
            version: version(meta),
            generation: meta.generation.unwrap_or_default(),
            digest: ownership::digest(meta),
            fingerprint: ownership::fingerprint(meta),
            written: self.objects.get(id).and_then(|have| have.written),
            covered: false,
            other: None,
            go: takeover::is_due(meta),
            health,
            unconfirmed: false,
        }
    }

    fn insert(&mut self, id: ObjectId, observed: Observed) {
        self.ever.insert(id.clone());
        self.objects.insert(id, observed);
    }
}

/// The watches of one component on one cluster. Dropping it ends them.
pub struct Observer {
    client: Client,
    namespace: String,
    selector: String,
    /// What is seen.
    pub seen: Arc<Seen>,
    watches: HashMap<Kind, JoinHandle<()>>,
    /// Kinds that the cluster was asked about.
    found: HashMap<GroupVersionKind, Kind>,
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.watches.values().for_each(JoinHandle::abort);
    }
}

impl Observer {
    /// Watches nothing yet. `selector` selects the component's objects; those with a namespace are looked for in `namespace`.
    pub fn new(client: Client, namespace: &str, selector: String) -> Self {
        Self { client, namespace: namespace.to_owned(), selector, seen: Arc::default(), watches: HashMap::new(), found: HashMap::new() }
    }

    /// Watches `kind` from now on, if it isn't yet.
    pub fn watch(&mut self, kind: &Kind) {
        if self.watches.contains_key(kind) {
            return;
        }
        let (seen, config) =
            (Arc::clone(&self.seen), watcher::Config::default().labels(&self.selector).timeout(WATCH_SECONDS).streaming_lists());
        let task = if health::has_health(&kind.resource.group, &kind.resource.kind) {
            let api: Api<DynamicObject> = self.api(kind);
            let of = kind.clone();
            tokio::spawn(follow(api, config, seen, kind.clone(), move |object: &DynamicObject| {
                let mut value = object.data.clone();
                value["kind"] = of.resource.kind.clone().into();
                value["metadata"]["generation"] = object.metadata.generation.unwrap_or_default().into();
                health::of(&value)
            }))
        } else {
            let api: Api<PartialObjectMeta<DynamicObject>> = self.api(kind);
            tokio::spawn(follow(api, config, seen, kind.clone(), |_: &PartialObjectMeta<DynamicObject>| None))
        };
        self.watches.insert(kind.clone(), task);
    }

    /// How `gvk` is addressed: as `known` says, or as the cluster said once. What it doesn't have is asked for again.
    pub async fn address(&mut self, client: &Client, known: &Kinds, gvk: &GroupVersionKind) -> Option<Kind> {
        if let Some(kind) = known.get(gvk).or_else(|| self.found.get(gvk).cloned()) {
            return Some(kind);
        }
        let kind = super::address(client, known, gvk).await.ok().flatten()?;
        self.found.insert(gvk.clone(), kind.clone());
        Some(kind)
    }

    fn api<K>(&self, kind: &Kind) -> Api<K>
    where
        K: Resource<DynamicType = kube::core::ApiResource, Scope = kube::core::DynamicResourceScope>,
    {
        if kind.namespaced {
            Api::namespaced_with(self.client.clone(), &self.namespace, &kind.resource)
        } else {
            Api::all_with(self.client.clone(), &kind.resource)
        }
    }
}

/// Follows one kind for ever: by a watch that begins with what is there, one request, or where the API server doesn't have
/// that yet (Kubernetes 1.34) by a list and a watch.
async fn follow<K>(api: Api<K>, config: watcher::Config, seen: Arc<Seen>, kind: Kind, health: impl Fn(&K) -> Option<Health>)
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    stream(api.clone(), config.clone(), &seen, &kind, &health).await;
    let config = watcher::Config { initial_list_strategy: watcher::InitialListStrategy::ListWatch, ..config };
    stream(api, config, &seen, &kind, &health).await;
}

/// Follows one kind until the API server says that it can't be done this way. Each watch has its own back-off; an error is told and tried again.
async fn stream<K>(api: Api<K>, config: watcher::Config, seen: &Seen, kind: &Kind, health: &impl Fn(&K) -> Option<Health>)
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let streaming = config.initial_list_strategy == watcher::InitialListStrategy::StreamingList;
    let of = |meta: &ObjectMeta| ObjectId {
        group: kind.resource.group.clone(),
        kind: kind.resource.kind.clone(),
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
    };
    let key = (kind.resource.group.clone(), kind.resource.kind.clone());
    let stream = watcher(api, config).backoff(Pause::default());
    pin_mut!(stream);
    let mut listing: HashSet<ObjectId> = HashSet::new();
    while let Some(event) = stream.next().await {
        match event {
            Ok(Event::Init) => listing.clear(),
            Ok(Event::InitApply(object)) => {
                listing.insert(of(object.meta()));
                seen.told(of(object.meta()), object.meta(), health(&object), true);
                continue;
            }
            Ok(Event::InitDone) => {
                let mut sights = seen.lock();
                // What was written while the list was made may be missing in it; the watch that follows tells of it.
                sights.objects.retain(|id, have| (id.group != key.0 || id.kind != key.1) || listing.contains(id) || have.unconfirmed);
                sights.listed.insert(key.clone());
                listing = HashSet::new();
            }
            Ok(Event::Apply(object)) => seen.told(of(object.meta()), object.meta(), health(&object), false),
            Ok(Event::Delete(object)) => seen.gone(&of(object.meta()), object.meta()),
            Err(error) if streaming && unsupported(&error) => return,
            Err(error) if missing(&error) => {
                // The kind itself isn't there (yet): so are none of its objects.
                let mut sights = seen.lock();
                sights.objects.retain(|id, _| id.group != key.0 || id.kind != key.1);
                sights.listed.insert(key.clone());
            }
            Err(error) => {
                tracing::debug!(kind = key.1, %error, "watch interrupted");
                seen.lock().trouble = true;
            }
        }
        seen.changed.notify_one();
    }
}

fn unsupported(error: &watcher::Error) -> bool {
    let (watcher::Error::WatchStartFailed(kube::Error::Api(status)) | watcher::Error::WatchError(status)) = error else { return false };
    matches!(status.code, 400 | 422) && status.message.contains("sendInitialEvents")
}

fn missing(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(source) | watcher::Error::WatchStartFailed(source)) = error else { return false };
    matches!(source, kube::Error::Api(status) if status.code == 404)
}

/// The pauses of a watch that fails: half a second, doubling, eight seconds at most.
#[derive(Debug, Default)]
struct Pause(u32);

impl Iterator for Pause {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = Duration::from_millis(500 << self.0.min(4));
        self.0 += 1;
        Some(pause)
    }
}

impl kube::runtime::utils::Backoff for Pause {
    fn reset(&mut self) {
        self.0 = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> ObjectId {
        ObjectId { group: String::new(), kind: "ConfigMap".into(), namespace: "a".into(), name: "b".into() }
    }

    fn meta(uid: &str, version: u64) -> ObjectMeta {
        ObjectMeta { uid: Some(uid.into()), resource_version: Some(version.to_string()), ..ObjectMeta::default() }
    }

    fn at(seen: &Seen) -> Option<(String, u64)> {
        seen.lock().objects.get(&id()).map(|o| (o.uid.clone(), o.version))
    }

    #[test]
    fn what_a_watch_tells_late_does_not_undo_a_write() {
        let seen = Seen::default();
        seen.told(id(), &meta("1", 10), None, true);
        seen.gone(&id(), &meta("1", 11));
        seen.written(&id(), &meta("2", 20));
        // The end of the first one, told late.
        seen.told(id(), &meta("1", 12), None, false);
        seen.gone(&id(), &meta("1", 13));
        assert_eq!(at(&seen), Some(("2".to_owned(), 20)));
        // A list that was made before the write.
        seen.told(id(), &meta("1", 10), None, true);
        assert_eq!(at(&seen), Some(("2".to_owned(), 20)));
        // Confirmed, it follows the watch, and a later list even to lower versions (a cluster that was restored).
        seen.told(id(), &meta("2", 20), None, false);
        seen.told(id(), &meta("3", 5), None, true);
        assert_eq!(at(&seen), Some(("3".to_owned(), 5)));
        seen.gone(&id(), &meta("3", 6));
        assert_eq!(seen.sight(&id()), Sight::Unknown);
    }
}
