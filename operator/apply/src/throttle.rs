//! Limits the writes to objects that another controller keeps reverting or that the API server
//! refuses. Pure: the time is an argument.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::error::ApplyError;
use knative_operator_objects::{Digest, ObjectId};

/// Repair budget: repairs of one object within the refill period.
const REPAIR_BUDGET: u32 = 5;
/// Refill period of the repair budget; also the back-off once it is exhausted.
const REFILL_PERIOD: Duration = Duration::from_secs(60);
/// Intervals of touches of an object that is stuck: first, and at most.
const TOUCH_INTERVALS: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(600));
/// Delay before a refused write is retried: first, and at most.
const RETRY_DELAY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Permission to repair an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// Repair it.
    Granted,
    /// The repair budget is used up: another manager keeps reverting the object.
    Exhausted,
    /// The budget was used up before and is not refilled yet.
    BackingOff,
}

/// Recent repairs and refused writes, per object.
#[derive(Debug, Default)]
pub struct Throttle {
    repairs: HashMap<ObjectId, Repairs>,
    refusals: HashMap<ObjectId, Refusal>,
    touches: HashMap<ObjectId, Touch>,
}

/// Numbers of objects whose writes wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// The API server refused them.
    pub refused: usize,
    /// Their repair budget is used up.
    pub contended: usize,
}

/// Repairs of an object since the budget was last full.
#[derive(Debug)]
struct Repairs {
    count: u32,
    since: Instant,
}

impl Repairs {
    /// When the budget is full again.
    fn refill(&self) -> Instant {
        self.since + REFILL_PERIOD
    }
}

/// The last touch of an object, and the pause before the next one.
#[derive(Debug)]
struct Touch {
    at: Instant,
    pause: Duration,
}

#[derive(Debug)]
struct Refusal {
    digest: Digest,
    why: ApplyError,
    due: Instant,
    pause: Duration,
}

impl Throttle {
    /// Requests a permit to repair `id`; counts against its budget.
    pub fn request_repair(&mut self, id: &ObjectId, now: Instant) -> Permit {
        let repairs = self.repairs.entry(id.clone()).or_insert(Repairs { count: 0, since: now });
        if now >= repairs.refill() {
            *repairs = Repairs { count: 0, since: now };
        }
        repairs.count += 1;
        match repairs.count {
            n if n <= REPAIR_BUDGET => Permit::Granted,
            n if n == REPAIR_BUDGET + 1 => Permit::Exhausted,
            _ => Permit::BackingOff,
        }
    }

    /// Whether `id` may be changed for a moment, as it is stuck: not when that is first asked,
    /// and then at a growing interval.
    pub fn request_touch(&mut self, id: &ObjectId, now: Instant) -> bool {
        let last = self.touches.entry(id.clone()).or_insert(Touch { at: now, pause: TOUCH_INTERVALS.0 });
        let is_due = now.duration_since(last.at) >= last.pause;
        if is_due {
            *last = Touch { at: now, pause: (last.pause * 2).min(TOUCH_INTERVALS.1) };
        }
        is_due
    }

    /// Why the API server refused `id` with `digest`, until the retry is due.
    pub fn refusal(&self, id: &ObjectId, digest: &Digest, now: Instant) -> Option<&ApplyError> {
        self.refusals.get(id).filter(|r| r.digest == *digest && now < r.due).map(|r| &r.why)
    }

    /// Records that the API server refused the write of `id`.
    pub fn record_refusal(&mut self, id: &ObjectId, digest: &Digest, why: &ApplyError, now: Instant) {
        // A refused repair repaired nothing, so it does not count against the budget.
        if let Some(repairs) = self.repairs.get_mut(id) {
            repairs.count = repairs.count.saturating_sub(1);
        }
        // One that was not tried was not refused: the next try needs no longer pause.
        let was_refused = |refusal: &&Refusal| refusal.digest == *digest && *why != ApplyError::Unreachable;
        let before = self.refusals.get(id).filter(was_refused);
        let pause = before.map_or(RETRY_DELAY.0, |r| (r.pause * 2).min(RETRY_DELAY.1));
        self.refusals.insert(id.clone(), Refusal { digest: *digest, why: why.clone(), due: now + pause, pause });
    }

    /// Resets the budget of objects that disappeared because their definition was deleted.
    pub fn reset(&mut self, matches: impl Fn(&ObjectId) -> bool) {
        self.repairs.retain(|id, _| !matches(id));
    }

    /// Forgets refusals: the connection is another one, and so may be what answers.
    pub fn forget_refusals(&mut self) {
        self.refusals.clear();
    }

    /// Records that the API server accepted the write of `id`.
    pub fn record_success(&mut self, id: &ObjectId) {
        self.refusals.remove(id);
    }

    /// How many writes wait.
    pub fn waiting(&self, now: Instant) -> Waiting {
        let is_contended = |repairs: &&Repairs| repairs.count > REPAIR_BUDGET && now < repairs.refill();
        Waiting {
            refused: self.refusals.values().filter(|refusal| now < refusal.due).count(),
            contended: self.repairs.values().filter(is_contended).count(),
        }
    }

    /// Time until the next retry or refill; what is due already was tried, or waits for something
    /// else.
    pub fn next_due(&self, now: Instant) -> Option<Duration> {
        let retries = self.refusals.values().map(|refusal| refusal.due);
        let refills = self.repairs.values().filter(|repairs| repairs.count > REPAIR_BUDGET).map(Repairs::refill);
        retries.chain(refills).filter(|due| *due > now).map(|due| due - now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> ObjectId {
        ObjectId::new("", "ConfigMap", "a", "b")
    }

    fn why() -> ApplyError {
        ApplyError::Other("no".to_owned())
    }

    #[test]
    fn stuck_object_is_touched_less_and_less() {
        let (mut throttle, start) = (Throttle::default(), Instant::now());
        let touched = |second: &u64| throttle.request_touch(&id(), start + Duration::from_secs(*second));
        assert_eq!((0..3600).filter(touched).collect::<Vec<_>>(), [10, 30, 70, 150, 310, 630, 1230, 1830, 2430, 3030]);
    }

    #[test]
    fn contended_object_costs_few_repairs_a_minute() {
        let (mut throttle, start) = (Throttle::default(), Instant::now());
        let leaves: Vec<_> =
            (0..1000).map(|i| throttle.request_repair(&id(), start + Duration::from_millis(i * 10))).collect();
        let count = |leave| leaves.iter().filter(|l| **l == leave).count();
        assert_eq!((count(Permit::Granted), count(Permit::Exhausted)), (5, 1));
        assert_eq!(throttle.next_due(start + Duration::from_secs(10)), Some(Duration::from_secs(50)));
        let waiting = |seconds| throttle.waiting(start + Duration::from_secs(seconds));
        assert_eq!((waiting(10), waiting(60)), (Waiting { refused: 0, contended: 1 }, Waiting::default()));
        assert_eq!(throttle.next_due(start + Duration::from_secs(60)), None);
        assert_eq!(throttle.request_repair(&id(), start + Duration::from_secs(61)), Permit::Granted);
    }

    #[test]
    fn refused_repair_does_not_count_against_budget() {
        let (mut throttle, start, digest) = (Throttle::default(), Instant::now(), Digest::of("1"));
        for _ in 0..20 {
            assert_eq!(throttle.request_repair(&id(), start), Permit::Granted);
            throttle.record_refusal(&id(), &digest, &why(), start);
        }
    }

    #[test]
    fn object_deleted_with_its_definition_gets_new_budget() {
        let (mut throttle, start) = (Throttle::default(), Instant::now());
        let other = ObjectId::new("", "ConfigMap", "a", "c");
        for _ in 0..=REPAIR_BUDGET {
            throttle.request_repair(&id(), start);
            throttle.request_repair(&other, start);
        }
        throttle.reset(|gone| *gone == id());
        assert_eq!(
            (throttle.request_repair(&id(), start), throttle.request_repair(&other, start)),
            (Permit::Granted, Permit::BackingOff)
        );
    }

    #[test]
    fn write_that_was_not_tried_waits_no_longer_each_time() {
        let (mut throttle, start, digest) = (Throttle::default(), Instant::now(), Digest::of("1"));
        for _ in 0..8 {
            throttle.record_refusal(&id(), &digest, &ApplyError::Unreachable, start);
            assert_eq!(throttle.next_due(start), Some(RETRY_DELAY.0));
        }
        throttle.forget_refusals();
        assert_eq!((throttle.next_due(start), throttle.refusal(&id(), &digest, start)), (None, None));
    }

    #[test]
    fn refused_write_backs_off_until_object_changes() {
        let (mut throttle, start, digest) = (Throttle::default(), Instant::now(), Digest::of("1"));
        throttle.record_refusal(&id(), &digest, &why(), start);
        assert_eq!(throttle.refusal(&id(), &digest, start), Some(&why()));
        assert_eq!(throttle.refusal(&id(), &Digest::of("2"), start), None);
        let later = start + Duration::from_secs(1);
        assert_eq!(throttle.refusal(&id(), &digest, later), None);
        throttle.record_refusal(&id(), &digest, &why(), later);
        assert_eq!(throttle.next_due(later), Some(Duration::from_secs(2)));
        assert_eq!(throttle.waiting(later), Waiting { refused: 1, contended: 0 });
        throttle.record_success(&id());
        assert_eq!(throttle.next_due(later), None);
    }
}
