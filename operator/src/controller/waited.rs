//! How long something is waited for, apart from the time in which the cluster was away: meanwhile,
//! its controllers and its garbage collector may have done nothing.

use std::time::{Duration, Instant};

/// A wait with interruptions.
#[derive(Debug, Default)]
pub struct Waited {
    since: Option<Instant>,
    before: Duration,
}

impl Waited {
    /// Begins the wait, or continues it; returns how long it has taken until `now`.
    pub fn until(&mut self, now: Instant) -> Duration {
        self.before + now.saturating_duration_since(*self.since.get_or_insert(now))
    }

    /// Interrupts the wait at `now`.
    pub fn interrupt(&mut self, now: Instant) {
        if let Some(since) = self.since.take() {
            self.before += now.saturating_duration_since(since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interruptions_do_not_count_and_do_not_begin_it_again() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut waited = Waited::default();
        assert_eq!((waited.until(at(0)), waited.until(at(20))), (Duration::ZERO, Duration::from_secs(20)));
        waited.interrupt(at(25));
        waited.interrupt(at(90));
        assert_eq!(waited.until(at(100)), Duration::from_secs(25));
        assert_eq!(waited.until(at(110)), Duration::from_secs(35));
    }
}
