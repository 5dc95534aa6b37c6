//! The status of the stages of a fleet: their counts, what each waits for, and until when.

use jiff::{SignedDuration, Timestamp};
use knative_operator_rules::authorization::fleet_users::shown;
use knative_operator_shared::api::fleet::{KnativeFleetStatus, StageState, StageStatus};
use knative_operator_shared::fleet::stage::{REST, StageSettings};
use knative_operator_shared::time::{next_minute, truncate};

use super::conditions::wait;
use super::decision::{Decision, Input, StageReport};
use super::member::Contents;

/// A time that is stored stays if it is at most this much later than the one that is computed.
const ROUNDED: SignedDuration = SignedDuration::from_secs(90);

/// `count` as a field of the status.
pub fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// The stages after those of `old`.
pub fn stages<C: Contents>(old: &KnativeFleetStatus, input: &Input<'_, C>, decision: &Decision) -> Vec<StageStatus> {
    let is_same = old.update_revision.as_deref() == Some(input.update);
    let (mut stages, left) = (Vec::new(), left(input, decision));
    for (index, (settings, report)) in input.stages.settings().iter().zip(&decision.stages).enumerate() {
        // The last stage is for clusters that no other selects: without clusters, it is not shown.
        if report.clusters == 0 && !report.is_lost && settings.name == REST {
            continue;
        }
        let before = old.stages.iter().find(|stage| is_same && stage.name == settings.name);
        // Nothing begins before there are clusters.
        let is_new = before.is_none_or(|stage| stage.started_at.is_none());
        let is_empty = report.clusters == 0 && is_new && input.is_rolling_out();
        let started = !is_empty && !matches!(report.state, StageState::Pending | StageState::AwaitingApproval);
        let at = |before: Option<&String>, is: bool| {
            is.then(|| before.cloned().unwrap_or_else(|| truncate(input.now).to_string()))
        };
        let is_complete = report.state == StageState::Complete;
        stages.push(StageStatus {
            name: settings.name.clone(),
            state: report.state,
            clusters: number(report.clusters),
            updated: number(report.updated),
            updating: number(report.updating + report.soaking),
            failed: number(report.failed),
            deferred: number(report.deferred),
            approved_by: approved_by(before.filter(|_| started), input, settings),
            waits_for: waits_for(input, index, report),
            until: until(before.and_then(|stage| stage.until.as_deref()), left[index], input.now),
            started_at: at(before.and_then(|stage| stage.started_at.as_ref()), started),
            finished_at: at(before.and_then(|stage| stage.finished_at.as_ref()), is_complete),
        });
    }
    stages
}

/// The user who approved a stage with `settings`. One that started keeps them.
fn approved_by<C: Contents>(
    before: Option<&StageStatus>,
    input: &Input<'_, C>,
    settings: &StageSettings,
) -> Option<String> {
    let started = before.filter(|stage| stage.started_at.is_some()).and_then(|stage| stage.approved_by.clone());
    let approval = input.approvals.get(&(input.update.to_owned(), settings.name.clone()));
    started.or(approval.map(|name| shown(name)).filter(|name| settings.needs_approval && !name.is_empty()))
}

/// What the stage `index` waits for.
fn waits_for<C: Contents>(input: &Input<'_, C>, index: usize, report: &StageReport) -> Option<String> {
    let StageReport { clusters, updating, soaking, failed, unstored, pending, .. } = report;
    let settings = &input.stages.settings()[index];
    Some(match report.state {
        StageState::Complete => return None,
        StageState::Pending => "an earlier stage".to_owned(),
        StageState::AwaitingApproval => {
            format!("an approval of revision {} for stage {}", input.update, settings.name)
        }
        StageState::Paused if input.is_paused && (input.is_rolling_back() || !report.has_too_many(settings)) => {
            format!("the end of the pause: {}", input.pause)
        }
        StageState::Paused => {
            let pause = if input.is_paused { format!("; {}", input.pause) } else { String::new() };
            format!("a person: {failed} of {clusters} clusters failed{pause}")
        }
        StageState::Progressing if input.is_rolling_back() => {
            "clusters, which return to the revision that they had before".to_owned()
        }
        StageState::Progressing => {
            let soaking = if *soaking > 0 { format!("{soaking} soak, ") } else { String::new() };
            let unstored =
                if *unstored > 0 { format!("{unstored} failed, which is recorded now, ") } else { String::new() };
            let progress =
                || format!("clusters: {updating} are being updated, {soaking}{unstored}{pending} have not begun");
            wait(report).unwrap_or_else(progress)
        }
    })
}

/// Time until the first cluster of each stage has been Ready for long enough, or has failed.
fn left<C: Contents>(input: &Input<'_, C>, decision: &Decision) -> Vec<Option<SignedDuration>> {
    let mut left = vec![None; input.stages.settings().len()];
    for (member, progress) in input.members.iter().zip(&decision.progress) {
        left[member.stage] = left[member.stage].into_iter().chain(progress.wake()).min();
    }
    left
}

/// When the time `left` is over, as of `now`. `before` is the time that is stored. The time is
/// rounded, so that a pass doesn't change it.
fn until(before: Option<&str>, left: Option<SignedDuration>, now: Timestamp) -> Option<String> {
    let at = now.saturating_add(left?).unwrap_or(Timestamp::MAX);
    let stored = before.and_then(|before| before.parse::<Timestamp>().ok());
    let kept = stored.filter(|stored| (SignedDuration::ZERO..=ROUNDED).contains(&stored.duration_since(at)));
    Some(kept.unwrap_or_else(|| next_minute(at)).to_string())
}

#[cfg(test)]
mod tests {
    use knative_operator_shared::api::fleet::OnFailure;

    use super::*;
    use crate::adversary::Action;
    use crate::model::World;
    use crate::transitions::rollout_end;
    use crate::truth::DEADLINE;

    #[test]
    fn stages_say_what_they_wait_for_until_when_and_who_approved_them() {
        let mut world = World::new(&[(1, 0, 0, true), (1, 0, 0, false)], &[0, 1], OnFailure::Rollback);
        let mut status = KnativeFleetStatus { update_revision: Some("a".to_owned()), ..KnativeFleetStatus::default() };
        let next = |world: &World, status: &mut KnativeFleetStatus| {
            status.stages = world.stages_after(status);
            let text = |stage: &StageStatus| stage.waits_for.clone().unwrap_or_default();
            (status.stages[0].clone(), text(&status.stages[0]), text(&status.stages[1]))
        };
        world.settle();
        let (stage, first, second) = next(&world, &mut status);
        assert_eq!((first.as_str(), second.as_str()), ("an approval of revision a for stage 0", "an earlier stage"));
        assert_eq!((stage.approved_by, stage.until), (None, None));
        world.approvals.insert(("a".to_owned(), "0".to_owned()), "jane".to_owned());
        world.settle();
        let (stage, first, _) = next(&world, &mut status);
        assert_eq!(first, "clusters: 1 are being updated, 0 have not begun");
        assert_eq!(stage.approved_by.as_deref(), Some("jane"));
        let left = stage
            .until
            .unwrap()
            .parse::<Timestamp>()
            .unwrap()
            .duration_since(Timestamp::from_second(1_000_000).unwrap());
        assert!((DEADLINE..DEADLINE + 60).contains(&left.as_secs()), "{left:?}");
        // Somebody tidies up.
        world.approvals.clear();
        world.tick(1);
        world.settle();
        let (stage, first, second) = next(&world, &mut status);
        assert_eq!((first.as_str(), stage.approved_by.as_deref()), ("", Some("jane")));
        assert_eq!(second, "clusters: 1 are being updated, 0 have not begun");
        world.act(&Action::Pause(true));
        world.join(1);
        assert!(next(&world, &mut status).2.starts_with("the end of the pause"));
    }

    #[test]
    fn stage_that_returns_says_so() {
        let mut world = World::new(&[(1, 0, 0, false)], &[0], OnFailure::Rollback);
        world.settle();
        world.tick(1);
        world.settle();
        world.act(&Action::Edit("b"));
        world.settle();
        world.act(&Action::Break(0, true));
        world.settle();
        world.tick(DEADLINE);
        world.settle();
        let status = KnativeFleetStatus { update_revision: Some("b".to_owned()), ..KnativeFleetStatus::default() };
        let stages = world.stages_after(&status);
        let expected = "clusters, which return to the revision that they had before";
        assert_eq!(stages[0].waits_for.as_deref(), Some(expected), "{stages:?}");
    }

    #[test]
    fn pause_of_a_person_hides_no_failures() {
        let mut world = World::new(&[(1, 0, 0, false)], &[0, 0], OnFailure::Pause);
        world.settle();
        world.act(&Action::Break(0, true));
        world.settle();
        world.tick(DEADLINE);
        world.settle();
        let status = KnativeFleetStatus { update_revision: Some("a".to_owned()), ..KnativeFleetStatus::default() };
        let waits_for = |world: &World| world.stages_after(&status)[0].waits_for.clone().unwrap_or_default();
        assert_eq!(waits_for(&world), "a person: 1 of 2 clusters failed");
        world.act(&Action::Pause(true));
        world.settle();
        assert!(waits_for(&world).starts_with("a person: 1 of 2 clusters failed; "), "{}", waits_for(&world));
        // It is no other end of the rollout.
        let paused = world.status_after(&status);
        world.act(&Action::Pause(false));
        world.settle();
        for status in [&paused, &world.status_after(&paused)] {
            let condition = status.conditions.iter().find(|condition| condition.type_ == "Paused").unwrap();
            assert_eq!(condition.reason.as_deref(), Some("TooManyFailures"), "{condition:?}");
        }
        assert_eq!(rollout_end(&paused, &world.status_after(&paused)), None);
    }
}
