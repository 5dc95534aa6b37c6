//! When resources that somebody else changes are repaired: the first time at once, then less and
//! less often. A policy that changes all resources of a fleet again after each write would
//! otherwise cost the hub two requests for each of them, all the time.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::children::ChildKey;

/// Delay of the second repair; it doubles with each.
const FIRST: Duration = Duration::from_secs(5);
/// Maximum delay.
const LONGEST: Duration = Duration::from_secs(600);
/// Time after which a repair is the first one again.
const FORGET: Duration = Duration::from_secs(3600);

/// The repairs of the resources of a fleet: when the last one was, and how many there were.
#[derive(Default)]
pub struct Repairs(HashMap<ChildKey, (Instant, u32)>);

impl Repairs {
    /// Time until `key` may be repaired at `now`.
    pub fn wait(&self, key: &ChildKey, now: Instant) -> Duration {
        let Some((last, number)) = self.0.get(key) else { return Duration::ZERO };
        let delay = FIRST.saturating_mul(1 << (number - 1).min(16)).min(LONGEST);
        (*last + delay).saturating_duration_since(now)
    }

    /// Notes that `key` is repaired at `now`.
    pub fn note(&mut self, key: &ChildKey, now: Instant) {
        let number = match self.0.get(key) {
            Some((last, number)) if now.saturating_duration_since(*last) < FORGET => number + 1,
            _ => 1,
        };
        self.0.insert(key.clone(), (now, number));
    }

    /// Forgets resources that the fleet doesn't have any more.
    pub fn retain(&mut self, has: impl Fn(&ChildKey) -> bool) {
        self.0.retain(|key, _| has(key));
    }
}

#[cfg(test)]
mod tests {
    use knative_operator_shared::api::{ClusterProfileReference, Component};

    use super::*;

    #[test]
    fn repairs_of_one_resource_become_rare() {
        let key = (ClusterProfileReference { name: "a".to_owned(), namespace: "f".to_owned() }, Component::Serving);
        let (mut repairs, mut now) = (Repairs::default(), Instant::now());
        let mut delays = Vec::new();
        for _ in 0..10 {
            delays.push(repairs.wait(&key, now).as_secs());
            now += repairs.wait(&key, now);
            repairs.note(&key, now);
        }
        assert_eq!(delays, [0, 5, 10, 20, 40, 80, 160, 320, 600, 600]);
        now += FORGET;
        repairs.note(&key, now);
        assert_eq!(repairs.wait(&key, now), FIRST);
        repairs.retain(|_| false);
        assert_eq!(repairs.wait(&key, now), Duration::ZERO);
    }
}
