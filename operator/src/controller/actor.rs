//! The loop of one custom resource.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use knative_operator_shared::api::{Knative, KnativeStatus};
use knative_operator_shared::label::APP_NAME;
use tokio::sync::{Notify, watch};

use super::Context;
use super::desired::Desired;
use super::install::Planned;
use super::resolve::Cluster;
use crate::apply::inventory::Inventory;
use crate::apply::observer::Observer;
use crate::apply::throttle::Throttle;
use crate::object::version;

/// How soon a pass that failed is made again, first and at most.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// How long changes are gathered before a pass.
const GATHER: Duration = Duration::from_millis(20);

/// When the next pass is made if nothing happens before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Never: wait for something to happen.
    Idle,
    /// After this long.
    After(Duration),
    /// Soon, ever later: something failed.
    Retry,
    /// The resource is gone.
    Done,
}

/// What an actor remembers between passes. All of it can be had again from the clusters.
pub struct Memory {
    /// The watches on the cluster that it installs on.
    pub observer: Option<(u64, Observer)>,
    /// What is stored in the home: its uid and the inventory.
    pub home: Option<(String, Inventory)>,
    /// What is to be there, as it was rendered last.
    pub planned: Option<Planned>,
    /// What was repaired and refused lately.
    pub throttle: Throttle,
    /// Whether the cluster may be away.
    pub suspect: bool,
    /// Whether the status says that the connection is being rebuilt.
    pub rebuilding: bool,
    /// The status that was written last, and the resourceVersion that came of it.
    pub written: Option<(u64, KnativeStatus)>,
    /// When that was.
    pub told: Option<Instant>,
    /// The generation that was seen last, and when it was new.
    pub generation: Option<(i64, Instant)>,
    /// Since when the status is behind the spec.
    pub behind: Option<Instant>,
    /// When the status was last made to say that the Go operator runs.
    pub reminded: Option<Instant>,
    /// Whether it stays in the namespace of its spoke that the Go operator had chosen, once that was asked.
    pub stays: Option<bool>,
    /// What is still to be removed, once the resource is being deleted.
    pub removing: Option<Inventory>,
    /// Which plan was announced.
    pub announced: Option<String>,
    /// About which spec and version was warned.
    pub advised: Option<String>,
}

impl Memory {
    fn new() -> Self {
        Self {
            observer: None,
            home: None,
            planned: None,
            throttle: Throttle::default(),
            suspect: false,
            rebuilding: false,
            written: None,
            told: None,
            generation: None,
            behind: None,
            reminded: None,
            stays: None,
            removing: None,
            announced: None,
            advised: None,
        }
    }

    /// The watches on `cluster`, started anew if it is another one than before: then nothing else is remembered either.
    pub fn on(&mut self, cx: &Context, cluster: &Cluster, resource: &Knative) -> &mut Observer {
        if self.observer.as_ref().is_none_or(|(serial, _)| *serial != cluster.serial) {
            self.observer = None;
            self.home = None;
            self.planned = None;
        }
        let start = || {
            let selector = format!("{APP_NAME}={}", resource.component().canonical());
            (cluster.serial, Observer::new(cluster.client.clone(), &selector, cx.poll_interval))
        };
        &mut self.observer.get_or_insert_with(start).1
    }

    /// Notes when the spec of `resource` changed.
    pub fn observe(&mut self, resource: &Knative) {
        let generation = resource.meta().generation.unwrap_or_default();
        if self.generation.is_none_or(|(known, _)| known != generation) {
            self.generation = Some((generation, Instant::now()));
        }
    }

    /// The status as it is now: what was written last, until the watch tells something newer.
    pub fn status(&self, resource: &Knative) -> KnativeStatus {
        match &self.written {
            Some((written, status)) if *written > version(resource.meta()) => status.clone(),
            _ => resource.status().cloned().unwrap_or_default(),
        }
    }
}

/// Runs until the resource is gone. `desired` is the newest state of it; `poke` says that something else has changed.
pub async fn run(cx: Arc<Context>, mut desired: watch::Receiver<Option<Desired>>, poke: Arc<Notify>) {
    let mut memory = Memory::new();
    let mut failures: u32 = 0;
    loop {
        let Some(current) = desired.borrow_and_update().clone().filter(|_| !cx.stop.is_cancelled()) else { return };
        let started = Instant::now();
        // Boxed: between its passes an actor is to hold next to nothing.
        let pass = AssertUnwindSafe(Box::pin(super::pass::run(&cx, &current, &mut memory))).catch_unwind().await;
        let next = pass.unwrap_or_else(|_| {
            // What the pass was about to remember may be half done.
            memory = Memory::new();
            cx.metrics.panicked(current.component());
            tracing::error!(kind = %current.component(), namespace = current.namespace(), name = current.name(), "a pass panicked; it starts anew");
            Next::Retry
        });
        cx.metrics.passed(&current, started.elapsed(), next == Next::Retry);
        failures = if next == Next::Retry { failures + 1 } else { 0 };
        let pause = match next {
            Next::Done => return,
            Next::Idle => None,
            Next::After(pause) => Some(pause),
            Next::Retry => Some(backoff(failures)),
        };
        let pause = [pause, memory.throttle.due(Instant::now())].into_iter().flatten().min();
        let seen = memory.observer.as_ref().map(|(_, observer)| Arc::clone(&observer.seen));
        tokio::select! {
            changed = desired.changed() => if changed.is_err() { return },
            () = cx.stop.cancelled() => return,
            () = poke.notified() => {}
            () = async { match seen { Some(seen) => seen.changed().await, None => std::future::pending().await } } => {}
            () = async { match pause { Some(pause) => tokio::time::sleep(pause.max(GATHER)).await, None => std::future::pending().await } } => {}
        }
        tokio::time::sleep(GATHER).await;
    }
}

/// Doubling, with up to a quarter of jitter so that spokes that fail together are not tried together.
fn backoff(failures: u32) -> Duration {
    let pause = (RETRY.0 * 2u32.saturating_pow(failures.saturating_sub(1).min(8))).min(RETRY.1);
    let noise = std::collections::hash_map::RandomState::new();
    let noise = std::hash::BuildHasher::hash_one(&noise, failures) % 256;
    pause + pause / 1024 * u32::try_from(noise).unwrap_or_default()
}
