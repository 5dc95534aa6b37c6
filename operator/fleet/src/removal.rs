//! Guards the removal of clusters from a fleet, the most dangerous act: a mistyped selector, or
//! labels that are lost for a moment, must not delete installations.
//!
//! A cluster leaves if its ClusterProfile exists and is not selected. What counts is what is
//! installed. Nothing is removed before a grace period is over, which is recorded in the resources
//! and observed; within 24 hours, which are observed as well ([`super::budget`]), a limited number
//! is, or an approved set; while the rollout is paused, none, and the observation starts again
//! after it. A cluster that counts in a rollout, is protected from deletion, or is not available
//! waits: it leaves when that ends, and not together with others that were removed before. But an
//! approval is for exactly the clusters that it names: neither an outage of some of them nor others
//! that leave later take it from them (`named_removal`). Those that were not available are observed
//! again when they are.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use knative_operator_shared::api::ClusterProfileReference;
use knative_operator_shared::api::fleet::{ApprovedRemoval, RemovalPolicy, RemovalStatus};
use knative_operator_shared::fleet::deletion::MAX_AT_ONCE;
use knative_operator_shared::fleet::stage::limit;
use knative_operator_shared::time::{next_minute, truncate};

use super::budget;
use super::named_removal::Named;

/// Nanoseconds between a removal and the next one that fit into a second.
const MAX_BEHIND: i64 = 999_999_999;
/// Grace period, by default.
pub const GRACE_PERIOD: SignedDuration = SignedDuration::from_hours(1);
/// Longest part of a grace period that one process must have observed, so that a step of the clock
/// never ends it.
const MAX_OBSERVED: SignedDuration = SignedDuration::from_hours(1);
/// Maximum number of approved removals in the record. Clusters of earlier ones that are not
/// available need another approval.
const MAX_APPROVED: usize = 16;

/// A cluster that leaves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leaving {
    /// Since when, as it is recorded; `None` if it is not yet. While a cluster waits, it is not.
    pub since: Option<Timestamp>,
    /// How long this process has observed it.
    pub observed: SignedDuration,
    /// How long it has been available again, if this process has found it not available since that
    /// time: its grace period begins again.
    pub available_for: Option<SignedDuration>,
    /// Whether its resources can't be deleted.
    pub is_protected: bool,
    /// Whether it is not healthy or not reachable, or nobody knows, also because its ClusterProfile
    /// vanished since it left. A scheduler, or a label that a controller sets, may have dropped it
    /// for that, so that it is no wish to uninstall.
    pub is_unavailable: bool,
    /// Whether a version was installed on it. Without one, it makes no limit greater.
    pub is_installed: bool,
}

impl Leaving {
    /// Whether it is part of a removal that was allowed until a time.
    fn is_allowed(&self, until: Option<Timestamp>) -> bool {
        self.since.is_some_and(|since| Some(since) <= until)
    }

    /// Whether it left in one of `periods`.
    fn is_in(&self, periods: &[Period]) -> bool {
        periods.iter().any(|(after, until)| self.since > *after && self.is_allowed(Some(*until)))
    }
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
    /// What a removal does: an approval is for that.
    pub policy: RemovalPolicy,
    /// Whether the rollout is paused.
    pub is_paused: bool,
    /// What was removed before.
    pub record: &'a RemovalStatus,
    /// How long this process has observed that record: see [`budget::Observed`].
    pub elapsed: SignedDuration,
    /// The time.
    pub now: Timestamp,
}

/// A removal that needs an approval and has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// Its name, for the approval; `None` until it is recorded since when all its clusters left.
    pub name: Option<String>,
    /// The clusters that need the approval, also those that left before they were not available.
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
    /// Clusters that stay until they are available, and for their grace period after that.
    pub unavailable: BTreeSet<ClusterProfileReference>,
    /// Those of them that are part of a removal that is approved, or needs an approval: what is
    /// recorded about them stays.
    pub kept: BTreeSet<ClusterProfileReference>,
    /// When the first cluster is removed, if that is not blocked.
    pub until: Option<Timestamp>,
    /// The new record.
    pub record: RemovalStatus,
    /// Time until the next decision, if nothing changes before.
    pub wake: Option<SignedDuration>,
}

impl RemovalDecision {
    /// Whether `cluster` waits: it is protected, counts in the rollout, or is not available.
    pub fn waits(&self, cluster: &ClusterProfileReference) -> bool {
        [&self.protected, &self.counting, &self.unavailable].iter().any(|waiting| waiting.contains(cluster))
    }

    /// The time to record for `cluster`, which `leaves` or not, and for which `recorded` is stored.
    /// No removal may start before former times are cleared: a cluster that waits would be part of
    /// it.
    pub fn mark(
        &self,
        cluster: &ClusterProfileReference,
        leaves: bool,
        recorded: Option<Timestamp>,
    ) -> Option<Timestamp> {
        if self.kept.contains(cluster) {
            return recorded.filter(|_| leaves);
        }
        recorded.or(self.since).filter(|_| leaves && !self.waits(cluster))
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
    /// The clusters that wait for nothing, nor for an approval.
    pub fn removable(&self) -> Vec<&'a ClusterProfileReference> {
        let blocked = self.decision.blocked.as_ref();
        let is_blocked = |cluster: &ClusterProfileReference| blocked.is_some_and(|all| all.clusters.contains(cluster));
        let all = self.clusters.iter().copied();
        all.filter(|cluster| !self.decision.waits(cluster) && !is_blocked(cluster)).collect()
    }
}

/// The times after which the clusters of a removal left, if it is not the first one, and until
/// which.
type Period = (Option<Timestamp>, Timestamp);

/// The period of an approved removal; `None` if its times can't be read.
fn period(removal: &ApprovedRemoval) -> Option<Period> {
    let after = removal.after.as_deref().map(str::parse).transpose().ok()?;
    Some((after, removal.until.parse().ok()?))
}

/// The periods of the approved removals in `record`.
fn approved_periods(record: &RemovalStatus) -> Vec<Period> {
    record.approved.iter().filter_map(period).collect()
}

/// The time of the last removal in `record` that was allowed, or of the last cluster in it.
fn allowed_until(record: &RemovalStatus) -> Option<Timestamp> {
    record.allowed_until.as_deref()?.parse().ok()
}

/// The earliest time of another removal than those in `record`.
fn next(record: &RemovalStatus) -> Option<Timestamp> {
    allowed_until(record).map(|time| time.saturating_add(SignedDuration::from_secs(1)).unwrap_or(Timestamp::MAX))
}

/// What of `record` counts for removals by `policy`: those that were allowed to keep installations
/// are not allowed to uninstall them. A record of an operator that didn't record which they were
/// allows neither to uninstall.
pub fn of_policy(record: RemovalStatus, policy: RemovalPolicy) -> RemovalStatus {
    if record.orphans != Some(false) && policy == RemovalPolicy::Delete {
        return RemovalStatus { recent: record.recent, ..RemovalStatus::default() };
    }
    record
}

/// The time since which a cluster leaves, as `text` records it. One that is later than the operator
/// can have recorded it, after the removals in `record`, is of another clock, or of somebody else.
pub fn recorded(text: &str, record: &RemovalStatus, now: Timestamp) -> Option<Timestamp> {
    let latest = next(record).map_or(now, |next| next.max(now));
    text.parse().ok().filter(|time| *time <= latest)
}

/// Whether some of `leaving` are part of a removal in `record`, and not removed yet. Approved ones
/// that are not available, or were not, keep no budget: no limit holds for them, and one that is
/// available from time to time would keep it forever.
pub fn are_left(leaving: &BTreeMap<ClusterProfileReference, Leaving>, record: &RemovalStatus) -> bool {
    let (until, approved) = (allowed_until(record), approved_periods(record));
    let has_waited = |one: &Leaving| one.is_unavailable || one.available_for.is_some();
    let is_left = |one: &Leaving| one.is_allowed(until) && !(has_waited(one) && one.is_in(&approved));
    leaving.values().any(is_left)
}

impl RemovalInput<'_> {
    /// Decides; `is_approved` tells whether the removal with a name is approved.
    pub fn decide(&self, is_approved: impl Fn(&str) -> bool) -> RemovalDecision {
        let (allowed, mut recent) = (allowed_until(self.record), budget::recent(self.record, self.elapsed));
        let mut decision = RemovalDecision { record: self.record.clone(), ..RemovalDecision::default() };
        let is_due = budget::is_due(self.record, &recent, self.elapsed);
        if is_due {
            decision.record.recent.clone_from(&recent);
        }
        let observed = if is_due { SignedDuration::ZERO } else { self.elapsed };
        decision.wake = (!recent.is_empty()).then(|| budget::STEP - observed);
        let is_left = |period: Period| self.leaving.values().any(|one| one.is_in(&[period]));
        decision.record.approved.retain(|removal| period(removal).is_some_and(is_left));
        if self.leaving.is_empty() {
            return decision;
        }
        // What can't be removed doesn't count as a removal.
        let (protected, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
            self.leaving.iter().partition(|(_, one)| one.is_protected);
        decision.protected = protected.into_keys().cloned().collect();
        let (counting, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
            others.into_iter().partition(|(cluster, _)| self.counting.contains(*cluster));
        decision.counting = counting.into_keys().cloned().collect();
        let (unavailable, leaving): (BTreeMap<_, _>, BTreeMap<_, _>) =
            others.into_iter().partition(|(_, one)| one.is_unavailable);
        decision.unavailable = unavailable.keys().copied().cloned().collect();
        let is_new = leaving.values().any(|leaving| leaving.since.is_none());
        let all = leaving.iter().map(|(cluster, leaving)| (*cluster, *leaving));
        let rest: BTreeMap<_, _> = all.filter(|(_, leaving)| !leaving.is_allowed(allowed)).collect();
        // An approval names those as well that left before they were not available.
        let waiting = unavailable.iter().map(|(cluster, leaving)| (*cluster, *leaving));
        let waiting = waiting.filter(|(_, leaving)| leaving.since.is_some() && !leaving.is_allowed(allowed));
        let mut named = rest.clone();
        named.extend(waiting);
        let used = budget::count(&recent);
        let limit = self.limit(used, allowed);
        let is_within = rest.len() + used <= limit;
        let names = Named::new(named.iter().map(|(cluster, one)| (*cluster, one.since)), self.policy);
        let approved_until = names.approved_until(is_approved);
        let is_approved = |one: &Leaving| one.is_allowed(approved_until);
        let is_blocked = !is_within && rest.values().any(|one| !is_approved(one));
        let approved = approved_periods(self.record);
        let is_kept = |one: &Leaving| {
            let is_open = one.since.is_some() && is_blocked || is_approved(one);
            if one.is_allowed(allowed) { one.is_in(&approved) } else { is_open }
        };
        let kept = unavailable.into_iter().filter(|(_, one)| is_kept(one));
        decision.kept = kept.map(|(cluster, _)| cluster.clone()).collect();
        if is_blocked {
            let others = named.iter().filter(|(_, one)| !is_approved(one));
            let (clusters, times): (BTreeSet<_>, Vec<_>) =
                others.map(|(cluster, one)| ((*cluster).clone(), one.since)).unzip();
            let times: Option<Vec<Timestamp>> = times.into_iter().collect();
            let latest = times.and_then(|times| times.into_iter().max());
            let name = latest.map(|latest| names.name(approved_until, latest));
            decision.blocked = Some(Blocked { name, clusters, limit });
            decision.wake = decision.wake.into_iter().chain(budget::left(&recent)).min();
        }
        let mut started = Vec::new();
        for (cluster, leaving) in leaving {
            if is_blocked && !leaving.is_allowed(allowed) && !is_approved(leaving) {
                continue;
            }
            let Some(since) = leaving.since else { continue };
            let left = self.left(since, leaving, leaving.is_in(&approved));
            decision.until = decision.until.into_iter().chain([self.until(since, left)]).min();
            if !left.is_positive() && !self.is_paused {
                decision.remove.insert(cluster.clone());
                started.extend((!leaving.is_allowed(allowed)).then_some(since));
            } else if !self.is_paused {
                decision.wake = decision.wake.into_iter().chain([left]).min();
            }
        }
        if let Some(newest) = started.iter().max().copied() {
            // All that are approved are allowed, also those that are not available, or whose grace
            // period is not over. Without an approval, those that left earlier are.
            let is_older = |one: &Leaving| !is_blocked && !one.is_unavailable && one.since <= Some(newest);
            let all = named.values().filter(|one| is_approved(one) || is_older(one));
            let times: Vec<Timestamp> = all.filter_map(|leaving| leaving.since).collect();
            budget::add(&mut recent, times.len(), self.now);
            let until = times.iter().max().map(ToString::to_string);
            let mut approved = std::mem::take(&mut decision.record.approved);
            let after = self.record.allowed_until.clone();
            approved.extend(approved_until.map(|until| ApprovedRemoval { after, until: until.to_string() }));
            approved.drain(..approved.len().saturating_sub(MAX_APPROVED));
            let orphans = Some(self.policy == RemovalPolicy::Orphan);
            decision.record = RemovalStatus { allowed_until: until, approved, orphans, recent };
            decision.wake = decision.wake.into_iter().chain([budget::STEP]).min();
        }
        decision.since = is_new.then(|| self.since(&decision.record));
        decision
    }

    /// The time to record: a cluster that leaves now is not part of the removals in `record`. By a
    /// clock that is behind them, each second has a time of its own as well: for an approval, one
    /// that comes back and leaves again is another one.
    fn since(&self, record: &RemovalStatus) -> Timestamp {
        let now = truncate(self.now);
        let Some(next) = next(record).filter(|next| *next > now) else { return now };
        let behind = next.duration_since(now).as_secs().min(MAX_BEHIND);
        next.checked_sub(SignedDuration::from_nanos(behind)).unwrap_or(next)
    }

    /// How long a cluster that left at `since` is still kept: a grace period that this process
    /// observed is over, also by a clock that was set back. After an outage, all of it is observed,
    /// also by a process that did not see the outage: one `of_approved` removals whose grace period
    /// was over when its observation began was not removed then.
    fn left(&self, since: Timestamp, leaving: &Leaving, of_approved: bool) -> SignedDuration {
        let age = self.now.duration_since(since);
        let observed = leaving.available_for.unwrap_or(leaving.observed);
        let has_waited = leaving.available_for.is_some() || of_approved && age - observed >= self.grace;
        if has_waited {
            return self.grace - observed;
        }
        (self.grace - age).min(self.grace - observed).max(self.grace.min(MAX_OBSERVED) - observed)
    }

    /// When a cluster that left at `since` and is kept for the time `left` is removed. What differs
    /// from the recorded time, because of the observation, is rounded: this time is in the status.
    fn until(&self, since: Timestamp, left: SignedDuration) -> Timestamp {
        let recorded = since.saturating_add(self.grace).unwrap_or(Timestamp::MAX);
        let observed = self.now.saturating_add(left).unwrap_or(Timestamp::MAX);
        let differs = observed.duration_since(recorded).abs() > SignedDuration::from_secs(1);
        if differs { next_minute(observed) } else { recorded }
    }

    /// Number of clusters that may leave within a day, of those with an installation. Those that
    /// are allowed `until` a time, and not removed yet, are among the `recent` ones.
    fn limit(&self, recent: usize, until: Option<Timestamp>) -> usize {
        let permits_all = matches!(self.max_at_once, Some(IntOrString::String(text)) if text == "100%");
        let counts = |leaving: &&Leaving| (leaving.is_installed || permits_all) && !leaving.is_allowed(until);
        let others = self.leaving.values().filter(counts).count();
        let total = self.staying + others + recent;
        let limit = limit(self.max_at_once, total * MAX_AT_ONCE / 100, total);
        // At least one cluster may leave, but by default not the last one.
        if self.staying == 0 { limit } else { limit.max(1) }
    }
}

#[cfg(test)]
#[path = "removal_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "approved_removals.rs"]
mod approved;
