//! How long something is waited for, apart from the time in which the cluster was away: meanwhile,
//! its controllers and its garbage collector may have done nothing.

use std::time::{Duration, Instant};

/// What a look counts at least, so that a wait ends although every second look fails.
const LOOK: Duration = Duration::from_secs(2);

/// A wait with interruptions.
#[derive(Debug, Default)]
pub struct Waited {
    /// The first and the last look since the last interruption.
    looks: Option<(Instant, Instant)>,
    before: Duration,
}

impl Waited {
    /// Looks at `now`; returns the time of all looks in a row together.
    pub fn look(&mut self, now: Instant) -> Duration {
        let (first, last) = self.looks.get_or_insert((now, now));
        *last = now;
        self.before + now.saturating_duration_since(*first)
    }

    /// Interrupts the wait: nobody knows what was after the last look.
    pub fn interrupt(&mut self) {
        if let Some((first, last)) = self.looks.take() {
            self.before += last.saturating_duration_since(first).max(LOOK);
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
        assert_eq!((waited.look(at(0)), waited.look(at(20))), (Duration::ZERO, Duration::from_secs(20)));
        waited.interrupt();
        waited.interrupt();
        assert_eq!(waited.look(at(100)), Duration::from_secs(20));
        assert_eq!(waited.look(at(110)), Duration::from_secs(30));
        // Every second look fails.
        for seconds in 0..10 {
            waited.interrupt();
            waited.look(at(200 + seconds));
        }
        assert_eq!(waited.look(at(209)), Duration::from_secs(30 + 9 * 2));
    }
}
