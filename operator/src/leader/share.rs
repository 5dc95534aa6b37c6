//! Which shards of the fleet a replica takes, gives away, and asks for. Pure.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::election::Record;

/// How long a shard may be free before somebody takes it who has enough already.
const LEFT: Duration = Duration::from_secs(4);

/// What is known of one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Its Lease, if there is one.
    pub record: Option<Record>,
    /// Who asks for it.
    pub wanted: Option<String>,
    /// When it was seen first as it is.
    pub since: Instant,
}

/// What to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// Free shards to take.
    pub take: Vec<u32>,
    /// Shards of one's own that are handed over.
    pub give: Vec<u32>,
    /// A shard of somebody who has more, to ask for.
    pub ask: Option<u32>,
}

impl Shard {
    /// Who holds it, at `now`.
    fn holder(&self, now: Instant) -> Option<&str> {
        let record = self.record.as_ref()?;
        (!record.holder.is_empty() && now.duration_since(self.since) < record.lease).then_some(record.holder.as_str())
    }
}

/// What `me` does at `now`, where the shards are `all`.
pub fn moves(me: &str, all: &BTreeMap<u32, Shard>, now: Instant) -> Moves {
    let mut held: BTreeMap<&str, Vec<u32>> = BTreeMap::from([(me, Vec::new())]);
    for (shard, state) in all {
        if let Some(holder) = state.holder(now) {
            held.entry(holder).or_default().push(*shard);
        }
        // Whoever asks is there, too.
        if let Some(wanted) =
            state.wanted.as_deref().filter(|w| !w.is_empty() && now.duration_since(state.since) < LEFT)
        {
            held.entry(wanted).or_default();
        }
    }
    let (most, least) = (all.len().div_ceil(held.len()), all.len() / held.len());
    let mine = held.get(me).map_or(0, Vec::len);
    let mut moves = Moves::default();
    for (shard, state) in all {
        let other = state.wanted.as_deref().is_some_and(|w| w != me && !w.is_empty());
        match state.holder(now) {
            None => {
                let free = now.duration_since(state.since);
                let expired = state.record.as_ref().is_some_and(|r| !r.holder.is_empty());
                let waits = free >= LEFT || expired;
                if waits || (mine + moves.take.len() < most && !other) {
                    moves.take.push(*shard);
                }
            }
            Some(holder) if holder == me && other && mine - moves.give.len() > least.max(1) => moves.give.push(*shard),
            Some(_) => {}
        }
    }
    let asks = all.values().any(|s| s.wanted.as_deref() == Some(me) && s.holder(now) != Some(me));
    if moves.take.is_empty() && mine < least && !asks {
        let richest = held
            .iter()
            .filter(|(who, shards)| **who != me && shards.len() > least)
            .max_by_key(|(_, shards)| shards.len());
        moves.ask = richest.and_then(|(_, shards)| shards.last().copied());
    }
    moves
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(12);

    fn shard(holder: &str, wanted: Option<&str>, since: Instant) -> Shard {
        let record = Some(Record { holder: holder.into(), version: "1".into(), lease: LEASE });
        Shard { record, wanted: wanted.map(str::to_owned), since }
    }

    #[test]
    fn the_first_takes_all_and_the_second_gets_half() {
        let start = Instant::now();
        // Each has what it was given by the API server last; what one writes all see.
        let mut all: BTreeMap<u32, Shard> =
            (0..5).map(|n| (n, Shard { record: None, wanted: None, since: start })).collect();
        assert_eq!(moves("a", &all, start).take, [0, 1, 2, 3, 4]);
        all.values_mut().for_each(|s| *s = shard("a", None, start));
        for _ in 0..20 {
            for me in ["a", "b"] {
                let Moves { take, give, ask } = moves(me, &all, start);
                take.iter().for_each(|n| drop(all.insert(*n, shard(me, None, start))));
                for n in give {
                    let wanted = all[&n].wanted.clone();
                    all.insert(n, shard("", wanted.as_deref(), start));
                }
                if let Some(n) = ask {
                    all.get_mut(&n).unwrap().wanted = Some(me.to_owned());
                }
            }
        }
        let count = |who: &str| all.values().filter(|s| s.holder(start) == Some(who)).count();
        assert_eq!((count("a"), count("b")), (3, 2));
        assert_eq!((moves("a", &all, start), moves("b", &all, start)), (Moves::default(), Moves::default()));
    }

    #[test]
    fn what_a_lost_replica_held_is_taken_by_whoever_is_left() {
        let start = Instant::now();
        let all: BTreeMap<u32, Shard> = [(0, shard("a", None, start + LEASE)), (1, shard("b", None, start))].into();
        assert_eq!(moves("a", &all, start + LEASE / 2), Moves::default());
        assert_eq!(moves("a", &all, start + LEASE).take, [1]);
    }

    #[test]
    fn what_is_handed_over_waits_for_whoever_asked() {
        let start = Instant::now();
        let all: BTreeMap<u32, Shard> = [(0, shard("a", None, start)), (1, shard("", Some("b"), start))].into();
        assert_eq!(moves("b", &all, start).take, [1]);
        assert_eq!(moves("a", &all, start).take, [] as [u32; 0]);
        // But not for ever.
        assert_eq!(moves("a", &all, start + LEFT).take, [1]);
    }
}
