//! Manages fleets: one task for all of them, on the replica with shard 0. It watches fleets,
//! approvals, revisions and decisions ([`store`]); resources and ClusterProfiles come from the
//! supervisor's watches.
//!
//! A pass ([`reconcile`]) collects the resources of a fleet ([`children`]), gathers what else it
//! needs ([`gather`]), observes its clusters ([`observe`], [`cached`], [`duplicates`],
//! [`permitted`]), decides ([`knative_operator_fleet::decision`]), writes ([`apply`]), measures
//! ([`gates`]), and publishes the status ([`publish`]).

mod apply;
mod cached;
mod children;
mod clusters;
mod contents;
mod cost;
mod duplicates;
mod gates;
mod gather;
mod installed;
mod leave;
mod observe;
mod permitted;
mod publish;
mod reconcile;
mod refused_write;
mod removals;
mod repairs;
mod revisions;
mod selected;
mod selected_properties;
mod sender;
mod state;
mod store;
mod width;
mod withheld;
mod write;

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use futures::{FutureExt, StreamExt};
use knative_operator_shared::api::KnativeFleet;

use super::context::Context;
use super::hub_changes::Changes;
use clusters::{Selections, selects};
use cost::{Rest, measured};
use state::{FleetState, Next, RETRY};
use store::{Concerned, FleetKey, Store};

/// Whether all that fleets depend on was listed.
fn is_listed(cx: &Context, store: &Store) -> bool {
    store.is_listed() && cx.registry.is_listed() && cx.profiles.are_listed()
}

/// Whether `fleet` selects a ClusterProfile that is new, or is another one to selectors.
fn is_selected(cx: &Context, fleet: &KnativeFleet, changes: &Changes) -> bool {
    if changes.relabeled.is_empty() {
        return false;
    }
    cx.profiles.all().map_or(true, |(_, profiles)| selects(fleet, &profiles, changes.relabeled.iter()))
}

/// Manages all fleets. Ends only when the task is aborted.
pub async fn run(cx: Arc<Context>) {
    let (mut store, mut events) = (Store::default(), store::watch(&cx.hub));
    let mut watches_decisions = false;
    let mut states: HashMap<FleetKey, FleetState> = HashMap::new();
    let mut due: HashMap<FleetKey, Instant> = HashMap::new();
    let mut selections = Selections::default();
    let mut rest = Rest::default();
    loop {
        // Until then, nothing is due; each list is a change.
        let next = due.values().min().copied().filter(|_| is_listed(&cx, &store));
        let delay = async {
            match next {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        let (concerned, changes) = tokio::select! {
            Some(event) = events.next() => (store.record(event), None),
            changes = cx.hub_changes.changed() => (Concerned::None, Some(changes)),
            () = delay => (Concerned::None, None),
        };
        if concerned != Concerned::None {
            // Before the ClusterProfiles are read: from now on, their changes are recorded.
            cx.hub_changes.select(selected_properties::of_all(&store));
        }
        if !watches_decisions && store.uses_decisions() {
            watches_decisions = true;
            events.push(store::watch_decisions(&cx.hub));
        }
        let now = Instant::now();
        states.retain(|key, _| {
            let exists = store.fleets.contains_key(key);
            if !exists {
                cx.metrics.fleets.remove(&key.0, &key.1);
            }
            exists
        });
        cx.diagnostics.keep_fleets(|key| store.fleets.contains_key(key));
        due.retain(|key, _| store.fleets.contains_key(key));
        selections.retain(|key| store.fleets.contains_key(key));
        let soon = rest.next(now);
        for (key, stored) in &store.fleets {
            let uid = stored.fleet.metadata.uid.as_deref().unwrap_or_default();
            let is_concerned = match &concerned {
                Concerned::None => false,
                Concerned::One(one) => one == key,
                Concerned::Namespace(namespace) => *namespace == key.0,
                Concerned::All => true,
            };
            let is_changed = changes.as_ref().is_some_and(|changes| {
                states.get(key).is_none_or(|state| state.is_concerned(uid, changes))
                    || is_selected(&cx, &stored.fleet, changes)
            });
            if is_concerned || is_changed {
                let at = due.entry(key.clone()).or_insert(soon);
                *at = (*at).min(soon);
            }
        }
        if !is_listed(&cx, &store) {
            continue;
        }
        let ready: Vec<FleetKey> = due.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone()).collect();
        for key in ready {
            due.remove(&key);
            let Some(fleet) = store.fleets.get(&key) else { continue };
            let state = states.entry(key.clone()).or_default();
            let reconciling = Box::pin(reconcile::reconcile(&cx, &store, fleet, &selections, state));
            let (reconciled, spent) = measured(AssertUnwindSafe(reconciling).catch_unwind()).await;
            rest.after(spent, std::mem::take(&mut state.writing), Instant::now());
            let next = reconciled.unwrap_or_else(|_| {
                cx.metrics.fleet_panicked();
                tracing::error!(namespace = key.0, name = key.1, "a reconcile panicked; restarting with empty state");
                // The state may be inconsistent.
                *state = FleetState::default();
                Next::Retry
            });
            let delay = match next {
                Next::AwaitChange => None,
                Next::After(delay) => Some(delay),
                Next::Retry => Some(RETRY),
            };
            cx.diagnostics.passed(&key, spent, delay);
            let before = selections.unpermitted.insert(key.clone(), state.unpermitted.clone()).unwrap_or_default();
            if before != state.unpermitted {
                // Others may have what this fleet may not.
                due.extend(
                    store.fleets.keys().filter(|other| **other != key).map(|other| (other.clone(), rest.next(now))),
                );
            }
            let now = Instant::now();
            due.extend(delay.map(|delay| (key, rest.next(now).max(now + delay))));
        }
    }
}

#[cfg(test)]
#[path = "pass_tests.rs"]
pub mod tests;
