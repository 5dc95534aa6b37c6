//! One pass over a fleet: gather, observe, decide, write, publish.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use knative_operator_rules::authorization::fleet_users;
use knative_operator_shared::api::{ClusterProfileReference, Component, KnativeFleet, KnativeFleetStatus};
use knative_operator_shared::fleet::content;
use knative_operator_shared::fleet::stage::REMOVAL;
use knative_operator_shared::label::{CHANGED_BY, FLEET_VERSION, GROUP};
use serde_json::{Value, json};

use super::cached::Observed;
use super::children::Children;
use super::clusters::Selections;
use super::contents::CachedContents;
use super::duplicates::{Shared, shared};
use super::gates::{self, Measuring, StageGates};
use super::gather::{Gathered, gather};
use super::observe::FleetObservation;
use super::publish::publish;
use super::removals::{self, Installed, Removals};
use super::revisions::{components, delete_obsolete, of, own_revisions, record, resolved, used};
use super::state::{Clusters, FleetState, Next, REFUSED_RETRY, RETRY, uptime};
use super::store::{Store, StoredFleet};
use super::write::{self, WriteError};
use super::{apply, cost, leave, permitted, withheld};
use crate::controller::conditions::NOT_PERMITTED;
use crate::controller::context::Context;
use knative_operator_fleet::absence::Gone;
use knative_operator_fleet::approval;
use knative_operator_fleet::child;
use knative_operator_fleet::decision::Input;
use knative_operator_fleet::gone;
use knative_operator_fleet::member::Member;
use knative_operator_fleet::removal::Leavers;
use knative_operator_fleet::revision::{self, RevisionData};
use knative_operator_fleet::status;
use knative_operator_fleet::timer::Elapsed;

/// Performs one pass. `selections`: those of all fleets.
pub async fn reconcile(
    cx: &Arc<Context>,
    store: &Store,
    stored: &StoredFleet,
    selections: &Selections,
    state: &mut FleetState,
) -> Next {
    let meta = &stored.fleet.metadata;
    let outcome = pass(cx, store, stored, selections, state).await;
    if let Some(error) = state.sender.complaint() {
        let note = format!("Resources are written later: the API server answers 429 (too many requests): {error}");
        cx.events.warning(&stored.fleet, "TooManyRequests", note);
        tracing::warn!(
            namespace = meta.namespace,
            name = meta.name,
            error,
            "the hub has too much to do: some resources of a fleet are written later"
        );
    }
    match outcome {
        Ok(next) => {
            state.error = None;
            next
        }
        Err(error) => {
            let text = error.to_string();
            // A repetition is not another event.
            if state.error.as_ref() != Some(&text) {
                cx.events.warning(&stored.fleet, "ReconcileFailed", text.clone());
                state.error = Some(text);
            }
            tracing::warn!(namespace = meta.namespace, name = meta.name, %error, "cannot reconcile the fleet");
            Next::Retry
        }
    }
}

async fn pass(
    cx: &Arc<Context>,
    store: &Store,
    stored: &StoredFleet,
    selections: &Selections,
    state: &mut FleetState,
) -> Result<Next, WriteError> {
    let fleet = &stored.fleet;
    let meta = &fleet.metadata;
    let (namespace, name) = (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
    state.keep_only(fleet);
    let before = state.clusters.take();
    state.gates.collect(&cx.metrics.fleets);
    state.forget_reported(&cx.registry);
    // A pass that fails keeps none of them.
    let mut children = std::mem::take(&mut state.children);
    children.collect(fleet, &cx.registry);
    state.merge_written(&mut children);
    let gathered = match gather(cx, (store, stored), selections, &children, state).await? {
        ControlFlow::Continue(gathered) => gathered,
        ControlFlow::Break(next) => {
            state.children = children;
            return Ok(next);
        }
    };
    let Gathered { stages, withheld: without_finalizer, selected, profiles: all_profiles, versions: profile_versions } =
        gathered;
    let mut stored_status = state.stored_status(fleet);
    let clusters = &selected.clusters;
    let left = children.left(&selected);
    children.add_others(fleet, (&selected, &left), &cx.registry);

    let versions =
        Component::ALL.map(|component| (component, cx.library.bundle.versions(component).unwrap_or_default()));
    let owner = owner(fleet);
    let revisions = own_revisions(cx, store, fleet, &stored_status, state);
    let data = resolved(cx, fleet, &revisions, &stored_status, &children, &versions);
    let update = revision::name_of(&revisions, &data, of(fleet, &stored_status));
    if record(cx, fleet, &revisions, &data, &mut stored_status).await? {
        state.status = Some(stored_status.clone());
    }
    let unstored = withheld::store_revision(cx, (namespace, name, &owner), &revisions, (&update, &data)).await?;
    let withheld = without_finalizer.or(unstored);
    let mut known: BTreeMap<&str, &RevisionData> =
        revisions.iter().map(|(name, revision)| (name.as_str(), &revision.data)).collect();
    known.insert(&update, &data);
    let cache = std::mem::take(&mut state.contents);
    let contents = CachedContents::new(known, &all_profiles, &versions, &cache);
    let in_use = children.revisions();
    let components =
        components(&children, &contents.revisions, &used(&in_use, &update, [&stored_status.current_revision, &None]));
    let refused = state.refused(&update);
    let unselected = leave::unselected(&children, &left, &all_profiles);
    let observed = clusters.iter().chain(unselected.gone().map(|(cluster, _)| cluster));
    let claims = selections.claims(fleet, store, (profile_versions, &all_profiles), &observed);
    let shared = shared(&children, clusters);
    let observation = FleetObservation {
        fleet,
        owner: &owner,
        stages: &stages,
        components,
        profiles: &all_profiles,
        children: &children,
        contents: &contents,
        refused: &refused,
        claims: &claims,
        occupied: &shared.occupied,
    };
    let mut uncounted = uncounted(cx, fleet, (clusters, &left), &children, &shared, state).await;
    uncounted.extend(unselected.described());
    let current = stored_status.current_revision.clone();
    let current = current.as_deref().filter(|current| contents.revisions.contains_key(current));
    let generation = meta.generation.unwrap_or_default();
    let counted = clusters.iter().filter(|cluster| !uncounted.contains_key(*cluster)).map(|cluster| (cluster, None));
    let all = counted.chain(unselected.gone().map(|(cluster, gone)| (cluster, Some(gone))));
    let stage_gates = gates::of_stages(&fleet.spec.rollout);
    let digest = content::digest(&fleet.spec);
    let since = approval::since(&stored_status, &update, &digest, generation);
    let members = members(&observation, all, (update.as_str(), current, since), &stage_gates, state);
    let is_same_selection = before.is_some_and(|before| Arc::ptr_eq(&before.selected, &selected));
    state.forget_others(&selected.set, is_same_selection, &children);

    let failed = revision::failed(&revisions, &stored_status, (&update, since), generation);
    let has_failed = failed.contains(&update);
    stored_status.failed_revisions = Some(failed);
    let approvals = store.approved(fleet, &digest, since);
    let pause = fleet_users::describe(|name| Some(meta.annotations.as_ref()?.get(name)?.as_str()));
    let input = Input {
        stages: &stages,
        members: &members,
        had_clusters: &gone::stages_with_clusters(&stored_status, &update),
        uncounted: &uncounted,
        current,
        update: &update,
        has_failed,
        generation: approval::of_failures(since),
        on_failure: fleet.spec.rollout.on_failure,
        is_paused: fleet.spec.rollout.paused,
        pause: &pause,
        approvals: &approvals,
        contents: &contents,
        now: now(),
        installable: OnceLock::new(),
    };
    let decision = withheld::decide(&input, withheld.as_ref());
    state.keep_refused(members.iter().zip(&decision.progress).map(|(member, progress)| (&member.cluster, progress)));
    if decision.mark_failed && !has_failed {
        mark_failed(cx, fleet, &update, &mut stored_status, state).await?;
    }
    let measuring = Measuring { fleet, children: &children, stages: &stage_gates, input: &input, decision: &decision };
    let (measured, next_gate) = measuring.advance(cx, &mut state.gates);
    measured.iter().for_each(|cluster| state.timers.suspend(cluster));
    let (written, spent) = cost::measured(apply::write_all(cx, &observation, &input, &decision, state)).await;
    state.writing = spent;
    let counting = &input.counting();
    let installed = Installed { children: &children, unselected: &unselected, counting, profiles: &all_profiles };
    let approved = |name: &str| approvals.contains_key(&(name.to_owned(), REMOVAL.to_owned()));
    let Removals { decision: removal, mut failed, again } =
        removals::advance(cx, fleet, &mut stored_status, &installed, state, approved).await;
    let leaving: Vec<_> = unselected.leaving.iter().collect();
    let leavers = Leavers { clusters: &leaving, decision: &removal };
    let mut new = status::status(&stored_status, meta.generation, &input, &decision, &leavers);
    if let Some(withheld) = &withheld {
        status::withheld(&stored_status, &mut new, (withheld.reason(), withheld.message()), input.now);
    }
    (new.rollout_digest, new.rollout_generation) = (Some(digest), Some(since));
    new.requested_by = requested_by(fleet, &stored_status, &new);
    new.installed = Some(children.installations());
    let used: BTreeSet<&str> = used(&in_use, &update, [&new.current_revision, &new.previous_revision]);
    let obsolete = revision::obsolete(&revisions, fleet.spec.revision_history_limit, &used);
    failed = failed.or(delete_obsolete(cx, fleet, &revisions, obsolete, &mut new, state).await);
    let wake = [decision.wake, removal.wake].into_iter().flatten().min().map(wait);
    contents.forget_others(&selected.set);
    drop(contents);
    let known = Clusters { selected: Arc::clone(&selected), others: left };
    (state.contents, state.children, state.clusters) = (cache, children, Some(known));
    let published = publish(cx, fleet, state, new).await?;
    failed.map_or(Ok(()), Err)?;
    let refused = (!state.refused.is_empty() || withheld.is_some()).then_some(REFUSED_RETRY);
    let at_once = decision.mark_failed.then_some(Duration::ZERO);
    let retry = written.has_failed.then_some(RETRY);
    let due =
        [wake, next_gate, refused, state.answers.retry(), state.written_until(), at_once, again, retry, written.wake];
    Ok(soonest(published, due))
}

/// The clusters among `all` that count, in the rollout of a revision after another one since a
/// generation of the fleet.
fn members<'c>(
    observation: &FleetObservation<'_>,
    all: impl Iterator<Item = (&'c ClusterProfileReference, Option<Gone>)>,
    (update, current, since): (&str, Option<&str>, i64),
    gates: &[Arc<StageGates>],
    state: &mut FleetState,
) -> Vec<Member> {
    let (contents, skipped) = (observation.contents, child::skipped(update, since));
    let generation = approval::of_failures(since);
    let mut members = Vec::new();
    let mut cache = std::mem::take(&mut state.observed);
    let mut observed = Observed::new(observation, &mut cache);
    for (cluster, gone) in all {
        let mut member = Member { gone, ..observed.member(cluster) };
        member.keep_stage(observation.stages, update, current, contents);
        let is_skipped = member.applied().any(|applied| applied.skipped.as_ref() == Some(&skipped));
        member.is_skipped = is_skipped;
        member.unrecorded = state.unrecorded(cluster);
        if gone.is_none() {
            member.elapsed = observe(&member, (update, current, generation), contents, state);
            member.gates = state.gates.state(&member, gates.get(member.stage), generation);
        }
        members.extend(member.counts(update, current, contents).then_some(member));
    }
    state.observed = cache;
    members
}

/// How long `member` has been in its state, in the rollout of a revision after another one that
/// records failures with a generation.
fn observe(
    member: &Member,
    (update, current, generation): (&str, Option<&str>, i64),
    contents: &CachedContents<'_>,
    state: &mut FleetState,
) -> Elapsed {
    let revision = member.other_in_progress(update, current, contents).unwrap_or(update);
    let phase = member.phase(revision, contents);
    state.timers.observe(&member.cluster, member.written(generation), phase, uptime())
}

/// Records that the rollout of `update` failed.
async fn mark_failed(
    cx: &Context,
    fleet: &KnativeFleet,
    update: &str,
    status: &mut KnativeFleetStatus,
    state: &mut FleetState,
) -> Result<(), WriteError> {
    status.failed_revisions.get_or_insert_default().push(update.to_owned());
    write::status(&cx.hub, fleet, status).await?;
    state.status = Some(status.clone());
    Ok(())
}

/// The user who asked for the rollout in the status `new` of `fleet`, after `old`; `None` if nobody
/// did, such as for another version in a newer release bundle.
fn requested_by(fleet: &KnativeFleet, old: &KnativeFleetStatus, new: &KnativeFleetStatus) -> Option<String> {
    if old.update_revision == new.update_revision {
        return old.requested_by.clone();
    }
    // The generation changes with a pause, too, and is observed while the clusters are not known.
    let is_changed = old.rollout_digest != new.rollout_digest;
    let user = fleet.metadata.annotations.as_ref().and_then(|all| all.get(CHANGED_BY));
    user.filter(|_| is_changed).map(|user| fleet_users::shown(user))
}

fn now() -> Timestamp {
    Timestamp::now()
}

fn wait(left: SignedDuration) -> Duration {
    Duration::try_from(left).unwrap_or_default() + Duration::from_millis(50)
}

/// The next pass: `next`, or earlier, if one of `due` is.
fn soonest(next: Next, due: impl IntoIterator<Item = Option<Duration>>) -> Next {
    let delay = match next {
        Next::AwaitChange => None,
        Next::After(delay) => Some(delay),
        Next::Retry => Some(RETRY),
    };
    due.into_iter().chain([delay]).flatten().min().map_or(Next::AwaitChange, Next::After)
}

fn owner(fleet: &KnativeFleet) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{FLEET_VERSION}"), "kind": "KnativeFleet", "name": fleet.metadata.name, "uid": fleet.metadata.uid,
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// The selected clusters of `fleet` that are not counted, with reason and message: duplicates, and
/// those that its author may not use.
async fn uncounted(
    cx: &Context,
    fleet: &KnativeFleet,
    (clusters, left): (&[ClusterProfileReference], &BTreeSet<ClusterProfileReference>),
    children: &Children,
    shared: &Shared,
    state: &mut FleetState,
) -> BTreeMap<ClusterProfileReference, (&'static str, String)> {
    let same = |owner| format!("the same cluster as ClusterProfile {owner}, which came first and is counted");
    let duplicates = shared.duplicates.iter().map(|(cluster, owner)| (cluster.clone(), ("Duplicate", same(owner))));
    let mut uncounted: BTreeMap<_, _> = duplicates.collect();
    let new = permitted::without_child((clusters, left), children);
    let unpermitted = state.answers.refused(cx.authors.as_ref(), fleet, new).await;
    state.unpermitted = unpermitted.keys().cloned().collect();
    uncounted.extend(unpermitted.into_iter().map(|(cluster, why)| (cluster, (NOT_PERMITTED, why))));
    uncounted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asked_is_known_although_the_clusters_were_not() {
        let fleet =
            json!({"metadata": {"generation": 3, "annotations": {CHANGED_BY: "jane"}}, "spec": {"placement": {}}});
        let fleet: KnativeFleet = serde_json::from_value(fleet).unwrap();
        let status = |revision: &str, digest: &str| -> KnativeFleetStatus {
            let status = json!({"observedGeneration": 3, "updateRevision": revision, "rolloutDigest": digest, "requestedBy": "ann"});
            serde_json::from_value(status).unwrap()
        };
        let (old, who) = (status("a", "1"), |new| requested_by(&fleet, &status("a", "1"), &new));
        assert_eq!(who(old).as_deref(), Some("ann"));
        assert_eq!(who(status("b", "2")).as_deref(), Some("jane"));
        assert_eq!(who(status("b", "1")), None, "a newer bundle");
    }
}
