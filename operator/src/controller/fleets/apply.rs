//! Performs the writes of a decision.

use std::sync::Arc;
use std::time::Instant;

use futures::StreamExt;
use jiff::{Timestamp, Unit};
use knative_operator_shared::api::Knative;

use super::observe::Observation;
use super::state::FleetState;
use super::write::{self, WriteError};
use crate::controller::context::Context;
use crate::fleet::child;
use crate::fleet::decision::Decision;
use crate::fleet::member::{Change, Write};
use crate::fleet::template::Record;

/// Writes at the same time.
const CONCURRENT_WRITES: usize = 16;

/// Performs the writes of `decision`; returns whether one failed, and is retried.
pub async fn write_all(
    cx: &Context,
    observation: &Observation<'_>,
    decision: &Decision,
    state: &mut FleetState,
) -> bool {
    let writes = decision.writes.clone().into_iter().map(|write| async move {
        let result = write_one(cx, observation, &write).await;
        (write, result)
    });
    let mut results = futures::stream::iter(writes).buffer_unordered(CONCURRENT_WRITES);
    let mut has_failed = false;
    while let Some((write, result)) = results.next().await {
        match (result, &write.change) {
            (Ok(Some(resource)), _) => {
                state.refused.remove(&write.cluster);
                state.written.insert((write.cluster.clone(), write.component), (Arc::new(resource), Instant::now()));
            }
            (Ok(None), _) => {}
            (Err(WriteError::Refused(message)), Change::Apply { revision, .. }) => {
                state.refused.insert(write.cluster.clone(), ((revision.clone(), message), Instant::now()));
                has_failed = true;
            }
            (Err(error), _) => {
                tracing::warn!(cluster = %write.cluster, component = %write.component, %error, "cannot write a resource of a fleet");
                has_failed = true;
            }
        }
    }
    has_failed
}

async fn write_one(cx: &Context, observation: &Observation<'_>, write: &Write) -> Result<Option<Knative>, WriteError> {
    let key = (write.cluster.clone(), write.component);
    let (stored, now) = (observation.children.own.get(&key), Timestamp::now());
    let record = match (&write.change, stored) {
        (Change::Delete, Some(stored)) => return write::delete(&cx.hub, stored).await.map(|()| None),
        (Change::Delete, None) => return Ok(None),
        (Change::Repair { .. }, Some(stored)) => child::record(stored),
        (Change::Repair { revision, version }, None) => {
            Record { revision: revision.clone(), previous: None, updated_at: String::new(), version: version.clone() }
        }
        (Change::Apply { revision, previous, version }, _) => Record {
            revision: revision.clone(),
            previous: previous.clone().filter(|previous| !previous.is_empty()),
            updated_at: now.round(Unit::Second).unwrap_or(now).to_string(),
            version: version.clone(),
        },
    };
    let Some(manifest) = observation.manifest(&key, &record) else { return Ok(None) };
    match (&write.change, stored) {
        (Change::Repair { .. }, Some(stored)) => {
            write::repair(&cx.hub, write.component, &manifest, &child::removals(stored, &manifest)).await
        }
        _ => write::apply(&cx.hub, write.component, &manifest).await,
    }
}
