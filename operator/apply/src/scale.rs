//! Deployments that somebody scales, such as an autoscaler or Knative's own controllers. Pure.
//!
//! What works and gets more Pods is not an outage: the new Pods have time to start, as long as what
//! was available still is.

use std::time::{Duration, Instant};

use knative_operator_objects::health::{Health, Replicas};

/// Time for which the Pods that were added may start. More of them don't extend it.
const START: Duration = Duration::from_secs(60);

/// Number of replicas over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// With how many replicas it was available last.
    available: i64,
    /// How many are wanted.
    pub wanted: i64,
    /// Whether it was available at the last change.
    was_ready: bool,
    /// Since when more are wanted than were available.
    since: Option<Instant>,
}

impl Scale {
    /// The scale after a change that was observed at `now`.
    pub fn next(before: Option<Self>, health: Option<&Health>, seen: Option<Replicas>, now: Instant) -> Option<Self> {
        let seen = seen?;
        if health == Some(&Health::Ready) {
            return Some(Self { available: seen.wanted, wanted: seen.wanted, was_ready: true, since: None });
        }
        let before = before?;
        let is_more = seen.wanted > before.available && seen.available >= before.available;
        // Pods that fail, or that a rolling update replaces, are not those that were added.
        let is_starting = is_more && !seen.is_rolling && (before.was_ready || before.since.is_some());
        let since = is_starting.then_some(before.since.unwrap_or(now));
        Some(Self { available: before.available, wanted: seen.wanted, was_ready: false, since })
    }

    /// Until when added Pods may start; `None` if none were added.
    pub fn starting_until(self) -> Option<Instant> {
        self.since.map(|since| since + START)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replicas(wanted: i64, available: i64) -> Replicas {
        Replicas { wanted, available, is_rolling: false }
    }

    #[test]
    fn added_replicas_have_time_to_start() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let ready = |wanted| Scale::next(None, Some(&Health::Ready), Some(replicas(wanted, wanted)), start);
        let waits = Health::Waiting("MinimumReplicasUnavailable".into());
        let next = |before, seen, seconds| Scale::next(before, Some(&waits), Some(seen), at(seconds));
        let until = |scale: Option<Scale>| scale.and_then(Scale::starting_until);
        // It was never available.
        assert_eq!(next(None, replicas(1, 0), 0), None);
        assert_eq!(until(ready(0)), None);
        let one = next(ready(0), replicas(1, 0), 5);
        assert_eq!(until(one), Some(at(5) + START));
        // Neither another event nor more replicas extend it.
        assert_eq!(until(next(one, replicas(1, 0), 9)), Some(at(5) + START));
        let two = next(one, replicas(2, 0), 9);
        assert_eq!(until(two), Some(at(5) + START));
        assert_eq!(until(next(next(two, replicas(1, 0), 20), replicas(2, 0), 30)), Some(at(5) + START));
        // A Pod that crashes is an outage, and scaling doesn't hide it.
        let crashed = next(ready(1), replicas(1, 0), 20);
        assert_eq!(until(crashed), None);
        assert_eq!(until(next(crashed, replicas(2, 0), 30)), None);
        assert_eq!(until(next(crashed, replicas(2, 1), 30)), None, "not before it was available again");
        // So are those that crash while others are added.
        let more = next(ready(3), replicas(4, 3), 0);
        assert_eq!(until(more), Some(at(0) + START));
        assert_eq!(until(next(more, replicas(4, 2), 5)), None);
        // It is updated, or its new Pods are refused.
        let rolling = Replicas { is_rolling: true, ..replicas(2, 1) };
        assert_eq!(until(next(ready(1), rolling, 0)), None);
        // What has no replicas is not scaled.
        assert_eq!(Scale::next(ready(1), Some(&waits), None, start), None);
    }
}
