//! Durations in flags.

use std::time::Duration;

/// A duration as Go writes it: numbers with units from `ms` to `h`, such as `1m30s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("\"{text}\" is no duration such as 10s, 1m30s or 500ms");
    let mut rest = text;
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).ok_or_else(wrong)?;
        let number: f64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let (unit, seconds) = [("ms", 0.001), ("h", 3600.0), ("m", 60.0), ("s", 1.0)]
            .into_iter()
            .find(|(u, _)| rest.starts_with(u))
            .ok_or_else(wrong)?;
        total += Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())?;
        rest = &rest[unit.len()..];
    }
    Ok(total)
}
