//! Says something from time to time only, where others decide how often it happens.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Minimum interval.
const INTERVAL: Duration = Duration::from_secs(10);

/// When something was said.
#[derive(Debug, Default)]
pub struct Rarely {
    last: Mutex<Option<Instant>>,
}

impl Rarely {
    /// Whether it is to be said now.
    pub fn is_due(&self) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|last| last.elapsed() >= INTERVAL);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_often_is_said_from_time_to_time() {
        let rarely = Rarely::default();
        assert_eq!([rarely.is_due(), rarely.is_due()], [true, false]);
        *rarely.last.lock().unwrap() = Instant::now().checked_sub(INTERVAL);
        assert!(rarely.is_due());
    }
}
