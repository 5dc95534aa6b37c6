//! Why a spoke can't be used.

use knative_operator_shared::reason::Reason;
use knative_operator_shared::text::start;

/// Maximum length of a message in bytes, since part of it may come from a server.
const MAX_MESSAGE: usize = 2000;

/// Why a spoke can't be used: reason and message of the condition `TargetClusterResolved`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Unresolved {
    /// Reason, for programs.
    pub reason: Reason,
    /// Message, for people, with a remedy.
    pub message: String,
}

impl Unresolved {
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
