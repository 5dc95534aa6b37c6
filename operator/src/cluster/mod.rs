//! Where a component is installed, and how to get there.
//!
//! [`provider`] reads the provider file, [`profile`] decides how a ClusterProfile is reached (pure), [`exec`] runs
//! credential plugins, [`credential`] keeps what they give fresh, [`transport`] is the HTTP stack, and
//! [`connections`] holds one connection a spoke.

pub mod connections;
pub mod credential;
pub mod exec;
pub mod profile;
pub mod provider;
pub mod transport;

use knative_operator_shared::reason::Reason;

/// Why a spoke isn't to be had: the reason and the message of `TargetClusterResolved`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Unresolved {
    /// One word for programs.
    pub reason: Reason,
    /// A sentence for people, with what to do.
    pub message: String,
}

impl Unresolved {
    /// Not to be had, because.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}
