//! What a pass over a fleet needs before it decides: that the fleet is there and valid, its stages,
//! its finalizer, and the clusters that it selects.

use std::ops::ControlFlow;
use std::sync::Arc;

use jiff::Timestamp;
use knative_operator_rules::{FleetContext, REQUIRED_OF_FLEETS, Violation, validate_fleet};
use knative_operator_shared::api::KnativeFleet;
use knative_operator_shared::fleet::stage::{InvalidStages, Stages};

use super::children::Children;
use super::clusters::Selections;
use super::observe::lost_child;
use super::publish::publish;
use super::revisions::unreadable;
use super::selected::Selected;
use super::state::{FleetState, Next, uptime};
use super::store::{Store, StoredFleet};
use super::withheld::Withheld;
use super::write::WriteError;
use super::{leave, withheld};
use crate::controller::context::Context;
use knative_operator_cluster_access::profiles::{Profiles, Versions};
use knative_operator_fleet::status;

/// What a pass goes on with.
pub struct Gathered {
    /// The stages of the fleet.
    pub stages: Stages,
    /// Why its update is withheld, if the finalizer could not be added.
    pub withheld: Option<Withheld>,
    /// The clusters that it selects.
    pub selected: Arc<Selected>,
    /// The ClusterProfiles.
    pub profiles: Arc<Profiles>,
    /// Versions of what selectors look at in them.
    pub versions: Versions,
}

/// Gathers what the pass goes on with. It ends here if the fleet is deleted or invalid, or if its
/// clusters are not known, and the status says so.
pub async fn gather(
    cx: &Context,
    (store, stored): (&Store, &StoredFleet),
    selections: &Selections,
    children: &Children,
    state: &mut FleetState,
) -> Result<ControlFlow<Next, Gathered>, WriteError> {
    let fleet = &stored.fleet;
    if let Some(message) = lost_child(fleet, &cx.registry.unreadable()) {
        return stop(cx, fleet, state, &message).await;
    }
    if let Some(next) = leave::delete(cx, stored, children, state).await? {
        return Ok(ControlFlow::Break(next));
    }
    let stages = match stages_of(stored) {
        Ok(stages) => stages,
        Err(invalid) => {
            state.lose_clusters(uptime());
            let (old, generation) = (state.stored_status(fleet), fleet.metadata.generation);
            let status = status::invalid(&old, generation, &invalid.to_string(), Timestamp::now());
            return publish(cx, fleet, state, status).await.map(ControlFlow::Break);
        }
    };
    let withheld = withheld::keep_finalizer(cx, fleet).await?;
    let located = cx.profiles.all().map_err(|error| error.to_string()).and_then(|(versions, all)| {
        let selected = selections.of(fleet, store, (versions, &all)).map_err(|error| error.to_string())?;
        Ok((selected, versions, all))
    });
    let (selected, versions, profiles) = match located {
        Ok(located) => located,
        Err(message) => return stop(cx, fleet, state, &message).await,
    };
    if let Some(message) = unreadable(store, fleet, children, &state.stored_status(fleet)) {
        return stop(cx, fleet, state, &message).await;
    }
    state.find_clusters(uptime());
    Ok(ControlFlow::Continue(Gathered { stages, withheld, selected, profiles, versions }))
}

/// Reports with `message` that the clusters are not known. Nothing is written for them.
async fn stop(
    cx: &Context,
    fleet: &KnativeFleet,
    state: &mut FleetState,
    message: &str,
) -> Result<ControlFlow<Next, Gathered>, WriteError> {
    state.lose_clusters(uptime());
    let status = status::unknown(&state.stored_status(fleet), fleet.metadata.generation, message, Timestamp::now());
    publish(cx, fleet, state, status).await.map(ControlFlow::Break)
}

/// Why a fleet can't be rolled out.
#[derive(Debug, thiserror::Error)]
enum InvalidFleet {
    /// This version can't read it; with what that means for its clusters.
    #[error("{0}")]
    Unreadable(String),
    /// It violates rules that a rollout needs.
    #[error("{}", joined(.0))]
    Violations(Vec<Violation>),
    #[error(transparent)]
    Stages(#[from] InvalidStages),
}

fn joined(violations: &[Violation]) -> String {
    violations.iter().map(Violation::to_string).collect::<Vec<_>>().join("; ")
}

/// The stages of a fleet that can be rolled out, or why it can't.
fn stages_of(stored: &StoredFleet) -> Result<Stages, InvalidFleet> {
    if let Some(unreadable) = &stored.unreadable {
        return Err(InvalidFleet::Unreadable(leave::describe(unreadable, &stored.fleet)));
    }
    let mut violations = validate_fleet(&stored.fleet, &FleetContext::default());
    violations.retain(|violation| REQUIRED_OF_FLEETS.contains(&violation.rule));
    if !violations.is_empty() {
        return Err(InvalidFleet::Violations(violations));
    }
    Ok(Stages::of(&stored.fleet.spec.rollout)?)
}
