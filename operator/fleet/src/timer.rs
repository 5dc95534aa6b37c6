//! How long clusters have been in their state, by observation: the time that passed in this
//! process while it observed the state. Recorded times are not compared with a clock, because the
//! clocks of replicas differ and are set. After a restart, times start from zero.

use std::collections::HashMap;

use jiff::SignedDuration;
use knative_operator_shared::api::ClusterProfileReference;

/// The state of a cluster during an update.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Everything is written and Ready, since a transition that was recorded with this time.
    Ready(jiff::Timestamp),
    /// Something is missing or not Ready, or the cluster is not reachable.
    NotReady,
    /// A fault of the hub hides the state of all clusters: no time passes.
    Unknown,
    /// The operator has not looked at the cluster since a write: it may have just started, with
    /// much to do. No time passes.
    Unobserved,
    /// The ClusterProfile or the credential of the cluster is wrong, and hides its state.
    Hidden,
}

/// How long a cluster has been in its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Elapsed {
    /// Since the last write.
    pub total: SignedDuration,
    /// Since it is in its phase.
    pub in_phase: SignedDuration,
}

/// An update, and the phase of its cluster.
#[derive(Clone, Debug)]
struct Timer {
    update: u64,
    phase: Phase,
    started: SignedDuration,
    phase_started: SignedDuration,
    /// The last observation.
    observed: SignedDuration,
    /// Whether its gates are measured since the last observation.
    is_measured: bool,
    /// How long it was not Ready before its state became unobserved: an edit in between, or a
    /// repair, gives it no more time.
    not_ready_for: SignedDuration,
}

/// The timers of a fleet.
#[derive(Clone, Debug, Default)]
pub struct Timers(HashMap<ClusterProfileReference, Timer>);

impl Timers {
    /// Observes at `now`, a time since the start of the process, that `cluster` is in `phase` of
    /// the update with the digest `update`.
    pub fn observe(
        &mut self,
        cluster: &ClusterProfileReference,
        update: u64,
        phase: Phase,
        now: SignedDuration,
    ) -> Elapsed {
        let new = || Timer {
            update,
            phase: phase.clone(),
            started: now,
            phase_started: now,
            observed: now,
            is_measured: false,
            not_ready_for: SignedDuration::ZERO,
        };
        let Some(timer) = self.0.get_mut(cluster) else {
            self.0.insert(cluster.clone(), new());
            return Elapsed::default();
        };
        let interval = now - timer.observed;
        timer.observed = now;
        // While gates are measured, no time passes for the end of the update.
        if std::mem::take(&mut timer.is_measured) {
            timer.started += interval;
        }
        if timer.update != update || phase == Phase::Unknown || timer.phase == Phase::Unknown {
            *timer = new();
        } else if timer.phase != phase {
            if matches!(timer.phase, Phase::Hidden | Phase::Unobserved) {
                timer.started += now - timer.phase_started;
            }
            let former = match (&timer.phase, &phase) {
                (Phase::NotReady, Phase::Unobserved) => {
                    timer.not_ready_for = now - timer.phase_started;
                    SignedDuration::ZERO
                }
                (Phase::Unobserved, Phase::NotReady) => std::mem::take(&mut timer.not_ready_for),
                _ => {
                    timer.not_ready_for = SignedDuration::ZERO;
                    SignedDuration::ZERO
                }
            };
            (timer.phase, timer.phase_started) = (phase, now - former);
        }
        Elapsed { total: now - timer.started, in_phase: now - timer.phase_started }
    }

    /// Lets no time pass for the end of the update of `cluster` until the next observation, because
    /// its gates are measured.
    pub fn suspend(&mut self, cluster: &ClusterProfileReference) {
        if let Some(timer) = self.0.get_mut(cluster) {
            timer.is_measured = true;
        }
    }

    /// Lets no time have passed for `unknown`, in which nothing was known about the clusters.
    pub fn skip(&mut self, unknown: SignedDuration) {
        for timer in self.0.values_mut() {
            for time in [&mut timer.started, &mut timer.phase_started, &mut timer.observed] {
                *time += unknown;
            }
        }
    }

    /// Forgets clusters other than those that it `has`.
    pub fn retain(&mut self, has: impl Fn(&ClusterProfileReference) -> bool) {
        self.0.retain(|cluster, _| has(cluster));
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn time_is_observed() {
        let cluster = ClusterProfileReference { name: "a".to_owned(), namespace: "n".to_owned() };
        let (seconds, ready) = (SignedDuration::from_secs, |at| Phase::Ready(Timestamp::from_second(at).unwrap()));
        let mut timers = Timers::default();
        for (update, phase, now, total, in_phase) in [
            (1, Phase::NotReady, 100, 0, 0),
            (1, Phase::NotReady, 110, 10, 10),
            // Times in the past and in the future count alike.
            (1, ready(-50), 120, 20, 0),
            (1, ready(-50), 130, 30, 10),
            // It was not Ready in between, which nobody observed.
            (1, ready(9000), 140, 40, 0),
            (1, Phase::NotReady, 150, 50, 0),
            // The operator looks later.
            (1, Phase::Unobserved, 152, 52, 0),
            (1, Phase::Unobserved, 158, 58, 6),
            (1, Phase::NotReady, 159, 52, 2),
            (1, Phase::NotReady, 160, 53, 3),
            // Edits in between give it no more time, unless it was Ready.
            (1, Phase::Unobserved, 161, 54, 0),
            (1, Phase::NotReady, 165, 54, 4),
            (1, ready(-50), 166, 55, 0),
            (1, Phase::Unobserved, 167, 56, 0),
            (1, Phase::NotReady, 168, 56, 0),
            // No time passes.
            (1, Phase::Unknown, 170, 0, 0),
            (1, Phase::Unknown, 900, 0, 0),
            (1, Phase::NotReady, 910, 0, 0),
            // A fault of its own is not the time of another phase.
            (1, Phase::Hidden, 912, 2, 0),
            (1, Phase::Hidden, 915, 5, 3),
            (1, Phase::NotReady, 918, 2, 0),
            // The next write.
            (2, Phase::NotReady, 920, 0, 0),
        ] {
            let elapsed = timers.observe(&cluster, update, phase.clone(), seconds(now));
            assert_eq!((elapsed.total, elapsed.in_phase), (seconds(total), seconds(in_phase)), "{phase:?} at {now}");
        }
        // While gates are measured, no time passes for the end of the update; before and after, it
        // does.
        timers.observe(&cluster, 2, ready(-50), seconds(1000));
        for now in [1100, 1700] {
            timers.observe(&cluster, 2, ready(-50), seconds(now));
            timers.suspend(&cluster);
        }
        let elapsed = timers.observe(&cluster, 2, Phase::NotReady, seconds(1800));
        assert_eq!((elapsed.total, elapsed.in_phase), (seconds(180), seconds(0)));
        let elapsed = timers.observe(&cluster, 2, Phase::NotReady, seconds(1820));
        assert_eq!((elapsed.total, elapsed.in_phase), (seconds(200), seconds(20)));
        // After them, a soak counts.
        timers.observe(&cluster, 2, ready(1900), seconds(1900));
        let elapsed = timers.observe(&cluster, 2, ready(1900), seconds(2900));
        assert_eq!((elapsed.total, elapsed.in_phase), (seconds(1280), seconds(1000)));
        // Nor for anything while the clusters are not known.
        timers.suspend(&cluster);
        timers.skip(seconds(500));
        let elapsed = timers.observe(&cluster, 2, ready(1900), seconds(3410));
        assert_eq!((elapsed.total, elapsed.in_phase), (seconds(1280), seconds(1010)));
        timers.retain(|_| false);
        assert_eq!(timers.observe(&cluster, 2, Phase::NotReady, seconds(999)), Elapsed::default());
    }
}
