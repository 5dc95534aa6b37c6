//! Why a cluster can't be used.

use knative_operator_base::text::start;
use serde::Serialize;

/// Maximum length of a message in bytes, since part of it may come from a server.
const MAX_MESSAGE: usize = 2000;

/// What has to change before a cluster can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Reason {
    /// The provider file has no providers.
    AccessProviderNotConfigured,
    /// ClusterProfiles in this namespace may not be used.
    ClusterProfileNotPermitted,
    /// The ClusterProfile does not exist.
    ClusterProfileNotFound,
    /// The hub serves no version of ClusterProfile that this crate reads.
    ClusterProfileNotServed,
    /// The ClusterProfile has `ControlPlaneHealthy` False or Unknown, or says nothing about the
    /// cluster.
    ClusterProfileNotReady,
    /// The ClusterProfile has no provider that the file lists, or can't be read.
    ClusterProfileUnavailable,
    /// The credential plugin failed, or the Secret can't be read.
    AccessProviderFailed,
    /// The Secret with the credential is not bound to the ClusterProfile and its server.
    CredentialNotBound,
    /// The server has no TLS, which is not allowed.
    ServerWithoutTls,
    /// The data of the profile and the credential are not valid for a client.
    RemoteClientCreationFailed,
    /// The API server does not answer.
    RemoteClusterUnreachable,
    /// The API server refuses the credential.
    RemoteClusterUnauthorized,
}

/// Why a cluster can't be used. The message is complete: its cause, and what to do about it where
/// that doesn't depend on the program. It has no credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AccessError {
    /// Reason, for programs.
    pub reason: Reason,
    /// Message, for people.
    pub message: String,
}

impl AccessError {
    /// A failure with this reason and message.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if message.len() > MAX_MESSAGE {
            message.truncate(start(&message, MAX_MESSAGE).len());
            message.push('…');
        }
        Self { reason, message }
    }
}
