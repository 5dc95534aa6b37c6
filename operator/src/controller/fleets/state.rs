//! What is kept between passes over a fleet. Nothing of it is needed after a restart.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use jiff::SignedDuration;
use knative_operator_shared::api::{ClusterProfileReference, Component, Knative, KnativeFleet, KnativeFleetStatus};

use super::children::{ChildKey, Children};
use super::gates::Runs;
use super::permitted::Answers;
use super::refused_write::RefusedWrite;
use super::repairs::Repairs;
use super::selected::Selected;
use super::sender::Sender;
use super::{cached, contents};
use crate::controller::hub_changes::Changes;
use crate::controller::registry::Registry;
use knative_operator_fleet::budget::Observed;
use knative_operator_fleet::member::Refused;
use knative_operator_fleet::progress::Progress;
use knative_operator_fleet::removal::Leaving;
use knative_operator_fleet::timer::Timers;
use knative_operator_objects::ResourceKey;

/// Maximum time until the watch reports a write.
const WATCH_LAG: Duration = Duration::from_secs(10);
/// Time after which a refused write is tried again.
pub const REFUSED_RETRY: Duration = Duration::from_secs(30);
/// Delay before a pass that failed is retried.
pub const RETRY: Duration = Duration::from_secs(5);
/// About the start of the process. Nothing sets this clock.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Time since the start of the process.
pub fn uptime() -> SignedDuration {
    SignedDuration::try_from(START.elapsed()).unwrap_or(SignedDuration::MAX)
}

/// The resourceVersion of `resource`, for comparison.
fn resource_version(resource: &Knative) -> Option<u64> {
    resource.meta().resource_version.as_deref().and_then(|version| version.parse().ok())
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

/// The clusters of a fleet.
#[derive(Debug)]
pub struct Clusters {
    /// Those that it selects.
    pub selected: Arc<Selected>,
    /// Others with a resource of the fleet.
    pub others: BTreeSet<ClusterProfileReference>,
}

impl Clusters {
    fn has(&self, cluster: &ClusterProfileReference) -> bool {
        self.selected.set.contains(cluster) || self.others.contains(cluster)
    }
}

/// What is kept between passes. Nothing of it is needed after a restart.
#[derive(Default)]
pub struct FleetState {
    pub children: Children,
    pub contents: Mutex<contents::Cache>,
    pub observed: cached::Cache,
    /// Resources that were written, until the watch reports them.
    pub written: HashMap<ChildKey, (Arc<Knative>, Instant)>,
    /// Writes that the API server refused.
    pub refused: HashMap<ChildKey, RefusedWrite>,
    /// What came of updates and the API server refused to record, with its message.
    pub unrecorded: HashMap<ChildKey, String>,
    /// Writes that failed, and when.
    pub failed: HashMap<ChildKey, Instant>,
    /// What sends the writes.
    pub sender: Sender,
    /// Repairs of resources that somebody else changed.
    pub repairs: Repairs,
    /// Uid of the fleet: one that was created again has nothing of the former.
    uid: Option<String>,
    pub status: Option<KnativeFleetStatus>,
    pub status_at: Option<Instant>,
    /// Revisions about which an event was published, because they are not of the fleet.
    pub ignored: HashSet<String>,
    /// Whether the fleet is deleted with `--cascade=orphan`. The garbage collector removes the
    /// finalizer that says so.
    pub is_orphaning: bool,
    /// Why the last pass failed.
    pub error: Option<String>,
    /// What the API server answered about the author.
    pub answers: Answers,
    /// Clusters that the fleet selects, and may not have.
    pub unpermitted: BTreeSet<ClusterProfileReference>,
    /// How long clusters have been in their state.
    pub timers: Timers,
    /// Measurements of gates.
    pub gates: Runs,
    /// The clusters whose changes concern the fleet; all, unless the last pass went to its end.
    pub clusters: Option<Clusters>,
    /// Since when this process observes what was removed.
    pub budget: Observed,
    /// Since when the clusters are not known, as a time since the start of the process.
    pub unknown_since: Option<SignedDuration>,
    /// Clusters that leave the fleet, and since when this process observes it.
    leaving: HashMap<ClusterProfileReference, SignedDuration>,
    /// Those that were not available since they left, and whose time is kept.
    waited: HashSet<ClusterProfileReference>,
    /// Processor time of the writes of the last pass.
    pub writing: Duration,
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
        let of_update = self.refused.iter().filter(|(_, refused)| refused.revision == update);
        for ((cluster, _), RefusedWrite { revision, message, at }) in of_update {
            let is_due = at.elapsed() >= REFUSED_RETRY;
            let new = || Refused { revision: revision.clone(), message: message.clone(), is_due };
            all.entry(cluster.clone()).and_modify(|other| other.is_due &= is_due).or_insert_with(new);
        }
        all
    }

    /// Forgets the refused writes of clusters that are not in `progress`, or don't wait for them.
    pub fn keep_refused<'c>(&mut self, progress: impl Iterator<Item = (&'c ClusterProfileReference, &'c Progress)>) {
        if self.refused.is_empty() {
            return;
        }
        let is_waiting = |progress: &Progress| progress.is_refused() || matches!(progress, Progress::Updating(_));
        let waiting: HashSet<&ClusterProfileReference> =
            progress.filter(|(_, progress)| is_waiting(progress)).map(|(cluster, _)| cluster).collect();
        self.refused.retain(|(cluster, _), _| waiting.contains(cluster));
    }

    /// Why the API server refused to record what came of the update of `cluster`.
    pub fn unrecorded(&self, cluster: &ClusterProfileReference) -> Option<String> {
        if self.unrecorded.is_empty() {
            return None;
        }
        Component::ALL.into_iter().find_map(|component| self.unrecorded.get(&(cluster.clone(), component)).cloned())
    }

    /// Forgets others than `clusters`, if these are not the `same` as in the last pass, and than
    /// `children`.
    pub fn forget_others(&mut self, clusters: &HashSet<ClusterProfileReference>, same: bool, children: &Children) {
        if !same {
            self.timers.retain(|cluster| clusters.contains(cluster));
        }
        self.observed.forget_others(clusters, children);
        self.repairs.retain(|key| children.own().contains_key(key));
        self.unrecorded.retain(|key, _| children.own().contains_key(key));
    }

    /// The status that was written last, or the stored one.
    pub fn stored_status(&self, fleet: &KnativeFleet) -> KnativeFleetStatus {
        self.status.clone().or_else(|| fleet.status.clone()).unwrap_or_default()
    }

    /// Keeps `resource` of `key`, which was written, until the watch reports it.
    pub fn keep_written(&mut self, key: &ChildKey, resource: Option<Knative>) {
        self.written.extend(resource.map(|resource| (key.clone(), (Arc::new(resource), Instant::now()))));
    }

    /// Whether `changes` on the hub concern the fleet, which has the uid `uid`.
    pub fn is_concerned(&self, uid: &str, changes: &Changes) -> bool {
        let are_concerned = |clusters: &Clusters| {
            changes.clusters.iter().chain(&changes.relabeled).any(|cluster| clusters.has(cluster))
        };
        changes.any || changes.owners.contains(uid) || self.clusters.as_ref().is_none_or(are_concerned)
    }

    /// Forgets resources that were written and that the watch has reported, in `registry`. Before
    /// the resources of the fleet are read: afterwards, one that is reported meanwhile would be
    /// missing in both.
    pub fn forget_reported(&mut self, registry: &Registry) {
        self.written.retain(|_, (written, at)| {
            let stored = registry.get(&ResourceKey::of(written));
            let is_reported = stored.is_some_and(|stored| {
                stored.meta().uid == written.meta().uid && resource_version(&stored) >= resource_version(written)
            });
            at.elapsed() <= WATCH_LAG && !is_reported
        });
    }

    /// Time until a resource that was written is forgotten although the watch has not reported it.
    pub fn written_until(&self) -> Option<Duration> {
        self.written.values().map(|(_, at)| WATCH_LAG.saturating_sub(at.elapsed())).min()
    }

    /// Replaces resources with newer ones that were written. Those that the watch has reported may
    /// have left the fleet since.
    pub fn merge_written(&mut self, children: &mut Children) {
        self.written.retain(|key, (written, _)| {
            let own = children.own().get(key);
            let is_newer = own.is_none_or(|stored| resource_version(stored) < resource_version(written));
            if is_newer {
                children.replace(key.clone(), Arc::clone(written));
            }
            is_newer
        });
    }

    /// Notes at `now`, a time since the start of the process, that the clusters are not known.
    pub fn lose_clusters(&mut self, now: SignedDuration) {
        self.unknown_since.get_or_insert(now);
    }

    /// Notes at `now` that the clusters are known. While they were not, no time passed for an
    /// update; as after a pause, those that leave are observed from the start.
    pub fn find_clusters(&mut self, now: SignedDuration) {
        if let Some(since) = self.unknown_since.take() {
            self.timers.skip(now - since);
            self.leaving.clear();
        }
    }

    /// Sets how long this process has observed at `now` that each of `leaving` leaves, and is
    /// available again. The observation begins with the record, and with the end of an outage.
    pub fn observe_removals(
        &mut self,
        leaving: &mut BTreeMap<ClusterProfileReference, Leaving>,
        is_paused: bool,
        now: SignedDuration,
    ) {
        let recorded = || leaving.iter().filter(|(_, one)| one.since.is_some());
        self.waited.retain(|cluster| leaving.get(cluster).is_some_and(|one| one.since.is_some()));
        self.waited.extend(recorded().filter(|(_, one)| one.is_unavailable).map(|(cluster, _)| cluster.clone()));
        let available = recorded().filter(|(_, one)| !one.is_unavailable).map(|(cluster, _)| cluster.clone()).collect();
        let observed = self.observe_leaving(&available, is_paused, now);
        for (cluster, one) in leaving {
            one.observed = observed.get(cluster).copied().unwrap_or_default();
            one.available_for = self.waited.contains(cluster).then_some(one.observed);
        }
    }

    /// How long this process has observed at `now` that each of `leaving` leaves. While the fleet
    /// is paused, no time passes.
    pub fn observe_leaving(
        &mut self,
        leaving: &BTreeSet<ClusterProfileReference>,
        is_paused: bool,
        now: SignedDuration,
    ) -> HashMap<ClusterProfileReference, SignedDuration> {
        if is_paused {
            // Until the next pass, which may be the one after the pause.
            self.leaving.clear();
            return leaving.iter().map(|cluster| (cluster.clone(), SignedDuration::ZERO)).collect();
        }
        self.leaving.retain(|cluster, _| leaving.contains(cluster));
        let observed = leaving.iter().map(|cluster| {
            let since = *self.leaving.entry(cluster.clone()).or_insert(now);
            (cluster.clone(), now - since)
        });
        observed.collect()
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
