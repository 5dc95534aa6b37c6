//! Sends the writes for a fleet: some at the same time, and fewer to a hub that has too much to do.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use knative_operator_runtime::rarely::Rarely;

use super::width::Width;
use super::write::WriteError;

/// Writes of a pass. During it, neither a pause nor another fleet is seen.
pub const BATCH: usize = 256;
/// Time until writes are repeated that the hub refused because it has too much to do: what it asks
/// for.
const THROTTLED: Duration = Duration::from_secs(1);

/// What sends the writes for one fleet.
#[derive(Debug, Default)]
pub struct Sender {
    width: Width,
    throttled: Rarely,
}

/// What came of writes.
#[derive(Debug)]
pub struct Sent<R> {
    /// Of those that the hub decided about, in the order of its responses.
    pub results: Vec<R>,
    /// Time until the others are sent, if some are left.
    pub again: Option<Duration>,
}

impl Sender {
    /// Sends the first [`BATCH`] of `items`, and further ones only while all are refused: those
    /// that are refused each time don't keep the next ones. `write` returns what an item is known
    /// by, too.
    pub async fn send<I, K, T, F>(&mut self, items: Vec<I>, write: impl Fn(I) -> F) -> Sent<(K, Result<T, WriteError>)>
    where
        F: Future<Output = (K, Result<T, WriteError>)>,
    {
        let mut results = Vec::new();
        let mut items = items.into_iter();
        loop {
            let batch = self.send_batch(items.by_ref().take(BATCH), &write).await;
            let is_stuck = batch.results.iter().all(|(_, result)| matches!(result, Err(WriteError::Refused(_))));
            results.extend(batch.results);
            let more = (items.len() > 0).then_some(Duration::ZERO);
            if batch.again.is_some() || more.is_none() || !is_stuck {
                return Sent { results, again: batch.again.or(more) };
            }
        }
    }

    async fn send_batch<I, K, T, F>(
        &mut self,
        mut items: impl Iterator<Item = I>,
        write: &impl Fn(I) -> F,
    ) -> Sent<(K, Result<T, WriteError>)>
    where
        F: Future<Output = (K, Result<T, WriteError>)>,
    {
        let (mut sent, mut results, mut throttled, mut is_over) = (FuturesUnordered::new(), Vec::new(), None, false);
        loop {
            let (width, free) = (self.width.get(), self.width.get().saturating_sub(sent.len()));
            let next = items.by_ref().take(if is_over { 0 } else { free });
            sent.extend(next.map(|item| {
                let written = write(item);
                async move { (written.await, width) }
            }));
            let Some((result, width)) = sent.next().await else { break };
            match result {
                (_, Err(WriteError::Throttled(message))) => {
                    throttled = Some(message);
                    // If not even one is possible, the others wait.
                    is_over |= !self.width.refuse(width);
                    continue;
                }
                (_, Ok(_)) => self.width.accept(),
                (_, Err(_)) => {}
            }
            results.push(result);
        }
        if let Some(message) = throttled.as_ref().filter(|_| self.throttled.is_due()) {
            tracing::warn!(message, "the hub has too much to do: some resources of a fleet are written later");
        }
        Sent { results, again: throttled.map(|_| THROTTLED) }
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

    #[tokio::test]
    async fn refused_writes_do_not_keep_the_next_ones() {
        // All of the first batch are refused, and of the second none.
        let write = |number: usize| async move {
            (number, if number < BATCH { Err(WriteError::Refused(String::new())) } else { Ok(()) })
        };
        let sent = Sender::default().send((0..3 * BATCH).collect(), write).await;
        let stored: Vec<usize> = sent.results.iter().filter(|(_, result)| result.is_ok()).map(|(k, _)| *k).collect();
        assert_eq!((sent.results.len(), stored), (2 * BATCH, (BATCH..2 * BATCH).collect()));
        assert_eq!(sent.again, Some(Duration::ZERO));
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
        // Each time half as many, then one in each pass.
        for expected in [16 + 8 + 4 + 2 + 1, 1, 1] {
            let next = Box::pin(reconcile(&cx, &store, &stored, &selections, &mut state)).await;
            assert!(matches!(next, Next::After(delay) if delay.as_secs() <= 1), "{next:?}");
            let mut sent = 0;
            while let Ok((method, path, _)) = requests.try_recv() {
                sent += usize::from(is_child(&method, &path));
            }
            assert_eq!(sent, expected);
        }
    }
}
