//! The removals of a day, which count against the limit of a fleet. They age by the time that a
//! process observes them. It is recorded from time to time, so that the next process continues:
//! neither a clock that is set nor another replica makes a removal older, and a restart loses
//! little.

use jiff::{SignedDuration, Timestamp};
use knative_operator_shared::api::fleet::{RecentRemoval, RemovalStatus};
use knative_operator_shared::time::truncate;

/// Time for which removals count.
const WINDOW: SignedDuration = SignedDuration::from_hours(24);
/// Removals within this time are recorded together.
const TOGETHER: SignedDuration = SignedDuration::from_hours(1);
/// Time after which ages are recorded: what a restart loses at most.
pub const STEP: SignedDuration = SignedDuration::from_mins(15);

/// Since when this process observes what was removed. Times are those since its start.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The record that is stored, and since when.
    stored: (RemovalStatus, SignedDuration),
    /// The one that was decided last, and when.
    decided: (RemovalStatus, SignedDuration),
}

impl Observed {
    /// How long this process has observed `record`, which is stored, at `now`. While clusters that
    /// count in it `are_left`, no time passes: their removal is yet to come.
    pub fn observe(&mut self, record: &RemovalStatus, are_left: bool, now: SignedDuration) -> SignedDuration {
        if self.stored.0 != *record {
            let since = if self.decided.0 == *record { self.decided.1 } else { now };
            self.stored = (record.clone(), since);
        }
        if are_left {
            self.stored.1 = now;
        }
        now - self.stored.1
    }

    /// Notes that `record` was decided at `now`, the time of the observation.
    pub fn decide(&mut self, record: &RemovalStatus, now: SignedDuration) {
        self.decided = (record.clone(), now);
    }
}

fn age(removal: &RecentRemoval) -> SignedDuration {
    SignedDuration::from_secs(removal.observed_seconds.max(0).into())
}

/// The removals in `record` that still count after it was observed for `elapsed`.
pub fn recent(record: &RemovalStatus, elapsed: SignedDuration) -> Vec<RecentRemoval> {
    let older = |removal: &RecentRemoval| {
        let age = age(removal).saturating_add(elapsed);
        RecentRemoval { observed_seconds: i32::try_from(age.as_secs()).unwrap_or(i32::MAX), ..removal.clone() }
    };
    record.recent.iter().map(older).filter(|removal| age(removal) < WINDOW).collect()
}

/// Whether the ages in `recent`, those of `record` after `elapsed`, are recorded now.
pub fn is_due(record: &RemovalStatus, recent: &[RecentRemoval], elapsed: SignedDuration) -> bool {
    recent.len() < record.recent.len() || !recent.is_empty() && elapsed >= STEP
}

/// Number of clusters in `recent`.
pub fn count(recent: &[RecentRemoval]) -> usize {
    recent.iter().map(|removal| usize::try_from(removal.clusters).unwrap_or(0)).sum()
}

/// Time until the oldest of `recent` doesn't count any more.
pub fn left(recent: &[RecentRemoval]) -> Option<SignedDuration> {
    recent.iter().map(|removal| WINDOW - age(removal)).min()
}

/// Adds the removal of `clusters` to `recent`. `now` is for people.
pub fn add(recent: &mut Vec<RecentRemoval>, clusters: usize, now: Timestamp) {
    let (time, clusters) = (truncate(now).to_string(), i32::try_from(clusters).unwrap_or(i32::MAX));
    match recent.last_mut().filter(|last| age(last) < TOGETHER) {
        Some(last) => {
            let clusters = last.clusters.saturating_add(clusters);
            *last = RecentRemoval { time, clusters, observed_seconds: 0 };
        }
        None => recent.push(RecentRemoval { time, clusters, observed_seconds: 0 }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A record of one removal.
    fn record(observed_seconds: i32) -> RemovalStatus {
        let removal = RecentRemoval { observed_seconds, clusters: 1, ..RecentRemoval::default() };
        RemovalStatus { recent: vec![removal], ..RemovalStatus::default() }
    }

    /// Minutes until a removal doesn't count any more, if each process runs for `run` minutes.
    fn minutes(run: i64) -> i64 {
        let (mut record, mut total) = (record(0), 0);
        loop {
            let mut observed = Observed::default();
            for minute in 0..=run {
                let now = SignedDuration::from_mins(minute);
                let elapsed = observed.observe(&record, false, now);
                let recent = recent(&record, elapsed);
                if is_due(&record, &recent, elapsed) {
                    record.recent = recent;
                }
                observed.decide(&record, now);
                if record.recent.is_empty() {
                    return total + minute;
                }
            }
            total += run;
            assert!(total < 7 * 24 * 60, "it still counts: {record:?}");
        }
    }

    #[test]
    fn day_ends_although_processes_restart() {
        for (run, expected) in [(100_000, 24 * 60), (23 * 60, 24 * 60), (20, 95 * 20 + 15)] {
            assert_eq!(minutes(run), expected, "each runs for {run} minutes");
        }
    }

    #[test]
    fn time_passes_while_the_same_record_is_observed() {
        let minutes = SignedDuration::from_mins;
        let mut observed = Observed::default();
        let mut elapsed = |seconds, are_left, now| observed.observe(&record(seconds), are_left, minutes(now));
        assert_eq!(elapsed(0, false, 100), minutes(0));
        assert_eq!(elapsed(0, false, 110), minutes(10));
        // Clusters that count in it are not removed yet.
        assert_eq!((elapsed(0, true, 120), elapsed(0, false, 125)), (minutes(0), minutes(5)));
        // Another replica wrote it.
        assert_eq!((elapsed(60, false, 130), elapsed(60, false, 131)), (minutes(0), minutes(1)));
        // What was decided is not stored yet, then it is.
        observed.decide(&record(120), minutes(132));
        let mut elapsed = |seconds, now| observed.observe(&record(seconds), false, minutes(now));
        assert_eq!((elapsed(60, 140), elapsed(120, 150)), (minutes(10), minutes(18)));
    }

    #[test]
    fn removal_that_an_earlier_version_recorded_counts_for_a_day() {
        let old = json!({"recent": [{"time": "2026-01-01T00:00:00Z", "clusters": 2}]});
        let old: RemovalStatus = serde_json::from_value(old).unwrap();
        let counts = |seconds| count(&recent(&old, SignedDuration::from_secs(seconds)));
        assert_eq!((counts(0), counts(24 * 3600 - 1), counts(24 * 3600)), (2, 2, 0));
    }

    #[test]
    fn removals_within_an_hour_are_one() {
        let mut recent = record(3599).recent;
        add(&mut recent, 2, Timestamp::MIN);
        assert_eq!((recent.len(), recent[0].clusters, recent[0].observed_seconds), (1, 3, 0));
        recent[0].observed_seconds = 3600;
        add(&mut recent, 2, Timestamp::MIN);
        assert_eq!((recent.len(), count(&recent), left(&recent)), (2, 5, Some(SignedDuration::from_hours(23))));
    }
}
