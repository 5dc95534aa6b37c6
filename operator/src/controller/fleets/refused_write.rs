//! A write that the API server refused, until it is tried again.

use std::time::Instant;

/// A write that the API server refused.
pub struct RefusedWrite {
    /// The revision that was written.
    pub revision: String,
    /// What the API server says.
    pub message: String,
    /// When it was refused.
    pub at: Instant,
}
