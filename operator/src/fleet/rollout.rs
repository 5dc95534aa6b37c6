//! Rolls the update revision out: stages one after another, and a limited number of clusters of a
//! stage at the same time.

use knative_operator_shared::api::fleet::{OnFailure, StageState};

use super::decision::{Decision, Input};
use super::member::{Contents, Member, Progress};

/// Adds the writes to `decision`, and the states of the stages.
pub fn advance<C: Contents>(input: &Input<'_, C>, decision: &mut Decision) {
    let mut is_open = true;
    for (index, stage) in input.stages.settings().iter().enumerate() {
        let report = decision.stages[index].clone();
        let members = || input.members.iter().zip(&decision.progress).filter(move |(member, _)| member.stage == index);
        let mut writes = Vec::new();
        // What is under way is finished.
        for (member, progress) in members() {
            if matches!(progress, Progress::Updating(_)) {
                writes.extend(member.writes(input.update, input.contents));
            }
        }
        let state = if is_open { state(input, index, &report) } else { StageState::Pending };
        match state {
            StageState::Progressing => {
                let free = stage.concurrency(report.clusters).saturating_sub(report.updating);
                let pending = members().filter(|(_, progress)| matches!(progress, Progress::Pending)).take(free);
                for (member, _) in pending {
                    writes.extend(member.writes(input.update, input.contents));
                }
            }
            // New clusters get what the others of their stage have.
            StageState::Pending | StageState::AwaitingApproval => writes.extend(installs(input, index, decision)),
            StageState::Paused | StageState::Complete => {}
        }
        if input.is_rolling_out() && report.failed > stage.failures(report.clusters) {
            decision.mark_failed = input.on_failure == OnFailure::Rollback;
        }
        decision.writes.extend(writes);
        decision.stages[index].state = state;
        is_open &= state == StageState::Complete;
    }
    decision.is_complete = is_open && input.is_rolling_out();
}

fn state<C: Contents>(input: &Input<'_, C>, index: usize, report: &super::decision::StageReport) -> StageState {
    let stage = &input.stages.settings()[index];
    let is_rolling_out = input.is_rolling_out();
    if is_rolling_out && report.failed > stage.failures(report.clusters) {
        return StageState::Paused;
    }
    if report.pending + report.updating == 0 {
        return StageState::Complete;
    }
    let is_approved = || input.approvals.contains(&(input.update.to_owned(), stage.name.clone()));
    // A stage that is in progress was approved.
    if is_rolling_out && stage.needs_approval && report.pending > 0 && !is_approved() {
        return StageState::AwaitingApproval;
    }
    if input.is_paused && report.pending > 0 { StageState::Paused } else { StageState::Progressing }
}

/// Installs the current revision on new clusters of the stage `index`, which the rollout has not
/// reached.
fn installs<C: Contents>(input: &Input<'_, C>, index: usize, decision: &Decision) -> Vec<super::member::Write> {
    let Some(current) = input.current.filter(|_| input.is_rolling_out() && !input.is_paused) else { return Vec::new() };
    let stage = &input.stages.settings()[index];
    let own = || input.members.iter().zip(&decision.progress).filter(|(member, _)| member.stage == index);
    let is_installing = |member: &Member| {
        member.is_touched(current, None, input.contents) && !member.is_ready() && member.unavailable.is_none()
    };
    let installing = own().filter(|(member, _)| is_installing(member)).count();
    let free = stage.concurrency(decision.stages[index].clusters).saturating_sub(installing);
    let new = own().filter(|(member, progress)| member.is_new() && matches!(progress, Progress::Pending));
    new.take(free).flat_map(|(member, _)| member.writes(current, input.contents)).collect()
}
