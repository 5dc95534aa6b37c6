//! Parses durations in flags.

use std::time::Duration;

/// A text is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a duration such as 10s, 1m30s or 500ms")]
pub struct InvalidDuration(String);

/// Parses a number of seconds or a duration, as kubectl does for `--request-timeout`.
pub fn seconds_or_duration(text: &str) -> Result<Duration, InvalidDuration> {
    text.parse().map_or_else(|_| duration(text), |seconds| Ok(Duration::from_secs(seconds)))
}

/// Parses a duration in Go's format: numbers with units from `ms` to `h`, such as `1m30s`.
pub fn duration(text: &str) -> Result<Duration, InvalidDuration> {
    let invalid = || InvalidDuration(text.to_owned());
    let mut rest = text;
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return Err(invalid());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).ok_or_else(invalid)?;
        let number: f64 = rest[..digits].parse().map_err(|_| invalid())?;
        rest = &rest[digits..];
        let (unit, seconds) = [("ms", 0.001), ("h", 3600.0), ("m", 60.0), ("s", 1.0)]
            .into_iter()
            .find(|(u, _)| rest.starts_with(u))
            .ok_or_else(invalid)?;
        total += Duration::try_from_secs_f64(number * seconds).map_err(|_| invalid())?;
        rest = &rest[unit.len()..];
    }
    Ok(total)
}
