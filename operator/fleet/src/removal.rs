//! Guards the removal of clusters from a fleet, the most dangerous act: a mistyped selector, or
//! labels that are lost for a moment, must not delete installations.
//!
//! A cluster leaves if its ClusterProfile exists and is not selected. What counts is what is
//! installed. Nothing is removed before a grace period is over, which is recorded in the resources
//! and observed; within 24 hours, a limited number is, or an approved set; while the rollout is
//! paused, none, and the observation starts again after it. A cluster that counts in a rollout, or
//! that is protected from deletion, waits: it leaves when that ends, and not together with others
//! that were removed before.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use knative_operator_shared::api::ClusterProfileReference;
use knative_operator_shared::api::fleet::{RecentRemoval, RemovalStatus};
use knative_operator_shared::fleet::deletion::MAX_AT_ONCE;
use knative_operator_shared::fleet::stage::limit;
use knative_operator_shared::time::{next_minute, truncate};
use sha2::{Digest, Sha256};

/// Length of the name of a removal, in bytes.
const NAME_DIGEST: usize = 16;
/// Time for which removals count.
const WINDOW: SignedDuration = SignedDuration::from_hours(24);
/// Removals within this time are recorded together.
const TOGETHER: SignedDuration = SignedDuration::from_hours(1);
/// Grace period, by default.
pub const GRACE_PERIOD: SignedDuration = SignedDuration::from_hours(1);
/// Longest part of a grace period that one process must have observed, so that a step of the clock
/// never ends it.
const MAX_OBSERVED: SignedDuration = SignedDuration::from_hours(1);

/// A cluster that leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// Since when, as it is recorded; `None` if it is not yet. While a cluster waits, it is not.
    pub since: Option<Timestamp>,
    /// How long this process has observed it.
    pub observed: SignedDuration,
    /// Whether its resources can't be deleted.
    pub is_protected: bool,
}

/// What the decision depends on.
#[derive(Debug)]
pub struct RemovalInput<'a> {
    /// Clusters that leave.
    pub leaving: &'a BTreeMap<ClusterProfileReference, Leaving>,
    /// Those of them that count in a rollout: they are removed after it.
    pub counting: &'a BTreeSet<ClusterProfileReference>,
    /// Number of other clusters with an installation.
    pub staying: usize,
    /// Maximum number or percentage of clusters within a day.
    pub max_at_once: Option<&'a IntOrString>,
    /// Time for which a cluster must have left.
    pub grace: SignedDuration,
    /// Whether the rollout is paused.
    pub is_paused: bool,
    /// What was removed before.
    pub record: &'a RemovalStatus,
    /// The time.
    pub now: Timestamp,
}

/// A removal that needs an approval and has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// Its name, for the approval; `None` until it is recorded since when all its clusters left.
    pub name: Option<String>,
    /// The clusters that need the approval.
    pub clusters: BTreeSet<ClusterProfileReference>,
    /// Number of clusters that may leave within a day.
    pub limit: usize,
}

/// What happens to the clusters that leave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemovalDecision {
    /// Time to record for clusters that have none yet.
    pub since: Option<Timestamp>,
    /// Clusters whose installation is removed now. The record is stored before.
    pub remove: BTreeSet<ClusterProfileReference>,
    /// The removal, if it needs an approval and has none.
    pub blocked: Option<Blocked>,
    /// Clusters that stay until nobody protects their resources from deletion.
    pub protected: BTreeSet<ClusterProfileReference>,
    /// Clusters that stay until the rollout ends.
    pub counting: BTreeSet<ClusterProfileReference>,
    /// When the first cluster is removed, if that is not blocked.
    pub until: Option<Timestamp>,
    /// The new record.
    pub record: RemovalStatus,
    /// Time until the next decision, if nothing changes before.
    pub wake: Option<SignedDuration>,
}

impl RemovalDecision {
    /// Whether `cluster` waits: it is protected, or counts in the rollout.
    pub fn waits(&self, cluster: &ClusterProfileReference) -> bool {
        self.protected.contains(cluster) || self.counting.contains(cluster)
    }
}

/// Clusters that leave a fleet, and what happens to them.
#[derive(Clone, Copy, Debug)]
pub struct Leavers<'a> {
    /// The clusters.
    pub clusters: &'a [&'a ClusterProfileReference],
    /// What happens to them.
    pub decision: &'a RemovalDecision,
}

impl<'a> Leavers<'a> {
    /// The clusters that wait for nothing.
    pub fn removable(&self) -> Vec<&'a ClusterProfileReference> {
        let all = self.clusters.iter().copied();
        all.filter(|cluster| !self.decision.waits(cluster)).collect()
    }
}

/// The time of the last removal in `record` that was allowed, or of the last cluster in it.
fn allowed_until(record: &RemovalStatus) -> Option<Timestamp> {
    record.allowed_until.as_deref()?.parse().ok()
}

/// The earliest time of another removal than those in `record`.
fn next(record: &RemovalStatus) -> Option<Timestamp> {
    allowed_until(record).map(|time| time.saturating_add(SignedDuration::from_secs(1)).unwrap_or(Timestamp::MAX))
}

/// The time since which a cluster leaves, as `text` records it. One that is later than the operator
/// can have recorded it, after the removals in `record`, is of another clock, or of somebody else.
pub fn recorded(text: &str, record: &RemovalStatus, now: Timestamp) -> Option<Timestamp> {
    let latest = next(record).map_or(now, |next| next.max(now));
    text.parse().ok().filter(|time| *time <= latest)
}

impl RemovalInput<'_> {
    /// Decides; `is_approved` tells whether the removal with a name is approved.
    pub fn decide(&self, is_approved: impl Fn(&str) -> bool) -> RemovalDecision {
        let mut record = self.record.clone();
        record.recent.retain(|removal| self.counts(removal));
        let allowed = allowed_until(self.record);
        let mut decision = RemovalDecision { record, ..RemovalDecision::default() };
        if self.leaving.is_empty() {
            return decision;
        }
        // What can't be removed doesn't count as a removal.
        let (protected, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
            self.leaving.iter().partition(|(_, one)| one.is_protected);
        decision.protected = protected.into_keys().cloned().collect();
        let (counting, leaving): (BTreeMap<_, _>, BTreeMap<_, _>) =
            others.into_iter().partition(|(cluster, _)| self.counting.contains(*cluster));
        decision.counting = counting.into_keys().cloned().collect();
        if leaving.values().any(|leaving| leaving.since.is_none()) {
            // One that comes back and leaves again is not part of the removal that was allowed.
            decision.since = next(self.record).into_iter().chain([truncate(self.now)]).max();
        }
        let is_allowed = |leaving: &Leaving| leaving.since.is_some_and(|since| Some(since) <= allowed);
        let rest: BTreeMap<_, _> = leaving.iter().map(|(k, v)| (*k, *v)).filter(|(_, one)| !is_allowed(one)).collect();
        let recent: usize = decision.record.recent.iter().map(|r| usize::try_from(r.clusters).unwrap_or(0)).sum();
        let limit = self.limit(recent);
        let is_within = rest.len() + recent <= limit;
        // It follows from the times.
        let name = rest.values().all(|leaving| leaving.since.is_some()).then(|| name(&rest));
        let is_approved = name.as_deref().is_some_and(is_approved);
        if !rest.is_empty() && !is_within && !is_approved {
            decision.blocked = Some(Blocked { name, clusters: rest.keys().copied().cloned().collect(), limit });
            decision.wake = self.next_limit();
        }
        let mut started = Vec::new();
        for (cluster, leaving) in leaving {
            if decision.blocked.is_some() && !is_allowed(leaving) {
                continue;
            }
            let Some(since) = leaving.since else { continue };
            let left = self.left(since, leaving.observed);
            decision.until = decision.until.into_iter().chain([self.until(since, left)]).min();
            if !left.is_positive() && !self.is_paused {
                decision.remove.insert(cluster.clone());
                started.extend((!is_allowed(leaving)).then_some(since));
            } else if !self.is_paused {
                decision.wake = decision.wake.into_iter().chain([left]).min();
            }
        }
        if let Some(newest) = started.iter().max().copied() {
            // All of them are approved, also those whose grace period is not over. Otherwise, those
            // that left earlier are allowed with it.
            let is_all = is_approved && !is_within;
            let times = rest.values().filter_map(|leaving| leaving.since);
            started = times.filter(|since| is_all || *since <= newest).collect();
        }
        self.add(&mut decision.record, &started);
        decision
    }

    /// How long a cluster that left at `since` is still kept.
    fn left(&self, since: Timestamp, observed: SignedDuration) -> SignedDuration {
        (self.grace - self.now.duration_since(since)).max(self.grace.min(MAX_OBSERVED) - observed)
    }

    /// When a cluster that left at `since` and is kept for the time `left` is removed. The
    /// observation may have started later, which is rounded: this time is in the status.
    fn until(&self, since: Timestamp, left: SignedDuration) -> Timestamp {
        let recorded = since.saturating_add(self.grace).unwrap_or(Timestamp::MAX);
        let observed = self.now.saturating_add(left).unwrap_or(Timestamp::MAX);
        let is_later = observed.duration_since(recorded) > SignedDuration::from_secs(1);
        if is_later { next_minute(observed) } else { recorded }
    }

    /// Time until the oldest removal doesn't count any more.
    fn next_limit(&self) -> Option<SignedDuration> {
        let times = self.record.recent.iter().filter_map(|removal| removal.time.parse::<Timestamp>().ok());
        let left = times.map(|time| WINDOW - self.now.duration_since(time));
        left.filter(SignedDuration::is_positive).min()
    }

    /// Number of clusters that may leave within a day, of which `recent` have left.
    fn limit(&self, recent: usize) -> usize {
        let total = self.staying + self.leaving.len() + recent;
        let limit = limit(self.max_at_once, total * MAX_AT_ONCE / 100, total);
        // At least one cluster may leave, but by default not the last one.
        if self.staying == 0 { limit } else { limit.max(1) }
    }

    /// Whether `removal` still counts. What can't be read does.
    fn counts(&self, removal: &RecentRemoval) -> bool {
        !removal.time.parse::<Timestamp>().is_ok_and(|time| self.now.duration_since(time) >= WINDOW)
    }

    /// Adds clusters that left at the times `started` to `record`.
    fn add(&self, record: &mut RemovalStatus, started: &[Timestamp]) {
        let Some(newest) = started.iter().max() else { return };
        record.allowed_until = Some(newest.to_string());
        let clusters = i32::try_from(started.len()).unwrap_or(i32::MAX);
        let now = truncate(self.now).to_string();
        let is_together = |last: &&mut RecentRemoval| {
            last.time.parse::<Timestamp>().is_ok_and(|time| self.now.duration_since(time).abs() < TOGETHER)
        };
        match record.recent.last_mut().filter(is_together) {
            Some(last) => (last.time, last.clusters) = (now, last.clusters.saturating_add(clusters)),
            None => record.recent.push(RecentRemoval { time: now, clusters }),
        }
    }
}

/// Name of the removal of `clusters`, for its approval: of these clusters, which left at these
/// times. If they come back and leave again, it is another removal.
fn name(clusters: &BTreeMap<&ClusterProfileReference, &Leaving>) -> String {
    let line = |(cluster, leaving): (&&ClusterProfileReference, &&Leaving)| {
        format!("{cluster} {}", leaving.since.unwrap_or_default())
    };
    let text = clusters.iter().map(line).collect::<Vec<_>>().join("\n");
    Sha256::digest(text).iter().take(NAME_DIGEST).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[path = "removal_tests.rs"]
mod tests;
