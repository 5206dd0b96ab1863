//! Durations as kubectl's flags take them: `5`, `5s`, `1m30s`, `1.5h`, `0`.

use std::time::Duration;

/// A text that is no duration; the wording is kubectl's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "Invalid timeout value. Timeout must be a single integer in seconds, or an integer followed by a corresponding time unit (e.g. 1s | 2m | 3h)"
)]
pub struct InvalidTimeout;

/// Reads whole seconds, or one or more numbers with Go's units (`ns`, `us`, `µs`, `ms`, `s`, `m`, `h`).
pub fn parse_timeout(text: &str) -> Result<Duration, InvalidTimeout> {
    match text.parse::<u64>() {
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(_) => parse_go_duration(text.strip_prefix('+').unwrap_or(text)),
    }
}

fn parse_go_duration(mut rest: &str) -> Result<Duration, InvalidTimeout> {
    if rest.is_empty() {
        return Err(InvalidTimeout);
    }
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let (part, after) = next_part(rest)?;
        total = total.checked_add(part).ok_or(InvalidTimeout)?;
        rest = after;
    }
    Ok(total)
}

/// One number and its unit, and what follows.
fn next_part(text: &str) -> Result<(Duration, &str), InvalidTimeout> {
    let (number, rest) = split_while(text, |c| c.is_ascii_digit() || c == '.');
    let (unit, rest) = split_while(rest, |c| !(c.is_ascii_digit() || c == '.'));
    let number: f64 = number.parse().map_err(|_| InvalidTimeout)?;
    let seconds = number * seconds_per(unit).ok_or(InvalidTimeout)?;
    let part = Duration::try_from_secs_f64(seconds).map_err(|_| InvalidTimeout)?;
    Ok((part, rest))
}

fn split_while(text: &str, wanted: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !wanted(c)).unwrap_or(text.len()))
}

fn seconds_per(unit: &str) -> Option<f64> {
    match unit {
        "ns" => Some(1e-9),
        "us" | "µs" | "μs" => Some(1e-6),
        "ms" => Some(1e-3),
        "s" => Some(1.0),
        "m" => Some(60.0),
        "h" => Some(3600.0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_what_kubectl_takes() {
        for (text, seconds) in [
            ("0", 0.0),
            ("5", 5.0),
            ("5s", 5.0),
            ("1m30s", 90.0),
            ("1.5h", 5400.0),
            ("250ms", 0.25),
            ("0s", 0.0),
            (".5s", 0.5),
            ("+2s", 2.0),
        ] {
            assert_eq!(parse_timeout(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
    }

    #[test]
    fn refuses_what_kubectl_refuses() {
        for text in ["", "x", "5 s", "s", "-5", "-5s", "1d", "1.2.3s", "5s3", "99999999999999999999h"] {
            assert_eq!(parse_timeout(text), Err(InvalidTimeout), "{text}");
        }
    }
}
