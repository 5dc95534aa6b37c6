//! Rolls a failed revision back: each cluster that has it returns to the revision that it had
//! before, newest first.

use std::cmp::Reverse;

use knative_operator_shared::api::fleet::StageState;

use super::decision::{Decision, Input};
use super::member::{Applied, Contents, Member, Progress};

/// Adds the writes to `decision`, and the states of the stages.
pub fn advance<C: Contents>(input: &Input<'_, C>, decision: &mut Decision) {
    let mut touched: Vec<(&Member, &Progress)> = input
        .members
        .iter()
        .zip(&decision.progress)
        .filter(|(member, _)| {
            member.is_touched(input.update, input.current, input.contents) && before(member, input).is_some()
        })
        .collect();
    touched.sort_by_key(|(member, _)| Reverse(started(member, input.update)));
    let mut writes = Vec::new();
    for (index, stage) in input.stages.settings().iter().enumerate() {
        let own = || input.members.iter().filter(|member| member.stage == index);
        let mut returning = 0;
        for member in own().filter(|member| is_returning(member, input)) {
            returning += 1;
            if let Some(revision) = returned_to(member, input.update).filter(|revision| input.contents.knows(revision))
            {
                writes.extend(member.writes(revision, input.contents));
            }
        }
        let mut left = 0;
        for (member, progress) in touched.iter().filter(|(member, _)| member.stage == index) {
            left += 1;
            // What is under way is finished, then returned. Further minor versions are not started.
            let is_finished = member.is_ready() || !matches!(progress, Progress::Updating(_));
            if is_finished && !input.is_paused && returning < stage.concurrency(decision.stages[index].clusters) {
                returning += 1;
                let revision = before(member, input).unwrap_or_default();
                writes.extend(member.writes(revision, input.contents));
            }
        }
        let new = own().filter(|member| member.is_new() && member.unavailable.is_none());
        let current = input.current.filter(|current| !input.is_paused && input.may_install(index, current));
        if let Some(current) = current {
            let free = stage.concurrency(decision.stages[index].clusters).saturating_sub(returning);
            writes.extend(new.take(free).flat_map(|member| member.writes(current, input.contents)));
        }
        decision.stages[index].state =
            if left + returning == 0 { StageState::Complete } else { StageState::Progressing };
    }
    decision.writes.extend(writes);
}

fn applied(member: &Member) -> impl Iterator<Item = &Applied> {
    member.children.iter().filter_map(|child| child.applied.as_ref())
}

/// The revision that a member had before the update revision: without one, the current revision.
fn before<'a, C: Contents>(member: &'a Member, input: &Input<'a, C>) -> Option<&'a str> {
    let own = applied(member).filter(|applied| applied.revision == input.update);
    let previous = own
        .filter_map(|applied| applied.previous.as_deref())
        .find(|previous| *previous != input.update && input.contents.knows(previous));
    previous.or(input.current.filter(|current| *current != input.update))
}

/// Time at which the update of a member started.
fn started(member: &Member, update: &str) -> Option<jiff::Timestamp> {
    applied(member).filter(|applied| applied.revision == update).map(|applied| applied.since).max()
}

/// The revision to which a member returned from `update`.
fn returned_to<'a>(member: &'a Member, update: &str) -> Option<&'a str> {
    let returned = |applied: &&Applied| applied.previous.as_deref() == Some(update) && applied.revision != update;
    applied(member).find(returned).map(|applied| applied.revision.as_str())
}

/// Whether a member is on its way back.
fn is_returning<C: Contents>(member: &Member, input: &Input<'_, C>) -> bool {
    let Some(revision) = returned_to(member, input.update) else { return false };
    let is_waiting = applied(member).any(|applied| applied.ready.is_err());
    let deadline = input.stages.settings()[member.stage].deadline;
    let is_late = applied(member)
        .filter(|applied| applied.revision == revision)
        .all(|applied| input.now >= super::member::later(applied.since, deadline));
    !member.has(revision, input.contents) || is_waiting && !is_late && member.unavailable.is_none()
}
