//! Applies changed objects phase by phase, several at once.

use std::sync::atomic::Ordering;
use std::time::Instant;

use futures::StreamExt;
use tracing::Instrument;

use super::CONCURRENCY;
use super::differ::{Action, decide, runs_once};
use super::error::ApplyError;
use super::inventory::Inventory;
use super::managed_fields::last_other_manager;
use super::observed::{Drift, ObservedState};
use super::target::Target;
use super::throttle::{Permit, Throttle};
use super::write::apply_object;
use knative_operator_objects::ObjectId;
use knative_operator_objects::health::{Health, TERMINATING};
use knative_operator_objects::plan::Plan;
use knative_operator_objects::plan::{Item, Phase};

/// Outcome of an apply.
#[derive(Debug, Default)]
pub struct ApplyOutcome {
    /// Written because the plan changed.
    pub applied: Vec<ObjectId>,
    /// Written because the cluster changed, with the drift; `None` if the object was deleted.
    pub repaired: Vec<(ObjectId, Option<Drift>)>,
    /// Present before the installation, with their field manager.
    pub adopted: Vec<(ObjectId, String)>,
    /// Refused, with the reason.
    pub refused: Vec<(ObjectId, ApplyError)>,
    /// Objects that another manager keeps reverting, with the drift; `None` if they were deleted.
    pub contended: Vec<(ObjectId, Option<Drift>)>,
    /// Whether objects wait until Deployments are available.
    pub deferred: bool,
}

/// Items of `plan` that need an action.
pub fn changes<'p>(plan: &'p Plan, inventory: &Inventory, observed: &ObservedState) -> Vec<(&'p Item, Action)> {
    let action = |item: &Item| {
        decide(runs_once(item), &plan.digest(item), inventory.entries.get(&item.id), &observed.observation(&item.id))
    };
    plan.items().iter().map(|item| (item, action(item))).filter(|(_, action)| *action != Action::Keep).collect()
}

/// Phases that are applied together, started in this order: a container that starts before its
/// permissions ends, and kubelet starts it again after ten seconds. Services and definitions run
/// beside them: nothing waits for Services, and only custom resources wait for definitions.
const CONCURRENT_PHASES: &[Phase] =
    &[Phase::Accounts, Phase::Access, Phase::Configuration, Phase::Workloads, Phase::Jobs];

/// Applies `todo` in order, and continues after errors. Phases that `waits` names wait: if they
/// still do once everything else is written, they stay for a later reconcile.
pub async fn apply(
    target: &Target<'_>,
    todo: &[(&Item, Action)],
    waits: impl Fn(Phase) -> bool,
    throttle: &mut Throttle,
) -> ApplyOutcome {
    let mut outcome = ApplyOutcome::default();
    let (waiting, now): (Vec<_>, Vec<_>) = todo.iter().partition(|(item, action)| {
        // A repair is applied at once: the webhooks that admit the object are likely to run.
        let is_repair = *action == Action::Repair && item.phase() == Phase::Dependents;
        !is_repair && waits(item.phase())
    });
    let now = permitted(target, now, throttle, &mut outcome);
    let mut results = apply_phases(target, &now).await;
    let (later, due): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|(item, _)| waits(item.phase()));
    outcome.deferred = !later.is_empty();
    let due = permitted(target, due, throttle, &mut outcome);
    results.extend(write_concurrently(target, due).await);
    for WriteResult { item, action, drift, adopted, result } in results {
        match result {
            Ok(()) => {
                throttle.record_success(&item.id);
                if action == Action::Repair {
                    if item.phase() == Phase::Definitions {
                        // The definition took its custom resources along when it was deleted.
                        throttle.reset(|id| target.plan.get(id).is_some_and(|other| target.plan.defines(item, other)));
                    }
                    outcome.repaired.push((item.id.clone(), drift));
                    continue;
                }
                outcome.applied.push(item.id.clone());
                outcome.adopted.extend(adopted.map(|manager| (item.id.clone(), manager)));
            }
            Err(why) => {
                tracing::warn!(object = %item.id, why = why.to_string(), "failed to apply");
                throttle.record_refusal(&item.id, &target.plan.digest(item), &why, Instant::now());
                outcome.refused.push((item.id.clone(), why));
            }
        }
    }
    // What is said about them doesn't change from try to try.
    outcome.refused.sort_by(|(a, _), (b, _)| order(a).cmp(&order(b)));
    outcome
}

/// The order in which objects are named: the first ones may be the cause of what follows.
fn order(id: &ObjectId) -> (Phase, &ObjectId) {
    (Phase::of(&id.group, &id.kind), id)
}

/// Writes all of `permitted`, each once its dependencies are written.
async fn apply_phases<'i>(target: &Target<'_>, permitted: &[(&'i Item, Action)]) -> Vec<WriteResult<'i>> {
    // Roles come before the bindings that refer to them.
    let in_phase = |phase: &Phase| {
        let (bindings, others): (Vec<_>, Vec<_>) = permitted
            .iter()
            .copied()
            .filter(|(item, _)| item.phase() == *phase)
            .partition(|(item, _)| item.is_binding());
        others.into_iter().chain(bindings)
    };
    let of = |phases: &[Phase]| -> Vec<_> { phases.iter().flat_map(in_phase).collect() };
    let (needed, definitions) =
        of(&[Phase::Definitions]).into_iter().partition(|(item, _)| target.plan.has_instances(item));
    let mut results = write_concurrently(target, of(&[Phase::Namespaces])).await;
    // An API server establishes definitions one by one, so those with custom resources come first.
    let groups = futures::join!(
        write_in_order(target, [needed, of(&[Phase::CustomResources])]),
        write_concurrently(target, of(&[Phase::Services])),
        write_concurrently(target, definitions),
        write_in_order(target, [of(CONCURRENT_PHASES), of(&[Phase::Webhooks]), of(&[Phase::Dependents])]),
    );
    results.extend(<[_; 4]>::from(groups).into_iter().flatten());
    results
}

/// The items of `todo` that may be written now: without those that back off after a refusal or a
/// contention.
fn permitted<'i>(
    target: &Target<'_>,
    todo: Vec<(&'i Item, Action)>,
    throttle: &mut Throttle,
    outcome: &mut ApplyOutcome,
) -> Vec<(&'i Item, Action)> {
    let mut permitted = Vec::with_capacity(todo.len());
    for (item, action) in todo {
        // A custom resource created while its definition is terminating would be deleted with it:
        // it waits for the new definition.
        if item.phase().is_custom() && is_terminating(target, item) {
            continue;
        }
        if let Some(why) = throttle.refusal(&item.id, &target.plan.digest(item), Instant::now()) {
            target.record_refusal(item);
            outcome.refused.push((item.id.clone(), why.clone()));
        } else if action == Action::Repair {
            match throttle.request_repair(&item.id, Instant::now()) {
                Permit::Granted => permitted.push((item, action)),
                Permit::Exhausted => outcome.contended.push((item.id.clone(), target.observed.drift(&item.id))),
                Permit::BackingOff => {}
            }
        } else {
            permitted.push((item, action));
        }
    }
    permitted
}

/// Whether the definition of `item` is terminating.
fn is_terminating(target: &Target<'_>, item: &Item) -> bool {
    let health = target.plan.definition_of(item).and_then(|definition| target.observed.health(&definition.id));
    matches!(health, Some(Health::Waiting(wait)) if wait.reason == TERMINATING)
}

/// Result of one write.
struct WriteResult<'i> {
    item: &'i Item,
    action: Action,
    /// How the object had drifted.
    drift: Option<Drift>,
    /// The manager of an object that was present and not the operator's.
    adopted: Option<String>,
    result: Result<(), ApplyError>,
}

/// Writes the groups one after another.
async fn write_in_order<'i, const N: usize>(
    target: &Target<'_>,
    groups: [Vec<(&'i Item, Action)>; N],
) -> Vec<WriteResult<'i>> {
    let mut results = Vec::new();
    for group in groups {
        results.extend(write_concurrently(target, group).await);
    }
    results
}

/// Writes all of `items`, several at once.
async fn write_concurrently<'i>(target: &Target<'_>, items: Vec<(&'i Item, Action)>) -> Vec<WriteResult<'i>> {
    let writes: Vec<_> = items.into_iter().map(|item| write_item(target, item)).collect();
    futures::stream::iter(writes).buffer_unordered(CONCURRENCY).collect().await
}

async fn write_item<'i>(target: &Target<'_>, (item, action): (&'i Item, Action)) -> WriteResult<'i> {
    // Read before the write: a watch event may arrive before the response.
    let (is_managed, drift) = (target.observed.is_managed(&item.id), target.observed.drift(&item.id));
    let result = if target.unreachable.load(Ordering::Relaxed) {
        Err(ApplyError::Unreachable)
    } else {
        let span = tracing::debug_span!("write", object = %item.id, phase = ?item.phase(), action = ?action);
        apply_object(target, item).instrument(span).await
    };
    let adopted = result.as_ref().ok().and_then(last_other_manager).filter(|_| !is_managed);
    let result = result.map(|meta| target.observed.record_write(&item.id, &meta));
    if result.is_err() {
        target.record_refusal(item);
    }
    WriteResult { item, action, drift, adopted, result }
}
