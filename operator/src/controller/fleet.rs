//! Starts an actor for each custom resource and tells it what changes; ends it when the resource is gone.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::{BoxStream, select_all};
use knative_operator_runtime::ready::Readiness;
use knative_operator_shared::api::{ClusterProfile, Component};
use knative_operator_shared::label::{GROUP, VERSION};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::watcher::{self, Event, watcher};
use kube::runtime::{WatchStreamExt, utils::Backoff};
use kube::{Api, Client};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;

use super::desired::Desired;
use super::profiles::reference;
use super::siblings::Key;
use super::{Context, actor};
use crate::leader;

/// What the hub tells.
enum Told {
    /// A custom resource is as given.
    Resource(Desired),
    /// A custom resource is gone.
    Gone(Key),
    /// These are all of a component.
    All(Component, HashSet<Key>),
    /// Something about ClusterProfiles.
    Profile(Event<ClusterProfile>),
    /// ClusterProfiles can't be watched, because.
    ProfileTrouble(watcher::Error),
}

/// How long passes that are under way may take to come to their end when the operator stops.
const FINISH: Duration = Duration::from_secs(3);

/// The actor of one resource.
struct Handle {
    desired: watch::Sender<Option<Desired>>,
    poke: Arc<Notify>,
    task: JoinHandle<()>,
}

/// Runs until a watch can't go on at all. `shards` tells which shards of the fleet are this replica's; the first one is `first`.
pub async fn run(cx: Arc<Context>, readiness: Readiness, first: u32, mut shards: mpsc::Receiver<leader::Told>) {
    let mut actors: HashMap<Key, Handle> = HashMap::new();
    let mut held = BTreeSet::from([first]);
    cx.metrics.leads(held.len());
    let (mut told, mut go_operator) = (hub(&cx.hub), cx.go_operator.changes());
    let mut changed = std::pin::pin!(providers_changed(&cx));
    let mut listing: Vec<ClusterProfile> = Vec::new();
    let mut listed: HashSet<Component> = HashSet::new();
    let mut stored: HashMap<Key, Desired> = HashMap::new();
    loop {
        let told = tokio::select! {
            told = told.next() => match told { Some(told) => told, None => return },
            Some(change) = shards.recv() => {
                match change {
                    leader::Told::Gained(shard) => {
                        held.insert(shard);
                        let own: Vec<Desired> = stored.values().filter(|d| leader::shard(d, cx.shards) == shard).cloned().collect();
                        own.into_iter().for_each(|desired| start(&cx, &mut actors, desired));
                    }
                    leader::Told::Yield(shard, answer) => {
                        held.remove(&shard);
                        stop(&cx, &mut actors, shard).await;
                        let _ = answer.send(());
                    }
                }
                cx.metrics.leads(held.len());
                continue;
            }
            Ok(()) = go_operator.changed() => {
                poke(&actors, stored.keys());
                continue;
            }
            () = &mut changed => {
                changed.set(providers_changed(&cx));
                poke(&actors, referring(&actors, None).iter());
                continue;
            }
        };
        match told {
            Told::Resource(desired) => {
                stored.insert(Key::of(&desired), desired.clone());
                // Of one whose target isn't known nobody can say whose rival it is.
                if desired.unreadable.as_ref().is_none_or(|unreadable| unreadable.has_target) {
                    cx.siblings.set(Arc::clone(&desired.resource));
                }
                if held.contains(&leader::shard(&desired, cx.shards)) {
                    poke(&actors, cx.siblings.rival_keys(&desired).iter());
                    start(&cx, &mut actors, desired);
                }
            }
            Told::Gone(key) => {
                stored.remove(&key);
                end(&cx, &mut actors, &key);
            }
            Told::All(component, keys) => {
                let gone = stored.extract_if(|key, _| key.component == component && !keys.contains(key));
                gone.for_each(|(key, _)| end(&cx, &mut actors, &key));
                listed.insert(component);
                if listed.len() == Component::ALL.len() {
                    readiness.set("custom resources", true);
                }
            }
            Told::Profile(event) => match event {
                Event::Init => listing.clear(),
                Event::InitApply(profile) => listing.push(profile),
                Event::InitDone => {
                    cx.profiles.reset(std::mem::take(&mut listing));
                    poke(&actors, referring(&actors, None).iter());
                }
                Event::Apply(profile) => {
                    let reference = reference(&profile);
                    cx.profiles.set(profile);
                    poke(&actors, referring(&actors, Some(&reference)).iter());
                }
                Event::Delete(profile) => {
                    let reference = reference(&profile);
                    cx.profiles.remove(&reference);
                    cx.connections.forget(&reference);
                    poke(&actors, referring(&actors, Some(&reference)).iter());
                }
            },
            Told::ProfileTrouble(error) => {
                match &error {
                    watcher::Error::InitialListFailed(kube::Error::Api(status))
                    | watcher::Error::WatchStartFailed(kube::Error::Api(status))
                        if status.code == 404 =>
                    {
                        cx.profiles.no_such_kind();
                    }
                    other => cx.profiles.unreadable(knative_operator_runtime::words(other)),
                }
                poke(&actors, referring(&actors, None).iter());
            }
        }
    }
}

/// Waits until the provider file says something else.
async fn providers_changed(cx: &Context) {
    match &cx.providers {
        Some(file) => file.changed(|valid| cx.metrics.provider_file(valid)).await,
        None => std::future::pending().await,
    }
}

/// Tells the actor of `desired` that it has changed; starts one if there is none.
fn start(cx: &Arc<Context>, actors: &mut HashMap<Key, Handle>, desired: Desired) {
    let key = Key::of(&desired);
    if let Some(handle) = actors.get(&key).filter(|handle| !handle.desired.is_closed()) {
        handle.desired.send_replace(Some(desired));
        return;
    }
    let (sender, receiver) = watch::channel(Some(desired));
    let poke = Arc::new(Notify::new());
    let task = tokio::spawn(actor::run(Arc::clone(cx), receiver, Arc::clone(&poke)));
    actors.insert(key, Handle { desired: sender, poke, task });
}

/// Ends the actors of `shard`: at once, or, if the operator stops, when their passes have come to an end.
async fn stop(cx: &Context, actors: &mut HashMap<Key, Handle>, shard: u32) {
    let own = |handle: &Handle| handle.desired.borrow().as_ref().is_none_or(|r| leader::shard(r, cx.shards) == shard);
    let ending: Vec<(Key, Handle)> = actors.extract_if(|_, handle| own(handle)).collect();
    let deadline = Instant::now() + if cx.stop.is_cancelled() { FINISH } else { Duration::ZERO };
    for (key, mut handle) in ending {
        if tokio::time::timeout_at(deadline.into(), &mut handle.task).await.is_err() {
            handle.task.abort();
            // Only when it has really ended may somebody else begin.
            let _ = handle.task.await;
        }
        let cluster = handle.desired.borrow().as_ref().and_then(|r| r.common().cluster_profile_ref.clone());
        cluster.iter().for_each(|cluster| cx.connections.forget(cluster));
        cx.metrics.forget(&key, true);
    }
}

fn end(cx: &Context, actors: &mut HashMap<Key, Handle>, key: &Key) {
    let resource = cx.siblings.remove(key);
    let last = resource.as_ref().is_none_or(|resource| !cx.siblings.on_same_cluster(resource));
    cx.metrics.forget(key, last);
    if let Some(handle) = actors.remove(key) {
        resource.iter().for_each(|resource| poke(actors, cx.siblings.rival_keys(resource).iter()));
        let _ = handle.desired.send(None);
    }
    // Nobody needs the connection any more.
    if last && let Some(cluster) = resource.as_ref().and_then(|r| r.common().cluster_profile_ref.as_ref()) {
        cx.connections.forget(cluster);
    }
}

fn poke<'a>(actors: &HashMap<Key, Handle>, keys: impl Iterator<Item = &'a Key>) {
    keys.filter_map(|key| actors.get(key)).for_each(|handle| handle.poke.notify_one());
}

/// The keys of the resources that refer to `profile`, or to any.
fn referring(
    actors: &HashMap<Key, Handle>,
    profile: Option<&knative_operator_shared::api::ClusterProfileReference>,
) -> Vec<Key> {
    let refers = |handle: &Handle| {
        let resource = handle.desired.borrow();
        let own = resource.as_ref().and_then(|r| r.common().cluster_profile_ref.as_ref());
        own.is_some_and(|own| profile.is_none_or(|p| p == own))
    };
    actors.iter().filter(|(_, handle)| refers(handle)).map(|(key, _)| key.clone()).collect()
}

/// Everything that the hub tells. Each watch has its own back-off, so that one that fails holds up no other.
fn hub(client: &Client) -> BoxStream<'static, Told> {
    let profiles = watcher(Api::<ClusterProfile>::all(client.clone()), watcher::Config::default())
        .modify(|profile| profile.metadata.managed_fields = None)
        .backoff(Every(Duration::from_secs(1)))
        .map(|event| event.map_or_else(Told::ProfileTrouble, Told::Profile));
    select_all([resources(client, Component::Serving), resources(client, Component::Eventing), profiles.boxed()])
        .boxed()
}

fn resources(client: &Client, component: Component) -> BoxStream<'static, Told> {
    // Untyped: one resource that can't be read must not stop the list of all.
    let kind =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, component.kind()), component.plural());
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    let mut keys = HashSet::new();
    let key = move |meta: &kube::core::ObjectMeta| Key {
        component,
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
    };
    watcher(api, watcher::Config::default())
        .modify(|object| object.metadata.managed_fields = None)
        .default_backoff()
        .filter_map(move |event| {
            let told = match event {
                Ok(Event::Init) => {
                    keys.clear();
                    None
                }
                Ok(Event::InitApply(object)) => {
                    keys.insert(key(&object.metadata));
                    Some(Told::Resource(Desired::read(component, object)))
                }
                Ok(Event::InitDone) => Some(Told::All(component, std::mem::take(&mut keys))),
                Ok(Event::Apply(object)) => Some(Told::Resource(Desired::read(component, object))),
                Ok(Event::Delete(object)) => Some(Told::Gone(key(&object.metadata))),
                Err(error) => {
                    tracing::warn!(%component, error = knative_operator_runtime::words(&error), "watch interrupted");
                    None
                }
            };
            std::future::ready(told)
        })
        .boxed()
}

/// The same pause each time: a ClusterProfile CRD that is installed later is noticed soon.
struct Every(Duration);

impl Iterator for Every {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.0)
    }
}

impl Backoff for Every {
    fn reset(&mut self) {}
}
