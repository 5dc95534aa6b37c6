//! What is kept between passes over a fleet. Nothing of it is needed after a restart.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use jiff::SignedDuration;
use knative_operator_shared::api::{ClusterProfileReference, Knative, KnativeFleet, KnativeFleetStatus};

use super::contents;
use super::observe::{self, ChildKey, Children};
use super::permitted::Answers;
use crate::fleet::member::Refused;
use crate::fleet::progress::Progress;
use crate::fleet::timer::Timers;

/// Time between a change and a pass, in which further changes are collected.
pub const DEBOUNCE: Duration = Duration::from_millis(100);
/// The same, in durations of a pass: passes over a large fleet take at most 5 % of a core.
const DEBOUNCE_PASSES: u32 = 20;
/// Maximum time until the watch reports a write.
const WATCH_LAG: Duration = Duration::from_secs(10);
/// Time after which a refused write is tried again.
pub const REFUSED_RETRY: Duration = Duration::from_secs(30);
/// About the start of the process. Nothing sets this clock.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Time since the start of the process.
pub fn uptime() -> SignedDuration {
    SignedDuration::try_from(START.elapsed()).unwrap_or(SignedDuration::MAX)
}

/// When a fleet is reconciled next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// When something changes.
    AwaitChange,
    /// After this time at the latest.
    After(Duration),
    /// After an error.
    Retry,
}

/// What is kept between passes. Nothing of it is needed after a restart.
#[derive(Default)]
pub struct FleetState {
    pub contents: Mutex<contents::Cache>,
    pub observed: observe::Cache,
    /// Resources that were written, until the watch reports them.
    pub written: HashMap<ChildKey, (Arc<Knative>, Instant)>,
    /// Writes that the API server refused: revision and message, and when.
    pub refused: HashMap<ChildKey, ((String, String), Instant)>,
    /// Uid of the fleet: one that was created again has nothing of the former.
    uid: Option<String>,
    pub status: Option<KnativeFleetStatus>,
    pub status_at: Option<Instant>,
    /// Revisions about which an event was published, because they are not of the fleet.
    pub ignored: HashSet<String>,
    /// Why the last pass failed.
    pub error: Option<String>,
    /// Duration of the last pass, without its writes.
    pub duration: Duration,
    /// What the API server answered about the author.
    pub answers: Answers,
    /// Clusters that the fleet selects, and may not have.
    pub unpermitted: BTreeSet<ClusterProfileReference>,
    /// How long clusters have been in their state.
    pub timers: Timers,
    /// Clusters that leave the fleet, and since when this process observes it.
    leaving: HashMap<ClusterProfileReference, Instant>,
}

impl FleetState {
    /// Forgets everything about another fleet of the same name.
    pub fn keep_only(&mut self, fleet: &KnativeFleet) {
        if self.uid != fleet.metadata.uid {
            *self = Self { uid: fleet.metadata.uid.clone(), ..Self::default() };
        }
    }

    /// The refused writes of revision `update`, by cluster.
    pub fn refused(&self, update: &str) -> HashMap<ClusterProfileReference, Refused> {
        let mut all: HashMap<ClusterProfileReference, Refused> = HashMap::new();
        for ((cluster, _), ((revision, message), at)) in self.refused.iter().filter(|(_, ((of, _), _))| of == update) {
            let is_due = at.elapsed() >= REFUSED_RETRY;
            let new = || Refused { revision: revision.clone(), message: message.clone(), is_due };
            all.entry(cluster.clone()).and_modify(|other| other.is_due &= is_due).or_insert_with(new);
        }
        all
    }

    /// Forgets the refused writes of clusters that are not in `progress`, or don't wait for them.
    pub fn keep_refused<'c>(&mut self, progress: impl Iterator<Item = (&'c ClusterProfileReference, &'c Progress)>) {
        let is_waiting = |progress: &Progress| progress.is_refused() || matches!(progress, Progress::Updating(_));
        let waiting: HashSet<&ClusterProfileReference> =
            progress.filter(|(_, progress)| is_waiting(progress)).map(|(cluster, _)| cluster).collect();
        self.refused.retain(|(cluster, _), _| waiting.contains(cluster));
    }

    /// Time between a change and the next pass.
    pub fn debounce(&self) -> Duration {
        DEBOUNCE.max(self.duration * DEBOUNCE_PASSES)
    }

    /// The status that was written last, or the stored one.
    pub fn stored_status(&self, fleet: &KnativeFleet) -> KnativeFleetStatus {
        self.status.clone().or_else(|| fleet.status.clone()).unwrap_or_default()
    }

    /// Keeps `resource` of `key`, which was written, until the watch reports it.
    pub fn keep_written(&mut self, key: &ChildKey, resource: Option<Knative>) {
        self.written.extend(resource.map(|resource| (key.clone(), (Arc::new(resource), Instant::now()))));
    }

    /// Replaces resources with newer ones that were written.
    pub fn merge_written(&mut self, children: &mut Children) {
        let version =
            |resource: &Knative| resource.meta().resource_version.as_deref().and_then(|v| v.parse::<u64>().ok());
        self.written.retain(|key, (written, at)| match children.own.get(key) {
            _ if at.elapsed() > WATCH_LAG => false,
            Some(stored) if version(stored) >= version(written) => false,
            _ => {
                children.own.insert(key.clone(), Arc::clone(written));
                true
            }
        });
    }

    /// How long this process has observed that each of `leaving` leaves.
    pub fn observe_leaving(
        &mut self,
        leaving: &BTreeSet<ClusterProfileReference>,
    ) -> HashMap<ClusterProfileReference, SignedDuration> {
        self.leaving.retain(|cluster, _| leaving.contains(cluster));
        let observed = leaving.iter().map(|cluster| {
            let since = self.leaving.entry(cluster.clone()).or_insert_with(Instant::now);
            (cluster.clone(), SignedDuration::try_from(since.elapsed()).unwrap_or_default())
        });
        observed.collect()
    }
}
