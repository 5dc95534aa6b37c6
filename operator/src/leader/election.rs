//! How long Leases last, and what is written in one.

use std::time::Duration;

/// How long a Lease lasts, how often it is renewed, and how often others look.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// How long a Lease lasts after its last renewal.
    pub lease: Duration,
    /// How long a holder tries to renew before it gives up: less than `lease`.
    pub deadline: Duration,
    /// How often it is tried.
    pub retry: Duration,
}

/// A record as it was observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Who holds it; empty if nobody does.
    pub holder: String,
    /// Changes with each write of it.
    pub version: String,
    /// How long the holder says that it lasts.
    pub lease: Duration,
}
