//! When watches are renewed: the only requests of an idle operator, spread in time. Pure.

use std::time::Duration;

/// Number of watches of a cluster that are renewed often, and their interval: one of them finds
/// within a minute that the credential was revoked.
const FREQUENT: usize = 5;
const FREQUENT_INTERVAL: Duration = Duration::from_secs(240);
/// Interval in which the other watches are renewed: the API server ends them before. It is the most
/// that clients of Kubernetes usually ask for, twice.
const INTERVAL: Duration = Duration::from_secs(1200);
/// Of more clusters than this, the watches that are renewed often are so half as often, and of more
/// than twice as many, a quarter as often. These are steps, since another interval is another
/// place in it: with each one that comes or goes, all watches would last shorter or longer.
const MANY: usize = 1000;
/// Minimum duration of a watch, which adds to the interval if the next renewal would come sooner.
const MIN_WATCH: Duration = Duration::from_secs(5);

/// How long the watch number `index` of one of this many `clusters`, which starts `now`, lasts:
/// until its place in its interval, which differs from those of the others. So renewals, which are
/// the only requests of an idle operator, come all the time: the places of those that are renewed
/// often are less than 60 s apart, or a quarter of their interval.
pub fn duration_of(index: usize, clusters: usize, now: Duration) -> Duration {
    // Multiples of the golden ratio divide an interval evenly, regardless of their number.
    const GOLDEN_RATIO: f64 = 0.618_033_988_749_895;
    let interval = interval_of(index, clusters);
    // Less than a thousand watches, so the conversion is exact.
    let number = f64::from(u16::try_from(index).unwrap_or(u16::MAX));
    let place = interval.mul_f64((number * GOLDEN_RATIO).fract());
    let over = (now.as_secs_f64() - place.as_secs_f64()).rem_euclid(interval.as_secs_f64());
    let left = interval.saturating_sub(Duration::from_secs_f64(over));
    if left < MIN_WATCH { left + interval } else { left }
}

/// How often the watch number `index` of one of this many `clusters` is renewed.
fn interval_of(index: usize, clusters: usize) -> Duration {
    match clusters {
        _ if index >= FREQUENT => INTERVAL,
        0..=MANY => FREQUENT_INTERVAL,
        _ if clusters <= 2 * MANY => FREQUENT_INTERVAL * 2,
        _ => FREQUENT_INTERVAL * 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_end_in_turn_and_keep_their_places() {
        let ends = |count: usize, clusters: usize, start: u64| {
            let start = Duration::from_secs(start);
            let mut ends: Vec<_> = (0..count).map(|index| start + duration_of(index, clusters, start)).collect();
            // Renewed at its end, each lasts as long as its interval.
            for (index, end) in ends.iter().enumerate() {
                let next = duration_of(index, clusters, *end + Duration::from_millis(20));
                assert!(interval_of(index, clusters).abs_diff(next) < Duration::from_secs(1), "{index}: {next:?}");
            }
            ends.truncate(FREQUENT);
            ends.sort();
            ends
        };
        for ((count, start), (clusters, limit)) in [5, 6, 9, 14, 22, 60]
            .into_iter()
            .flat_map(|count| [0, 7, 100, 86_399].map(|s| (count, s)))
            .flat_map(|case| [(1, 60), (1_000, 60), (1_001, 120), (2_001, 240), (usize::MAX, 240)].map(|c| (case, c)))
        {
            let all = ends(count, clusters, start);
            let around = (all[0] + interval_of(0, clusters)).saturating_sub(all[FREQUENT - 1]);
            let gaps = all.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).chain([around]);
            let longest = gaps.max().unwrap_or_default();
            let limit = Duration::from_secs(limit);
            let first = all[0].saturating_sub(Duration::from_secs(start));
            assert!(
                first >= MIN_WATCH && first <= limit && longest <= limit,
                "{count} of {clusters} from {start}: {longest:?}"
            );
        }
    }

    #[test]
    fn watches_keep_their_places_while_clusters_come_and_go() {
        let day = Duration::from_secs(86_400);
        for (before, after) in [(1, 1_000), (1_200, 1_900), (4_000, 4_001), (2_001, 5_000)] {
            for index in 0..18 {
                let end = day + duration_of(index, before, day);
                let next = duration_of(index, after, end + Duration::from_millis(20));
                let interval = interval_of(index, before);
                assert!(interval.abs_diff(next) < Duration::from_secs(1), "{index} of {after}: {next:?}");
            }
        }
    }

    #[test]
    fn renewals_of_a_cluster_are_few() {
        let late = Duration::from_millis(20);
        // From its place on, each watch lasts as long as its interval.
        let in_an_hour = |clusters| {
            let duration = |index, now| duration_of(index, clusters, now) + late;
            let seconds = |index| duration(index, duration(index, Duration::ZERO)).as_secs();
            // Of an installation with eighteen kinds.
            (0..18).map(|index| 3600 / seconds(index)).sum::<u64>()
        };
        assert_eq!(in_an_hour(1), 5 * 15 + 13 * 3);
        assert_eq!(in_an_hour(5_000), 5 * 3 + 13 * 3);
    }
}
