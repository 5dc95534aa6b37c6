//! When to ask the Pods of workloads that are not available for the cause, and what they said.
//!
//! Nothing is asked while all is well. A workload that has not been available for three seconds is
//! asked about, and again with back-off until it is available. The requests run beside the
//! reconciles, so that a node that does not respond delays none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use knative_operator_runtime::backoff::Backoff;
use knative_operator_shared::api::Knative;
use kube::Client;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use super::events::Events;
use knative_operator_apply::observed::ObservedState;
use knative_operator_apply::pods::{self, Answers, Finding, Findings, Found};
use knative_operator_objects::{Digest, ObjectId};

/// Time for which a workload is not available before the operator asks why.
const DELAY: Duration = Duration::from_secs(3);
/// Interval of questions while workloads stay unavailable: at first, doubled each time, and at
/// most.
const INTERVAL: Backoff = Backoff::new(Duration::from_secs(10), Duration::from_secs(60));
/// Maximum number of causes that events report, while something waits.
const MAX_REPORTED: usize = 50;
/// Reason of the event for a new cause.
const REASON: &str = "WorkloadNotReady";

/// Causes of workloads that are not available.
#[derive(Default)]
pub struct Causes {
    /// The workloads, each with its desired content.
    waiting: BTreeMap<ObjectId, Digest>,
    found: Found,
    answers: Answers,
    /// When to ask next, and how often that was done.
    due: Option<Instant>,
    asked: u32,
    running: Option<Running>,
    /// Causes that an event has reported.
    reported: BTreeSet<String>,
}

/// Requests under way.
struct Running {
    findings: Arc<Mutex<Option<Findings>>>,
    _task: AbortOnDropHandle<()>,
}

impl Causes {
    /// The sentences about the workloads that still wait.
    pub fn known(&self) -> BTreeMap<ObjectId, Finding> {
        pods::sentences(&self.found)
    }

    /// When to ask next; `None` while nothing waits, or requests are under way.
    pub fn next_due(&self) -> Option<Instant> {
        self.due.filter(|_| self.running.is_none())
    }

    /// Takes the findings of requests that are complete, and reports new causes of `resource`.
    pub fn collect(&mut self, events: &Events, resource: &Knative) {
        let found = self
            .running
            .as_ref()
            .and_then(|running| running.findings.lock().unwrap_or_else(PoisonError::into_inner).take());
        let Some(Findings { found, answers }) = found else { return };
        self.running = None;
        self.answers = answers;
        self.found = found.into_iter().filter(|(id, _)| self.waiting.contains_key(id)).collect();
        let known = self.known();
        let mut by_cause: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (id, finding) in &known {
            if let Finding::Cause(cause) = finding {
                by_cause.entry(cause).or_default().push(&id.name);
            }
        }
        for (cause, names) in by_cause {
            if self.reported.len() < MAX_REPORTED && self.reported.insert(cause.to_owned()) {
                events.warning(resource, REASON, format!("{}: {cause}", names.join(", ")));
            }
        }
    }

    /// Records which workloads are not available now, each with its desired content, and asks for
    /// the causes when that is due. `observed` is notified of the findings.
    pub fn follow(&mut self, waiting: BTreeMap<ObjectId, Digest>, client: &Client, observed: &Arc<ObservedState>) {
        if self.schedule(waiting, Instant::now()) {
            self.ask(client.clone(), Arc::clone(observed));
        }
    }

    /// The same at the time `now`, without requests: whether they are due.
    fn schedule(&mut self, waiting: BTreeMap<ObjectId, Digest>, now: Instant) -> bool {
        let is_new = waiting.iter().any(|(id, digest)| self.waiting.get(id) != Some(digest));
        self.found.retain(|id, _| waiting.get(id).is_some_and(|digest| self.waiting.get(id) == Some(digest)));
        self.waiting = waiting;
        if self.waiting.is_empty() {
            *self = Self::default();
            return false;
        }
        if is_new {
            // One that was changed a moment ago may become available soon.
            self.due = Some(self.due.map_or(now + DELAY, |due| due.min(now + DELAY)));
            self.asked = 0;
        }
        if self.running.is_some() || self.due.is_some_and(|due| due > now) {
            return false;
        }
        self.asked += 1;
        self.due = Some(now + INTERVAL.exact(self.asked));
        true
    }

    fn ask(&mut self, client: Client, observed: Arc<ObservedState>) {
        let findings: Arc<Mutex<Option<Findings>>> = Arc::default();
        let (store, answers) = (Arc::clone(&findings), std::mem::take(&mut self.answers));
        let workloads: Vec<ObjectId> = self.waiting.keys().cloned().collect();
        let ask = async move {
            let found = pods::causes(&client, &workloads, answers).await;
            *store.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
            observed.notify();
        };
        let task = tokio::spawn(ask.instrument(tracing::debug_span!("ask_pods")));
        self.running = Some(Running { findings, _task: AbortOnDropHandle::new(task) });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use knative_operator_objects::CompactObject;
    use knative_operator_objects::cause::{Cause, CauseKind};

    fn waiting(names: &[(&str, u32)]) -> BTreeMap<ObjectId, Digest> {
        let of = |(name, content): &(&str, u32)| {
            let digest = CompactObject::new(&json!({"kind": "Deployment", "n": content})).digest();
            (ObjectId::new("apps", "Deployment", "n", name), digest)
        };
        names.iter().map(of).collect()
    }

    #[test]
    fn pods_are_asked_with_back_off_while_workloads_wait() {
        let (mut causes, start) = (Causes::default(), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut asked = |names: &[(&str, u32)], seconds: u64| causes.schedule(waiting(names), at(seconds));
        // A healthy start.
        assert!(!asked(&[], 0) && !asked(&[("a", 1), ("b", 1)], 1) && !asked(&[("a", 1)], 3) && !asked(&[], 4));
        // One that stays unavailable.
        let times: Vec<u64> = (10..200).filter(|second| asked(&[("a", 1)], *second)).collect();
        assert_eq!(times, [13, 23, 43, 83, 143]);
        // Another one, and one with a new spec.
        let times: Vec<u64> = (200..216).filter(|second| asked(&[("a", 1), ("b", 1)], *second)).collect();
        assert_eq!(times, [203, 213]);
        let times: Vec<u64> = (220..234).filter(|second| asked(&[("a", 2), ("b", 1)], *second)).collect();
        assert_eq!(times, [223, 233]);
        // Fewer are no reason to ask.
        assert!(!asked(&[("a", 2)], 234) && !asked(&[], 235));
    }

    #[test]
    fn finding_is_forgotten_with_its_content() {
        let (mut causes, now) = (Causes::default(), Instant::now());
        causes.schedule(waiting(&[("a", 1), ("b", 1)]), now);
        let image = |id: &ObjectId| Cause::new(CauseKind::Image, &id.name, "not found");
        causes.found = waiting(&[("a", 1), ("b", 1)]).into_keys().map(|id| (id.clone(), Ok(image(&id)))).collect();
        causes.schedule(waiting(&[("a", 1), ("b", 1)]), now);
        let both = Finding::Cause("cannot pull images \"a\" and \"b\": not found".to_owned());
        assert_eq!(causes.known().into_values().collect::<Vec<_>>(), [both.clone(), both]);
        causes.schedule(waiting(&[("a", 2), ("b", 1)]), now);
        let one = Finding::Cause("cannot pull image \"b\": not found".to_owned());
        assert_eq!(causes.known().into_values().collect::<Vec<_>>(), [one]);
    }
}
