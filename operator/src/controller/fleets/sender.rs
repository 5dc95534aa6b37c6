//! Sends the writes for a fleet: some at the same time, and fewer to a hub that has too much to do.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use knative_operator_runtime::rarely::Rarely;

use super::width::Width;
use super::write::WriteError;

/// Writes of a list in a pass. During it, neither a pause nor another fleet is seen.
pub const BATCH: usize = 256;
/// Time after which a pass starts no further writes of a list, for the same reason: few at the same
/// time, or a hub that is slow, make them take long.
const LONGEST_PASS: Duration = Duration::from_secs(10);
/// Time until something of a list is written after a hub that has too much to do ended its writes:
/// what API servers ask for.
const THROTTLED: Duration = Duration::from_secs(1);
/// Refusals, with one write at a time, that end the writes of a list: the hub may refuse most for
/// what others ask of it, or some writes only.
const TRIES: usize = 16;

/// What is written for a fleet. Trouble with one list keeps no other from being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum List {
    /// Updates, records and repairs of resources.
    Updates,
    /// Times since when clusters leave that are removed.
    Cleared,
    /// Times since when clusters leave that are recorded.
    Marks,
    /// Deletions.
    Removals,
}

/// Where the writes of a list begin.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// Until when nothing is sent.
    until: Option<Instant>,
    /// Writes in a row that failed. They come last the next time.
    failed: usize,
}

/// What sends the writes for one fleet.
#[derive(Debug, Default)]
pub struct Sender {
    width: Width,
    turns: HashMap<List, Turn>,
    complaints: Rarely,
    /// Why the hub refused some.
    complaint: Option<String>,
}

/// What came of writes.
#[derive(Debug)]
pub struct Sent<K, T> {
    /// Of those that the hub decided about, in the order of its responses.
    pub results: Vec<(K, Result<T, WriteError>)>,
    /// Those that it refused because it has too much to do.
    pub throttled: Vec<K>,
    /// Time until others are sent, if some are left.
    pub again: Option<Duration>,
}

impl Sender {
    /// What the hub answered if it refused some because it has too much to do, from time to time.
    pub fn complaint(&mut self) -> Option<String> {
        self.complaint.take().filter(|_| self.complaints.is_due())
    }

    /// Sends the first [`BATCH`] of `items`, and further ones only while all are refused: those
    /// that are refused each time don't keep the next ones. `write` returns what an item is known
    /// by, too.
    pub async fn send<I, K, T, F>(&mut self, list: List, mut items: Vec<I>, write: impl Fn(I) -> F) -> Sent<K, T>
    where
        F: Future<Output = (K, Result<T, WriteError>)>,
    {
        let mut sent = Sent { results: Vec::new(), throttled: Vec::new(), again: None };
        let started = Instant::now();
        let Turn { until, failed } = self.turns.get(&list).copied().unwrap_or_default();
        let left = until.map(|until| until.saturating_duration_since(started)).filter(|left| !left.is_zero());
        if items.is_empty() || left.is_some() {
            return Sent { again: left.filter(|_| !items.is_empty()), ..sent };
        }
        // Updates have an order of their own.
        let first = if list == List::Updates { 0 } else { failed % items.len() };
        items.rotate_left(first);
        let mut items = items.into_iter();
        loop {
            let before = sent.results.len();
            self.send_batch(list, items.by_ref().take(BATCH), started, &write, &mut sent).await;
            let mut results = sent.results.iter().skip(before);
            let is_stuck = results.all(|(_, result)| matches!(result, Err(WriteError::Refused(_))));
            let is_throttled = !sent.throttled.is_empty();
            if is_throttled || !is_stuck || items.len() == 0 || started.elapsed() >= LONGEST_PASS {
                let more = (items.len() > 0).then_some(Duration::ZERO);
                return Sent { again: is_throttled.then_some(THROTTLED).or(more), ..sent };
            }
        }
    }

    async fn send_batch<I, K, T, F>(
        &mut self,
        list: List,
        mut items: impl Iterator<Item = I>,
        started: Instant,
        write: &impl Fn(I) -> F,
        sent: &mut Sent<K, T>,
    ) where
        F: Future<Output = (K, Result<T, WriteError>)>,
    {
        let (mut writing, mut refusals) = (FuturesUnordered::new(), 0);
        let turn = self.turns.entry(list).or_default();
        loop {
            let is_over = refusals >= TRIES || started.elapsed() >= LONGEST_PASS;
            let (width, free) = (self.width.get(), self.width.get().saturating_sub(writing.len()));
            let next = items.by_ref().take(if is_over { 0 } else { free });
            writing.extend(next.map(|item| {
                let written = write(item);
                async move { (written.await, width) }
            }));
            let Some(((key, result), width)) = writing.next().await else { return };
            turn.failed = if result.is_ok() { 0 } else { turn.failed.wrapping_add(1) };
            match &result {
                Err(WriteError::Throttled(message)) => {
                    self.complaint = Some(message.clone());
                    sent.throttled.push(key);
                    if !self.width.refuse(width) {
                        refusals += 1;
                        turn.until = (refusals >= TRIES).then(|| Instant::now() + THROTTLED);
                    }
                    continue;
                }
                // It says nothing about their number.
                Err(WriteError::Other(_)) => {}
                Ok(_) | Err(WriteError::Refused(_) | WriteError::Conflict(_)) => self.width.accept(),
            }
            sent.results.push((key, result));
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use knative_operator_shared::label::FLEET_FINALIZER;
    use serde_json::json;

    use super::*;
    use crate::controller::fleets::clusters::Selections;
    use crate::controller::fleets::reconcile::reconcile;
    use crate::controller::fleets::state::{FleetState, Next};
    use crate::controller::fleets::store::{Store, StoredFleet};
    use crate::controller::fleets::tests::{context, hub};
    use crate::controller::fleets::width::CONCURRENT_WRITES;

    #[tokio::test]
    async fn refused_writes_do_not_keep_the_next_ones() {
        // All of the first batch are refused, and of the second none.
        let write = |number: usize| async move {
            (number, if number < BATCH { Err(WriteError::Refused(String::new())) } else { Ok(()) })
        };
        let sent = Sender::default().send(List::Removals, (0..3 * BATCH).collect(), write).await;
        let stored: Vec<usize> = sent.results.iter().filter(|(_, result)| result.is_ok()).map(|(k, _)| *k).collect();
        assert_eq!((sent.results.len(), stored), (2 * BATCH, (BATCH..2 * BATCH).collect()));
        assert_eq!(sent.again, Some(Duration::ZERO));
    }

    #[tokio::test]
    async fn writes_that_the_hub_has_never_time_for_keep_no_other() {
        let never = 3 * TRIES;
        let write = |number: usize| async move {
            (number, if number < never { Err(WriteError::Throttled(String::new())) } else { Ok(()) })
        };
        let (mut sender, mut left) = (Sender::default(), (0..2 * BATCH).collect::<Vec<_>>());
        for _ in 0..20 {
            sender.turns.entry(List::Marks).or_default().until = None;
            let sent = sender.send(List::Marks, left.clone(), write).await;
            assert!(sent.again.is_some());
            let stored: Vec<usize> = sent.results.iter().map(|(number, _)| *number).collect();
            left.retain(|number| !stored.contains(number));
        }
        assert_eq!(left, (0..never).collect::<Vec<_>>());
        assert!(sender.complaint().is_some() && sender.complaint().is_none());
        // Neither do they keep another list.
        sender.turns.entry(List::Marks).or_default().until = Some(Instant::now() + LONGEST_PASS);
        let sent = sender.send(List::Marks, left, write).await;
        assert!(sent.results.is_empty() && sent.throttled.is_empty() && sent.again.is_some());
        let sent = sender.send(List::Removals, vec![never], write).await;
        assert_eq!((sent.results.len(), sent.again), (1, None));
    }

    #[tokio::test]
    async fn writes_that_failed_come_last() {
        let write = |number: usize| async move {
            (number, if number < BATCH { Err(WriteError::Other(String::new())) } else { Ok(()) })
        };
        let mut sender = Sender::default();
        for stored in [0, 44] {
            let sent = sender.send(List::Removals, (0..BATCH + 44).collect(), write).await;
            let results = sent.results.iter().filter(|(_, result)| result.is_ok());
            assert_eq!((results.count(), sent.again), (stored, Some(Duration::ZERO)));
        }
    }

    #[tokio::test]
    async fn pass_ends_although_each_write_takes_long() {
        let write = |number: usize| async move {
            tokio::time::sleep(LONGEST_PASS).await;
            (number, Ok::<(), WriteError>(()))
        };
        let sent = Sender::default().send(List::Updates, (0..BATCH).collect(), write).await;
        assert_eq!((sent.results.len(), sent.again), (CONCURRENT_WRITES, Some(Duration::ZERO)));
    }

    #[tokio::test]
    async fn hub_that_refuses_each_write_gets_few() {
        let fleet = json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet",
            "metadata": {"name": "prod", "namespace": "n", "uid": "1", "generation": 1, "resourceVersion": "1",
                "finalizers": [FLEET_FINALIZER]},
            "spec": {"placement": {"clusterSelector": {}}, "serving": {"spec": {"version": "1.22.1"}},
                "rollout": {"stages": [{"name": "all", "maxConcurrent": 100}]}}});
        let is_child = |method: &Method, path: &str| *method == Method::PATCH && path.contains("/knativeservings/");
        let (client, mut requests) =
            hub(vec![fleet.clone()], move |method, path| is_child(method, path).then_some(429));
        let (cx, _) = context(&client);
        let profile = |number: usize| {
            let healthy = json!({"conditions": [{"type": "ControlPlaneHealthy", "status": "True"}]});
            let meta = json!({"name": number.to_string(), "namespace": "n"});
            serde_json::from_value(json!({"metadata": meta, "spec": {}, "status": healthy})).unwrap()
        };
        cx.profiles.reset((0..100).map(profile).collect());
        let stored = StoredFleet { fleet: serde_json::from_value(fleet).unwrap(), unreadable: None };
        let (store, selections, mut state) = (Store::default(), Selections::default(), FleetState::default());
        // Each time half as many, then as many as are tried, once a second.
        for expected in [16 + 8 + 4 + 2 + TRIES, 0, TRIES] {
            let next = Box::pin(reconcile(&cx, &store, &stored, &selections, &mut state)).await;
            let Next::After(delay) = next else { panic!("{next:?}") };
            let mut sent = 0;
            while let Ok((method, path, _)) = requests.try_recv() {
                sent += usize::from(is_child(&method, &path));
            }
            assert_eq!(sent, expected);
            let until = &mut state.sender.turns.entry(List::Updates).or_default().until;
            if expected == TRIES {
                assert!(until.is_some() && !delay.is_zero() && delay <= THROTTLED, "{delay:?}");
            } else {
                // A machine may be slow.
                *until = (expected > 0).then(|| Instant::now() + LONGEST_PASS);
            }
        }
    }
}
