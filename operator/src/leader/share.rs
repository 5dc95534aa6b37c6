//! Decides which shards a replica acquires, releases and requests. Pure.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::election::LeaseRecord;

/// Time that a shard stays free before a replica takes it beyond its fair share.
const GRACE_PERIOD: Duration = Duration::from_secs(4);

/// Observed state of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Its Lease, if there is one.
    pub record: Option<LeaseRecord>,
    /// The replica that requests it.
    pub wanted: Option<String>,
    /// Time at which this state was observed first.
    pub since: Instant,
}

/// Changes to make.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardChanges {
    /// Free shards to acquire.
    pub acquire: Vec<u32>,
    /// Own shards to release.
    pub release: Vec<u32>,
    /// A shard to request from a replica that has more.
    pub request: Option<u32>,
}

impl Shard {
    /// Its holder at `now`.
    fn holder(&self, now: Instant) -> Option<&str> {
        let record = self.record.as_ref()?;
        (!record.holder.is_empty() && now.duration_since(self.since) < record.lease).then_some(record.holder.as_str())
    }
}

/// The changes that `identity` makes at `now`, given the state of `all` shards.
pub fn plan_changes(identity: &str, all: &BTreeMap<u32, Shard>, now: Instant) -> ShardChanges {
    let mut owned: BTreeMap<&str, Vec<u32>> = BTreeMap::from([(identity, Vec::new())]);
    for (shard, state) in all {
        if let Some(holder) = state.holder(now) {
            owned.entry(holder).or_default().push(*shard);
        }
        // Replicas that request a shard count, too.
        if let Some(wanted) =
            state.wanted.as_deref().filter(|w| !w.is_empty() && now.duration_since(state.since) < GRACE_PERIOD)
        {
            owned.entry(wanted).or_default();
        }
    }
    let (most, least) = (all.len().div_ceil(owned.len()), all.len() / owned.len());
    let own = owned.get(identity).map_or(0, Vec::len);
    let mut changes = ShardChanges::default();
    for (shard, state) in all {
        let requested_by_other = state.wanted.as_deref().is_some_and(|w| w != identity && !w.is_empty());
        match state.holder(now) {
            None => {
                let free = now.duration_since(state.since);
                let expired = state.record.as_ref().is_some_and(|r| !r.holder.is_empty());
                let is_overdue = free >= GRACE_PERIOD || expired;
                if is_overdue || (own + changes.acquire.len() < most && !requested_by_other) {
                    changes.acquire.push(*shard);
                }
            }
            Some(holder) if holder == identity && requested_by_other && own - changes.release.len() > least.max(1) => {
                changes.release.push(*shard);
            }
            Some(_) => {}
        }
    }
    let has_requested = all.values().any(|s| s.wanted.as_deref() == Some(identity) && s.holder(now) != Some(identity));
    if changes.acquire.is_empty() && own < least && !has_requested {
        let largest = owned
            .iter()
            .filter(|(who, shards)| **who != identity && shards.len() > least)
            .max_by_key(|(_, shards)| shards.len());
        changes.request = largest.and_then(|(_, shards)| shards.last().copied());
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(12);

    fn shard(holder: &str, wanted: Option<&str>, since: Instant) -> Shard {
        let record = Some(LeaseRecord { holder: holder.into(), version: "1".into(), lease: LEASE });
        Shard { record, wanted: wanted.map(str::to_owned), since }
    }

    #[test]
    fn first_replica_takes_all_and_second_gets_half() {
        let start = Instant::now();
        // All replicas observe the last write.
        let mut all: BTreeMap<u32, Shard> =
            (0..5).map(|n| (n, Shard { record: None, wanted: None, since: start })).collect();
        assert_eq!(plan_changes("a", &all, start).acquire, [0, 1, 2, 3, 4]);
        all.values_mut().for_each(|s| *s = shard("a", None, start));
        for _ in 0..20 {
            for identity in ["a", "b"] {
                let ShardChanges { acquire, release, request } = plan_changes(identity, &all, start);
                acquire.iter().for_each(|n| drop(all.insert(*n, shard(identity, None, start))));
                for n in release {
                    let wanted = all[&n].wanted.clone();
                    all.insert(n, shard("", wanted.as_deref(), start));
                }
                if let Some(n) = request {
                    all.get_mut(&n).unwrap().wanted = Some(identity.to_owned());
                }
            }
        }
        let count = |who: &str| all.values().filter(|s| s.holder(start) == Some(who)).count();
        assert_eq!((count("a"), count("b")), (3, 2));
        assert_eq!(
            (plan_changes("a", &all, start), plan_changes("b", &all, start)),
            (ShardChanges::default(), ShardChanges::default())
        );
    }

    #[test]
    fn shards_of_lost_replica_are_acquired_by_others() {
        let start = Instant::now();
        let all: BTreeMap<u32, Shard> = [(0, shard("a", None, start + LEASE)), (1, shard("b", None, start))].into();
        assert_eq!(plan_changes("a", &all, start + LEASE / 2), ShardChanges::default());
        assert_eq!(plan_changes("a", &all, start + LEASE).acquire, [1]);
    }

    #[test]
    fn released_shard_waits_for_its_requester() {
        let start = Instant::now();
        let all: BTreeMap<u32, Shard> = [(0, shard("a", None, start)), (1, shard("", Some("b"), start))].into();
        assert_eq!(plan_changes("b", &all, start).acquire, [1]);
        assert_eq!(plan_changes("a", &all, start).acquire, [] as [u32; 0]);
        // Only for the grace period.
        assert_eq!(plan_changes("a", &all, start + GRACE_PERIOD).acquire, [1]);
    }
}
