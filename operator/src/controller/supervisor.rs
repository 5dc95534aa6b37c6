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
use knative_operator_runtime::watch::is_kind_missing;
use knative_operator_shared::api::{ClusterProfile, ClusterProfileReference, Component};
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
    let (mut events, mut go_operator) = (watch_hub(&cx), cx.go_operator.changes());
    let mut providers = std::pin::pin!(providers_changed(&cx));
    let (mut supervisor, mut ended) = Supervisor::new(Arc::clone(&cx), readiness, first);
    loop {
        tokio::select! {
            event = events.next() => match event {
                Some(event) => supervisor.hub_changed(event),
                None => return,
            },
            Some(change) = shards.recv() => supervisor.shards_changed(change).await,
            Ok(()) = go_operator.changed() => supervisor.actors.trigger(supervisor.stored.keys()),
            Some(key) = ended.recv() => supervisor.actors.forget(&key),
            () = ended_early(&mut supervisor.fleets) => supervisor.fleets_panicked(),
            () = &mut providers => {
                providers.set(providers_changed(&cx));
                supervisor.trigger_referring(None);
            }
        }
    }
}

/// The actors of this replica, and what they depend on.
struct Supervisor {
    cx: Arc<Context>,
    readiness: Readiness,
    actors: Actors,
    /// Shards that this replica manages.
    own_shards: BTreeSet<u32>,
    /// The task of all fleets, while this replica has shard 0.
    fleets: Option<AbortOnDropHandle<()>>,
    /// All custom resources of the hub, also those of other shards.
    stored: HashMap<ResourceKey, Desired>,
    /// Components whose resources were listed completely.
    listed: HashSet<Component>,
    /// ClusterProfiles of a list that is not complete yet.
    listing: Vec<ClusterProfile>,
}

impl Supervisor {
    /// A supervisor with shard `first`, and the keys of actors that end.
    fn new(cx: Arc<Context>, readiness: Readiness, first: u32) -> (Self, mpsc::UnboundedReceiver<ResourceKey>) {
        let (actors, ended) = Actors::new(Arc::clone(&cx));
        let mut supervisor = Self {
            cx,
            readiness,
            actors,
            own_shards: BTreeSet::from([first]),
            fleets: None,
            stored: HashMap::new(),
            listed: HashSet::new(),
            listing: Vec::new(),
        };
        supervisor.cx.metrics.set_shards(supervisor.own_shards.len());
        supervisor.manage_fleets(Duration::ZERO);
        (supervisor, ended)
    }

    /// This replica has another shard, or has to release one.
    async fn shards_changed(&mut self, change: ShardEvent) {
        match change {
            ShardEvent::Acquired(shard) => {
                self.own_shards.insert(shard);
                for desired in self.stored.values().filter(|desired| leader::shard(desired, self.cx.shards) == shard) {
                    self.actors.start(desired.clone());
                }
            }
            ShardEvent::Release(shard, answer) => {
                self.own_shards.remove(&shard);
                if shard == 0
                    && let Some(fleets) = self.fleets.take()
                {
                    fleets.abort();
                    // Err means that it was aborted.
                    let _ = fleets.await;
                    self.cx.metrics.fleets.clear();
                    self.cx.diagnostics.keep_fleets(|_| false);
                }
                self.actors.stop(shard).await;
                let _ = answer.send(());
            }
        }
        self.cx.metrics.set_shards(self.own_shards.len());
        self.manage_fleets(Duration::ZERO);
    }

    /// Manages fleets while this replica has shard 0. Without a task that is running, one starts
    /// after `delay`.
    fn manage_fleets(&mut self, delay: Duration) {
        if !(self.cx.manages_fleets && self.own_shards.contains(&0)) {
            self.fleets = None;
        } else if self.fleets.is_none() {
            let cx = Arc::clone(&self.cx);
            let task = tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                fleets::run(cx).await;
            });
            self.fleets = Some(AbortOnDropHandle::new(task));
        }
    }

    /// The task of all fleets ended, which it does only if it panics.
    fn fleets_panicked(&mut self) {
        self.cx.metrics.fleet_panicked();
        tracing::error!("the task of all fleets panicked; restarting with empty state");
        self.fleets = None;
        self.manage_fleets(RESTART);
    }

    fn hub_changed(&mut self, event: HubEvent) {
        match event {
            HubEvent::Applied(desired) => self.resource_applied(desired),
            HubEvent::Deleted(key) => {
                self.stored.remove(&key);
                self.end(&key);
            }
            HubEvent::Listed(component, keys) => self.resources_listed(component, &keys),
            HubEvent::Profile(event) => self.profile_changed(event),
            HubEvent::ProfileWatchFailed(error) => self.profile_watch_failed(&error),
        }
    }

    /// A custom resource was created or changed.
    fn resource_applied(&mut self, desired: Desired) {
        let key = ResourceKey::of(&desired);
        let before = self.cx.registry.get(&key);
        self.stored.insert(key, desired.clone());
        // Without a known target, its competitors are unknown, too.
        if desired.unreadable.as_ref().is_none_or(|unreadable| unreadable.has_target) {
            self.cx.registry.set(Arc::clone(&desired.resource));
        } else {
            self.cx.registry.set_unreadable(Arc::clone(&desired.resource));
        }
        for one in before.iter().chain([&desired.resource]) {
            self.cx.hub_changes.record_resource(one);
        }
        if self.own_shards.contains(&leader::shard(&desired, self.cx.shards)) {
            self.actors.trigger(self.cx.registry.competitor_keys(&desired).iter());
            self.actors.start(desired);
        } else {
            // It was created again, for a cluster of another shard.
            self.actors.end(&ResourceKey::of(&desired));
        }
    }

    /// `keys` are all resources of `component`.
    fn resources_listed(&mut self, component: Component, keys: &HashSet<ResourceKey>) {
        let is_gone = |key: &ResourceKey| key.component == component && !keys.contains(key);
        let gone: Vec<_> = self.stored.extract_if(|key, _| is_gone(key)).map(|(key, _)| key).collect();
        for key in gone {
            self.end(&key);
        }
        self.listed.insert(component);
        if self.listed.len() == Component::ALL.len() {
            self.cx.registry.set_listed();
            self.readiness.set("custom resources", true);
        }
        // Last: all are listed when it is seen.
        self.cx.hub_changes.record_any();
    }

    /// The resource of `key` is gone.
    fn end(&mut self, key: &ResourceKey) {
        let cx = &self.cx;
        let resource = cx.registry.remove(key);
        match &resource {
            Some(resource) => cx.hub_changes.record_resource(resource),
            None => cx.hub_changes.record_any(),
        }
        let last = resource.as_ref().is_none_or(|resource| !cx.registry.has_resource_on_cluster_of(resource));
        cx.metrics.remove(key, last);
        if self.actors.end(key)
            && let Some(resource) = &resource
        {
            self.actors.trigger(cx.registry.competitor_keys(resource).iter());
        }
        // The connection is no longer needed.
        if last && let Some(cluster) = resource.as_ref().and_then(|r| r.common().cluster_profile_ref.as_ref()) {
            cx.connections.remove(cluster);
        }
    }

    fn profile_changed(&mut self, event: Event<ClusterProfile>) {
        match event {
            Event::Init => self.listing.clear(),
            Event::InitApply(profile) => self.listing.push(profile),
            Event::InitDone => {
                self.cx.profiles.reset(std::mem::take(&mut self.listing));
                self.cx.hub_changes.record_any();
                self.trigger_referring(None);
            }
            Event::Apply(profile) => {
                let (reference, profile) = (profile.reference(), Arc::new(profile));
                let before = self.cx.profiles.set(&profile);
                self.cx.hub_changes.record_profile(&reference, before.as_deref(), &profile);
                self.trigger_referring(Some(&reference));
            }
            Event::Delete(profile) => {
                let reference = profile.reference();
                self.cx.profiles.remove(&reference);
                self.cx.hub_changes.record_any();
                self.cx.connections.remove(&reference);
                self.trigger_referring(Some(&reference));
            }
        }
    }

    fn profile_watch_failed(&self, error: &watcher::Error) {
        if is_kind_missing(error) {
            self.cx.profiles.set_kind_missing();
        } else {
            self.cx.profiles.set_unreadable(knative_operator_runtime::error_text(error));
        }
        self.cx.hub_changes.record_any();
        self.trigger_referring(None);
    }

    /// Triggers the actors of resources that refer to `profile`, or to any one.
    fn trigger_referring(&self, profile: Option<&ClusterProfileReference>) {
        self.actors.trigger(self.actors.referring(profile).iter());
    }
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
