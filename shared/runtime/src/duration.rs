//! Parses durations in flags.

use std::time::Duration;

/// Units of Go's durations, in seconds; those that begin another one come later.
const UNITS: [(&str, f64); 8] =
    [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("μs", 1e-6), ("ms", 1e-3), ("h", 3600.0), ("m", 60.0), ("s", 1.0)];

/// Longest duration. Added to any time, it overflows no clock.
pub const MAX: Duration = Duration::from_secs(1000 * 365 * 24 * 3600);

/// A text is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a duration such as 10s, 1m30s or 500ms")]
pub struct InvalidDuration(String);

/// Parses a number of seconds or a duration, as kubectl does for `--request-timeout`.
pub fn seconds_or_duration(text: &str) -> Result<Duration, InvalidDuration> {
    text.parse().map_or_else(|_| duration(text), |seconds| Ok(Duration::from_secs(seconds).min(MAX)))
}

/// Parses a duration in Go's format, as [`duration`] does. A negative one is zero.
pub fn duration_or_zero(text: &str) -> Result<Duration, InvalidDuration> {
    match text.strip_prefix('-') {
        Some(positive) if !positive.starts_with('+') => duration(positive).map(|_| Duration::ZERO),
        _ => duration(text),
    }
}

/// Parses a duration in Go's format: numbers with units from `ns` to `h`, such as `1m30s`, or `0`.
/// A longer one than [`MAX`] becomes that.
pub fn duration(text: &str) -> Result<Duration, InvalidDuration> {
    let invalid = || InvalidDuration(text.to_owned());
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut total = Duration::ZERO;
    if rest == "0" {
        return Ok(total);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).ok_or_else(invalid)?;
        let number: f64 = rest[..digits].parse().map_err(|_| invalid())?;
        rest = &rest[digits..];
        let (unit, seconds) = UNITS.into_iter().find(|(unit, _)| rest.starts_with(unit)).ok_or_else(invalid)?;
        // The number has no sign, so it can only be too large.
        let part = Duration::try_from_secs_f64(number * seconds).unwrap_or(MAX);
        total = total.saturating_add(part).min(MAX);
        rest = &rest[unit.len()..];
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use std::time::{Instant, SystemTime};

    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        for (text, nanoseconds) in [
            ("0", 0),
            ("+5s", 5_000_000_000),
            ("1m30s", 90_000_000_000),
            ("500us", 500_000),
            ("500µs", 500_000),
            ("500μs", 500_000),
            ("7ns", 7),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("1h0m0.5s", 3_600_500_000_000),
        ] {
            assert_eq!(duration(text).map(|d| d.as_nanos()), Ok(nanoseconds), "{text}");
        }
        for wrong in ["", "+", "-", "10", "1d", "s", ".s", "1 s", "-1s", "++1s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn negative_duration_is_zero_where_that_has_a_meaning() {
        assert_eq!(duration_or_zero("-1.5h"), Ok(Duration::ZERO));
        assert_eq!(duration_or_zero("2s"), Ok(Duration::from_secs(2)));
        for wrong in ["-", "-+1s", "--1s", "-soon"] {
            assert!(duration_or_zero(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn long_durations_overflow_no_clock() {
        let long = "9".repeat(400);
        for text in [
            "8760001h".to_owned(),
            "5000000000000000h5000000000000000h".to_owned(),
            format!("{}s", u64::MAX),
            format!("{long}h"),
            format!("{long}ms1s"),
        ] {
            assert_eq!(duration(&text), Ok(MAX), "{text}");
        }
        assert_eq!(seconds_or_duration(&u64::MAX.to_string()), Ok(MAX));
        assert!(Instant::now().checked_add(MAX).is_some() && SystemTime::now().checked_add(MAX).is_some());
    }

    #[test]
    fn shorter_durations_are_exact() {
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1.5s500ms"), Ok(Duration::from_secs(2)));
        assert_eq!(seconds_or_duration("30"), Ok(Duration::from_secs(30)));
        // 1,000 years.
        assert_eq!(duration("8760000h"), Ok(MAX));
        for wrong in ["", "1", "-1s", "1d", "s", ".s", "infs", "1e3s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
