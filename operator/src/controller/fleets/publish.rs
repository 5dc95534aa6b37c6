//! Publishes the status of a fleet: in its status, in events and in metrics.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use knative_operator_shared::api::{KnativeFleet, KnativeFleetStatus};

use super::state::{FleetState, Next};
use super::write::{self, WriteError};
use crate::controller::context::Context;
use knative_operator_fleet::history;
use knative_operator_fleet::transitions::{Transition, rollout_end, transitions};
use knative_operator_overview::stalled;

/// Minimum interval of status writes.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// Writes the status if it changed, at most once a second.
pub async fn publish(
    cx: &Context,
    fleet: &KnativeFleet,
    state: &mut FleetState,
    new: KnativeFleetStatus,
) -> Result<Next, WriteError> {
    let old = state.stored_status(fleet);
    let now = Timestamp::now();
    let mut new = stalled::of_fleet(&old, new, now);
    new.rollouts = history::rollouts(&old, &new, now);
    cx.metrics.fleets.set(fleet, &new);
    if old == new {
        return Ok(Next::AwaitChange);
    }
    if let Some(rest) = state.status_at.and_then(|at| STATUS_INTERVAL.checked_sub(at.elapsed())) {
        return Ok(Next::After(rest));
    }
    write::status(&cx.hub, fleet, &new).await?;
    if let Some((end, started)) = rollout_end(&old, &new) {
        let duration =
            started.map(|started| Duration::try_from(Timestamp::now().duration_since(started)).unwrap_or_default());
        cx.metrics.fleets.ended(end, duration.unwrap_or_default());
    }
    for Transition { is_warning, reason, note } in transitions(&old, &new) {
        if is_warning {
            cx.events.warning(fleet, &reason, note);
        } else {
            cx.events.normal(fleet, &reason, note);
        }
    }
    (state.status, state.status_at) = (Some(new), Some(Instant::now()));
    Ok(Next::AwaitChange)
}
