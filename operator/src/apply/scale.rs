//! Deployments that somebody scales, such as an autoscaler or Knative's own controllers. Pure.
//!
//! What worked before and gets more Pods is not an outage: its new Pods have time to start.

use std::time::{Duration, Instant};

use crate::object::health::Health;

/// Time for which the Pods that were added may start.
pub const START: Duration = Duration::from_secs(60);

/// Number of replicas over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// With how many replicas it was available last.
    available: i64,
    /// How many are wanted.
    wanted: i64,
    /// Since when more are wanted than were available.
    since: Option<Instant>,
}

impl Scale {
    /// The scale after a change that was observed at `now`, with `wanted` replicas.
    pub fn next(before: Option<Self>, health: Option<&Health>, wanted: Option<i64>, now: Instant) -> Option<Self> {
        let wanted = wanted?;
        if health == Some(&Health::Ready) {
            return Some(Self { available: wanted, wanted, since: None });
        }
        let before = before?;
        let since = (wanted > before.available).then_some(match before.since {
            Some(since) if wanted <= before.wanted => since,
            _ => now,
        });
        Some(Self { wanted, since, ..before })
    }

    /// Until when added Pods may start; `None` if none were added.
    pub fn starting_until(self) -> Option<Instant> {
        self.since.map(|since| since + START)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_replicas_have_time_to_start() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let waits = Health::Waiting("MinimumReplicasUnavailable".into());
        let next =
            |before, health: &Health, wanted, seconds| Scale::next(before, Some(health), Some(wanted), at(seconds));
        let until = |scale: Option<Scale>| scale.and_then(Scale::starting_until);
        // It was never available.
        assert_eq!(next(None, &waits, 1, 0), None);
        let zero = next(None, &Health::Ready, 0, 0);
        assert_eq!(until(zero), None);
        let one = next(zero, &waits, 1, 5);
        assert_eq!(until(one), Some(at(5) + START));
        // Another event does not extend it, more replicas do.
        assert_eq!(until(next(one, &waits, 1, 9)), Some(at(5) + START));
        assert_eq!(until(next(one, &waits, 2, 9)), Some(at(9) + START));
        // Once available, a Pod that crashes is an outage.
        let available = next(one, &Health::Ready, 1, 10);
        assert_eq!(until(next(available, &waits, 1, 20)), None);
        // It crashes without having been scaled, or after it was scaled down.
        assert_eq!(until(next(available, &waits, 0, 20)), None);
        // What has no replicas is not scaled.
        assert_eq!(Scale::next(available, Some(&waits), None, start), None);
    }
}
