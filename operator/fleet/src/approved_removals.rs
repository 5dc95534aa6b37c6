//! Tests of approved removals, some of whose clusters are not available for a time.

use super::*;

fn at(hours: i64) -> Timestamp {
    Timestamp::from_second(1_000_000).unwrap() + SignedDuration::from_hours(hours)
}

fn cluster(number: usize) -> ClusterProfileReference {
    ClusterProfileReference { name: format!("{number:04}"), namespace: "n".to_owned() }
}

/// A cluster that left at `since`, which this process has observed for as long.
fn left(since: Timestamp, now: Timestamp) -> Leaving {
    Leaving { since: Some(since), observed: now.duration_since(since), is_installed: true, ..Leaving::default() }
}

/// A cluster like `one`, which is not available.
fn lost(one: &Leaving) -> Leaving {
    Leaving { is_unavailable: true, observed: SignedDuration::ZERO, ..one.clone() }
}

/// A fleet at a time.
struct Case {
    leaving: BTreeMap<ClusterProfileReference, Leaving>,
    staying: usize,
    grace: SignedDuration,
    policy: RemovalPolicy,
    record: RemovalStatus,
    now: Timestamp,
}

impl Case {
    /// `count` clusters left an hour ago.
    fn new(count: usize, staying: usize) -> Self {
        let one = left(at(0), at(1));
        Self {
            leaving: (0..count).map(|number| (cluster(number), one.clone())).collect(),
            staying,
            grace: GRACE_PERIOD,
            policy: RemovalPolicy::Delete,
            record: RemovalStatus::default(),
            now: at(1),
        }
    }

    fn set(&mut self, number: usize, change: impl Fn(&Leaving) -> Leaving) {
        let one = self.leaving.get_mut(&cluster(number)).unwrap();
        *one = change(one);
    }

    /// Decides, if the removal called `approved` is approved.
    fn decide(&self, approved: Option<&str>) -> RemovalDecision {
        self.decide_by(approved.as_slice())
    }

    /// Decides, if the removals called `approved` are approved.
    fn decide_by(&self, approved: &[&str]) -> RemovalDecision {
        let input = RemovalInput {
            leaving: &self.leaving,
            counting: &BTreeSet::new(),
            staying: self.staying,
            max_at_once: None,
            grace: self.grace,
            policy: self.policy,
            is_paused: false,
            record: &self.record,
            elapsed: SignedDuration::ZERO,
            now: self.now,
        };
        input.decide(|name| approved.contains(&name))
    }

    /// The name of the removal that is blocked.
    fn name(&self) -> Option<String> {
        self.decide(None).blocked?.name
    }
}

#[test]
fn approval_to_keep_installations_is_none_to_uninstall_them() {
    let mut case = Case::new(4, 0);
    let uninstall = case.name();
    case.policy = RemovalPolicy::Orphan;
    let keep = case.name();
    assert!(keep.is_some() && keep != uninstall, "{keep:?}");
    assert!(case.decide(keep.as_deref()).blocked.is_none());
    case.policy = RemovalPolicy::Delete;
    assert_eq!(case.decide(keep.as_deref()).blocked.unwrap().name, uninstall);
}

#[test]
fn removal_that_keeps_installations_allows_to_uninstall_none() {
    // The grace period of the second one is not over.
    let mut case = Case::new(2, 0);
    case.policy = RemovalPolicy::Orphan;
    let half = at(0) + SignedDuration::from_mins(30);
    case.set(1, |_| left(half, at(1)));
    let name = case.name();
    let decision = case.decide(name.as_deref());
    assert_eq!((decision.remove, decision.record.orphans), (BTreeSet::from([cluster(0)]), Some(true)));
    case.leaving.retain(|one, _| *one == cluster(1));
    (case.now, case.staying) = (at(2), 9);
    case.set(1, |_| left(half, at(2)));
    for (policy, expected) in [(RemovalPolicy::Orphan, 1), (RemovalPolicy::Delete, 0)] {
        (case.policy, case.record) = (policy, of_policy(decision.record.clone(), policy));
        let decision = case.decide(name.as_deref());
        assert_eq!((decision.remove.len(), decision.blocked.is_none()), (expected, expected == 1), "{policy:?}");
    }
    // What was allowed to uninstall is allowed afterwards.
    let record = RemovalStatus { orphans: Some(false), ..decision.record };
    assert_eq!(of_policy(of_policy(record.clone(), RemovalPolicy::Orphan), RemovalPolicy::Delete), record);
    // By a record of 0.2.0, nobody knows.
    let unknown = of_policy(RemovalStatus { orphans: None, ..record }, RemovalPolicy::Delete);
    assert_eq!((unknown.allowed_until, unknown.approved, unknown.recent.len()), (None, Vec::new(), 1));
}

#[test]
fn cluster_that_leaves_later_takes_no_approval() {
    // The removal of four is approved before their grace period is over. Then a fifth one leaves.
    let mut case = Case::new(4, 0);
    let half = at(0) + SignedDuration::from_mins(30);
    let observe = |case: &mut Case, now: Timestamp| {
        case.now = now;
        case.leaving.values_mut().for_each(|one| one.observed = now.duration_since(one.since.unwrap_or(now)));
    };
    observe(&mut case, half);
    let name = case.name();
    case.leaving.insert(cluster(7), Leaving { is_installed: true, ..Leaving::default() });
    let fifth = |name: Option<String>| Some(Blocked { name, clusters: BTreeSet::from([cluster(7)]), limit: 0 });
    let decision = case.decide(name.as_deref());
    assert_eq!((decision.blocked, decision.since, decision.until), (fifth(None), Some(half), Some(at(1))));
    case.set(7, |one| Leaving { since: Some(half), ..one.clone() });
    let decision = case.decide(name.as_deref());
    let other = decision.blocked.clone().unwrap().name;
    assert!(other.is_some() && other != name && decision.remove.is_empty(), "{decision:?}");
    // The status has the time of the four as well.
    let left: Vec<_> = case.leaving.keys().collect();
    let removable = Leavers { clusters: &left, decision: &decision }.removable();
    assert_eq!(removable, left[..4]);
    assert_eq!(decision.blocked, fifth(other.clone()));
    // Without the approval, all five need one.
    assert_eq!(case.decide(other.as_deref()).blocked.unwrap().clusters.len(), 5);
    // The four are removed, the fifth one is not.
    observe(&mut case, at(1));
    let decision = case.decide(name.as_deref());
    assert_eq!(
        (decision.remove, decision.blocked),
        ((0..4).map(cluster).collect::<BTreeSet<_>>(), fifth(other.clone()))
    );
    assert_eq!((decision.record.recent[0].clusters, decision.record.allowed_until), (4, Some(at(0).to_string())));
    // It has an approval of its own, before or after the first one was used.
    let both: Vec<&str> = name.iter().chain(&other).map(String::as_str).collect();
    observe(&mut case, at(2));
    let decision = case.decide_by(&both);
    assert_eq!((decision.remove.len(), decision.blocked, decision.record.recent[0].clusters), (5, None, 5));
    observe(&mut case, at(1));
    case.record = case.decide(name.as_deref()).record;
    case.leaving.retain(|one, _| *one == cluster(7));
    observe(&mut case, at(2));
    assert_eq!((case.name(), case.decide(other.as_deref()).remove.len()), (other, 1));
}

#[test]
fn work_for_an_approval_that_is_not_used_is_bounded() {
    for (others, expected) in [(15, 15), (16, 18)] {
        let mut case = Case::new(2, 0);
        case.now = at(0);
        let name = case.name();
        let later = |number: usize| at(0) + SignedDuration::from_secs(i64::try_from(number).unwrap());
        case.now = later(others);
        case.leaving.extend((1..=others).map(|number| (cluster(10 + number), left(later(number), later(others)))));
        assert_eq!(case.decide(name.as_deref()).blocked.unwrap().clusters.len(), expected);
    }
}

#[test]
fn outage_takes_the_approval_from_no_cluster_that_it_names() {
    let mut case = Case::new(4, 0);
    let name = case.name();
    case.set(1, lost);
    assert_eq!(case.name(), name, "it is the same removal");
    assert_eq!(case.decide(None).blocked.unwrap().clusters.len(), 4);
    // The others are removed. That one stays, with its time.
    let decision = case.decide(name.as_deref());
    assert_eq!(decision.remove, BTreeSet::from([0, 2, 3].map(cluster)));
    assert_eq!((decision.mark(&cluster(1), true, Some(at(0))), decision.until), (Some(at(0)), Some(at(1))));
    assert_eq!(decision.record.recent[0].clusters, 4);
    case.record = decision.record;
    case.leaving.retain(|one, _| *one == cluster(1));
    let decision = case.decide(None);
    assert_eq!((decision.remove.len(), decision.blocked.as_ref(), decision.kept.len()), (0, None, 1));
    assert_eq!(decision.record, case.record);
    // It is available, and is observed for its grace period, without another approval.
    let back = |hours: i64| {
        move |one: &Leaving| Leaving {
            is_unavailable: false,
            available_for: Some(SignedDuration::from_hours(hours)),
            ..one.clone()
        }
    };
    case.now = at(50);
    case.set(1, back(0));
    let decision = case.decide(None);
    assert_eq!((decision.remove.len(), decision.blocked, decision.wake), (0, None, Some(budget::STEP)));
    case.set(1, back(1));
    let decision = case.decide(None);
    assert_eq!((decision.remove, decision.record.recent), (BTreeSet::from([cluster(1)]), case.record.recent.clone()));
    // The record of it ends with it.
    case.leaving.clear();
    assert_eq!(case.decide(None).record.approved, []);
}

#[test]
fn approval_is_for_no_cluster_that_it_does_not_name() {
    let mut case = Case::new(3, 0);
    // It was not available when it left, so that it has no time.
    case.leaving.insert(cluster(9), Leaving { since: None, ..lost(&left(at(0), at(1))) });
    let name = case.name();
    let decision = case.decide(name.as_deref());
    assert_eq!((decision.remove.len(), decision.kept.len(), decision.record.recent[0].clusters), (3, 0, 3));
    // Another one leaves while one of an approval that was used is not available.
    let mut case = Case::new(2, 1);
    case.set(0, lost);
    case.leaving.insert(cluster(2), left(at(0), at(1)));
    let name = case.name();
    assert!(name.is_some());
    case.record = case.decide(name.as_deref()).record;
    case.leaving.retain(|one, _| *one == cluster(0));
    (case.now, case.staying) = (at(3), 0);
    case.leaving.insert(cluster(7), left(at(2), at(3)));
    for approved in [None, name.as_deref()] {
        let decision = case.decide(approved);
        let blocked = decision.blocked.map(|blocked| blocked.clusters);
        assert_eq!((blocked, decision.remove.len()), (Some(BTreeSet::from([cluster(7)])), 0));
        assert_eq!(decision.kept, BTreeSet::from([cluster(0)]));
    }
}

#[test]
fn outage_ends_a_removal_that_no_approval_names() {
    // Two of 20 may leave. One of three is not available, so that no approval is needed.
    let mut case = Case::new(3, 17);
    case.set(0, lost);
    let decision = case.decide(None);
    assert_eq!((decision.remove.len(), decision.mark(&cluster(0), true, Some(at(0)))), (2, None));
    assert_eq!((decision.record.recent[0].clusters, decision.record.approved.len()), (2, 0));
    // It was allowed, and not removed: if it is, that counts when it is.
    let mut case = Case::new(1, 19);
    case.record = case.decide(None).record;
    case.set(0, lost);
    assert_eq!(case.decide(None).mark(&cluster(0), true, Some(at(0))), None);
    assert!(are_left(&case.leaving, &case.record), "until that is stored, no time passes");
}

#[test]
fn long_outage_of_approved_clusters_keeps_no_budget() {
    let mut case = Case::new(4, 0);
    let name = case.name();
    case.record = case.decide(name.as_deref()).record;
    assert!(are_left(&case.leaving, &case.record));
    case.leaving.values_mut().for_each(|one| *one = lost(one));
    assert!(!are_left(&case.leaving, &case.record));
    // Nor do those that are available from time to time.
    let available_for = Some(SignedDuration::ZERO);
    case.leaving.values_mut().for_each(|one| (one.is_unavailable, one.available_for) = (false, available_for));
    assert!(!are_left(&case.leaving, &case.record));
}

#[test]
fn grace_period_after_an_outage_is_a_whole_one() {
    let mut case = Case::new(1, 9);
    (case.grace, case.now) = (SignedDuration::from_hours(24), at(100));
    for (available_for, expected) in [(None, 1), (Some(1), 0), (Some(23), 0), (Some(24), 1)] {
        let available_for = available_for.map(SignedDuration::from_hours);
        case.set(0, |one| Leaving { available_for, ..one.clone() });
        assert_eq!(case.decide(None).remove.len(), expected, "{available_for:?}");
    }
}

#[test]
fn grace_period_after_an_outage_is_a_whole_one_for_the_next_process() {
    let (mut case, day) = (Case::new(2, 0), SignedDuration::from_hours(24));
    (case.grace, case.now) = (day, at(24));
    case.leaving.values_mut().for_each(|one| one.observed = day);
    case.set(1, lost);
    let name = case.name();
    let decision = case.decide(name.as_deref());
    assert_eq!(decision.remove, BTreeSet::from([cluster(0)]));
    case.record = decision.record;
    case.leaving.retain(|one, _| *one == cluster(1));
    // It is available, and a process that started since observes it.
    for (hours, expected) in [(0, 0), (1, 0), (23, 0), (24, 1)] {
        case.now = at(100 + hours);
        let observed = SignedDuration::from_hours(hours);
        case.set(1, |one| Leaving { is_unavailable: false, observed, ..one.clone() });
        assert_eq!(case.decide(None).remove.len(), expected, "{hours}");
    }
    // One whose grace period ends while it is observed waited for nothing.
    (case.record, case.now) = (RemovalStatus::default(), at(24));
    case.leaving = (0..2).map(|number| (cluster(number), left(at(number.try_into().unwrap()), at(24)))).collect();
    let name = case.name();
    case.record = case.decide(name.as_deref()).record;
    case.leaving.retain(|one, _| *one == cluster(1));
    for (hours, expected) in [(24, 0), (25, 1)] {
        case.now = at(hours);
        case.set(1, |_| left(at(1), at(hours)));
        assert_eq!(case.decide(None).remove.len(), expected, "{hours}");
    }
}

#[test]
fn number_of_approved_removals_in_the_record_is_bounded() {
    // Each hour, another two clusters leave with an approval, and one of them is not available.
    let mut case = Case::new(0, 0);
    for hour in 1..30 {
        case.now = at(hour + 1);
        let one = left(at(hour), case.now);
        case.leaving.extend([(cluster(0), one.clone()), (cluster(usize::try_from(hour).unwrap()), lost(&one))]);
        let name = case.name();
        case.record = case.decide(name.as_deref()).record;
    }
    assert_eq!(case.record.approved.len(), MAX_APPROVED);
    let decision = case.decide(None);
    assert_eq!(decision.kept, (14..30).map(cluster).collect());
}
