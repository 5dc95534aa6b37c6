//! Keeps two controllers that fight over an object, or an object that is refused, from costing a request each time.
//! Pure: the time is an argument.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::object::{Digest, ObjectId};

/// Repairs of one object that are made at once.
const BURST: u32 = 5;
/// How long an object rests once they are used up, and in which time they come back.
const REST: Duration = Duration::from_secs(60);
/// How soon what was refused is tried again, first and at most.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Whether an object may be repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// It may.
    Granted,
    /// It may not any more: somebody undoes each repair.
    Exhausted,
    /// It may not yet.
    Resting,
}

/// What was repaired and refused lately.
#[derive(Debug, Default)]
pub struct Throttle {
    repairs: HashMap<ObjectId, (u32, Instant)>,
    refusals: HashMap<ObjectId, Refusal>,
}

#[derive(Debug)]
struct Refusal {
    digest: Digest,
    why: String,
    due: Instant,
    pause: Duration,
}

impl Throttle {
    /// Whether `id` may be repaired now; counts it.
    pub fn repair(&mut self, id: &ObjectId, now: Instant) -> Leave {
        let (count, since) = self.repairs.entry(id.clone()).or_insert((0, now));
        if now.duration_since(*since) >= REST {
            (*count, *since) = (0, now);
        }
        *count += 1;
        match *count {
            n if n <= BURST => Leave::Granted,
            n if n == BURST + 1 => Leave::Exhausted,
            _ => Leave::Resting,
        }
    }

    /// Why `id` with `digest` was refused, while it is too soon to try again.
    pub fn refused(&self, id: &ObjectId, digest: &Digest, now: Instant) -> Option<&str> {
        self.refusals.get(id).filter(|r| r.digest == *digest && now < r.due).map(|r| r.why.as_str())
    }

    /// `id` was refused, because.
    pub fn refuse(&mut self, id: &ObjectId, digest: &Digest, why: &str, now: Instant) {
        // A repair that was refused has repaired nothing: it is no part of a fight.
        if let Some((count, _)) = self.repairs.get_mut(id) {
            *count = count.saturating_sub(1);
        }
        let before = self.refusals.get(id).filter(|r| r.digest == *digest);
        let pause = before.map_or(RETRY.0, |r| (r.pause * 2).min(RETRY.1));
        self.refusals.insert(id.clone(), Refusal { digest: *digest, why: why.to_owned(), due: now + pause, pause });
    }

    /// What `goes` with something that was repaired itself was in no fight of its own.
    pub fn pardon(&mut self, goes: impl Fn(&ObjectId) -> bool) {
        self.repairs.retain(|id, _| !goes(id));
    }

    /// `id` was accepted.
    pub fn accept(&mut self, id: &ObjectId) {
        self.refusals.remove(id);
    }

    /// When something that rests now is due again. What is due already was tried, or waits for something else.
    pub fn due(&self, now: Instant) -> Option<Duration> {
        let refused = self.refusals.values().map(|r| r.due);
        let fought = self.repairs.values().filter(|(count, _)| *count > BURST).map(|(_, since)| *since + REST);
        refused.chain(fought).filter(|due| *due > now).map(|due| due - now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> ObjectId {
        ObjectId::new("", "ConfigMap", "a", "b")
    }

    #[test]
    fn a_fight_costs_a_handful_of_repairs_a_minute() {
        let (mut throttle, start) = (Throttle::default(), Instant::now());
        let leaves: Vec<_> = (0..1000).map(|i| throttle.repair(&id(), start + Duration::from_millis(i * 10))).collect();
        let count = |leave| leaves.iter().filter(|l| **l == leave).count();
        assert_eq!((count(Leave::Granted), count(Leave::Exhausted)), (5, 1));
        assert_eq!(throttle.due(start + Duration::from_secs(10)), Some(Duration::from_secs(50)));
        assert_eq!(throttle.due(start + Duration::from_secs(60)), None);
        assert_eq!(throttle.repair(&id(), start + Duration::from_secs(61)), Leave::Granted);
    }

    #[test]
    fn a_repair_that_is_refused_is_no_part_of_a_fight() {
        let (mut throttle, start, digest) = (Throttle::default(), Instant::now(), Digest::of("1"));
        for _ in 0..20 {
            assert_eq!(throttle.repair(&id(), start), Leave::Granted);
            throttle.refuse(&id(), &digest, "no", start);
        }
    }

    #[test]
    fn what_went_with_its_definition_was_in_no_fight() {
        let (mut throttle, start) = (Throttle::default(), Instant::now());
        let other = ObjectId::new("", "ConfigMap", "a", "c");
        for _ in 0..=BURST {
            throttle.repair(&id(), start);
            throttle.repair(&other, start);
        }
        throttle.pardon(|gone| *gone == id());
        assert_eq!((throttle.repair(&id(), start), throttle.repair(&other, start)), (Leave::Granted, Leave::Resting));
    }

    #[test]
    fn what_was_refused_is_tried_again_ever_later_unless_it_changes() {
        let (mut throttle, start, digest) = (Throttle::default(), Instant::now(), Digest::of("1"));
        throttle.refuse(&id(), &digest, "no", start);
        assert_eq!(throttle.refused(&id(), &digest, start), Some("no"));
        assert_eq!(throttle.refused(&id(), &Digest::of("2"), start), None);
        let later = start + Duration::from_secs(1);
        assert_eq!(throttle.refused(&id(), &digest, later), None);
        throttle.refuse(&id(), &digest, "no", later);
        assert_eq!(throttle.due(later), Some(Duration::from_secs(2)));
        throttle.accept(&id());
        assert_eq!(throttle.due(later), None);
    }
}
