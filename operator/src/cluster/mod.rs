//! Where a component is installed, and how to get there.
//!
//! [`provider`] reads the provider file, [`profile`] decides how a ClusterProfile is reached (pure; [`address`]: its URLs), [`exec`] runs
//! credential plugins, [`secret`] is the built-in provider, [`credential`] keeps what they give fresh, [`transport`] is the HTTP
//! stack (with [`tls`], [`road`]: TCP and proxies, [`body`]: limits), and [`connections`] holds one connection a spoke.

pub mod address;
mod body;
pub mod connections;
pub mod credential;
pub mod exec;
pub mod profile;
pub mod provider;
mod road;
mod secret;
mod tls;
pub mod transport;

use knative_operator_shared::reason::Reason;

/// Longest message, in bytes: some of it may be a server's.
const LONGEST: usize = 2000;

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
        let mut message = message.into();
        if message.len() > LONGEST {
            let end = (0..=LONGEST).rev().find(|end| message.is_char_boundary(*end)).unwrap_or_default();
            message.truncate(end);
            message.push('…');
        }
        Self { reason, message }
    }
}
