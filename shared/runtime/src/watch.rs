//! Watches of the hub that begin again with a list after each failure.

use std::fmt::Debug;
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use kube::runtime::watcher::{Config, Error, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

/// Limits of the delay after a failure, doubled each time; those of client-go.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(800), Duration::from_secs(30));

/// Events of the objects in `api` that `config` selects. Unlike the watcher of kube-rs, it doesn't
/// continue from a resourceVersion once the API server was away: if etcd was restored from a backup
/// meanwhile, nothing would be reported before it reaches that version again.
pub fn watch<K>(api: Api<K>, config: Config) -> BoxStream<'static, Result<Event<K>, Error>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let start = move || watcher(api.clone(), config.clone()).boxed();
    let first = start();
    let next = move |(mut events, failures, has_failed): (BoxStream<'static, Result<Event<K>, Error>>, u32, bool)| {
        let start = start.clone();
        async move {
            if has_failed {
                tokio::time::sleep(backoff(failures)).await;
            }
            Some(match events.next().await? {
                // Comes before the first request.
                Ok(Event::Init) => (Ok(Event::Init), (events, failures, false)),
                Ok(event) => (Ok(event), (events, 0, false)),
                // A connection ended.
                Err(Error::WatchFailed(error)) => (Err(Error::WatchFailed(error)), (events, failures + 1, true)),
                Err(error) => (Err(error), (start(), failures + 1, true)),
            })
        }
    };
    stream::unfold((first, 0, false), next).boxed()
}

/// The delay after `failures`, with up to a quarter of jitter.
fn backoff(failures: u32) -> Duration {
    let delay = (BACKOFF.0 * 2u32.saturating_pow(failures.saturating_sub(1).min(8))).min(BACKOFF.1);
    let random = std::hash::BuildHasher::hash_one(&std::collections::hash_map::RandomState::new(), ());
    delay + delay / 1024 * u32::try_from(random % 256).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_grows_to_its_limit() {
        let delays = [1, 2, 3, 7, 100].map(|failures| backoff(failures).as_millis());
        for (delay, expected) in delays.into_iter().zip([800, 1600, 3200, 30_000, 30_000]) {
            assert!((expected..=expected * 5 / 4).contains(&delay), "{delay}");
        }
    }
}
