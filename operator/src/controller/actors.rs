//! The actors of a replica: at most one for each name at each moment, and each for one uid. An
//! actor that has to end may be in the middle of a reconcile; the next one for its name waits.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use knative_operator_shared::api::ClusterProfileReference;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::actor;
use super::context::Context;
use super::desired::Desired;
use crate::leader;
use knative_operator_objects::ResourceKey;

/// Time for reconciles to finish when the operator stops, of all shards together.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// The actors of a replica.
pub struct Actors {
    cx: Arc<Context>,
    running: HashMap<ResourceKey, ActorHandle>,
    /// Actors that end after their reconcile.
    ending: HashMap<ResourceKey, Vec<Ending>>,
    ended: mpsc::UnboundedSender<ResourceKey>,
    /// When the actors of this replica have to end, once the operator stops.
    deadline: Option<Instant>,
}

/// The actor of one resource.
struct ActorHandle {
    desired: watch::Sender<Option<Desired>>,
    trigger: Arc<Notify>,
    ending: Ending,
}

/// The task of an actor.
struct Ending {
    task: JoinHandle<()>,
    /// Canceled when the task has ended, also by a panic.
    has_ended: CancellationToken,
}

impl Ending {
    /// Waits until the task has ended; aborts it at `deadline`.
    async fn end_by(mut self, deadline: Instant) {
        if tokio::time::timeout_at(deadline.into(), &mut self.task).await.is_err() {
            self.task.abort();
            // Another replica may start only after the actor has ended.
            let _ = self.task.await;
        }
    }
}

/// When the actors of a shard have to end: immediately, or when the operator stops, at the same
/// time as those of all other shards, which is kept in `stopping`.
fn deadline(stopping: &mut Option<Instant>, stops: bool, now: Instant) -> Instant {
    if stops { *stopping.get_or_insert(now + SHUTDOWN_TIMEOUT) } else { now }
}

impl Actors {
    /// No actors yet, and the keys of those that have ended.
    pub fn new(cx: Arc<Context>) -> (Self, mpsc::UnboundedReceiver<ResourceKey>) {
        let (ended, keys) = mpsc::unbounded_channel();
        (Self { cx, running: HashMap::new(), ending: HashMap::new(), ended, deadline: None }, keys)
    }

    /// Notifies the actor of `desired`, or starts it. A resource that was created again gets a new
    /// actor.
    pub fn start(&mut self, desired: Desired) {
        let key = ResourceKey::of(&desired);
        if let Some(handle) = self.running.get(&key).filter(|handle| !handle.desired.is_closed()) {
            let is_same = |known: &Desired| known.meta().uid == desired.meta().uid;
            if handle.desired.borrow().as_ref().is_some_and(is_same) {
                handle.desired.send_replace(Some(desired));
                return;
            }
        }
        self.end(&key);
        let previous: Vec<_> = self.ending.get(&key).into_iter().flatten().map(|one| one.has_ended.clone()).collect();
        let (sender, receiver) = watch::channel(Some(desired));
        let (trigger, has_ended) = (Arc::new(Notify::new()), CancellationToken::new());
        let (cx, notify, guard) = (Arc::clone(&self.cx), Arc::clone(&trigger), has_ended.clone().drop_guard());
        let (ended, own_key) = (self.ended.clone(), key.clone());
        let task = tokio::spawn(async move {
            for previous in previous {
                previous.cancelled().await;
            }
            actor::run(cx, receiver, notify).await;
            drop(guard);
            // Err means that the supervisor has ended.
            let _ = ended.send(own_key);
        });
        self.running.insert(key, ActorHandle { desired: sender, trigger, ending: Ending { task, has_ended } });
    }

    /// Ends the actor of `key` after its reconcile; whether there was one.
    pub fn end(&mut self, key: &ResourceKey) -> bool {
        let Some(handle) = self.running.remove(key) else { return false };
        // Err means that it has ended.
        let _ = handle.desired.send(None);
        if !handle.ending.has_ended.is_cancelled() {
            self.ending.entry(key.clone()).or_default().push(handle.ending);
        }
        true
    }

    /// An actor of `key` has ended: its last reconcile may have set metrics of a resource that is
    /// gone.
    pub fn forget(&mut self, key: &ResourceKey) {
        self.ending.retain(|_, all| {
            all.retain(|ending| !ending.has_ended.is_cancelled());
            !all.is_empty()
        });
        if !self.running.contains_key(key) && !self.ending.contains_key(key) {
            self.cx.metrics.remove(key, false);
        }
    }

    /// Stops the actors of `shard`, and those that are ending: immediately, or after their
    /// reconciles when the operator stops.
    pub async fn stop(&mut self, shard: u32) {
        let shards = self.cx.shards;
        let own = |handle: &ActorHandle| {
            handle.desired.borrow().as_ref().is_none_or(|resource| leader::shard(resource, shards) == shard)
        };
        let stopped: Vec<(ResourceKey, ActorHandle)> = self.running.extract_if(|_, handle| own(handle)).collect();
        let deadline = deadline(&mut self.deadline, self.cx.stop.is_cancelled(), Instant::now());
        for ending in self.ending.drain().flat_map(|(_, all)| all) {
            ending.end_by(deadline).await;
        }
        for (key, handle) in stopped {
            let cluster = handle.desired.borrow().as_ref().and_then(|r| r.common().cluster_profile_ref.clone());
            handle.ending.end_by(deadline).await;
            cluster.iter().for_each(|cluster| self.cx.connections.remove(cluster));
            self.cx.metrics.remove(&key, true);
        }
    }

    /// Triggers a reconcile of the resources with `keys`.
    pub fn trigger<'a>(&self, keys: impl Iterator<Item = &'a ResourceKey>) {
        keys.filter_map(|key| self.running.get(key)).for_each(|handle| handle.trigger.notify_one());
    }

    /// Keys of the resources that refer to `profile`, or to any profile.
    pub fn referring(&self, profile: Option<&ClusterProfileReference>) -> Vec<ResourceKey> {
        let refers = |handle: &ActorHandle| {
            let resource = handle.desired.borrow();
            let own = resource.as_ref().and_then(|r| r.common().cluster_profile_ref.as_ref());
            own.is_some_and(|own| profile.is_none_or(|p| p == own))
        };
        self.running.iter().filter(|(_, handle)| refers(handle)).map(|(key, _)| key.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_shards_stop_at_the_same_time() {
        let (mut stopping, start) = (None, Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(deadline(&mut stopping, false, after(1)), after(1));
        let first = deadline(&mut stopping, true, after(2));
        assert_eq!((first, deadline(&mut stopping, true, after(4))), (after(2) + SHUTDOWN_TIMEOUT, first));
    }
}
