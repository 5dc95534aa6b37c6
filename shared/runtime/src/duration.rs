//! Parses durations in flags.

use std::time::Duration;

/// Longest duration, a thousand years: what is added to a time must be a time.
const MAX: Duration = Duration::from_secs(1000 * 31_557_600);

/// Parses a number of seconds or a duration, as kubectl does for `--request-timeout`.
pub fn seconds_or_duration(text: &str) -> Result<Duration, String> {
    match text.parse().map(Duration::from_secs) {
        Ok(duration) if duration <= MAX => Ok(duration),
        _ => duration(text),
    }
}

/// Parses a duration in Go's format: numbers with units from `ms` to `h`, such as `1m30s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let invalid = || format!("\"{text}\" is not a duration such as 10s, 1m30s or 500ms");
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
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| invalid())?;
        total = total.checked_add(part).filter(|total| *total <= MAX).ok_or_else(invalid)?;
        rest = &rest[unit.len()..];
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_or_refused() {
        for (text, expected) in [
            ("1m30s", Some(Duration::from_secs(90))),
            ("500ms", Some(Duration::from_millis(500))),
            ("", None),
            ("5", None),
            ("1.2.3s", None),
            ("1000000h", Some(Duration::from_secs(3_600_000_000))),
            ("18446744073709551615s", None),
            ("10000000h", None),
            ("10000000000000000000s10000000000000000000s", None),
        ] {
            assert_eq!(duration(text).ok(), expected, "{text}");
        }
        assert_eq!(seconds_or_duration("5"), Ok(Duration::from_secs(5)));
        assert!(seconds_or_duration("18446744073709551615").is_err());
    }
}
