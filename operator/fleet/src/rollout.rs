//! Rolls the update revision out: stages one after another, and a limited number of clusters of a
//! stage at the same time. A cluster that comes later, or whose content changes with its labels,
//! passes the same gates.

use knative_operator_shared::api::fleet::{OnFailure, StageState};
use knative_operator_shared::fleet::stage::REST;

use super::decision::{Decision, Input, StageReport};
use super::member::{Contents, Member, Write};
use super::progress::Progress;

/// Adds the writes to `decision`, and the states of the stages.
pub fn advance<C: Contents>(input: &Input<'_, C>, decision: &mut Decision) {
    let mut is_open = true;
    for ((index, stage), own) in input.stages.settings().iter().enumerate().zip(input.by_stage()) {
        let report = decision.stages[index].clone();
        let (all, progress) = (input.members, &decision.progress);
        let members = || own.iter().map(move |at| (&all[*at], &progress[*at]));
        let mut writes = Vec::new();
        // What is under way is finished. A resource may also be deleted for another revision.
        for (member, progress) in members() {
            let is_started = || member.is_started(input.update, input.current, input.contents);
            if matches!(progress, Progress::Updating(_)) && is_started() {
                writes.extend(member.writes(input.update, input.contents));
            }
        }
        let state = if is_open || report.is_lost { state(input, index, &report) } else { StageState::Pending };
        let is_next = |progress: &Progress| state == StageState::Progressing && matches!(progress, Progress::Pending);
        let may_retry = is_open && may_retry(input, index, &report, members());
        let (limit, busy) = (stage.concurrency(report.clusters), report.updating + report.others);
        let mut free = limit.saturating_sub(busy);
        let mut next: Vec<_> =
            members().filter(|(m, progress)| is_next(progress) || may_retry && m.retries(progress)).collect();
        next.sort_by_key(|(member, _)| member.place);
        for (member, _) in next {
            // One that is being updated to another revision has a slot.
            let has_slot = busy <= limit && input.other_in_progress(member).is_some();
            if has_slot || free > 0 {
                free -= usize::from(!has_slot);
                writes.extend(member.writes(input.update, input.contents));
            }
        }
        // New clusters get what the others of their stage have.
        if matches!(state, StageState::Pending | StageState::AwaitingApproval) {
            writes.extend(installs(input, index, &report, members()));
        }
        if input.is_rolling_out() && report.broken > stage.failures(report.clusters) {
            decision.mark_failed = input.on_failure == OnFailure::Rollback;
        }
        decision.writes.extend(writes);
        decision.stages[index].state = state;
        is_open &= state == StageState::Complete;
    }
    // Without clusters, nothing shows that the revision works, and none may return from it.
    let is_proven = decision.progress.contains(&Progress::Updated);
    decision.is_complete = is_open && is_proven && input.is_rolling_out();
}

fn state<C: Contents>(input: &Input<'_, C>, index: usize, report: &StageReport) -> StageState {
    let stage = &input.stages.settings()[index];
    // Also after the rollout: a cluster that was deferred, or is new, has not had its turn.
    if report.has_too_many(stage) {
        return StageState::Paused;
    }
    // An approval is also asked for without clusters: the selector may be mistyped.
    let is_gate = input.is_rolling_out() && report.clusters == 0 && stage.name != REST;
    if is_gate && !report.is_lost && !input.is_approved(index) {
        return StageState::AwaitingApproval;
    }
    if report.pending + report.updating + report.soaking + report.unstored == 0 {
        return if report.waits_for_clusters() { StageState::Progressing } else { StageState::Complete };
    }
    if report.pending > 0 && !input.is_approved(index) {
        return StageState::AwaitingApproval;
    }
    if input.is_paused && report.pending > 0 { StageState::Paused } else { StageState::Progressing }
}

/// Whether refused writes of the stage `index` may be tried again. They stop no rollout of others:
/// the stage is complete, or stopped because of them.
fn may_retry<'m, C: Contents>(
    input: &Input<'_, C>,
    index: usize,
    report: &StageReport,
    own: impl Iterator<Item = (&'m Member, &'m Progress)>,
) -> bool {
    let stage = &input.stages.settings()[index];
    let refused = own.filter(|(_, progress)| progress.is_refused()).count();
    let is_stopped = report.failed - refused > stage.failures(report.clusters);
    !input.is_paused && input.is_approved(index) && !is_stopped
}

/// Installs the current revision on new clusters of the stage `index`, which the rollout has not
/// reached.
fn installs<'m, C: Contents>(
    input: &Input<'_, C>,
    index: usize,
    report: &StageReport,
    own: impl Iterator<Item = (&'m Member, &'m Progress)>,
) -> Vec<Write> {
    let current = input.current.filter(|_| input.is_rolling_out() && !input.is_paused);
    let Some(current) = current.filter(|_| input.may_install(index)) else { return Vec::new() };
    let stage = &input.stages.settings()[index];
    let free = stage.concurrency(report.clusters).saturating_sub(report.updating + report.others);
    let new = own.filter(|(member, progress)| member.is_new() && matches!(progress, Progress::Pending));
    let mut new: Vec<_> = new.filter(|(member, _)| input.unknown_revision(member).is_none()).collect();
    new.sort_by_key(|(member, _)| member.place);
    new.into_iter().take(free).flat_map(|(member, _): (&Member, _)| member.writes(current, input.contents)).collect()
}
