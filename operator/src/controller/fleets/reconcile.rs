//! One pass over a fleet: observe, decide, write.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use knative_operator_shared::api::{Component, KnativeFleet};
use knative_operator_shared::fleet::stage::{REMOVAL, Stages};
use knative_operator_shared::label::{FLEET_FINALIZER, FLEET_VERSION, GROUP};
use knative_operator_shared::rules::{FleetContext, REQUIRED_OF_FLEETS, Violation, validate_fleet};
use serde_json::{Value, json};

use super::clusters::{claims, clusters};
use super::contents::Contents;
use super::observe::{Children, Observation};
use super::publish::publish;
use super::state::{FleetState, Next, REFUSED_RETRY};
use super::store::{Store, StoredFleet};
use super::write::{self, WriteError};
use super::{apply, leave};
use crate::controller::context::Context;
use crate::fleet::decision::Input;
use crate::fleet::member::Member;
use crate::fleet::removal::{self, Removal};
use crate::fleet::revision::{self, RevisionData};
use crate::fleet::status;

/// Delay before a pass that failed is retried.
pub const RETRY: Duration = Duration::from_secs(5);

/// Performs one pass.
pub async fn reconcile(cx: &Context, store: &Store, stored: &StoredFleet, state: &mut FleetState) -> Next {
    match pass(cx, store, stored, state).await {
        Ok(next) => {
            state.error = None;
            next
        }
        Err(error) => {
            let meta = &stored.fleet.metadata;
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

async fn pass(cx: &Context, store: &Store, stored: &StoredFleet, state: &mut FleetState) -> Result<Next, WriteError> {
    let fleet = &stored.fleet;
    let (meta, started) = (&fleet.metadata, Instant::now());
    let (namespace, name) = (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
    state.refused.retain(|_, (_, at)| at.elapsed() < REFUSED_RETRY);
    let mut children = Children::of(fleet, cx.registry.all());
    state.merge_written(&mut children);
    if meta.deletion_timestamp.is_some() {
        return leave::finalize(cx, fleet, &children).await.map(|()| Next::AwaitChange);
    }
    let checked = stored.unreadable.clone().map_or_else(|| check(fleet), Err);
    let stages =
        match checked.and_then(|()| Stages::of(&fleet.spec.rollout).map_err(|e| format!("spec.rollout.stages: {e}"))) {
            Ok(stages) => stages,
            Err(message) => {
                return publish(
                    cx,
                    fleet,
                    state,
                    status::invalid(&state.stored_status(fleet), meta.generation, &message, now()),
                )
                .await;
            }
        };
    let mut finalizers = meta.finalizers.clone().unwrap_or_default();
    if !finalizers.iter().any(|finalizer| finalizer == FLEET_FINALIZER) {
        finalizers.push(FLEET_FINALIZER.to_owned());
        write::finalizers(&cx.hub, fleet, &finalizers).await?;
    }
    let all_profiles = match cx.profiles.all() {
        Ok(profiles) => profiles.into_iter().collect::<HashMap<_, _>>(),
        Err(message) => {
            return publish(
                cx,
                fleet,
                state,
                status::unknown(&state.stored_status(fleet), meta.generation, &message, now()),
            )
            .await;
        }
    };
    let clusters = match clusters(fleet, store, &all_profiles) {
        Ok(clusters) => clusters,
        Err(message) => {
            return publish(
                cx,
                fleet,
                state,
                status::unknown(&state.stored_status(fleet), meta.generation, &message, now()),
            )
            .await;
        }
    };
    children.adopt(fleet, &clusters);

    let data = RevisionData::of(&fleet.spec);
    let update = data.name(name);
    let owner = owner(fleet);
    let no_revisions = BTreeMap::new();
    let revisions = store.revisions.get(namespace).unwrap_or(&no_revisions);
    if !revisions.contains_key(&update) {
        let number = revision::next_number(revisions.values());
        write::store_revision(&cx.hub, &data.manifest(namespace, name, &owner, number)).await?;
    }
    let mut known: BTreeMap<&str, &RevisionData> =
        revisions.iter().map(|(name, revision)| (name.as_str(), &revision.data)).collect();
    known.insert(&update, &data);
    let versions =
        Component::ALL.map(|component| (component, cx.library.bundle.versions(component).unwrap_or_default()));
    let cache = std::mem::take(&mut state.contents);
    let contents = Contents { revisions: known, profiles: &all_profiles, versions: &versions, cache: &cache };
    let components: BTreeSet<Component> =
        fleet.spec.components().chain(children.own.keys().map(|(_, component)| *component)).collect();
    let refused = state.refused.iter().map(|(cluster, (refused, _))| (cluster.clone(), refused.clone())).collect();
    let claims = claims(fleet, store, &all_profiles);
    let observation = Observation {
        fleet,
        owner: &owner,
        stages: &stages,
        components,
        profiles: &all_profiles,
        children: &children,
        contents: &contents,
        refused: &refused,
        claims: &claims,
    };
    let members: Vec<Member> =
        clusters.iter().map(|cluster| observation.member(cluster, &mut state.observed)).collect();

    let stored_status = state.stored_status(fleet);
    let failed_generation = revisions.get(&update).and_then(|revision| revision.failed_generation);
    let approvals: HashSet<(String, String)> = store
        .approvals
        .iter()
        .filter(|((of, _), approval)| of == namespace && approval.fleet == name)
        .map(|(_, approval)| (approval.revision.clone(), approval.stage.clone()))
        .collect();
    let current = stored_status.current_revision.as_deref().filter(|current| contents.revisions.contains_key(current));
    let input = Input {
        stages: &stages,
        members: &members,
        current,
        update: &update,
        has_failed: failed_generation.is_some() && failed_generation == meta.generation,
        on_failure: fleet.spec.rollout.on_failure,
        is_paused: fleet.spec.rollout.paused,
        approvals: &approvals,
        contents: &contents,
        now: now(),
    };
    let decision = input.decide();
    state.duration = started.elapsed();
    if decision.mark_failed {
        write::mark_failed(&cx.hub, namespace, &update, meta.generation.unwrap_or_default()).await?;
    }
    let has_failures = apply::write_all(cx, &observation, &decision, state).await;
    let (leaving, removed) = leave::leaving(&children, &clusters);
    let staying = clusters.len();
    let approved = |name: &str| approvals.contains(&(name.to_owned(), REMOVAL.to_owned()));
    let guarded = removal::guard(leaving.clone(), &removed, staying, fleet.spec.removal.max_at_once.as_ref(), approved);
    let removal_delay = state.removal_delay(&leaving);
    let blocked = match &guarded {
        Removal::Allowed(_) if removal_delay.is_some() => None,
        Removal::Allowed(clusters) => {
            leave::remove(cx, fleet, &children, clusters).await?;
            None
        }
        Removal::Blocked { name, limit } => Some((name.as_str(), leaving.iter().collect::<Vec<_>>(), *limit)),
    };
    let new = status::status(&stored_status, meta.generation, &input, &decision, blocked.as_ref());
    let used: BTreeSet<&str> = used(&children, &update, new.current_revision.as_deref());
    for obsolete in revision::obsolete(&own(revisions, name), fleet.spec.revision_history_limit, &used) {
        write::delete_revision(&cx.hub, namespace, &obsolete).await?;
    }
    let wake = decision.wake.map(|wake| wait(wake, input.now));
    drop(contents);
    state.contents = cache;
    let published = publish(cx, fleet, state, new).await?;
    let refused = (!state.refused.is_empty()).then_some(REFUSED_RETRY);
    Ok(soonest([
        published,
        wake.map_or(Next::AwaitChange, Next::After),
        refused.map_or(Next::AwaitChange, Next::After),
        removal_delay.map_or(Next::AwaitChange, Next::After),
        if has_failures { Next::After(RETRY) } else { Next::AwaitChange },
    ]))
}

/// Checks whether `fleet` can be rolled out.
fn check(fleet: &KnativeFleet) -> Result<(), String> {
    let mut violations = validate_fleet(fleet, &FleetContext::default());
    violations.retain(|violation| REQUIRED_OF_FLEETS.contains(&violation.rule));
    if violations.is_empty() {
        return Ok(());
    }
    Err(violations.iter().map(Violation::to_string).collect::<Vec<_>>().join("; "))
}

fn now() -> Timestamp {
    Timestamp::now()
}

fn wait(until: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(until.duration_since(now)).unwrap_or_default() + Duration::from_millis(50)
}

fn soonest(all: impl IntoIterator<Item = Next>) -> Next {
    let delays = all.into_iter().filter_map(|next| match next {
        Next::AwaitChange => None,
        Next::After(delay) => Some(delay),
        Next::Retry => Some(RETRY),
    });
    delays.min().map_or(Next::AwaitChange, Next::After)
}

fn owner(fleet: &KnativeFleet) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{FLEET_VERSION}"), "kind": "KnativeFleet", "name": fleet.metadata.name, "uid": fleet.metadata.uid,
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// Names of the revisions that are used.
fn used<'a>(children: &'a Children, update: &'a str, current: Option<&'a str>) -> BTreeSet<&'a str> {
    let annotations = children.own.values().filter_map(|resource| resource.meta().annotations.as_ref());
    let names = [knative_operator_shared::label::FLEET_REVISION, knative_operator_shared::label::FLEET_PREVIOUS];
    let of_children = annotations.flat_map(|all| names.iter().filter_map(|name| all.get(*name)).map(String::as_str));
    of_children.chain([update]).chain(current).collect()
}

/// The revisions of the fleet `name` among those of its namespace.
fn own(revisions: &BTreeMap<String, revision::Revision>, name: &str) -> BTreeMap<String, revision::Revision> {
    let is_own = |(revision, stored): &(&String, &revision::Revision)| **revision == stored.data.name(name);
    revisions.iter().filter(is_own).map(|(name, revision)| (name.clone(), revision.clone())).collect()
}
