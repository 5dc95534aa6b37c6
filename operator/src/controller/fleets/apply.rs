//! Performs the writes of a decision.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use knative_operator_shared::api::Knative;
use knative_operator_shared::label::FLEET_OUTCOME;
use knative_operator_shared::time::truncate;

use super::contents::CachedContents;
use super::observe::FleetObservation;
use super::refused_write::RefusedWrite;
use super::sender::{BATCH, List};
use super::state::{FleetState, RETRY};
use super::write::{self, WriteError};
use crate::controller::context::Context;
use knative_operator_fleet::child;
use knative_operator_fleet::decision::{Decision, Input};
use knative_operator_fleet::member::{Change, Write};
use knative_operator_fleet::template::ChildRecord;

/// Time for which a write that failed comes after all others: enough to try many that take long.
const FAILED: Duration = Duration::from_secs(600);

/// What became of the writes of a pass.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// Whether one failed. It is tried again.
    pub has_failed: bool,
    /// Time until the next pass that writes more, if some are left.
    pub wake: Option<Duration>,
}

/// Performs the first writes of `decision` about `input`.
pub async fn write_all(
    cx: &Context,
    observation: &FleetObservation<'_>,
    input: &Input<'_, CachedContents<'_>>,
    decision: &Decision,
    state: &mut FleetState,
) -> Written {
    let now = Instant::now();
    let (due, wake) = due(state, &decision.writes, now);
    let sent = state.sender.send(List::Updates, with_stages(input, due), |(write, stage)| async move {
        let result = write_one(cx, observation, stage, &write).await;
        (write, result)
    });
    let sent = sent.await;
    let mut has_failed = false;
    for (write, result) in sent.results {
        if record(state, &write, result) {
            has_failed = true;
            state.failed.insert(write.key(), Instant::now());
        } else {
            state.failed.remove(&write.key());
        }
    }
    // They come last, too.
    state.failed.extend(sent.throttled.iter().map(|write| (write.key(), Instant::now())));
    // The time until a repair says nothing about what was not sent now.
    let wake = sent.again.or(wake);
    // The hub may have failed.
    Written { has_failed, wake: wake.map(|wake| if has_failed { wake.max(RETRY) } else { wake }) }
}

/// `writes`, each with the name of the stage of its cluster.
fn with_stages(input: &Input<'_, CachedContents<'_>>, writes: Vec<Write>) -> Vec<(Write, Option<String>)> {
    if writes.is_empty() {
        return Vec::new();
    }
    let stages: HashMap<_, _> = {
        let written: HashSet<_> = writes.iter().map(|write| &write.cluster).collect();
        let own = input.members.iter().filter(|member| written.contains(&member.cluster));
        own.map(|member| (&member.cluster, member.stage)).collect()
    };
    let name = |stage: &usize| input.stages.settings()[*stage].name.clone();
    let with_stage = |write: Write| {
        let stage = stages.get(&write.cluster).map(name);
        (write, stage)
    };
    writes.into_iter().map(with_stage).collect()
}

fn is_repair(write: &Write) -> bool {
    matches!(write.change, Change::Repair { .. })
}

/// Those of `writes` that are made at `now`, and the time until more are. What failed comes last,
/// and what failed last comes after it, so that none keeps another one from its turn.
fn due(state: &mut FleetState, writes: &[Write], now: Instant) -> (Vec<Write>, Option<Duration>) {
    state.failed.retain(|_, at| now.saturating_duration_since(*at) < FAILED);
    let mut all: Vec<&Write> = writes.iter().collect();
    all.sort_by_cached_key(|write| state.failed.get(&write.key()).copied());
    let (mut due, mut wake) = (Vec::new(), None);
    for write in all {
        let wait = if is_repair(write) { state.repairs.wait(&write.key(), now) } else { Duration::ZERO };
        if wait.is_zero() && due.len() < BATCH {
            due.push(write.clone());
        } else {
            wake = wake.into_iter().chain([wait]).min();
        }
    }
    (due, wake)
}

/// Keeps what became of `write`; returns whether it failed.
fn record(state: &mut FleetState, write: &Write, result: Result<Option<Knative>, WriteError>) -> bool {
    let key = write.key();
    // What refuses a repair will refuse the next one, too.
    if is_repair(write) && matches!(result, Ok(_) | Err(WriteError::Refused(_))) {
        state.repairs.note(&key, Instant::now());
    }
    match (result, &write.change) {
        (Ok(Some(resource)), change) => {
            // Another update has an outcome of its own.
            if matches!(change, Change::Record(_) | Change::Apply { .. }) {
                state.unrecorded.remove(&key);
            }
            if !matches!(change, Change::Record(_)) {
                state.refused.remove(&key);
            }
            state.written.insert(key, (Arc::new(resource), Instant::now()));
            return false;
        }
        (Ok(None), _) => return false,
        (Err(WriteError::Refused(message)), Change::Apply { revision, .. }) => {
            state.refused.insert(key, RefusedWrite { revision: revision.clone(), message, at: Instant::now() });
        }
        (Err(error), change) => {
            if let (WriteError::Refused(message), Change::Record(_)) = (&error, change) {
                state.unrecorded.insert(key, message.clone());
            }
            tracing::warn!(cluster = %write.cluster, component = %write.component, %error, "cannot write a resource of a fleet");
        }
    }
    true
}

async fn write_one(
    cx: &Context,
    observation: &FleetObservation<'_>,
    stage: Option<String>,
    write: &Write,
) -> Result<Option<Knative>, WriteError> {
    let key = write.key();
    let (stored, now) = (observation.children.own().get(&key), Timestamp::now());
    let record = match (&write.change, stored) {
        (Change::Delete, Some(stored)) => return write::delete(&cx.hub, stored).await.map(|()| None),
        (Change::Delete, None) => return Ok(None),
        // Of another fleet, it may have the name of a revision that is not known here.
        (Change::Repair { revision, version }, Some(stored)) => {
            ChildRecord { revision: revision.clone(), version: version.clone(), ..child::record(stored) }
        }
        (Change::Record(outcome), Some(stored)) => {
            return write::annotate(&cx.hub, stored, FLEET_OUTCOME, Some(&outcome.to_string())).await;
        }
        (Change::Record(_) | Change::Repair { .. }, None) => return Ok(None),
        (Change::Apply { revision, previous, version, outcome }, _) => ChildRecord {
            revision: revision.clone(),
            previous: previous.clone().filter(|previous| !previous.is_empty()),
            stage,
            outcome: Some(outcome.clone()),
            updated_at: truncate(now).to_string(),
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

#[cfg(test)]
mod tests {
    use knative_operator_shared::api::{ClusterProfileReference, Component, KnativeEventing};

    use super::*;
    use knative_operator_fleet::outcome::Outcome;

    #[test]
    fn pass_makes_a_limited_number_of_writes_and_what_failed_comes_last() {
        let write = |number: usize| Write {
            cluster: ClusterProfileReference { name: number.to_string(), namespace: "f".to_owned() },
            component: Component::Serving,
            change: Change::Delete,
        };
        let writes: Vec<_> = (0..300).map(write).collect();
        let (mut state, now) = (FleetState::default(), Instant::now());
        let (first, wake) = due(&mut state, &writes, now);
        assert_eq!((first.len(), wake), (BATCH, Some(Duration::ZERO)));
        // The others have their turn.
        state.failed.extend(first.iter().map(|write| (write.key(), now)));
        let (second, wake) = due(&mut state, &writes, now);
        assert_eq!((second.len(), wake), (BATCH, Some(Duration::ZERO)));
        assert_eq!(second[..300 - BATCH], writes[BATCH..]);
        let (all, wake) = due(&mut state, &writes[..BATCH], now);
        assert_eq!((all.len(), wake), (BATCH, None));
    }

    #[test]
    fn refused_repairs_become_rare() {
        let write = Write {
            cluster: ClusterProfileReference { name: "a".to_owned(), namespace: "f".to_owned() },
            component: Component::Serving,
            change: Change::Repair { revision: "r".to_owned(), version: None },
        };
        let mut state = FleetState::default();
        let mut is_due_after = |error: WriteError| {
            assert!(record(&mut state, &write, Err(error)));
            due(&mut state, std::slice::from_ref(&write), Instant::now()).0 == [write.clone()]
        };
        assert!(is_due_after(WriteError::Conflict("changed".to_owned())));
        assert!(!is_due_after(WriteError::Refused("a policy".to_owned())));
    }

    #[test]
    fn refusal_of_one_component_stays_when_the_other_is_written() {
        let cluster = ClusterProfileReference { name: "a".to_owned(), namespace: "f".to_owned() };
        let write = |component| Write {
            cluster: cluster.clone(),
            component,
            change: Change::Apply {
                revision: "r".to_owned(),
                previous: None,
                version: None,
                outcome: Outcome::Progressing { was_ready: true },
            },
        };
        let mut state = FleetState::default();
        assert!(record(&mut state, &write(Component::Serving), Err(WriteError::Refused("no".to_owned()))));
        let eventing = Knative::Eventing(KnativeEventing::default());
        assert!(!record(&mut state, &write(Component::Eventing), Ok(Some(eventing))));
        let refused: Vec<_> = state.refused.keys().collect();
        assert_eq!(refused, [&(cluster.clone(), Component::Serving)]);
    }

    #[test]
    fn refused_record_is_known_until_it_is_stored() {
        let cluster = ClusterProfileReference { name: "a".to_owned(), namespace: "f".to_owned() };
        let change = Change::Record(Outcome::Succeeded);
        let write = Write { cluster: cluster.clone(), component: Component::Eventing, change };
        let mut state = FleetState::default();
        assert!(record(&mut state, &write, Err(WriteError::Refused("no".to_owned()))));
        assert_eq!(state.unrecorded(&cluster).as_deref(), Some("no"));
        // Another try may fail for another reason, which passes.
        assert!(record(&mut state, &write, Err(WriteError::Conflict("changed".to_owned()))));
        assert_eq!(state.unrecorded(&cluster).as_deref(), Some("no"));
        let stored = || Ok(Some(Knative::Eventing(KnativeEventing::default())));
        assert!(!record(&mut state, &write, stored()));
        assert_eq!(state.unrecorded(&cluster), None);
        // Or until another update begins.
        assert!(record(&mut state, &write, Err(WriteError::Refused("no".to_owned()))));
        let outcome = Outcome::Progressing { was_ready: true };
        let change = Change::Apply { revision: "r".to_owned(), previous: None, version: None, outcome };
        assert!(!record(&mut state, &Write { change, ..write }, stored()));
        assert_eq!(state.unrecorded(&cluster), None);
    }
}
