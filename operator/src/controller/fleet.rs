//! Starts an actor for each custom resource and tells it what changes; ends it when the resource is gone.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::{BoxStream, select_all};
use knative_operator_runtime::ready::Readiness;
use knative_operator_shared::api::{ClusterProfile, Component, Knative, KnativeEventing, KnativeServing};
use kube::core::DeserializeGuard;
use kube::runtime::watcher::{self, Event, watcher};
use kube::runtime::{WatchStreamExt, utils::Backoff};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;

use super::profiles::reference;
use super::siblings::Key;
use super::{Context, actor};
use crate::leader;

/// What the hub tells.
enum Told {
    /// A custom resource is as given.
    Resource(Arc<Knative>),
    /// A custom resource is gone.
    Gone(Key),
    /// These are all of a component.
    All(Component, HashSet<Key>),
    /// A custom resource can't be read, because.
    Unreadable(Component, String),
    /// Something about ClusterProfiles.
    Profile(Event<ClusterProfile>),
    /// ClusterProfiles can't be watched, because.
    ProfileTrouble(watcher::Error),
}

/// How long passes that are under way may take to come to their end when the operator stops.
const FINISH: Duration = Duration::from_secs(3);

/// The actor of one resource.
struct Handle {
    resource: watch::Sender<Option<Arc<Knative>>>,
    poke: Arc<Notify>,
    task: JoinHandle<()>,
}

/// Runs until a watch can't go on at all. `shards` tells which shards of the fleet are this replica's; the first one is `first`.
pub async fn run(cx: Arc<Context>, readiness: Readiness, first: u32, mut shards: mpsc::Receiver<leader::Told>) {
    let mut actors: HashMap<Key, Handle> = HashMap::new();
    let mut held = BTreeSet::from([first]);
    cx.metrics.leads(held.len());
    let mut told = hub(&cx.hub);
    let mut changed = std::pin::pin!(providers_changed(&cx));
    let mut listing: Vec<ClusterProfile> = Vec::new();
    let mut listed: HashSet<Component> = HashSet::new();
    loop {
        let told = tokio::select! {
            told = told.next() => match told { Some(told) => told, None => return },
            Some(change) = shards.recv() => {
                match change {
                    leader::Told::Gained(shard) => {
                        held.insert(shard);
                        let own = |r: &Arc<Knative>| leader::shard(r, cx.shards) == shard;
                        cx.siblings.all().into_iter().filter(own).for_each(|resource| start(&cx, &mut actors, resource));
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
            () = &mut changed => {
                changed.set(providers_changed(&cx));
                poke(&actors, referring(&actors, None).iter());
                continue;
            }
        };
        match told {
            Told::Resource(resource) => {
                cx.siblings.set(Arc::clone(&resource));
                if held.contains(&leader::shard(&resource, cx.shards)) {
                    poke(&actors, cx.siblings.rival_keys(&resource).iter());
                    start(&cx, &mut actors, resource);
                }
            }
            Told::Gone(key) => end(&cx, &mut actors, &key),
            Told::All(component, keys) => {
                let known = cx.siblings.all().into_iter().map(|r| Key::of(&r));
                let gone: Vec<Key> = known.filter(|k| k.component == component && !keys.contains(k)).collect();
                gone.iter().for_each(|key| end(&cx, &mut actors, key));
                listed.insert(component);
                if listed.len() == Component::ALL.len() {
                    readiness.set("custom resources", true);
                }
            }
            Told::Unreadable(component, why) => tracing::warn!(%component, why, "a custom resource can't be read and is left alone"),
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
                    other => cx.profiles.unreadable(knative_operator_runtime::chain(other)),
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

/// Tells the actor of `resource` that it is as given; starts one if there is none.
fn start(cx: &Arc<Context>, actors: &mut HashMap<Key, Handle>, resource: Arc<Knative>) {
    let key = Key::of(&resource);
    if let Some(handle) = actors.get(&key).filter(|handle| !handle.resource.is_closed()) {
        handle.resource.send_replace(Some(resource));
        return;
    }
    let (sender, receiver) = watch::channel(Some(resource));
    let poke = Arc::new(Notify::new());
    let task = tokio::spawn(actor::run(Arc::clone(cx), receiver, Arc::clone(&poke)));
    actors.insert(key, Handle { resource: sender, poke, task });
}

/// Ends the actors of `shard`: at once, or, if the operator stops, when their passes have come to an end.
async fn stop(cx: &Context, actors: &mut HashMap<Key, Handle>, shard: u32) {
    let own = |handle: &Handle| handle.resource.borrow().as_ref().is_none_or(|r| leader::shard(r, cx.shards) == shard);
    let ending: Vec<(Key, Handle)> = actors.extract_if(|_, handle| own(handle)).collect();
    let deadline = Instant::now() + if cx.stop.is_cancelled() { FINISH } else { Duration::ZERO };
    for (key, mut handle) in ending {
        if tokio::time::timeout_at(deadline.into(), &mut handle.task).await.is_err() {
            handle.task.abort();
            // Only when it has really ended may somebody else begin.
            let _ = handle.task.await;
        }
        let cluster = handle.resource.borrow().as_ref().and_then(|r| r.common().cluster_profile_ref.clone());
        cluster.iter().for_each(|cluster| cx.connections.forget(cluster));
        cx.metrics.forget(&key, true);
    }
}

fn end(cx: &Context, actors: &mut HashMap<Key, Handle>, key: &Key) {
    let Some(resource) = cx.siblings.remove(key) else { return };
    let last = !cx.siblings.on_same_cluster(&resource);
    cx.metrics.forget(key, last);
    if let Some(handle) = actors.remove(key) {
        poke(actors, cx.siblings.rival_keys(&resource).iter());
        let _ = handle.resource.send(None);
    }
    // Nobody needs the connection any more.
    if last && let Some(cluster) = &resource.common().cluster_profile_ref {
        cx.connections.forget(cluster);
    }
}

fn poke<'a>(actors: &HashMap<Key, Handle>, keys: impl Iterator<Item = &'a Key>) {
    keys.filter_map(|key| actors.get(key)).for_each(|handle| handle.poke.notify_one());
}

/// The keys of the resources that refer to `profile`, or to any.
fn referring(actors: &HashMap<Key, Handle>, profile: Option<&knative_operator_shared::api::ClusterProfileReference>) -> Vec<Key> {
    let refers = |handle: &Handle| {
        let resource = handle.resource.borrow();
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
    select_all([
        resources::<KnativeServing>(client, Component::Serving, Knative::Serving),
        resources::<KnativeEventing>(client, Component::Eventing, Knative::Eventing),
        profiles.boxed(),
    ])
    .boxed()
}

fn resources<K>(client: &Client, component: Component, wrap: fn(K) -> Knative) -> BoxStream<'static, Told>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
{
    // One resource that can't be read must not stop the list of all.
    let api: Api<DeserializeGuard<K>> = Api::all(client.clone());
    let mut keys = HashSet::new();
    let key = move |meta: &kube::core::ObjectMeta| Key {
        component,
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
    };
    watcher(api, watcher::Config::default())
        .modify(|guard| guard.meta_mut().managed_fields = None)
        .default_backoff()
        .filter_map(move |event| {
            let told = match event {
                Ok(Event::Init) => {
                    keys.clear();
                    None
                }
                Ok(Event::InitApply(guard)) => {
                    keys.insert(key(guard.meta()));
                    Some(read(component, guard, wrap))
                }
                Ok(Event::InitDone) => Some(Told::All(component, std::mem::take(&mut keys))),
                Ok(Event::Apply(guard)) => Some(read(component, guard, wrap)),
                Ok(Event::Delete(guard)) => Some(Told::Gone(key(guard.meta()))),
                Err(error) => {
                    tracing::warn!(%component, error = knative_operator_runtime::chain(&error), "watch interrupted");
                    None
                }
            };
            std::future::ready(told)
        })
        .boxed()
}

fn read<K>(component: Component, guard: DeserializeGuard<K>, wrap: fn(K) -> Knative) -> Told {
    match guard.0 {
        Ok(resource) => Told::Resource(Arc::new(wrap(resource))),
        Err(invalid) => {
            let name = format!("{}/{}", invalid.metadata.namespace.unwrap_or_default(), invalid.metadata.name.unwrap_or_default());
            Told::Unreadable(component, format!("{name}: {}", invalid.error))
        }
    }
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
