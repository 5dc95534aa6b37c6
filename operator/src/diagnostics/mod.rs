//! What the process does, for people who look for a fault: `/debug` on the port for metrics shows
//! it, if that is enabled. Otherwise, nothing is recorded. [`report`] is its form, [`leases`] are
//! the Leases.

pub mod leases;
pub mod report;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use jiff::Timestamp;
use knative_operator_apply::activity::WatchState;
use knative_operator_apply::observed::ObservedState;
use knative_operator_apply::throttle::Waiting;
use knative_operator_cluster_access::connection_report::ConnectionReport;
use knative_operator_objects::ResourceKey;
use knative_operator_runtime::fence::Fence;
use knative_operator_runtime::watch_activity::WatchActivity;
use knative_operator_shared::api::Knative;
use serde_json::Value;

use leases::Leases;
use report::{Actor, ActorState, Fleet, Listed, MAX_ENTRIES, Reconciles, Report, Watch};

/// What is recorded, if that is enabled. Clones share it.
#[derive(Clone, Default)]
pub struct Diagnostics(Option<Arc<Recorded>>);

/// What is recorded.
struct Recorded {
    replica: String,
    started: Timestamp,
    fence: Fence,
    leases: Leases,
    /// By number, since two actors may have the same resource: one of them is ending.
    actors: Mutex<BTreeMap<u64, Recording>>,
    last: AtomicU64,
    /// The watches of the hub, by kind.
    hub: Mutex<BTreeMap<&'static str, Arc<WatchActivity>>>,
    fleets: Mutex<BTreeMap<(String, String), Fleet>>,
    live: OnceLock<Box<dyn Fn() -> Option<Live> + Send + Sync>>,
}

/// What is asked for when a report is made.
pub struct Live {
    /// Reconciles.
    pub reconciles: Reconciles,
    /// Connections to spokes.
    pub connections: Vec<ConnectionReport>,
    /// Numbers of objects of the hub, by kind.
    pub objects: HashMap<&'static str, usize>,
}

/// The last record of an actor.
#[derive(Clone)]
struct Recording {
    key: ResourceKey,
    cluster: Option<String>,
    is_terminating: bool,
    state: ActorState,
    since: Timestamp,
    rest: Rest,
}

/// What an actor waits for after a reconcile.
#[derive(Clone, Default)]
pub struct Rest {
    /// Time until the next reconcile without a change.
    pub requeue: Option<Duration>,
    /// How often it failed in a row.
    pub failures: u32,
    /// Writes that wait.
    pub waiting: Waiting,
    /// Number of objects left to delete, during a deletion.
    pub to_delete: Option<usize>,
    /// The watches on its cluster.
    pub observed: Option<Weak<ObservedState>>,
}

/// The records of one actor, which end with it.
pub struct ActorRecords(Option<(Arc<Recorded>, u64)>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn called(key: &ResourceKey) -> String {
    format!("{} {}/{}", key.component.kind(), key.namespace, key.name)
}

impl Diagnostics {
    /// Records what the replica called `replica` does, if that is enabled; `fence` stops its
    /// writes.
    pub fn new(is_enabled: bool, replica: &str, fence: &Fence) -> Self {
        let recorded = || Recorded {
            replica: replica.to_owned(),
            started: Timestamp::now(),
            fence: fence.clone(),
            leases: Leases::enabled(),
            actors: Mutex::default(),
            last: AtomicU64::default(),
            hub: Mutex::default(),
            fleets: Mutex::default(),
            live: OnceLock::new(),
        };
        Self(is_enabled.then(|| Arc::new(recorded())))
    }

    /// Whether anything is recorded.
    pub fn is_enabled(&self) -> bool {
        self.0.is_some()
    }

    /// Records Leases in the result.
    pub fn leases(&self) -> Leases {
        self.0.as_ref().map(|recorded| recorded.leases.clone()).unwrap_or_default()
    }

    /// `live` is asked whenever a report is made; only the first call has an effect.
    pub fn ask(&self, live: impl Fn() -> Option<Live> + Send + Sync + 'static) {
        if let Some(recorded) = &self.0 {
            // Err means that somebody is asked already.
            let _ = recorded.live.set(Box::new(live));
        }
    }

    /// Records the watch of `kind` on the hub in the result.
    pub fn hub_watch(&self, kind: &'static str) -> Arc<WatchActivity> {
        match &self.0 {
            Some(recorded) => Arc::clone(lock(&recorded.hub).entry(kind).or_default()),
            None => Arc::default(),
        }
    }

    /// Records an actor in the result, from its first reconcile to its end.
    pub fn actor(&self) -> ActorRecords {
        let number = |recorded: &Arc<Recorded>| recorded.last.fetch_add(1, Ordering::Relaxed);
        ActorRecords(self.0.as_ref().map(|recorded| (Arc::clone(recorded), number(recorded))))
    }

    /// Records a pass over the fleet `key`, which took the processor time `spent`; without a
    /// change, the next one is due after `next`.
    pub fn passed(&self, key: &(String, String), spent: Duration, next: Option<Duration>) {
        let Some(recorded) = &self.0 else { return };
        let mut fleets = lock(&recorded.fleets);
        let before = fleets.get(key);
        let spent = milliseconds(spent);
        let fleet = Fleet {
            fleet: format!("{}/{}", key.0, key.1),
            passes: before.map_or(0, |before| before.passes) + 1,
            last_pass_at: Timestamp::now().to_string(),
            last_pass_milliseconds: spent,
            all_passes_milliseconds: before.map_or(0, |before| before.all_passes_milliseconds) + spent,
            next_pass_in_milliseconds: next.map(milliseconds),
        };
        fleets.insert(key.clone(), fleet);
    }

    /// The fleets are those that `exists` is true for.
    pub fn keep_fleets(&self, exists: impl Fn(&(String, String)) -> bool) {
        if let Some(recorded) = &self.0 {
            lock(&recorded.fleets).retain(|key, _| exists(key));
        }
    }

    /// What the process does now; null if nothing is recorded.
    pub fn report(&self) -> Value {
        // Plain data with string keys always serializes.
        self.0.as_ref().map(|recorded| serde_json::to_value(recorded.report()).unwrap_or_default()).unwrap_or_default()
    }
}

impl ActorRecords {
    /// The actor reconciles `resource`.
    pub fn reconciling(&self, resource: &Knative) {
        let Some((recorded, number)) = &self.0 else { return };
        let mut actors = lock(&recorded.actors);
        let recording = Recording {
            key: ResourceKey::of(resource),
            cluster: resource.common().cluster_profile_ref.as_ref().map(ToString::to_string),
            is_terminating: resource.is_terminating(),
            state: ActorState::Reconciling,
            since: Timestamp::now(),
            rest: Rest { requeue: None, ..actors.remove(number).map(|before| before.rest).unwrap_or_default() },
        };
        actors.insert(*number, recording);
    }

    /// The actor waits: `rest` is for what.
    pub fn waiting(&self, rest: impl FnOnce() -> Rest) {
        let Some((recorded, number)) = &self.0 else { return };
        let rest = rest();
        if let Some(recording) = lock(&recorded.actors).get_mut(number) {
            (recording.state, recording.since, recording.rest) = (ActorState::Waiting, Timestamp::now(), rest);
        }
    }
}

impl Drop for ActorRecords {
    fn drop(&mut self) {
        if let Some((recorded, number)) = &self.0 {
            lock(&recorded.actors).remove(number);
        }
    }
}

impl Recording {
    fn actor(&self) -> Actor {
        let Rest { requeue, failures, waiting, to_delete, observed: _ } = &self.rest;
        Actor {
            resource: called(&self.key),
            cluster: self.cluster.clone(),
            state: self.state,
            since: self.since.to_string(),
            requeue_at: requeue.and_then(|delay| self.since.checked_add(delay).ok()).map(|time| time.to_string()),
            failures: *failures,
            is_terminating: self.is_terminating,
            objects_to_delete: *to_delete,
            refused_objects: waiting.refused,
            contended_objects: waiting.contended,
        }
    }

    /// The watches on its cluster.
    fn watches(&self) -> Vec<Watch> {
        let observed = self.rest.observed.as_ref().and_then(Weak::upgrade);
        let states = observed.map(|observed| observed.watch_states()).unwrap_or_default();
        let watch = |state: WatchState| Watch {
            resource: Some(called(&self.key)),
            kind: state.target.kind.resource.kind.clone(),
            namespace: state.target.namespace.clone(),
            name: state.target.name.clone(),
            objects: Some(state.objects),
            activity: state.report,
        };
        states.into_iter().map(watch).collect()
    }
}

impl Recorded {
    fn report(&self) -> Report {
        let live = self.live.get().and_then(|live| live());
        let mut recordings: Vec<Recording> = lock(&self.actors).values().cloned().collect();
        // Those that fail and those that take long first: they may be more than are shown.
        recordings.sort_by(|one, other| {
            let rank = |of: &Recording| (Reverse(of.rest.failures), of.state, of.since);
            rank(one).cmp(&rank(other)).then_with(|| one.key.cmp(&other.key))
        });
        let objects = live.as_ref().map(|live| &live.objects);
        let of_hub = |(kind, activity): (&&'static str, &Arc<WatchActivity>)| Watch {
            resource: None,
            kind: (*kind).to_owned(),
            namespace: String::new(),
            name: String::new(),
            objects: objects.and_then(|objects| objects.get(kind).copied()),
            activity: activity.report(),
        };
        let mut watches: Vec<Watch> = lock(&self.hub).iter().map(of_hub).collect();
        // Of the actors that are shown, and each has a limited number.
        watches.extend(recordings.iter().take(MAX_ENTRIES).flat_map(Recording::watches));
        Report {
            version: env!("CARGO_PKG_VERSION"),
            replica: self.replica.clone(),
            started_at: self.started.to_string(),
            now: Timestamp::now().to_string(),
            leases: self.leases.states(),
            writes_pass: self.fence.is_open(),
            reconciles: live.as_ref().map(|live| live.reconciles),
            actors: Listed {
                total: recordings.len(),
                items: recordings.iter().take(MAX_ENTRIES).map(Recording::actor).collect(),
            },
            watches: Listed::first(watches),
            connections: Listed::first(live.map(|live| live.connections).unwrap_or_default()),
            fleets: Listed::first(lock(&self.fleets).values().cloned().collect()),
        }
    }
}

#[cfg(test)]
mod tests;
