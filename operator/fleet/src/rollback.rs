//! Rolls a failed revision back: each cluster that has it returns to the last revision that was
//! installed successfully on it. Of clusters whose update has ended, those whose update began last
//! return first. A cluster without such a revision keeps what it has.

use std::cmp::Reverse;

use knative_operator_shared::api::fleet::StageState;
use knative_operator_shared::version::Version;

use super::decision::{Decision, Input};
use super::member::{Applied, Child, Contents, Member};
use super::outcome::Outcome;
use super::progress::Progress;

/// Adds the writes to `decision`, and the states of the stages.
pub fn advance<C: Contents>(input: &Input<'_, C>, decision: &mut Decision) {
    let mut touched: Vec<(&Member, &Progress)> = input
        .members
        .iter()
        .zip(&decision.progress)
        .filter(|(member, _)| {
            member.gone.is_none()
                && !member.is_skipped
                && member.is_touched(input.update, input.current, input.contents)
                && before(member, input).is_some()
        })
        .collect();
    touched.sort_by_key(|(member, _)| Reverse(started(member, input.update)));
    let mut writes = Vec::new();
    for (index, stage) in input.stages.settings().iter().enumerate() {
        let own = || input.members.iter().filter(|member| member.stage == index && member.gone.is_none());
        // What is under way has a slot, in which it returns.
        let is_busy = |(member, progress): &&(&Member, &Progress)| {
            member.stage == index && !is_finished(member, progress, input) && !input.is_given_up(member)
        };
        let mut returning = touched.iter().filter(is_busy).count();
        for member in own() {
            if let Some(other) = input.other_in_progress(member) {
                returning += 1;
                let is_known = input.contents.knows(other.revision) && input.unknown_revision(member).is_none();
                if other.revision != input.update && is_known {
                    writes.extend(member.writes(other.revision, input.contents));
                }
            }
        }
        // Nobody knows whether they returned, although they hold no place.
        let mut left = own().filter(|member| input.is_return_given_up(member)).count();
        for (member, progress) in touched.iter().filter(|(member, _)| member.stage == index) {
            left += 1;
            let revision = before(member, input).unwrap_or_default();
            // What is known not to work is not waited for. Further minor versions are not started.
            let has_slot = !is_finished(member, progress, input);
            let is_free = returning < stage.concurrency(decision.stages[index].clusters);
            let may_return = if has_slot { may_turn_back(member, revision, input) } else { is_free };
            let is_known = input.unknown_revision(member).is_none() && waits_for_report(member, input).is_none();
            if may_return && !input.is_paused && is_known {
                let own = member.writes(revision, input.contents);
                // A deletion that hangs holds no place.
                returning += usize::from(!has_slot && !own.is_empty());
                writes.extend(own);
            }
        }
        let is_next = |member: &&Member| {
            member.is_new() && member.unavailable.is_none() && input.unknown_revision(member).is_none()
        };
        let mut new: Vec<_> = own().filter(is_next).collect();
        new.sort_by_key(|member| member.place);
        let current = input.current.filter(|_| !input.is_paused && input.may_install(index));
        if let Some(current) = current {
            let free = stage.concurrency(decision.stages[index].clusters).saturating_sub(returning);
            writes.extend(new.into_iter().take(free).flat_map(|member| member.writes(current, input.contents)));
        }
        decision.stages[index].state = match left + returning {
            0 => StageState::Complete,
            _ if input.is_paused && returning == 0 => StageState::Paused,
            _ => StageState::Progressing,
        };
    }
    decision.writes.extend(writes);
}

/// The revision to which a member returns: the last one before the update revision that was
/// installed successfully on it; without one, the current revision, if its stage approved that.
fn before<'a, C: Contents>(member: &'a Member, input: &Input<'a, C>) -> Option<&'a str> {
    let own = member.applied().filter(|applied| applied.revision == input.update);
    let previous = own
        .filter_map(|applied| applied.previous.as_deref())
        .find(|previous| *previous != input.update && input.contents.knows(previous));
    let may_have = |current: &&str| *current != input.update && input.may_install(member.stage);
    previous.or_else(|| input.current.filter(may_have))
}

/// The revision that a member is returning to, or has to return to; `None` if it has another one
/// than the failed one, or none to return to.
pub fn target<'m, C: Contents>(member: &'m Member, input: &'m Input<'_, C>) -> Option<&'m str> {
    let other = member.other_in_progress(input.update, input.current, input.contents);
    other.filter(|other| *other != input.update).or_else(|| {
        let is_touched = member.is_touched(input.update, input.current, input.contents);
        before(member, input).filter(|_| is_touched)
    })
}

/// The revision to which a member has to return when the operator reports the state of its
/// resources: neither whether it is Ready nor its version is known. Its place ends with its
/// deadline.
pub fn waits_for_report<'m, C: Contents>(member: &'m Member, input: &'m Input<'_, C>) -> Option<&'m str> {
    let is_reported = !member.applied().any(Applied::is_lost);
    if is_reported || member.gone.is_some() || member.is_skipped || !input.is_rolling_back() {
        return None;
    }
    let is_touched = member.is_touched(input.update, input.current, input.contents);
    let is_returning = input.other_in_progress(member).is_some_and(|other| other.revision != input.update);
    before(member, input).filter(|_| is_touched && !is_returning)
}

/// Whether the update of a member came to an end: also if it failed in an earlier generation.
fn is_finished<C: Contents>(member: &Member, progress: &Progress, input: &Input<'_, C>) -> bool {
    let has_failed =
        |applied: &Applied| applied.revision == input.update && matches!(applied.outcome, Some(Outcome::Failed { .. }));
    member.is_ready() || !matches!(progress, Progress::Updating(_)) || member.applied().any(has_failed)
}

/// Whether a member may return to `revision` in the middle of its update: not while a fault of the
/// hub or a deletion hides what became of it, nor over more than a minor version.
fn may_turn_back<C: Contents>(member: &Member, revision: &str, input: &Input<'_, C>) -> bool {
    let version =
        |component, version: &Option<String>| Version::resolve(version.as_deref(), input.contents.versions(component));
    let is_near = |child: &Child| {
        let Some(applied) = &child.applied else { return true };
        let wanted = input.contents.of(revision, &member.cluster, child.component);
        wanted.is_none_or(|wanted| {
            if applied.version == wanted.version {
                return true;
            }
            let versions = [&applied.version, &wanted.version].map(|v| version(child.component, v));
            matches!(versions, [Ok(from), Ok(to)] if from.steps(&to).len() <= 1)
        })
    };
    let is_hidden = member.hub_fault.is_some() || member.applied().any(|applied| applied.is_terminating);
    !is_hidden && member.children.iter().all(is_near)
}

/// Why a member is not Ready in the revision that it returned to, or had during the rollback:
/// reason and message.
pub fn failure<C: Contents>(member: &Member, input: &Input<'_, C>) -> Option<(String, String)> {
    let is_touched = || member.is_touched(input.update, input.current, input.contents);
    if !input.is_rolling_back() || member.gone.is_some() || is_touched() {
        return None;
    }
    let (_, message) = member.not_ready()?;
    let failed = member.applied().find(|applied| applied.failure().is_some())?;
    let message = format!("not Ready in revision {}, which it has after the rollback: {message}", failed.revision);
    Some((failed.failure()?.to_owned(), message))
}

/// Whether a member has the failed revision, and nothing to return to.
pub fn is_kept<C: Contents>(member: &Member, input: &Input<'_, C>) -> bool {
    member.is_touched(input.update, input.current, input.contents) && before(member, input).is_none()
}

/// Time at which the update of a member started.
fn started(member: &Member, update: &str) -> Option<jiff::Timestamp> {
    member.applied().filter(|applied| applied.revision == update).map(|applied| applied.since).max()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::{Arc, OnceLock};

    use jiff::Timestamp;
    use knative_operator_shared::api::fleet::{ApprovalPolicy, OnFailure, Rollout, Stage};
    use knative_operator_shared::api::{ClusterProfileReference, Component};
    use knative_operator_shared::fleet::stage::Stages;

    use super::*;
    use crate::approval::Approved;
    use crate::member::{Reported, Wanted};

    /// Contents of any revision, and how often they were asked for.
    #[derive(Default)]
    struct Counted(Cell<usize>);

    impl Contents for Counted {
        fn of(&self, revision: &str, _: &ClusterProfileReference, _: Component) -> Option<Arc<Wanted>> {
            self.0.set(self.0.get() + 1);
            Some(Arc::new(Wanted { content: u128::from(revision == "b"), version: None }))
        }

        fn knows(&self, _: &str) -> bool {
            true
        }

        fn is_known(&self, _: &str, _: &ClusterProfileReference) -> bool {
            true
        }

        fn versions(&self, _: Component) -> &[Version] {
            &[]
        }
    }

    /// A cluster on which `b` failed, and nothing was before. `b` leaves one resource as it was.
    fn failed(number: usize) -> Member {
        let failed = Outcome::Failed { generation: 1, reason: "NotReady".to_owned() };
        let applied = |revision: &str, outcome| Applied {
            revision: revision.to_owned(),
            previous: None,
            stage: None,
            outcome: Some(outcome),
            since: Timestamp::UNIX_EPOCH,
            content: 1,
            version: None,
            installed: None,
            ready: Err(("NotReady".to_owned(), String::new())),
            has_drifted: false,
            is_terminating: false,
            reported: Reported::Current,
            skipped: None,
        };
        let child = |component, applied| Child { component, conflict: None, applied: Some(applied) };
        let children = vec![
            child(Component::Serving, applied("b", failed)),
            child(Component::Eventing, applied("a", Outcome::Succeeded)),
        ];
        Member::new(ClusterProfileReference { name: number.to_string(), namespace: "n".to_owned() }, children)
    }

    #[test]
    fn work_of_a_rollback_grows_with_its_clusters() {
        // Whether the revision before passed the stage is a question to all clusters of it.
        let stage = Stage {
            name: "prod".to_owned(),
            cluster_selector: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector::default()),
            approval: Some(ApprovalPolicy::Required),
            ..Stage::default()
        };
        let stages = Stages::of(&Rollout { stages: vec![stage], ..Rollout::default() }).unwrap();
        let asked = |clusters: usize| {
            let (members, contents): (Vec<_>, _) = ((0..clusters).map(failed).collect(), Counted::default());
            let input = Input {
                stages: &stages,
                members: &members,
                had_clusters: &BTreeSet::new(),
                uncounted: &BTreeMap::new(),
                current: Some("a"),
                update: "b",
                has_failed: true,
                generation: 1,
                on_failure: OnFailure::Rollback,
                is_paused: false,
                pause: "",
                approvals: &Approved::new(),
                contents: &contents,
                now: Timestamp::UNIX_EPOCH,
                installable: OnceLock::new(),
            };
            assert!(input.decide().writes.is_empty(), "no cluster of the stage has the revision before");
            contents.0.get()
        };
        let (some, more) = (asked(50), asked(200));
        assert!(more <= 4 * some, "{some} for 50 clusters, {more} for 200");
    }
}
