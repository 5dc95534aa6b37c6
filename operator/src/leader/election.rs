//! Timing of Leases, and their contents.

use std::time::Duration;

/// Timing of Leases.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Duration of a Lease after its last renewal.
    pub lease: Duration,
    /// Time for which a holder retries a renewal before it gives up; less than `lease`.
    pub deadline: Duration,
    /// Interval of renewals and checks.
    pub retry: Duration,
}

/// An observed Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    /// Its holder; empty if it has none.
    pub holder: String,
    /// Changes with each renewal.
    pub version: String,
    /// Duration that the holder has set.
    pub lease: Duration,
}
