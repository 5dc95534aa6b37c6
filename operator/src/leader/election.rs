//! What a candidate does next. Pure.

use std::time::{Duration, Instant};

/// How long a Lease lasts, how often it is renewed, and how often others look.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// How long a Lease lasts after its last renewal.
    pub lease: Duration,
    /// How long a holder tries to renew before it gives up: less than `lease`.
    pub deadline: Duration,
    /// How often it is tried.
    pub retry: Duration,
}

/// A record as it was observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Who holds it; empty if nobody does.
    pub holder: String,
    /// Changes with each write of it.
    pub version: String,
    /// How long the holder says that it lasts.
    pub lease: Duration,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It doesn't exist: create it.
    Create,
    /// It is free or has expired: take it, with the version that was read.
    Take,
    /// It is ours: renew it, with the version that was read.
    Renew,
    /// Somebody holds it.
    Wait,
}

/// What a candidate has observed.
#[derive(Debug, Default)]
pub struct Observed {
    last: Option<(Record, Instant)>,
}

impl Observed {
    /// What `identity` does about `record`, seen at `now`.
    pub fn next(&mut self, identity: &str, record: Option<Record>, now: Instant) -> Step {
        let Some(record) = record else {
            self.last = None;
            return Step::Create;
        };
        let since = match &self.last {
            Some((last, since)) if *last == record => *since,
            _ => now,
        };
        let step = if record.holder == identity {
            Step::Renew
        } else if record.holder.is_empty() || now.duration_since(since) >= record.lease {
            Step::Take
        } else {
            Step::Wait
        };
        self.last = Some((record, since));
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(15);

    fn record(holder: &str, version: &str) -> Option<Record> {
        Some(Record { holder: holder.into(), version: version.into(), lease: LEASE })
    }

    #[test]
    fn a_lease_is_taken_only_when_it_has_not_changed_for_its_whole_length() {
        let (mut observed, start) = (Observed::default(), Instant::now());
        assert_eq!(observed.next("me", None, start), Step::Create);
        assert_eq!(observed.next("me", record("you", "1"), start), Step::Wait);
        assert_eq!(observed.next("me", record("you", "1"), start + Duration::from_secs(14)), Step::Wait);
        assert_eq!(observed.next("me", record("you", "2"), start + Duration::from_secs(15)), Step::Wait);
        assert_eq!(observed.next("me", record("you", "2"), start + Duration::from_secs(29)), Step::Wait);
        assert_eq!(observed.next("me", record("you", "2"), start + Duration::from_secs(30)), Step::Take);
        assert_eq!(observed.next("me", record("", "3"), start + Duration::from_secs(31)), Step::Take);
        assert_eq!(observed.next("me", record("me", "4"), start + Duration::from_secs(31)), Step::Renew);
    }

    /// Two candidates against one record whose writes need the version that was read: never two holders, whatever the
    /// order in which they act.
    #[test]
    fn two_candidates_never_both_hold_it() {
        for seed in 0..500u64 {
            let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            let mut next = move || {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random
            };
            let (mut stored, mut version): (Option<Record>, u64) = (None, 0);
            let (mut candidates, mut reads) = ([Observed::default(), Observed::default()], [None, None]);
            let names = ["a", "b"];
            // When each last wrote it successfully, by the common clock; it leads until its deadline after that.
            let mut wrote: [Option<Duration>; 2] = [None, None];
            let (start, mut clock) = (Instant::now(), Duration::ZERO);
            let deadline = Duration::from_secs(10);
            for _ in 0..400 {
                clock += Duration::from_millis(next() % 3000);
                let who = usize::try_from(next() % 2).unwrap();
                if next() % 2 == 0 {
                    reads[who] = Some((stored.clone(), clock));
                    continue;
                }
                let Some((read, at)) = reads[who].take() else { continue };
                let step = candidates[who].next(names[who], read.clone(), start + at);
                let current = stored.as_ref().map(|r| r.version.clone());
                if step == Step::Wait || read.map(|r| r.version) != current {
                    continue;
                }
                version += 1;
                stored = record(names[who], &version.to_string());
                // A holder counts from when it started to renew, not from when the write came back.
                wrote[who] = Some(at);
                let leads = |i: usize| wrote[i].is_some_and(|w| clock < w + deadline);
                assert!(!(leads(0) && leads(1)), "seed {seed}: both lead at {clock:?}");
            }
        }
    }
}
