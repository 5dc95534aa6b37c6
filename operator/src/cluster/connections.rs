//! One connection a spoke, shared by everything that is installed there, and rebuilt when what it depends on changes. A spoke that
//! fails is left alone for a while, ever longer: whoever asks meanwhile is told what came of it last.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use knative_operator_shared::api::ClusterProfileReference;
use knative_operator_shared::reason::Reason;
use kube::Client;
use tokio::sync::Mutex;

use super::Unresolved;
use super::credential::{Issuer, Keeper};
use super::profile::Access;
use super::transport::{Stack, TransportError};
use crate::metrics::Metrics;

/// How long a spoke may take to answer when it is asked whether it is there.
const PROBE: Duration = Duration::from_secs(6);
/// How long a spoke that fails is left alone, first and at most.
const REST: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(8));

/// A connection to a spoke.
#[derive(Clone)]
pub struct Connection {
    /// The client.
    pub client: Client,
    /// Changes whenever the connection is another one.
    pub serial: u64,
    stack: Stack,
    keeper: Arc<Keeper>,
    access: Arc<Access>,
    told: Arc<AtomicBool>,
}

impl Connection {
    /// Whether nobody has asked this before.
    pub fn is_new(&self) -> bool {
        !self.told.swap(true, Ordering::Relaxed)
    }
}

/// Why there is no connection.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The reason.
    pub unresolved: Unresolved,
    /// When it is worth to try again.
    pub due: Instant,
    times: u32,
    access: Arc<Access>,
}

/// What is held of one spoke.
#[derive(Default)]
struct Held {
    connection: Option<Connection>,
    failed: Option<Failure>,
}

type Slot = Arc<Mutex<Held>>;

/// The connections of this process.
pub struct Connections {
    slots: RwLock<HashMap<ClusterProfileReference, Slot>>,
    serial: AtomicU64,
    issuer: Issuer,
    metrics: Metrics,
}

impl Connections {
    /// No connection yet; credentials come from `issuer`.
    pub fn new(issuer: Issuer) -> Self {
        let metrics = issuer.metrics.clone();
        Self { slots: RwLock::default(), serial: AtomicU64::default(), issuer, metrics }
    }

    /// Whether the connection to the spoke of `reference` is for something else than `access`, and has to be rebuilt.
    pub async fn is_stale(&self, reference: &ClusterProfileReference, access: &Access) -> bool {
        let slot = self.slot(reference);
        let held = slot.lock().await;
        held.connection.as_ref().is_some_and(|c| *c.access != *access)
    }

    /// The connection to the spoke of `reference`, which answers: the one that there is if it is for the same `access`, else a new one. It is
    /// asked for its version if it is new or `suspect`.
    pub async fn get(
        &self,
        reference: &ClusterProfileReference,
        access: Access,
        suspect: bool,
    ) -> Result<Connection, Failure> {
        let slot = self.slot(reference);
        // Whoever comes while it is tried waits for what comes of it.
        let mut held = slot.lock().await;
        let known = held.connection.clone().filter(|c| *c.access == access);
        let failed = held.failed.take().filter(|f| *f.access == access);
        if let Some(failure) = failed.as_ref().filter(|f| Instant::now() < f.due) {
            held.failed = Some(failure.clone());
            return Err(failure.clone());
        }
        if let Some(connection) = known.as_ref().filter(|_| !suspect && failed.is_none()) {
            return Ok(connection.clone());
        }
        let access = Arc::new(access);
        let tried = if let Some(connection) = known {
            probe(reference, &connection).await.map(|()| connection)
        } else {
            let keeper = held.connection.take().map(|c| c.keeper);
            match self.connect(reference, &access, keeper).await {
                Ok(connection) => {
                    held.connection = Some(connection.clone());
                    probe(reference, &connection).await.map(|()| connection)
                }
                Err(unresolved) => Err(unresolved),
            }
        };
        self.metrics.connected(reference, tried.is_ok());
        tried.map_err(|unresolved| {
            let times = failed.map_or(0, |f| f.times) + 1;
            let failure = Failure { unresolved, due: Instant::now() + rest(times), times, access };
            held.failed = Some(failure.clone());
            failure
        })
    }

    /// A connection to the spoke of `access`, with the credential of `keeper` if that is from the same source.
    async fn connect(
        &self,
        reference: &ClusterProfileReference,
        access: &Arc<Access>,
        keeper: Option<Arc<Keeper>>,
    ) -> Result<Connection, Unresolved> {
        let keeper = match keeper.filter(|k| k.is_from(&access.source)) {
            Some(keeper) => keeper,
            None => Arc::new(Keeper::start(self.issuer.clone(), reference.clone(), access.source.clone()).await?),
        };
        let stack = Stack::new(Arc::clone(access), Arc::clone(&keeper)).await?;
        let serial = self.serial.fetch_add(1, Ordering::Relaxed) + 1;
        tracing::info!(cluster = %reference, server = %access.server, "connecting");
        Ok(Connection {
            client: stack.client(),
            serial,
            stack,
            keeper,
            access: Arc::clone(access),
            told: Arc::default(),
        })
    }

    /// Forgets the connection to the spoke of `reference`.
    pub fn forget(&self, reference: &ClusterProfileReference) {
        self.slots.write().unwrap_or_else(PoisonError::into_inner).remove(reference);
        self.metrics.disconnected(reference);
    }

    fn slot(&self, reference: &ClusterProfileReference) -> Slot {
        if let Some(slot) = self.slots.read().unwrap_or_else(PoisonError::into_inner).get(reference) {
            return Arc::clone(slot);
        }
        Arc::clone(self.slots.write().unwrap_or_else(PoisonError::into_inner).entry(reference.clone()).or_default())
    }
}

/// How long a spoke is left alone that has failed so many times: doubling, with up to a quarter of jitter so that spokes that fail
/// together are not tried together.
fn rest(times: u32) -> Duration {
    let pause = (REST.0 * 2u32.saturating_pow(times.saturating_sub(1).min(8))).min(REST.1);
    let noise = std::hash::BuildHasher::hash_one(&std::collections::hash_map::RandomState::new(), times) % 256;
    pause + pause / 1024 * u32::try_from(noise).unwrap_or_default()
}

/// Asks the spoke for its version. One that doesn't speak HTTP/2 is asked again by HTTP/1.1.
async fn probe(reference: &ClusterProfileReference, connection: &Connection) -> Result<(), Unresolved> {
    let mut asked = ask(connection).await;
    if let Some(Err(error)) = &asked
        && connection.stack.is_other_protocol(error)
    {
        connection.stack.renew(false).await?;
        asked = ask(connection).await;
    }
    let server = &connection.access.server;
    let told = |what: String| format!("the API server {server} of ClusterProfile {reference} {what}");
    let unresolved = match asked {
        Some(Ok(_)) => return Ok(()),
        Some(Err(kube::Error::Api(status))) if matches!(status.code, 401 | 403) => {
            return Err(Unresolved::new(
                Reason::RemoteClusterUnauthorized,
                told(format!(
                    "refuses the credential of the access provider {}: {}",
                    connection.access.source.provider(),
                    status.message
                )),
            ));
        }
        Some(Err(kube::Error::Service(source)))
            if matches!(source.downcast_ref(), Some(TransportError::Credential(_))) =>
        {
            match source.downcast::<TransportError>().map(|e| *e) {
                Ok(TransportError::Credential(unresolved)) => unresolved,
                _ => Unresolved::new(Reason::RemoteClusterUnreachable, told("can't be reached".to_owned())),
            }
        }
        Some(Err(kube::Error::SerdeError(_))) => Unresolved::new(
            Reason::RemoteClusterUnreachable,
            told("answers, but not as a Kubernetes API server does".to_owned()),
        ),
        Some(Err(error)) => Unresolved::new(
            Reason::RemoteClusterUnreachable,
            told(format!("can't be reached: {}", knative_operator_runtime::words(&error))),
        ),
        None => Unresolved::new(Reason::RemoteClusterUnreachable, told(format!("did not answer within {PROBE:?}"))),
    };
    // What is dead is not tried again: the next time begins with a new connection.
    connection.stack.renew(true).await?;
    Err(unresolved)
}

async fn ask(connection: &Connection) -> Option<kube::Result<k8s_openapi::apimachinery::pkg::version::Info>> {
    tokio::time::timeout(PROBE, connection.client.apiserver_version()).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spoke_is_left_alone_ever_longer_up_to_a_limit() {
        for (times, least) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 8), (1000, 8)] {
            let pause = rest(times);
            assert!(
                pause >= Duration::from_secs(least) && pause <= Duration::from_secs(least) * 5 / 4,
                "{times}: {pause:?}"
            );
        }
    }
}
