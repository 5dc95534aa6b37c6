//! Watches of the hub that begin again with a list after each failure.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use futures::stream::{self, BoxStream, StreamExt};
use kube::runtime::watcher::{Config, Error, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use crate::backoff::Backoff;

/// Limits of the delay after a failure, doubled each time; those of client-go.
pub const BACKOFF: Backoff = Backoff::new(Duration::from_millis(800), Duration::from_secs(30));
/// Time after which a failure doesn't count any more.
const RARE: Duration = Duration::from_secs(120);

/// Events of the objects in `api` that `config` selects. Unlike the watcher of kube-rs, it doesn't
/// continue from a resourceVersion after a failure: if etcd was restored from a backup meanwhile,
/// nothing would be reported before the API server reaches that version again.
pub fn watch<K>(api: Api<K>, config: Config) -> BoxStream<'static, Result<Event<K>, Error>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    restarting(BACKOFF, move || watcher(api.clone(), config.clone()).boxed())
}

/// Whether a watch failed because its kind doesn't exist.
pub fn is_kind_missing(error: &Error) -> bool {
    let (Error::InitialListFailed(error) | Error::WatchStartFailed(error)) = error else { return false };
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Events of the stream that `start` returns. After each failure, it is started again, after a
/// delay of `backoff`.
pub(crate) fn restarting<K: Send + 'static>(
    backoff: Backoff,
    start: impl Fn() -> BoxStream<'static, Result<Event<K>, Error>> + Clone + Send + 'static,
) -> BoxStream<'static, Result<Event<K>, Error>> {
    let first = start();
    let next = move |(mut events, mut failures): (BoxStream<'static, Result<Event<K>, Error>>, Failures)| {
        let start = start.clone();
        async move {
            failures.wait(backoff).await;
            let event = events.next().await?;
            if event.is_err() {
                failures.record(Instant::now());
                events = start();
            }
            Some((event, (events, failures)))
        }
    };
    stream::unfold((first, Failures::default()), next).boxed()
}

/// Failures that follow each other closely.
#[derive(Default)]
struct Failures {
    count: u32,
    last: Option<Instant>,
    /// Whether the last one is to be waited for.
    is_pending: bool,
}

impl Failures {
    fn record(&mut self, now: Instant) {
        let is_rare = self.last.is_some_and(|last| now.duration_since(last) > RARE);
        self.count = if is_rare { 1 } else { self.count + 1 };
        (self.last, self.is_pending) = (Some(now), true);
    }

    async fn wait(&mut self, backoff: Backoff) {
        if std::mem::take(&mut self.is_pending) {
            tokio::time::sleep(backoff.after(self.count)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_failures_do_not_add_up() {
        let (mut failures, start) = (Failures::default(), Instant::now());
        for second in [0, 1, 60, 119] {
            failures.record(start + Duration::from_secs(second));
        }
        assert_eq!(failures.count, 4);
        failures.record(start + Duration::from_secs(240));
        assert_eq!(failures.count, 1);
    }
}
