//! Watches the objects of a hub.

use std::collections::HashMap;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll, select_all};
use knative_operator_runtime::backoff::Backoff;
use kube::core::DynamicObject;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};

use super::snapshot::{Recorded, Snapshot, Watched};
use knative_operator_runtime::constant_backoff::ConstantBackoff;

/// Selects the events of the operator.
const OPERATOR_EVENTS: &str = "reportingComponent=knative-operator";
/// Delay before a failed watch is retried.
const RETRY: Duration = Duration::from_secs(1);
/// Time limit of the first list of all kinds.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);

type Item = (Watched, Result<Event<DynamicObject>, watcher::Error>);

/// Why the objects are not listed.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The API server can't be reached.
    #[error("{0}")]
    Disconnected(String),
    /// It takes too long, with the errors so far.
    #[error("the API server did not list all objects within {} s: {}", LIST_TIMEOUT.as_secs(), .0)]
    TooSlow(String),
}

/// The objects of a hub, kept up to date by watches.
pub struct Follower {
    watches: SelectAll<BoxStream<'static, Item>>,
    snapshot: Snapshot,
    /// The last error of each watch that can't reach the API server.
    disconnected: HashMap<Watched, String>,
}

impl Follower {
    /// Watches the resources in `namespace`, or in all of them.
    pub fn start(client: &Client, namespace: Option<&str>) -> Self {
        let watch = |kind: Watched| {
            let config = watcher::Config::default().timeout(240);
            let config = if kind == Watched::Events { config.fields(OPERATOR_EVENTS) } else { config };
            let events = if let Some(inventory) = kind.inventory() {
                inventory.watch(client, config, Backoff::new(RETRY, RETRY))
            } else {
                let resource = kind.resource();
                let api: Api<DynamicObject> = match namespace {
                    Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
                    None => Api::all_with(client.clone(), &resource),
                };
                watcher(api, config).backoff(ConstantBackoff(RETRY)).boxed()
            };
            events.modify(|object| object.metadata.managed_fields = None).map(move |event| (kind, event)).boxed()
        };
        Self {
            watches: select_all(Watched::ALL.map(watch)),
            snapshot: Snapshot::default(),
            disconnected: HashMap::new(),
        }
    }

    /// Waits until each kind was listed, or can't be.
    pub async fn listed(&mut self) -> Result<&Snapshot, ListError> {
        let listed = async {
            while !self.snapshot.is_complete() {
                self.changed().await;
                if let Some(error) = self.disconnected.values().next() {
                    return Err(ListError::Disconnected(error.clone()));
                }
            }
            Ok(())
        };
        if let Ok(outcome) = tokio::time::timeout(LIST_TIMEOUT, listed).await {
            outcome?;
        } else {
            let why: Vec<_> = self.snapshot.errors().map(|(_, error)| error.to_owned()).collect();
            return Err(ListError::TooSlow(why.join("; ")));
        }
        Ok(&self.snapshot)
    }

    /// The objects.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Waits for the next change, or for a watch that fails.
    pub async fn changed(&mut self) {
        // The watches don't end.
        while let Some((kind, event)) = self.watches.next().await {
            let error = event.as_ref().err().map(|error| knative_operator_runtime::error_text(error));
            let is_request = matches!(event, Ok(Event::Init));
            let recorded = self.snapshot.record(kind, event);
            let was_disconnected = match (recorded, error) {
                (Recorded::Disconnected, Some(error)) => self.disconnected.insert(kind, error).is_none(),
                // The API server has not answered yet.
                _ if is_request => false,
                _ => self.disconnected.remove(&kind).is_some(),
            };
            if recorded == Recorded::Changed || was_disconnected {
                return;
            }
        }
        std::future::pending::<()>().await;
    }

    /// Why the API server can't be reached, if the last attempt failed.
    pub fn disconnected(&self) -> Option<&str> {
        self.disconnected.values().next().map(String::as_str)
    }

    /// Records that the API server can't be reached.
    pub fn lost(&mut self, error: String) {
        self.disconnected.entry(Watched::Servings).or_insert(error);
    }

    /// Forgets failures: the API server answers again.
    pub fn reconnected(&mut self) {
        self.disconnected.clear();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use futures::stream::iter;

    use super::*;

    #[test]
    fn api_server_that_is_asked_again_is_still_disconnected() {
        let failure = || watcher::Error::WatchFailed(kube::Error::LinesCodecMaxLineLengthExceeded);
        let follow = |events: Vec<Result<Event<DynamicObject>, watcher::Error>>| Follower {
            watches: select_all([iter(events).map(|event| (Watched::Servings, event)).boxed()]),
            snapshot: Snapshot::default(),
            disconnected: HashMap::new(),
        };
        let mut asked = follow(vec![Err(failure()), Ok(Event::Init)]);
        assert!(asked.changed().now_or_never().is_some() && asked.disconnected().is_some());
        assert!(asked.changed().now_or_never().is_none() && asked.disconnected().is_some());
        let mut answered = follow(vec![Err(failure()), Ok(Event::Init), Ok(Event::InitDone)]);
        assert!(answered.changed().now_or_never().is_some() && answered.disconnected().is_some());
        assert!(answered.changed().now_or_never().is_some() && answered.disconnected().is_none());
    }
}
