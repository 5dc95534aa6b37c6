//! Times as they are stored.

use jiff::{RoundMode, Timestamp, TimestampRound, Unit};

/// `time` in full seconds, never later: a stored time is never in the future.
pub fn truncate(time: Timestamp) -> Timestamp {
    let round = TimestampRound::new().smallest(Unit::Second).mode(RoundMode::Floor);
    time.round(round).unwrap_or(time)
}

/// `time` rounded up to a minute, for a time in the future that is not exact.
pub fn next_minute(time: Timestamp) -> Timestamp {
    let round = TimestampRound::new().smallest(Unit::Minute).mode(RoundMode::Ceil);
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

    #[test]
    fn next_minute_is_never_earlier() {
        for (text, expected) in
            [("2026-01-01T00:00:00Z", "00:00"), ("2026-01-01T00:00:00.1Z", "01:00"), ("2026-01-01T00:01:59Z", "02:00")]
        {
            let time: Timestamp = text.parse().unwrap();
            assert_eq!(next_minute(time).to_string(), format!("2026-01-01T00:{expected}Z"));
        }
    }
}
