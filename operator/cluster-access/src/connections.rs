//! One connection per spoke, shared by all installations there, and rebuilt when its ClusterProfile
//! or credential source changes. A spoke that fails backs off; callers get the last error
//! meanwhile.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use http::Request;
use k8s_openapi::apimachinery::pkg::version::Info;
use knative_operator_base::cluster_profile::ClusterProfileReference;
use knative_operator_client::backoff::Backoff;
use knative_operator_client::gate::Gate;
use kube::Client;
use tokio::sync::Mutex;

use super::connection_report::{ConnectionReport, ConnectionState};
use super::credential::{CredentialCache, CredentialFetcher};
use super::error::{AccessError, Reason};
use super::identity::cluster_uid;
use super::metrics::ClusterMetrics;
use super::profile::Access;
use super::transport::{Probe, SpokeService, TransportError};

/// Time limit of the version request that checks a spoke.
const PROBE_TIMEOUT: Duration = Duration::from_secs(6);
/// Delays after failed connections.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(8));

/// A connection to a spoke.
#[derive(Clone)]
pub struct Connection {
    /// The client.
    pub client: Client,
    /// Changes when the connection is replaced.
    pub serial: u64,
    /// Uid of the cluster, if it could be read.
    pub cluster_uid: Option<Arc<str>>,
    service: SpokeService,
    credentials: Arc<CredentialCache>,
    access: Arc<Access>,
    reported: Arc<AtomicBool>,
}

impl Connection {
    /// Whether this is the first call for this connection.
    pub fn is_new(&self) -> bool {
        !self.reported.swap(true, Ordering::Relaxed)
    }

    /// What has to be done about the Secret with the credential, if it names no ClusterProfile.
    pub fn remedy(&self) -> Option<String> {
        self.credentials.remedy()
    }
}

/// Why there is no connection.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The reason.
    pub error: AccessError,
    /// Time of the next attempt.
    pub due: Instant,
    attempts: u32,
    access: Arc<Access>,
}

/// State of the connection to one spoke.
#[derive(Default)]
struct SpokeState {
    connection: Option<Connection>,
    failed: Option<Failure>,
}

type Slot = Arc<Mutex<SpokeState>>;

/// The connections of this process.
pub struct Connections {
    slots: RwLock<HashMap<ClusterProfileReference, Slot>>,
    connected: std::sync::Mutex<HashSet<ClusterProfileReference>>,
    spokes: Arc<AtomicUsize>,
    serial: AtomicU64,
    fetcher: CredentialFetcher,
    gate: Gate,
    metrics: Arc<dyn ClusterMetrics>,
}

impl Connections {
    /// No connections yet; `fetcher` gets the credentials; writes are sent while `gate` holds.
    pub fn new(fetcher: CredentialFetcher, gate: Gate) -> Self {
        let metrics = fetcher.metrics.clone();
        Self {
            slots: RwLock::default(),
            connected: std::sync::Mutex::default(),
            spokes: Arc::default(),
            serial: AtomicU64::default(),
            fetcher,
            gate,
            metrics,
        }
    }

    /// The number of connected spokes, now and later.
    pub fn spokes(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.spokes)
    }

    /// Whether the connection to the spoke of `reference` was made for another `access` and has to
    /// be rebuilt.
    pub async fn is_stale(&self, reference: &ClusterProfileReference, access: &Access) -> bool {
        let slot = self.slot(reference);
        let state = slot.lock().await;
        state.connection.as_ref().is_some_and(|c| *c.access != *access)
    }

    /// A connection to the spoke of `reference` that works: the existing one if it is for the same
    /// `access`, else a new one. If it is new or `suspect`, its version is requested first.
    pub async fn get(
        &self,
        reference: &ClusterProfileReference,
        access: Access,
        suspect: bool,
    ) -> Result<Connection, Failure> {
        let slot = self.slot(reference);
        // Concurrent callers wait for the outcome of the first.
        let mut state = slot.lock().await;
        let known = state.connection.clone().filter(|c| *c.access == access);
        let failed = state.failed.take().filter(|f| *f.access == access);
        if let Some(failure) = failed.as_ref().filter(|f| Instant::now() < f.due) {
            state.failed = Some(failure.clone());
            return Err(failure.clone());
        }
        if let Some(connection) = known.as_ref().filter(|_| !suspect && failed.is_none()) {
            return Ok(connection.clone());
        }
        let access = Arc::new(access);
        let mut tried = if let Some(connection) = known {
            probe(reference, &connection, PROBE_TIMEOUT).await.map(|()| connection)
        } else {
            let credentials = state.connection.take().map(|c| c.credentials);
            match self.connect(reference, &access, credentials).await {
                Ok(connection) => {
                    state.connection = Some(connection.clone());
                    probe(reference, &connection, PROBE_TIMEOUT).await.map(|()| connection)
                }
                Err(error) => Err(error),
            }
        };
        self.report_connected(reference, &slot, tried.is_ok());
        if let Ok(connection) = &mut tried {
            connection.cluster_uid = identify(reference, connection).await;
            state.connection = Some(connection.clone());
        }
        tried.map_err(|error| {
            let attempts = failed.map_or(0, |f| f.attempts) + 1;
            let failure = Failure { error, due: Instant::now() + BACKOFF.after(attempts), attempts, access };
            state.failed = Some(failure.clone());
            failure
        })
    }

    /// Connects to the spoke of `access`; reuses `credentials` if they may serve it.
    async fn connect(
        &self,
        reference: &ClusterProfileReference,
        access: &Arc<Access>,
        credentials: Option<Arc<CredentialCache>>,
    ) -> Result<Connection, AccessError> {
        let credentials = if let Some(credentials) = credentials.filter(|k| k.can_serve(access)) {
            credentials
        } else {
            let access = Arc::clone(access);
            Arc::new(CredentialCache::start(self.fetcher.clone(), reference.clone(), access).await?)
        };
        let (own, gate) = (Arc::clone(access), Arc::clone(&self.gate));
        let service = SpokeService::new(own, Arc::clone(&credentials), gate, self.spokes()).await?;
        let serial = self.serial.fetch_add(1, Ordering::Relaxed) + 1;
        tracing::info!(cluster = %reference, server = %access.server, "connecting");
        Ok(Connection {
            client: service.client(),
            serial,
            cluster_uid: None,
            service,
            credentials,
            access: Arc::clone(access),
            reported: Arc::default(),
        })
    }

    /// Drops the connection to the spoke of `reference`.
    pub fn remove(&self, reference: &ClusterProfileReference) {
        let removed = self.slots.write().unwrap_or_else(PoisonError::into_inner).remove(reference);
        if let Some(slot) = removed {
            self.report_connected(reference, &slot, false);
        }
        self.metrics.remove_connection(reference);
    }

    /// The state of each connection, by cluster, without waiting for those that are being made.
    pub fn report(&self) -> Vec<ConnectionReport> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        let slots: BTreeMap<ClusterProfileReference, Slot> =
            slots.iter().map(|(reference, slot)| (reference.clone(), Arc::clone(slot))).collect();
        slots.iter().map(|(reference, slot)| report(reference, slot)).collect()
    }

    fn slot(&self, reference: &ClusterProfileReference) -> Slot {
        if let Some(slot) = self.slots.read().unwrap_or_else(PoisonError::into_inner).get(reference) {
            return Arc::clone(slot);
        }
        Arc::clone(self.slots.write().unwrap_or_else(PoisonError::into_inner).entry(reference.clone()).or_default())
    }

    /// Counts the spoke of `reference` if it is connected, also in the metrics, unless `slot` was
    /// removed or replaced meanwhile.
    fn report_connected(&self, reference: &ClusterProfileReference, slot: &Slot, is_connected: bool) {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        let current = slots.get(reference);
        if current.is_some_and(|current| !Arc::ptr_eq(current, slot)) {
            return;
        }
        if current.is_some() {
            self.metrics.set_connected(reference, is_connected);
        }
        let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        if is_connected && current.is_some() {
            connected.insert(reference.clone());
        } else {
            connected.remove(reference);
        }
        self.spokes.store(connected.len(), Ordering::Relaxed);
    }
}

fn report(reference: &ClusterProfileReference, slot: &Mutex<SpokeState>) -> ConnectionReport {
    let bare = |state| ConnectionReport { cluster: reference.to_string(), state, ..ConnectionReport::default() };
    // Somebody connects, or probes the connection.
    let Ok(spoke) = slot.try_lock() else { return bare(ConnectionState::Connecting) };
    let state = match (&spoke.failed, &spoke.connection) {
        (Some(_), _) => ConnectionState::Failed,
        (None, Some(_)) => ConnectionState::Connected,
        (None, None) => ConnectionState::Disconnected,
    };
    let (connection, failed) = (spoke.connection.as_ref(), spoke.failed.as_ref());
    ConnectionReport {
        provider: connection.map(|connection| connection.access.source.provider().to_owned()),
        credential_expires_at: connection.and_then(|c| c.credentials.expires()).map(|time| time.to_string()),
        used_at: connection.and_then(|c| c.credentials.used_at()).map(|time| time.to_string()),
        reason: failed.map(|failure| failure.error.reason),
        attempts: failed.map(|failure| failure.attempts),
        retry_in_seconds: failed.map(|failure| failure.due.saturating_duration_since(Instant::now()).as_secs()),
        ..bare(state)
    }
}

/// Requests the version of the spoke, over HTTP/1.1 if it doesn't speak HTTP/2. The API server has
/// the time `limit`.
async fn probe(
    reference: &ClusterProfileReference,
    connection: &Connection,
    limit: Duration,
) -> Result<(), AccessError> {
    let mut response = request_version(connection, limit).await?;
    if let Some(Err(error)) = &response
        && connection.service.is_protocol_mismatch(error)
    {
        connection.service.reconnect(false).await?;
        response = request_version(connection, limit).await?;
    }
    let server = &connection.access.server;
    let message = |what: String| format!("the API server {server} of ClusterProfile {reference} {what}");
    let error = match response {
        Some(Ok(_)) => return Ok(()),
        Some(Err(kube::Error::Api(status))) if matches!(status.code, 401 | 403) => {
            return Err(AccessError::new(
                Reason::RemoteClusterUnauthorized,
                message(format!(
                    "refused the credential of the access provider {}: {}",
                    connection.access.source.provider(),
                    status.message
                )),
            ));
        }
        Some(Err(kube::Error::Service(source)))
            if matches!(source.downcast_ref(), Some(TransportError::Credential(_))) =>
        {
            match source.downcast::<TransportError>().map(|e| *e) {
                Ok(TransportError::Credential(error)) => error,
                _ => AccessError::new(Reason::RemoteClusterUnreachable, message("is unreachable".to_owned())),
            }
        }
        Some(Err(kube::Error::SerdeError(_))) => AccessError::new(
            Reason::RemoteClusterUnreachable,
            message("does not answer like a Kubernetes API server".to_owned()),
        ),
        Some(Err(error)) => AccessError::new(
            Reason::RemoteClusterUnreachable,
            message(format!(
                "is unreachable: {}{}",
                knative_operator_client::error_text(&error),
                hint(&connection.access)
            )),
        ),
        None => AccessError::new(Reason::RemoteClusterUnreachable, message(format!("did not answer within {limit:?}"))),
    };
    // Drop the failed connections, so that the next attempt makes new ones.
    connection.service.reconnect(true).await?;
    Err(error)
}

/// What is probably missing in the ClusterProfile of a cluster that can't be reached.
fn hint(access: &Access) -> &'static str {
    let trusts_the_system = access.authority.is_none() && !access.insecure && !access.is_unencrypted();
    if trusts_the_system {
        "; its ClusterProfile has no certificate-authority-data, so that only authorities of the system are trusted"
    } else {
        ""
    }
}

/// Uid of the cluster; the known one if it can't be read.
async fn identify(reference: &ClusterProfileReference, connection: &Connection) -> Option<Arc<str>> {
    match tokio::time::timeout(PROBE_TIMEOUT, cluster_uid(&connection.client)).await {
        Ok(Ok(Some(uid))) => return Some(uid.into()),
        Ok(Err(error)) => {
            let error = knative_operator_client::error_text(&error);
            tracing::warn!(cluster = %reference, error, "cannot read the namespace kube-system, which identifies the cluster");
        }
        Ok(Ok(None)) | Err(_) => {}
    }
    connection.cluster_uid.clone()
}

/// The version, with the current credential; if that is refused, with a new one. `None` after the
/// time `limit` of the API server. The provider has one of its own, which may be longer.
async fn request_version(connection: &Connection, limit: Duration) -> Result<Option<kube::Result<Info>>, AccessError> {
    let used = connection.credentials.current().await?;
    let response = request_version_once(connection, limit).await;
    if !matches!(&response, Some(Err(kube::Error::Api(status))) if status.code == 401) {
        return Ok(response);
    }
    let renewed = connection.credentials.newer_than(&used).await?;
    Ok(if Arc::ptr_eq(&renewed, &used) { response } else { request_version_once(connection, limit).await })
}

async fn request_version_once(connection: &Connection, limit: Duration) -> Option<kube::Result<Info>> {
    tokio::time::timeout(limit, version(&connection.client)).await.ok()
}

async fn version(client: &Client) -> kube::Result<Info> {
    let request = Request::get("/version").extension(Probe).body(Vec::new());
    client.request(request.map_err(kube::Error::HttpError)?).await
}

#[cfg(test)]
mod tests;
