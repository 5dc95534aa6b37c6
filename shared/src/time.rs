//! Times as they are stored.

use jiff::{RoundMode, Timestamp, TimestampRound, Unit};

/// `time` in full seconds, never later: a stored time is never in the future.
pub fn truncate(time: Timestamp) -> Timestamp {
    let round = TimestampRound::new().smallest(Unit::Second).mode(RoundMode::Floor);
    time.round(round).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_never_later() {
        for text in ["2026-01-01T00:00:00.9Z", "2026-01-01T00:00:00.5Z", "2026-01-01T00:00:00Z"] {
            let time: Timestamp = text.parse().unwrap();
            assert_eq!(truncate(time).to_string(), "2026-01-01T00:00:00Z");
        }
    }
}
