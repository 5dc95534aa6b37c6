//! The guard of removals against an adversary: labels that are lost and come back, outages, pauses,
//! approvals, protection, clocks that are set, replicas that stop between two writes. What is
//! removed is compared with what is true, in the words of the documents, and not with what the
//! guard computes from it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use knative_operator_shared::api::ClusterProfileReference;
use knative_operator_shared::api::fleet::{RemovalPolicy, RemovalStatus};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::budget::Observed;
use super::named_removal::MAX_LATER;
use super::removal::{GRACE_PERIOD, Leaving, RemovalInput, are_left, recorded};

/// Clocks are wrong by at most this many seconds: by days.
const SKEW: i64 = 3 * 24 * 3600;
/// Time within which the limit of a day holds: true time, by no clock.
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// Something that happens.
#[derive(Clone, Debug)]
pub enum Action {
    /// Minutes pass; the operator decides at their end.
    Tick(i64),
    /// A cluster is not selected any more, or is again.
    Leave(usize, bool),
    /// All clusters but one lose their labels.
    Mistype(usize),
    /// Somebody protects a cluster from deletion, or doesn't any more.
    Protect(usize, bool),
    /// A cluster is not available, or is again.
    Outage(usize, bool),
    /// A cluster counts in a rollout, or doesn't any more.
    Count(usize, bool),
    Pause(bool),
    /// A person approves the removal that is blocked now.
    Approve,
    SetClock(i64),
    /// The operator stops after some writes, and another replica continues.
    Crash(usize),
    /// A cluster joins, and gets an installation.
    Join,
    /// The hub is backed up.
    Backup,
    /// The etcd of the hub is restored from the last backup. What was removed since then is
    /// installed again, and nothing is known of it.
    Restore,
}

/// Why a cluster stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wait {
    Protected,
    Unavailable,
    Counting,
}

/// What is true about a cluster.
#[derive(Clone, Debug, Default)]
struct Cluster {
    has_left: bool,
    /// "While a cluster is protected, counts in a rollout or is not available, it stays."
    waits: BTreeSet<Wait>,
    /// How often it has left.
    times: u32,
    /// True time since when it has left, and waits for nothing.
    since: Option<SignedDuration>,
    /// What is recorded in its resources.
    mark: Option<Timestamp>,
    /// Since when this replica observes the record.
    observed: Option<SignedDuration>,
}

/// A cluster, and how often it had left.
type Departure = (usize, u32);

/// A fleet.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    clusters: Vec<Cluster>,
    /// Those whose installation was removed.
    pub removed: BTreeSet<usize>,
    record: RemovalStatus,
    /// Since when this replica observes that record.
    budget: Observed,
    paused: bool,
    now: SignedDuration,
    skew: SignedDuration,
    /// Names of removals that were approved, and the clusters for which they were.
    approvals: BTreeMap<String, BTreeSet<Departure>>,
    /// All these clusters.
    approved: BTreeSet<Departure>,
    /// Those of approvals, as long as nothing happens to them but outages, pauses and restarts.
    undisturbed: BTreeSet<Departure>,
    /// How often others left since.
    later: usize,
    /// Those of approvals that were used. "An outage takes the approval from none of them."
    owed: BTreeSet<Departure>,
    /// When clusters were removed that needed no approval.
    within: Vec<SignedDuration>,
    backup: Option<Box<Fleet>>,
}

fn reference(index: usize) -> ClusterProfileReference {
    ClusterProfileReference { name: format!("{index:04}"), namespace: "n".to_owned() }
}

impl Fleet {
    pub fn of(clusters: usize) -> Self {
        Self { clusters: vec![Cluster::default(); clusters], ..Self::default() }
    }

    fn clock(&self) -> Timestamp {
        Timestamp::from_second(100_000_000).unwrap() + self.now + self.skew
    }

    fn left_at(&self, index: usize) -> Option<Timestamp> {
        recorded(&self.clusters[index].mark?.to_string(), &self.record, self.clock())
    }

    fn installed(&self) -> usize {
        self.clusters.len() - self.removed.len()
    }

    /// Brings the truth up to date.
    fn observe(&mut self) {
        for cluster in &mut self.clusters {
            let leaves = cluster.has_left && cluster.waits.is_empty() && !self.paused;
            cluster.since = cluster.since.filter(|_| leaves).or_else(|| leaves.then_some(self.now));
        }
    }

    /// Decides, and makes the first `limit` writes, as the controller does. Returns the name of the
    /// removal that is blocked, and its clusters.
    pub fn pass(&mut self, limit: usize) -> Option<(String, Vec<usize>)> {
        let now = self.now;
        let mut leaving = BTreeMap::new();
        for index in 0..self.clusters.len() {
            let since = self.left_at(index);
            let is_paused = self.paused;
            let cluster = &mut self.clusters[index];
            let stands = is_paused || cluster.waits.contains(&Wait::Unavailable);
            // After a pause or an outage, it starts again.
            cluster.observed = cluster.observed.filter(|_| since.is_some()).or(since.map(|_| now)).filter(|_| !stands);
            if cluster.has_left && !self.removed.contains(&index) {
                let observed = cluster.observed.map(|from| now - from).unwrap_or_default();
                let one = Leaving {
                    since,
                    observed,
                    available_for: None,
                    is_protected: cluster.waits.contains(&Wait::Protected),
                    is_unavailable: cluster.waits.contains(&Wait::Unavailable),
                    is_installed: true,
                };
                leaving.insert(reference(index), one);
            }
        }
        let counts = |index: &usize| self.clusters[*index].waits.contains(&Wait::Counting);
        let counting = (0..self.clusters.len()).filter(counts).map(reference).collect();
        let elapsed = self.budget.observe(&self.record, are_left(&leaving, &self.record), now);
        let input = RemovalInput {
            leaving: &leaving,
            counting: &counting,
            staying: self.installed() - leaving.len(),
            max_at_once: None,
            grace: GRACE_PERIOD,
            policy: RemovalPolicy::Delete,
            is_paused: self.paused,
            record: &self.record,
            elapsed,
            now: self.clock(),
        };
        let used = RefCell::new(BTreeSet::new());
        let mut decision = input.decide(|name| {
            let approved = self.approvals.get(name);
            used.borrow_mut().extend(approved.into_iter().flatten().copied());
            approved.is_some()
        });
        self.budget.decide(&decision.record, now);
        let blocked = decision.blocked.take().map(|blocked| {
            let clusters: Vec<usize> = blocked.clusters.iter().filter_map(|one| one.name.parse().ok()).collect();
            (blocked.name, clusters)
        });
        self.check_approvals(blocked.as_ref().map_or(&[][..], |(_, clusters)| clusters.as_slice()));
        let mut left = limit;
        let mut write = || {
            left = left.saturating_sub(1);
            left > 0
        };
        // Those that are back first.
        for is_marked in [false, true] {
            for index in 0..self.clusters.len() {
                let name = reference(index);
                let wanted = decision.mark(&name, leaving.contains_key(&name), self.left_at(index));
                if wanted.is_some() == is_marked && wanted != self.clusters[index].mark && write() {
                    self.clusters[index].mark = wanted;
                }
            }
        }
        if (!decision.remove.is_empty() || decision.record != self.record) && write() {
            if decision.record.allowed_until != self.record.allowed_until {
                self.owed.extend(used.into_inner());
            }
            self.record = decision.record;
            for index in 0..self.clusters.len() {
                if decision.remove.contains(&reference(index)) && write() {
                    self.remove(index);
                }
            }
        }
        blocked.and_then(|(name, clusters)| Some((name?, clusters)))
    }

    /// "An approval is for exactly the clusters that it names: neither an outage of some of them
    /// nor others that leave later take it from them." `blocked` need an approval now.
    fn check_approvals(&self, blocked: &[usize]) {
        let departure = |index: usize| (index, self.clusters[index].times);
        let owed = blocked.iter().find(|index| self.owed.contains(&departure(**index)));
        assert_eq!(owed, None, "a cluster of an approval that was used needs another one");
        let lost = blocked.iter().find(|index| self.undisturbed.contains(&departure(**index)));
        assert_eq!(lost, None, "the removal of a cluster was approved, and needs another approval");
    }

    /// Removes the installation of a cluster, if that may be.
    fn remove(&mut self, index: usize) {
        let (installed, cluster) = (self.installed(), &mut self.clusters[index]);
        assert!(!self.paused, "cluster {index} was removed while the fleet is paused");
        assert!(cluster.waits.is_empty(), "cluster {index} was removed, which waits: {cluster:?}");
        let kept = cluster.since.map(|since| self.now - since);
        assert!(kept >= Some(GRACE_PERIOD), "cluster {index} was removed before its grace period is over: {kept:?}");
        let departure = (index, cluster.times);
        self.removed.insert(index);
        if self.approved.contains(&departure) {
            self.owed.remove(&departure);
            return;
        }
        assert!(installed > 1, "the last installation was removed without an approval");
        let before = self.within.iter().filter(|time| self.now - **time < DAY).count();
        self.within.push(self.now);
        let (removed, all) = (before + 1, before + installed);
        assert!(removed <= (all / 10).max(1), "{removed} of {all} clusters were removed within a day");
    }

    pub fn act(&mut self, action: &Action) {
        let count = self.clusters.len();
        let disturbs = matches!(
            action,
            Action::Leave(_, false) | Action::Protect(..) | Action::Count(..) | Action::SetClock(_) | Action::Restore
        );
        match action {
            Action::Tick(minutes) => self.now += SignedDuration::from_mins(*minutes),
            Action::Leave(index, left) => self.leave(index % count, *left),
            Action::Mistype(index) => {
                (0..count).filter(|other| *other != index % count).for_each(|i| self.leave(i, true));
            }
            Action::Protect(index, is) => self.hold(index % count, Wait::Protected, *is),
            Action::Outage(index, is) => self.hold(index % count, Wait::Unavailable, *is),
            Action::Count(index, is) => self.hold(index % count, Wait::Counting, *is),
            Action::Pause(paused) => self.paused = *paused,
            Action::Approve => {
                if let Some((name, clusters)) = self.pass(usize::MAX) {
                    let departures = clusters.into_iter().map(|index| (index, self.clusters[index].times));
                    let departures: BTreeSet<_> = departures.collect();
                    self.undisturbed.extend(&departures);
                    self.approved.extend(&departures);
                    self.approvals.insert(name, departures);
                }
            }
            Action::SetClock(seconds) => self.skew = SignedDuration::from_secs(*seconds),
            Action::Crash(writes) => {
                self.pass(*writes);
                self.clusters.iter_mut().for_each(|cluster| cluster.observed = None);
                self.budget = Observed::default();
            }
            Action::Join => self.clusters.push(Cluster::default()),
            Action::Backup => self.backup = Some(Box::new(Self { backup: None, ..self.clone() })),
            Action::Restore => self.restore(),
        }
        let is_later = matches!(action, Action::Leave(_, true) | Action::Mistype(_) | Action::Outage(_, false));
        self.later += usize::from(is_later);
        if disturbs || self.later >= MAX_LATER {
            self.undisturbed.clear();
            self.later = 0;
        }
        self.observe();
        // Nothing wakes a fleet that is paused.
        if self.paused && matches!(action, Action::Tick(_)) {
            return;
        }
        // A pass follows each change, and another one each write.
        for _ in 0..3 {
            self.pass(usize::MAX);
        }
    }

    /// Restores the hub. The operator starts, and what has left is kept for another grace period.
    fn restore(&mut self) {
        let Some(backup) = self.backup.take() else { return };
        let (count, now, skew) = (self.clusters.len(), self.now, self.skew);
        *self = Self { now, skew, budget: Observed::default(), ..(*backup).clone() };
        self.backup = Some(backup);
        self.clusters.iter_mut().for_each(|cluster| (cluster.since, cluster.observed) = (None, None));
        self.clusters.resize(count, Cluster::default());
    }

    fn hold(&mut self, index: usize, why: Wait, is: bool) {
        if is && why != Wait::Unavailable {
            self.owed.remove(&(index, self.clusters[index].times));
        }
        let waits = &mut self.clusters[index].waits;
        if is {
            waits.insert(why);
        } else {
            waits.remove(&why);
        }
    }

    fn leave(&mut self, index: usize, left: bool) {
        // Times are recorded in seconds: to leave twice takes longer.
        self.now += SignedDuration::from_secs(1);
        let cluster = &mut self.clusters[index];
        cluster.times += u32::from(left && !cluster.has_left);
        cluster.has_left = left;
        if !left {
            // It is installed again.
            self.removed.remove(&index);
            self.owed.remove(&(index, cluster.times));
        }
    }
}

fn action() -> impl Strategy<Value = Action> {
    let index = || 0usize..32;
    prop_oneof![
        8 => (1i64..90).prop_map(Action::Tick),
        2 => (60i64..1500).prop_map(Action::Tick),
        4 => (index(), any::<bool>()).prop_map(|(index, left)| Action::Leave(index, left)),
        1 => index().prop_map(Action::Mistype),
        1 => (index(), any::<bool>()).prop_map(|(index, is)| Action::Protect(index, is)),
        1 => (index(), any::<bool>()).prop_map(|(index, is)| Action::Outage(index, is)),
        1 => (index(), any::<bool>()).prop_map(|(index, is)| Action::Count(index, is)),
        1 => any::<bool>().prop_map(Action::Pause),
        1 => Just(Action::Approve),
        1 => (-SKEW..SKEW).prop_map(Action::SetClock),
        2 => (0usize..6).prop_map(Action::Crash),
        1 => Just(Action::Join),
        1 => Just(Action::Backup),
        1 => Just(Action::Restore),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn only_what_left_and_is_allowed_is_removed(
        clusters in 1usize..30,
        actions in prop::collection::vec(action(), 0..60),
    ) {
        let mut fleet = Fleet::of(clusters);
        for action in &actions {
            fleet.act(action);
        }
        // What holds removals ends, and a person approves.
        fleet.act(&Action::Pause(false));
        for index in 0..fleet.clusters.len() {
            fleet.act(&Action::Protect(index, false));
            fleet.act(&Action::Outage(index, false));
            fleet.act(&Action::Count(index, false));
        }
        for _ in 0..12 {
            fleet.act(&Action::Approve);
            fleet.act(&Action::Tick(61));
        }
        for (index, cluster) in fleet.clusters.iter().enumerate() {
            prop_assert_eq!(fleet.removed.contains(&index), cluster.has_left, "{:?}", cluster);
        }
    }
}
