//! Delays after failures.

use std::time::Duration;

/// Delays that double with each failure.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    last: Duration,
}

impl Backoff {
    /// Delays from `first` to `last`, without jitter.
    pub const fn new(first: Duration, last: Duration) -> Self {
        Self { first, last }
    }

    /// The delay after `failures` failures without a success between them, with up to a quarter of
    /// jitter, so that what failed together is not tried again together.
    pub fn after(self, failures: u32) -> Duration {
        let delay = self.exact(failures);
        delay + delay / 1024 * fastrand::u32(..256)
    }

    /// The same without jitter, for intervals of checks.
    pub fn exact(self, failures: u32) -> Duration {
        self.first.saturating_mul(2u32.saturating_pow(failures.saturating_sub(1))).min(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_last_one() {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(8));
        for (failures, least) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 8), (1000, 8)] {
            let (delay, least) = (backoff.after(failures), Duration::from_secs(least));
            assert!(delay >= least && delay <= least * 5 / 4, "{failures}: {delay:?}");
            assert_eq!(backoff.exact(failures), least);
        }
    }
}
