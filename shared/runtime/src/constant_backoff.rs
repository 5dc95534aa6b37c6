//! A back-off of watches of kinds that may be installed later.

use std::time::Duration;

use kube::runtime::utils::Backoff;

/// A constant back-off, so that a CRD that is installed later is noticed.
pub struct ConstantBackoff(pub Duration);

impl Iterator for ConstantBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.0)
    }
}

impl Backoff for ConstantBackoff {
    fn reset(&mut self) {}
}
