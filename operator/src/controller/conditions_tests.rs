//! What a reconcile found, and the conditions that it makes.

use knative_operator_shared::condition::ready;
use knative_operator_shared::reason::Reason;

use super::*;

fn fresh() -> States {
    States::of_each(|_| State::unknown())
}

fn running() -> States {
    States::of_each(|_| State::True)
}

fn report_with(change: impl FnOnce(&mut InstallationReport)) -> ReconcileResult {
    let mut report = InstallationReport { observed: true, ..InstallationReport::of(Component::Serving) };
    change(&mut report);
    ReconcileResult::Installation(report)
}

fn message(state: &State) -> &str {
    match state {
        State::True => "",
        State::False { message, .. } | State::Unknown { message, .. } => message,
    }
}

#[test]
fn rollout_is_examined_again_until_it_is_complete() {
    let observed = InstallationReport { observed: true, ..InstallationReport::of(Component::Serving) };
    assert!(observed.is_complete());
    let incomplete: [&dyn Fn(&mut InstallationReport); 4] = [
        &|report| report.unavailable = vec![("a".to_owned(), Wait::from("why"))],
        &|report| report.pending = vec!["Job x".to_owned()],
        &|report| report.has_missing_objects = true,
        &|report| report.observed = false,
    ];
    for change in incomplete {
        let mut report = observed.clone();
        change(&mut report);
        assert!(!report.is_complete(), "{report:?}");
    }
}

#[test]
fn complete_installation_is_ready() {
    assert_eq!(ready(&states(fresh(), &report_with(|_| {}))), State::True);
}

#[test]
fn pending_work_is_named() {
    let after = states(
        fresh(),
        &report_with(|f| {
            f.unavailable =
                [("a", "why"), ("b", "so"), ("c", "why")].map(|(n, w)| (n.to_owned(), Wait::from(w))).to_vec();
        }),
    );
    assert_eq!(message(&after.available), "Waiting on deployments: a, b, c (a, c: why; b: so)");
    let wait = |reason: &str, deadline: &str| Wait { deadline: Some(deadline.to_owned()), ..Wait::from(reason) };
    for (second, expected) in
        [("10:00", "(all, deadline 10:00; a: x; b: y)"), ("10:01", "(a: x, deadline 10:00; b: y, deadline 10:01)")]
    {
        let unavailable = vec![("a".to_owned(), wait("x", "10:00")), ("b".to_owned(), wait("y", second))];
        let after = states(fresh(), &report_with(|f| f.unavailable = unavailable));
        assert_eq!(message(&after.available), format!("Waiting on deployments: a, b {expected}"));
    }
    let after = states(fresh(), &report_with(|f| f.pending = vec!["Job x".into()]));
    assert_eq!((message(&after.installed), &after.dependencies), ("Waiting for Job x", &State::unknown()));
}

#[test]
fn change_of_deployments_that_stay_available_is_no_fault() {
    let rolling = Wait { is_rolling: true, ..Wait::from("changes") };
    let result = |waits: Vec<Wait>| {
        let unavailable = waits.into_iter().map(|wait| ("a".to_owned(), wait)).collect();
        report_with(|report| report.unavailable = unavailable)
    };
    assert!(result(vec![rolling.clone(); 2]).is_rolling());
    assert!(!result(vec![rolling, Wait::from("crashes")]).is_rolling() && !result(Vec::new()).is_rolling());
}

#[test]
fn refused_object_fails_install_and_is_named() {
    let id = ObjectId::new("", "ConfigMap", "n", "c");
    let after = states(running(), &report_with(|f| f.refused = vec![(id, ApplyError::Other("forbidden".into()))]));
    assert_eq!(message(&after.installed), "Install failed with message: failed to apply ConfigMap n/c: forbidden");
    assert_eq!(after.available, State::True);
}

#[test]
fn conditions_of_unreachable_cluster_are_unknown() {
    let unresolved = ReconcileResult::Unresolved(Unresolved::new(Reason::RemoteClusterUnreachable, "gone"));
    let after = states(running(), &unresolved);
    assert_eq!(after.resolved, State::not_met("RemoteClusterUnreachable", "gone"));
    assert!(matches!((&after.installed, &after.available), (State::Unknown { .. }, State::Unknown { .. })));
    assert_eq!(ready(&after), after.resolved);
    assert_eq!(ready(&states(after, &report_with(|_| {}))), State::True);
}

#[test]
fn note_is_added_to_a_resolved_cluster_only() {
    let note = || Some("nobody vouches for it".to_owned());
    let after = |before: &[Condition], states: &States, note: Option<String>| {
        let mut conditions = update(before, states, Timestamp::UNIX_EPOCH);
        add_note(&mut conditions, note);
        conditions
    };
    let noted = after(&[], &running(), note());
    for condition in &noted {
        let expected = (condition.type_ == TARGET_CLUSTER_RESOLVED).then_some("nobody vouches for it");
        assert_eq!((condition.message.as_deref(), condition.reason.as_deref()), (expected, None));
    }
    // It is gone once somebody vouches for the cluster.
    assert_eq!(after(&noted, &stored(&noted), None), after(&[], &running(), None));
    let unresolved = ReconcileResult::Unresolved(Unresolved::new(Reason::RemoteClusterUnreachable, "gone"));
    let unresolved = after(&noted, &states(running(), &unresolved), note());
    assert!(unresolved.iter().any(|c| c.type_ == TARGET_CLUSTER_RESOLVED && c.message.as_deref() == Some("gone")));
}

#[test]
fn missing_object_blocks_install_but_not_deployments() {
    let after = states(fresh(), &report_with(|f| f.has_missing_objects = true));
    assert_eq!((&after.installed, &after.available), (&State::unknown(), &State::True));
    assert_eq!(states(running(), &report_with(|f| f.has_missing_objects = true)), running());
}

#[test]
fn restart_keeps_conditions_until_observed() {
    let unseen = ReconcileResult::Installation(InstallationReport::of(Component::Serving));
    assert_eq!(states(running(), &unseen), running());
    assert_eq!(states(fresh(), &unseen).available, State::unknown());
}

#[test]
fn step_is_never_ready_and_says_what_follows() {
    let step = "version 1.21.3 on the way from 1.20.3 to 1.23.0 (then 1.22.1, 1.23.0)";
    let report = |change: &dyn Fn(&mut InstallationReport)| {
        report_with(|report| {
            report.step = Some(step.to_owned());
            change(report);
        })
    };
    // Complete: the next one may begin.
    let complete = report(&|_| {});
    let after = states(running(), &complete);
    assert_eq!(after.installed, State::unknown_because("Installing", format!("Installing {step}")));
    assert!(complete.completes_step() && ready(&after) == after.installed);
    assert!(!report_with(|_| {}).completes_step(), "the last version is no step");
    let pending = report(&|report| report.pending = vec!["Job x".into()]);
    assert_eq!(message(&states(running(), &pending).installed), format!("Installing {step}. Waiting for Job x"));
    let failed = report(&|report| report.failures = vec!["Job x failed: y".into()]);
    assert_eq!(
        message(&states(running(), &failed).installed),
        format!("Install failed with message: {step}: Job x failed: y")
    );
    // After a restart, nothing is known yet.
    let unseen = report(&|report| report.observed = false);
    let unavailable = report(&|report| report.unavailable = vec![("a".to_owned(), Wait::from("why"))]);
    let missing = report(&|report| report.has_missing_objects = true);
    let stopped = report(&|report| report.failed = Some("why".into()));
    for waiting in [pending, failed, unseen, unavailable, missing, stopped] {
        assert!(!waiting.completes_step(), "{waiting:?}");
        assert_ne!(ready(&states(running(), &waiting)), State::True);
    }
}

#[test]
fn ineligible_version_keeps_other_conditions() {
    let after = states(running(), &ReconcileResult::Ineligible("too far".into(), None));
    assert_eq!(message(&after.eligible), "Version migration is not eligible with message: too far");
    assert_eq!(States { eligible: State::True, ..after }, running());
    // The installed version is still reconciled.
    let kept = report_with(|f| f.unavailable = vec![("a".to_owned(), Wait::from("why"))]);
    let after = states(running(), &ReconcileResult::Ineligible("too far".into(), Some(Box::new(kept))));
    assert_eq!(message(&after.eligible), "Version migration is not eligible with message: too far");
    assert_eq!(message(&after.available), "Waiting on deployments: a (why)");
}
