//! The state of the connection to a spoke, for people who look for a fault. It has no credential,
//! no address and no text of others.

use serde::Serialize;

use super::error::Reason;

/// What a connection does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum ConnectionState {
    /// Nothing asked for it yet.
    #[default]
    Disconnected,
    /// It is being made or checked, or a credential is requested.
    Connecting,
    /// It works, as far as is known.
    Connected,
    /// It failed, and backs off.
    Failed,
}

/// The state of the connection to a spoke.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionReport {
    /// Its ClusterProfile, as NAMESPACE/NAME.
    pub cluster: String,
    /// What it does.
    pub state: ConnectionState,
    /// Name of the access provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// When the credential expires, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential_expires_at: Option<String>,
    /// When a request was sent last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_at: Option<String>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// How often it failed in a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// Time until the next attempt, which a reconcile makes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_in_seconds: Option<u64>,
}
