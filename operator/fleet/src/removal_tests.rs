//! Tests of the guard of removals.

use knative_operator_shared::api::fleet::RecentRemoval;

use super::*;

const HOUR: i64 = 3600;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + seconds).unwrap()
}

fn cluster(number: usize) -> ClusterProfileReference {
    ClusterProfileReference { name: format!("{number:04}"), namespace: "n".to_owned() }
}

/// `count` clusters that left at `since`, which this process has observed for `observed` seconds.
fn leaving(count: usize, since: i64, observed: i64) -> BTreeMap<ClusterProfileReference, Leaving> {
    let one = Leaving {
        since: Some(at(since)),
        observed: SignedDuration::from_secs(observed),
        is_installed: true,
        ..Leaving::default()
    };
    (0..count).map(|number| (cluster(number), one.clone())).collect()
}

/// A record of the removal of `clusters`, `observed_seconds` ago.
fn removed(clusters: i32, observed_seconds: i32) -> RemovalStatus {
    let removal = RecentRemoval { time: at(0).to_string(), clusters, observed_seconds };
    RemovalStatus { recent: vec![removal], ..RemovalStatus::default() }
}

/// A fleet at a time.
struct Case {
    leaving: BTreeMap<ClusterProfileReference, Leaving>,
    counting: BTreeSet<ClusterProfileReference>,
    staying: usize,
    limit: Option<IntOrString>,
    paused: bool,
    grace: SignedDuration,
    record: RemovalStatus,
    elapsed: i64,
    now: i64,
}

impl Case {
    fn new(leaving: BTreeMap<ClusterProfileReference, Leaving>, staying: usize) -> Self {
        Self {
            leaving,
            counting: BTreeSet::new(),
            staying,
            limit: None,
            paused: false,
            grace: GRACE_PERIOD,
            record: RemovalStatus::default(),
            elapsed: 0,
            now: HOUR,
        }
    }

    fn approved(&self, is_approved: impl Fn(&str) -> bool) -> RemovalDecision {
        let input = RemovalInput {
            leaving: &self.leaving,
            counting: &self.counting,
            staying: self.staying,
            max_at_once: self.limit.as_ref(),
            grace: self.grace,
            policy: RemovalPolicy::Delete,
            is_paused: self.paused,
            record: &self.record,
            elapsed: SignedDuration::from_secs(self.elapsed),
            now: at(self.now),
        };
        input.decide(is_approved)
    }

    fn decide(&self) -> RemovalDecision {
        self.approved(|_| false)
    }
}

#[test]
fn installed_clusters_count_and_selected_ones_do_not() {
    // A mistyped selector matches 2,000 others, on which nothing is installed: 100 of 100 leave.
    let decision = Case::new(leaving(100, 0, HOUR), 0).decide();
    assert!(decision.remove.is_empty() && decision.blocked.is_some(), "{decision:?}");
}

#[test]
fn number_of_removals_is_limited() {
    let removed = |leaving: BTreeMap<_, _>, staying, limit: Option<IntOrString>| {
        Case { limit, ..Case::new(leaving, staying) }.decide().remove.len()
    };
    let percent = || Some(IntOrString::String("50%".to_owned()));
    for (count, staying, limit, expected) in [
        (0, 0, None, 0),
        (1, 3, None, 1),
        // The last cluster.
        (1, 0, None, 0),
        (1, 0, Some(IntOrString::Int(1)), 1),
        (10, 90, None, 10),
        (11, 89, None, 0),
        (2, 3, None, 0),
        (50, 50, percent(), 50),
        (51, 49, percent(), 0),
        (3, 0, Some(IntOrString::Int(3)), 3),
        (4, 100, Some(IntOrString::Int(3)), 0),
    ] {
        assert_eq!(removed(leaving(count, 0, HOUR), staying, limit.clone()), expected, "{count} {staying} {limit:?}");
    }
}

#[test]
fn removal_that_waits_for_the_limit_of_a_day_wakes_by_itself() {
    let mut case = Case::new(leaving(1, 0, HOUR), 9);
    case.record = removed(1, 23 * 3600);
    for (elapsed, expected) in [(0, 15), (60, 14), (50 * 60, 10)] {
        case.elapsed = elapsed;
        let decision = case.decide();
        assert!(decision.blocked.is_some());
        assert_eq!(decision.wake, Some(SignedDuration::from_mins(expected)), "{elapsed}");
    }
    case.elapsed = HOUR;
    assert_eq!(case.decide().remove.len(), 1);
}

#[test]
fn clock_that_is_set_frees_no_budget() {
    // It is set forward by a day or a year, or back by a day; or another replica takes over.
    for now in [25 * HOUR, 366 * 24 * HOUR, -24 * HOUR] {
        let mut case = Case { now, ..Case::new(leaving(1, 0, HOUR), 9) };
        case.record = removed(1, 0);
        assert!(case.decide().blocked.is_some(), "{now}");
        case.elapsed = 24 * HOUR - 1;
        let decision = case.decide();
        assert!(decision.blocked.is_some(), "{now}");
        // What was observed is recorded, for the next process.
        (case.record, case.elapsed) = (decision.record, 1);
        assert_eq!((case.decide().remove.len(), case.decide().record.recent.len()), (1, 1), "{now}");
    }
}

#[test]
fn ages_are_recorded_from_time_to_time_also_if_nobody_leaves() {
    let mut case = Case::new(BTreeMap::new(), 10);
    case.record = removed(1, 7);
    for (elapsed, recorded, left) in [(0, 7, 15), (14 * 60, 7, 1), (15 * 60, 907, 15), (20 * 60, 1207, 15)] {
        case.elapsed = elapsed;
        let RemovalDecision { record, wake, .. } = case.decide();
        assert_eq!((record, wake), (removed(1, recorded), Some(SignedDuration::from_mins(left))), "{elapsed}");
    }
    case.elapsed = 24 * HOUR;
    assert_eq!((case.decide().record, case.decide().wake), (RemovalStatus::default(), None));
}

#[test]
fn cluster_that_left_during_a_pause_is_kept_for_another_grace_period() {
    // It left long ago, and the pause just ended.
    let mut case = Case::new(leaving(1, 0, 0), 9);
    case.now = 100 * HOUR;
    let decision = case.decide();
    assert!(decision.remove.is_empty() && decision.until >= Some(at(101 * HOUR)), "{decision:?}");
    assert_eq!(decision.wake, Some(SignedDuration::from_hours(1)));
}

#[test]
fn long_grace_period_is_over_at_its_time_also_after_a_restart() {
    for (hours, observed, expected) in [
        // The process that recorded the time, and others that started later.
        (23, 23 * HOUR, 24),
        (23, 0, 24),
        (23, HOUR / 2, 24),
        (24, HOUR, 24),
        // A part of the last hour must be observed.
        (24, 0, 25),
        (24, HOUR / 2, 24),
        (100, 0, 101),
    ] {
        let mut case = Case::new(leaving(1, 0, observed), 9);
        (case.grace, case.now) = (SignedDuration::from_hours(24), hours * HOUR);
        let decision = case.decide();
        let is_removed = !decision.remove.is_empty();
        assert_eq!(is_removed, hours >= 24 && observed >= HOUR, "{hours} {observed}: {decision:?}");
        let until = decision.until.unwrap().duration_since(at(0)).as_secs() / HOUR;
        assert_eq!(until, expected, "{hours} {observed}: {decision:?}");
    }
}

#[test]
fn removal_has_a_name_once_all_its_times_are_recorded() {
    let mut case = Case::new(leaving(4, 0, HOUR), 0);
    assert!(case.decide().blocked.unwrap().name.is_some());
    case.leaving.get_mut(&cluster(0)).unwrap().since = None;
    assert_eq!(
        case.approved(|_| true).blocked,
        Some(Blocked { name: None, clusters: BTreeSet::from([cluster(0)]), limit: 0 })
    );
}

#[test]
fn cluster_that_counts_in_a_rollout_stays() {
    let mut case = Case::new(leaving(2, 0, HOUR), 98);
    case.counting = BTreeSet::from([cluster(0)]);
    let decision = case.decide();
    assert_eq!((decision.remove, decision.counting.len()), (BTreeSet::from([cluster(1)]), 1));
}

#[test]
fn removals_count_for_a_day() {
    let mut record = RemovalStatus::default();
    let mut removed = 0;
    // Each hour, another cluster of 20 loses its label. Two may leave within a day.
    for hour in 1..48 {
        let leaving = leaving(1, hour * HOUR, HOUR);
        let case = Case { record, elapsed: HOUR, now: (hour + 1) * HOUR, ..Case::new(leaving, 19 - removed) };
        let decision = case.decide();
        removed += decision.remove.len();
        assert!(removed <= if hour < 25 { 2 } else { 3 }, "{removed} in hour {hour}: {decision:?}");
        record = decision.record;
    }
    assert_eq!(removed, 3);
}

#[test]
fn nothing_is_removed_before_the_grace_period_is_over() {
    for (since, observed, now, paused, expected) in [
        (0, HOUR, HOUR, false, 1),
        (0, HOUR, HOUR, true, 0),
        (0, HOUR - 1, HOUR, false, 0),
        // The clock is set, or that of another replica differs.
        (0, 10, 9 * HOUR, false, 0),
        (0, HOUR, HOUR - 1, false, 1),
        (99 * HOUR, HOUR - 1, HOUR, false, 0),
        (99 * HOUR, HOUR, HOUR, false, 1),
    ] {
        let case = Case { paused, now, ..Case::new(leaving(1, since, observed), 5) };
        let decision = case.decide();
        assert_eq!(decision.remove.len(), expected, "{since} {observed} {now} {paused}: {decision:?}");
        assert!(decision.until.is_some());
    }
    // The time of a label that flaps starts from zero.
    let mut flapping = leaving(1, 0, 0);
    flapping.get_mut(&cluster(0)).unwrap().since = None;
    let decision = Case::new(flapping, 5).decide();
    assert_eq!((decision.since, decision.remove.len()), (Some(at(HOUR)), 0));
}

#[test]
fn approval_is_for_these_clusters_and_counts_once() {
    let mut case = Case::new(leaving(4, 0, HOUR), 0);
    let Blocked { name, limit, .. } = case.decide().blocked.unwrap();
    let name = name.unwrap();
    assert_eq!(limit, 0);
    let approved = |case: &Case| case.approved(|approved| approved == name);
    let decision = approved(&case);
    assert_eq!((decision.remove.len(), decision.blocked.is_none()), (4, true));
    case.record = decision.record;
    assert_eq!(case.record.recent[0].clusters, 4);
    // After a crash, the others follow, and are not counted again.
    case.leaving.remove(&cluster(0));
    let decision = case.decide();
    assert_eq!((decision.remove.len(), &decision.record), (3, &case.record));
    // They are back, and leave again: the time is another one.
    let back = Leaving { is_installed: true, ..Leaving::default() };
    case.leaving = (0..4).map(|number| (cluster(number), back.clone())).collect();
    case.now = 0;
    let since = approved(&case).since.unwrap();
    assert!(since > at(0) && since <= at(1), "later than the removal that was allowed: {since}");
    // By a clock that is behind, they leave at another time if they do so again.
    case.now = -24 * HOUR;
    let before = approved(&case).since.unwrap();
    case.now += 1;
    let after = approved(&case).since.unwrap();
    assert!(at(0) < before && before < after && after < since, "{before} {after} {since}");
    assert_eq!(recorded(&after.to_string(), &case.record, at(case.now)), Some(after));
    (case.leaving, case.now) = (leaving(4, 1, HOUR), 9 * HOUR);
    assert!(approved(&case).blocked.is_some());
    // Other clusters.
    case.record = RemovalStatus::default();
    case.leaving = leaving(5, 0, HOUR);
    assert!(approved(&case).blocked.is_some());
}

#[test]
fn approval_counts_for_clusters_whose_grace_period_is_not_over() {
    let mut case = Case::new(leaving(2, 0, HOUR), 0);
    let mut late = leaving(1, HOUR - 10, 10);
    case.leaving.extend(late.pop_first().map(|(_, one)| (cluster(9), one)));
    let decision = case.approved(|_| true);
    assert_eq!(decision.remove.len(), 2);
    case.record = decision.record;
    case.leaving.retain(|name, _| *name == cluster(9));
    assert_eq!((case.decide().remove.len(), case.decide().blocked), (0, None));
    (case.now, case.leaving.get_mut(&cluster(9)).unwrap().observed) = (3 * HOUR, SignedDuration::from_hours(3));
    assert_eq!(case.decide().remove.len(), 1);
}

#[test]
fn time_that_somebody_forged_is_none_and_stops_nothing() {
    let record = |time: &str| RemovalStatus { allowed_until: Some(time.to_owned()), ..RemovalStatus::default() };
    let last = Timestamp::MAX.to_string();
    for (text, record, expected) in [
        (at(0).to_string(), RemovalStatus::default(), Some(at(0))),
        (at(1).to_string(), RemovalStatus::default(), None),
        (last.clone(), RemovalStatus::default(), None),
        ("x".to_owned(), RemovalStatus::default(), None),
        // As it is recorded after another removal in the same second.
        (at(1).to_string(), record(&at(0).to_string()), Some(at(1))),
        (at(2).to_string(), record(&at(0).to_string()), None),
    ] {
        assert_eq!(recorded(&text, &record, at(0)), expected, "{text}");
    }
    // As an earlier version recorded it.
    let mut case = Case { record: record(&last), ..Case::new(leaving(2, 0, 0), 5) };
    case.leaving.get_mut(&cluster(0)).unwrap().since = None;
    assert!(case.decide().since.is_some());
}

#[test]
fn protected_clusters_stay_and_use_no_budget() {
    let mut case = Case::new(leaving(3, 0, HOUR), 17);
    assert!(case.decide().blocked.is_some(), "two of 20 may leave");
    case.leaving.get_mut(&cluster(1)).unwrap().is_protected = true;
    let decision = case.decide();
    assert_eq!((decision.remove.len(), decision.protected.len()), (2, 1));
    assert_eq!(decision.record.recent[0].clusters, 2);
    // While it is protected, no time is recorded. Later, nobody protects it: it leaves again.
    case.record = decision.record;
    case.leaving.retain(|name, _| *name == cluster(1));
    case.leaving.get_mut(&cluster(1)).unwrap().since = None;
    assert_eq!((case.decide().since, case.decide().record), (None, case.record.clone()));
    case.leaving.get_mut(&cluster(1)).unwrap().is_protected = false;
    let since = case.decide().since.unwrap();
    assert!(since > at(0), "later than the removal that was allowed");
    case.leaving.get_mut(&cluster(1)).unwrap().since = Some(since);
    case.now = 3 * HOUR;
    assert!(case.decide().blocked.is_some(), "two have left within a day");
}

#[test]
fn those_that_waited_are_a_removal_of_their_own() {
    for is_protected in [true, false] {
        // Five of 50 are removed; 45 wait.
        let mut case = Case { limit: Some(IntOrString::Int(5)), ..Case::new(leaving(50, 0, HOUR), 0) };
        let waiting: BTreeSet<_> = (5..50).map(cluster).collect();
        for (name, one) in case.leaving.iter_mut().filter(|(name, _)| waiting.contains(*name)) {
            (one.is_protected, one.since) = (is_protected, None);
            case.counting.extend((!is_protected).then(|| name.clone()));
        }
        let decision = case.decide();
        assert_eq!((decision.remove.len(), decision.since), (5, None));
        // Then they don't wait any more.
        case.record = decision.record;
        case.counting.clear();
        case.leaving.retain(|name, _| waiting.contains(name));
        case.leaving.values_mut().for_each(|one| one.is_protected = false);
        let since = case.decide().since;
        case.leaving.values_mut().for_each(|one| one.since = since);
        case.now = 9 * HOUR;
        let decision = case.decide();
        assert!(decision.remove.is_empty() && decision.blocked.is_some(), "{decision:?}");
    }
}

#[test]
fn all_that_are_allowed_are_counted() {
    // Those that left before the one that is removed are allowed with it.
    let mut case = Case { limit: Some(IntOrString::Int(3)), ..Case::new(leaving(2, -10, 0), 50) };
    case.leaving.extend(leaving(3, 0, HOUR).pop_last());
    let decision = case.decide();
    assert_eq!((decision.remove.len(), decision.record.recent[0].clusters), (1, 3));
}

#[test]
fn cluster_that_is_allowed_and_not_removed_yet_counts_once() {
    // Ten of 100 are removed. The operator stops before it deletes their resources.
    let mut case = Case::new(leaving(10, 0, HOUR), 90);
    case.record = case.decide().record;
    assert_eq!(case.record.recent[0].clusters, 10);
    // An eleventh one leaves.
    case.leaving.extend(leaving(1, 1, HOUR).into_values().map(|other| (cluster(10), other)));
    (case.staying, case.now) = (89, 2 * HOUR);
    let decision = case.decide();
    assert_eq!(decision.blocked.map(|blocked| (blocked.clusters.len(), blocked.limit)), Some((1, 10)));
    assert_eq!(decision.remove, (0..10).map(cluster).collect());
}

#[test]
fn clusters_without_an_installation_make_no_limit_greater() {
    // A mistyped selector: nine of fourteen installations leave, with ninety clusters on which
    // nothing was ever installed.
    let mut case = Case::new(leaving(99, 0, HOUR), 5);
    case.leaving.values_mut().skip(9).for_each(|one| one.is_installed = false);
    let decision = case.decide();
    assert_eq!(decision.remove.len(), 0);
    assert_eq!(decision.blocked.map(|blocked| (blocked.clusters.len(), blocked.limit)), Some((99, 1)));
    case.limit = Some(IntOrString::String("100%".to_owned()));
    assert_eq!(case.decide().remove.len(), 99);
}
