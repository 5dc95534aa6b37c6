//! Starts an actor for each custom resource, notifies it of changes, and stops it when the resource
//! is gone.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{BoxStream, select_all};
use knative_operator_runtime::backoff::Backoff;
use knative_operator_runtime::inventory::InventoryKind;
use knative_operator_runtime::ready::Readiness;
use knative_operator_runtime::untyped::api_resource;
use knative_operator_shared::api::{ClusterProfile, Component};
use kube::Api;
use kube::core::DynamicObject;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::actors::Actors;
use super::context::{Context, PROFILES};
use super::desired::Desired;
use super::fleets;
use crate::leader::{self, ShardEvent};
use knative_operator_objects::ResourceKey;

/// Delay before the task of all fleets is started again.
const RESTART: Duration = Duration::from_secs(5);
/// Delay before a failed watch of ClusterProfiles is retried, so that a CRD that is installed later
/// is noticed.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(1));

/// An event from the watches on the hub.
enum HubEvent {
    /// A custom resource was created or changed.
    Applied(Desired),
    /// A custom resource was deleted.
    Deleted(ResourceKey),
    /// The complete list of resources of a component.
    Listed(Component, HashSet<ResourceKey>),
    /// An event about ClusterProfiles.
    Profile(Event<ClusterProfile>),
    /// The watch on ClusterProfiles failed.
    ProfileWatchFailed(watcher::Error),
}

/// Runs until a watch ends for good. `shards` reports the shards of this replica, starting with
/// `first`.
pub async fn run(cx: Arc<Context>, readiness: Readiness, first: u32, mut shards: mpsc::Receiver<ShardEvent>) {
    let (mut actors, mut ended) = Actors::new(Arc::clone(&cx));
    let mut own_shards = BTreeSet::from([first]);
    cx.metrics.set_shards(own_shards.len());
    let mut fleets = manage_fleets(&cx, &own_shards, None, Duration::ZERO);
    let (mut events, mut go_operator) = (watch_hub(&cx), cx.go_operator.changes());
    let mut changed = std::pin::pin!(providers_changed(&cx));
    let mut listing: Vec<ClusterProfile> = Vec::new();
    let mut listed: HashSet<Component> = HashSet::new();
    let mut stored: HashMap<ResourceKey, Desired> = HashMap::new();
    loop {
        let event = tokio::select! {
            event = events.next() => match event { Some(event) => event, None => return },
            Some(change) = shards.recv() => {
                match change {
                    ShardEvent::Acquired(shard) => {
                        own_shards.insert(shard);
                        let own = stored.values().filter(|d| leader::shard(d, cx.shards) == shard);
                        own.cloned().for_each(|desired| actors.start(desired));
                    }
                    ShardEvent::Release(shard, answer) => {
                        own_shards.remove(&shard);
                        if shard == 0
                            && let Some(fleets) = fleets.take()
                        {
                            fleets.abort();
                            // Err means that it was aborted.
                            let _ = fleets.await;
                            cx.metrics.fleets.clear();
                        }
                        actors.stop(shard).await;
                        let _ = answer.send(());
                    }
                }
                cx.metrics.set_shards(own_shards.len());
                fleets = manage_fleets(&cx, &own_shards, fleets, Duration::ZERO);
                continue;
            }
            Ok(()) = go_operator.changed() => {
                actors.trigger(stored.keys());
                continue;
            }
            Some(key) = ended.recv() => {
                actors.forget(&key);
                continue;
            }
            () = ended_early(&mut fleets) => {
                cx.metrics.fleet_panicked();
                tracing::error!("the task of all fleets panicked; restarting with empty state");
                fleets = manage_fleets(&cx, &own_shards, None, RESTART);
                continue;
            }
            () = &mut changed => {
                changed.set(providers_changed(&cx));
                actors.trigger(actors.referring(None).iter());
                continue;
            }
        };
        match event {
            HubEvent::Applied(desired) => {
                let key = ResourceKey::of(&desired);
                let before = cx.registry.get(&key);
                stored.insert(key, desired.clone());
                // Without a known target, its competitors are unknown, too.
                if desired.unreadable.as_ref().is_none_or(|set_unreadable| set_unreadable.has_target) {
                    cx.registry.set(Arc::clone(&desired.resource));
                } else {
                    cx.registry.set_unreadable(Arc::clone(&desired.resource));
                }
                before.iter().chain([&desired.resource]).for_each(|one| cx.hub_changes.record_resource(one));
                if own_shards.contains(&leader::shard(&desired, cx.shards)) {
                    actors.trigger(cx.registry.competitor_keys(&desired).iter());
                    actors.start(desired);
                } else {
                    // It was created again, for a cluster of another shard.
                    actors.end(&ResourceKey::of(&desired));
                }
            }
            HubEvent::Deleted(key) => {
                stored.remove(&key);
                end(&cx, &mut actors, &key);
            }
            HubEvent::Listed(component, keys) => {
                let gone = stored.extract_if(|key, _| key.component == component && !keys.contains(key));
                gone.for_each(|(key, _)| end(&cx, &mut actors, &key));
                listed.insert(component);
                if listed.len() == Component::ALL.len() {
                    cx.registry.set_listed();
                    readiness.set("custom resources", true);
                }
                // Last: all are listed when it is seen.
                cx.hub_changes.record_any();
            }
            HubEvent::Profile(event) => match event {
                Event::Init => listing.clear(),
                Event::InitApply(profile) => listing.push(profile),
                Event::InitDone => {
                    cx.profiles.reset(std::mem::take(&mut listing));
                    cx.hub_changes.record_any();
                    actors.trigger(actors.referring(None).iter());
                }
                Event::Apply(profile) => {
                    let (reference, profile) = (profile.reference(), Arc::new(profile));
                    let before = cx.profiles.set(&profile);
                    cx.hub_changes.record_profile(&reference, before.as_deref(), &profile);
                    actors.trigger(actors.referring(Some(&reference)).iter());
                }
                Event::Delete(profile) => {
                    let reference = profile.reference();
                    cx.profiles.remove(&reference);
                    cx.hub_changes.record_any();
                    cx.connections.remove(&reference);
                    actors.trigger(actors.referring(Some(&reference)).iter());
                }
            },
            HubEvent::ProfileWatchFailed(error) => {
                match &error {
                    watcher::Error::InitialListFailed(kube::Error::Api(status))
                    | watcher::Error::WatchStartFailed(kube::Error::Api(status))
                        if status.code == 404 =>
                    {
                        cx.profiles.set_kind_missing();
                    }
                    other => cx.profiles.set_unreadable(knative_operator_runtime::error_text(other)),
                }
                cx.hub_changes.record_any();
                actors.trigger(actors.referring(None).iter());
            }
        }
    }
}

/// Manages fleets while this replica has shard 0. Without a task that is `running`, one starts
/// after `delay`.
fn manage_fleets(
    cx: &Arc<Context>,
    own_shards: &BTreeSet<u32>,
    running: Option<AbortOnDropHandle<()>>,
    delay: Duration,
) -> Option<AbortOnDropHandle<()>> {
    let is_responsible = cx.manages_fleets && own_shards.contains(&0);
    let start = || {
        let cx = Arc::clone(cx);
        AbortOnDropHandle::new(tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            fleets::run(cx).await;
        }))
    };
    is_responsible.then(|| running.unwrap_or_else(start))
}

/// Waits until `task` has ended, which it does only if it panics.
async fn ended_early(task: &mut Option<AbortOnDropHandle<()>>) {
    match task {
        // Err means that it panicked.
        Some(task) => drop(task.await),
        None => std::future::pending().await,
    }
}

/// Waits until the provider file changes.
async fn providers_changed(cx: &Context) {
    match &cx.providers {
        Some(file) => file.changed(|valid| cx.metrics.provider_file(valid)).await,
        None => std::future::pending().await,
    }
}

/// The resource of `key` is gone.
fn end(cx: &Context, actors: &mut Actors, key: &ResourceKey) {
    let resource = cx.registry.remove(key);
    match &resource {
        Some(resource) => cx.hub_changes.record_resource(resource),
        None => cx.hub_changes.record_any(),
    }
    let last = resource.as_ref().is_none_or(|resource| !cx.registry.has_resource_on_cluster_of(resource));
    cx.metrics.remove(key, last);
    if actors.end(key)
        && let Some(resource) = &resource
    {
        actors.trigger(cx.registry.competitor_keys(resource).iter());
    }
    // The connection is no longer needed.
    if last && let Some(cluster) = resource.as_ref().and_then(|r| r.common().cluster_profile_ref.as_ref()) {
        cx.connections.remove(cluster);
    }
}

/// Watches the hub. Each watch backs off by itself.
fn watch_hub(cx: &Context) -> BoxStream<'static, HubEvent> {
    let activity = cx.diagnostics.hub_watch(PROFILES);
    // Untyped: one that can't be read must not fail the whole list.
    let profiles = InventoryKind::ClusterProfile
        .watch(&cx.hub, watcher::Config::default(), RETRY)
        .inspect(move |event| activity.record(event))
        .modify(|profile| profile.metadata.managed_fields = None)
        .map(|event| event.map_or_else(HubEvent::ProfileWatchFailed, |event| HubEvent::Profile(parsed(event))));
    select_all([resources(cx, Component::Serving), resources(cx, Component::Eventing), profiles.boxed()]).boxed()
}

fn parsed(event: Event<DynamicObject>) -> Event<ClusterProfile> {
    match event {
        Event::Init => Event::Init,
        Event::InitApply(profile) => Event::InitApply(ClusterProfile::read(&profile)),
        Event::InitDone => Event::InitDone,
        Event::Apply(profile) => Event::Apply(ClusterProfile::read(&profile)),
        Event::Delete(profile) => Event::Delete(ClusterProfile::read(&profile)),
    }
}

fn resources(cx: &Context, component: Component) -> BoxStream<'static, HubEvent> {
    // Untyped: an invalid resource must not fail the whole list.
    let api: Api<DynamicObject> = Api::all_with(cx.hub.clone(), &api_resource(component));
    let activity = cx.diagnostics.hub_watch(component.kind());
    let mut keys = HashSet::new();
    let key = move |meta: &kube::core::ObjectMeta| ResourceKey {
        component,
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
    };
    watcher(api, watcher::Config::default())
        .modify(|object| object.metadata.managed_fields = None)
        .default_backoff()
        .filter_map(move |event| {
            activity.record(&event);
            let event = match event {
                Ok(Event::Init) => {
                    keys.clear();
                    None
                }
                Ok(Event::InitApply(object)) => {
                    keys.insert(key(&object.metadata));
                    Some(HubEvent::Applied(Desired::parse(component, object)))
                }
                Ok(Event::InitDone) => Some(HubEvent::Listed(component, std::mem::take(&mut keys))),
                Ok(Event::Apply(object)) => Some(HubEvent::Applied(Desired::parse(component, object))),
                Ok(Event::Delete(object)) => Some(HubEvent::Deleted(key(&object.metadata))),
                Err(error) => {
                    tracing::warn!(%component, error = knative_operator_runtime::error_text(&error), "watch interrupted");
                    None
                }
            };
            std::future::ready(event)
        })
        .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn end_of_a_task_is_noticed() {
        let handle = |is_ending: bool| {
            let task = async move {
                assert!(!is_ending, "a fault");
                std::future::pending::<()>().await;
            };
            Some(AbortOnDropHandle::new(tokio::spawn(task)))
        };
        for (mut task, expected) in [(handle(true), true), (handle(false), false), (None, false)] {
            let has_ended = tokio::time::timeout(Duration::from_millis(200), ended_early(&mut task)).await.is_ok();
            assert_eq!(has_ended, expected);
        }
    }
}
