//! Sees what is there: one watch a kind, by the component's label; metadata only, but for the kinds whose status says
//! whether they work.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, pin_mut};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{DynamicObject, GroupVersionKind, PartialObjectMeta, Status};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use tokio::task::JoinHandle;

use super::seen::Seen;
use crate::health::{self, Health, Watched};
use crate::kinds::Kinds;
use crate::object::{Kind, ObjectId};

/// How long a watch lasts at most, in seconds: a silent spoke shows within this and five more.
const WATCH_SECONDS: u32 = 240;

/// The watches of one component on one cluster. Dropping it ends them.
pub struct Observer {
    client: Client,
    selector: String,
    /// What is seen.
    pub seen: Arc<Seen>,
    /// By kind and namespace.
    watches: HashMap<(Kind, String), JoinHandle<()>>,
    /// Kinds that the cluster was asked about.
    found: HashMap<GroupVersionKind, Kind>,
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.watches.values().for_each(JoinHandle::abort);
    }
}

impl Observer {
    /// Watches nothing yet. `selector` selects the component's objects.
    pub fn new(client: Client, selector: String) -> Self {
        Self { client, selector, seen: Arc::default(), watches: HashMap::new(), found: HashMap::new() }
    }

    /// Watches `kind` from now on, if it isn't yet: in `namespace`, if it lives in one.
    pub fn watch(&mut self, kind: &Kind, namespace: &str) {
        let namespace = if kind.namespaced { namespace } else { "" };
        let key = (kind.clone(), namespace.to_owned());
        if self.watches.contains_key(&key) {
            return;
        }
        let (seen, of) = (Arc::clone(&self.seen), key.clone());
        let config = watcher::Config::default().labels(&self.selector).timeout(WATCH_SECONDS).streaming_lists();
        let task = if health::has_health(&kind.resource.group, &kind.resource.kind) {
            let api: Api<Watched> = self.api(kind, namespace);
            let health = |kind: &Kind, object: &Watched| health::of(&kind.resource.kind, object);
            tokio::spawn(async move { follow(|config| watcher(api.clone(), config), config, &seen, &of, health).await })
        } else {
            let api: Api<PartialObjectMeta<DynamicObject>> = self.api(kind, namespace);
            tokio::spawn(async move { follow(|config| watcher(api.clone(), config), config, &seen, &of, |_, _| None).await })
        };
        self.watches.insert(key, task);
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

    fn api<K>(&self, kind: &Kind, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = kube::core::ApiResource, Scope = kube::core::DynamicResourceScope>,
    {
        if kind.namespaced {
            Api::namespaced_with(self.client.clone(), namespace, &kind.resource)
        } else {
            Api::all_with(self.client.clone(), &kind.resource)
        }
    }
}

/// Follows one kind for ever: by a watch that begins with what is there, one request, or where the API server doesn't have
/// that yet (Kubernetes 1.34) by a list and a watch.
async fn follow<K, S>(
    open: impl Fn(watcher::Config) -> S,
    config: watcher::Config,
    seen: &Seen,
    place: &(Kind, String),
    health: impl Fn(&Kind, &K) -> Option<Health>,
) where
    K: Resource,
    S: Stream<Item = watcher::Result<Event<K>>>,
{
    stream(open(config.clone()), true, seen, place, &health).await;
    let config = watcher::Config { initial_list_strategy: watcher::InitialListStrategy::ListWatch, ..config };
    stream(open(config), false, seen, place, &health).await;
}

/// Follows one kind until the API server says that it can't be done this way. Each watch has its own back-off; an error is told and tried again.
async fn stream<K: Resource>(
    events: impl Stream<Item = watcher::Result<Event<K>>>,
    streaming: bool,
    seen: &Seen,
    (kind, namespace): &(Kind, String),
    health: &impl Fn(&Kind, &K) -> Option<Health>,
) {
    let of = |meta: &ObjectMeta| ObjectId {
        group: kind.resource.group.clone(),
        kind: kind.resource.kind.clone(),
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
    };
    let events = events.backoff(Pause::default());
    pin_mut!(events);
    let mut listing: HashSet<ObjectId> = HashSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listing.clear(),
            Ok(Event::InitApply(object)) => {
                listing.insert(of(object.meta()));
                seen.told(of(object.meta()), object.meta(), health(kind, &object), true);
                continue;
            }
            Ok(Event::InitDone) => seen.all(kind, namespace, &std::mem::take(&mut listing)),
            Ok(Event::Apply(object)) => seen.told(of(object.meta()), object.meta(), health(kind, &object), false),
            Ok(Event::Delete(object)) => seen.gone(&of(object.meta()), object.meta()),
            Err(error) if streaming && refusal(&error).is_some_and(unsupported) => return,
            Err(error) => match refusal(&error) {
                // The kind itself isn't there (yet).
                Some(status) if status.code == 404 => seen.unknown(kind),
                Some(status) if status.code == 403 => seen.forbidden(kind, &status.message),
                _ => {
                    tracing::debug!(kind = kind.resource.kind, %error, "watch interrupted");
                    seen.failed();
                }
            },
        }
        seen.tell();
    }
}

/// The API server's answer to a watch that it refuses.
fn refusal(error: &watcher::Error) -> Option<&Status> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status)) | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => {
            Some(status)
        }
        watcher::Error::WatchError(status) => Some(status),
        _ => None,
    }
}

fn unsupported(status: &Status) -> bool {
    matches!(status.code, 400 | 422) && status.message.contains("sendInitialEvents")
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
