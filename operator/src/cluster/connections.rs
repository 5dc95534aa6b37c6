//! One connection a spoke, shared by everything that is installed there, and rebuilt when what it depends on changes.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use knative_operator_shared::api::ClusterProfileReference;
use knative_operator_shared::reason::Reason;
use kube::Client;
use tokio::sync::Mutex;

use super::credential::Keeper;
use super::profile::Access;
use super::{Unresolved, transport};

/// How long the probe of a spoke may take in all.
const PROBE: Duration = Duration::from_secs(8);

/// A connection to a spoke.
#[derive(Clone)]
pub struct Connection {
    /// The client.
    pub client: Client,
    /// Changes whenever the connection is another one.
    pub serial: u64,
    access: Arc<Access>,
}

type Slot = Arc<Mutex<Option<Connection>>>;

/// The connections of this process.
#[derive(Default)]
pub struct Connections {
    slots: RwLock<HashMap<ClusterProfileReference, Slot>>,
    serial: std::sync::atomic::AtomicU64,
    limit: Duration,
}

impl Connections {
    /// No connection yet; a plugin may take `limit`.
    pub fn new(limit: Duration) -> Self {
        Self { limit, ..Self::default() }
    }

    /// The connection to the spoke of `reference`, which answers: the one that there is if it is for the same
    /// `access`, else a new one. It is asked for its version if it is new or `suspect`.
    pub async fn get(&self, reference: &ClusterProfileReference, access: Access, suspect: bool) -> Result<Connection, Unresolved> {
        let slot = self.slot(reference);
        let mut held = slot.lock().await;
        if let Some(connection) = held.as_ref().filter(|c| *c.access == access) {
            if !suspect {
                return Ok(connection.clone());
            }
            probe(reference, connection).await?;
            return Ok(connection.clone());
        }
        *held = None;
        let keeper = Arc::new(Keeper::start(access.plugin.clone(), self.limit).await?);
        let client = transport::client(&access, keeper).await?;
        let serial = self.serial.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        let connection = Connection { client, serial, access: Arc::new(access) };
        probe(reference, &connection).await?;
        *held = Some(connection.clone());
        tracing::info!(cluster = %reference, server = %connection.access.server, "connected");
        Ok(connection)
    }

    /// Forgets the connection to the spoke of `reference`.
    pub fn forget(&self, reference: &ClusterProfileReference) {
        self.slots.write().unwrap_or_else(PoisonError::into_inner).remove(reference);
    }

    fn slot(&self, reference: &ClusterProfileReference) -> Slot {
        if let Some(slot) = self.slots.read().unwrap_or_else(PoisonError::into_inner).get(reference) {
            return Arc::clone(slot);
        }
        Arc::clone(self.slots.write().unwrap_or_else(PoisonError::into_inner).entry(reference.clone()).or_default())
    }
}

async fn probe(reference: &ClusterProfileReference, connection: &Connection) -> Result<(), Unresolved> {
    let server = &connection.access.server;
    match tokio::time::timeout(PROBE, connection.client.apiserver_version()).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(unreachable(reference, &server.to_string(), &error)),
        Err(_) => Err(Unresolved::new(
            Reason::RemoteClusterUnreachable,
            format!("the API server {server} of ClusterProfile {reference} did not answer within {PROBE:?}"),
        )),
    }
}

/// What an error of a spoke's API server means for the cluster as a whole.
fn unreachable(reference: &ClusterProfileReference, server: &str, error: &kube::Error) -> Unresolved {
    if let kube::Error::Api(status) = error
        && matches!(status.code, 401 | 403)
    {
        return Unresolved::new(
            Reason::RemoteClusterUnauthorized,
            format!("the API server {server} of ClusterProfile {reference} refuses the credential: {}", status.message),
        );
    }
    if let kube::Error::Service(source) = error
        && let Some(transport::TransportError::Credential(unresolved)) = source.downcast_ref()
    {
        return unresolved.clone();
    }
    Unresolved::new(
        Reason::RemoteClusterUnreachable,
        format!("the API server {server} of ClusterProfile {reference} can't be reached: {}", knative_operator_runtime::chain(error)),
    )
}
