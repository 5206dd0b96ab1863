//! Waiting for what another process does: short polls with a deadline.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

const INTERVAL: Duration = Duration::from_millis(50);

/// Asks `probe` every 50 ms until it has an answer; an error that names `what` after `limit`.
pub fn until<T>(what: &str, limit: Duration, mut probe: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(answer) = probe()? {
            return Ok(answer);
        }
        if Instant::now() >= end {
            bail!("waited {} s in vain for {what}", limit.as_secs());
        }
        sleep(INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_returns_the_first_answer() {
        let mut calls = 0;
        let answer = until("three calls", Duration::from_secs(5), || {
            calls += 1;
            Ok((calls == 3).then_some(calls))
        });
        assert_eq!(answer.unwrap(), 3);
    }

    #[test]
    fn it_gives_up_and_says_on_what() {
        let error = until::<()>("rain", Duration::ZERO, || Ok(None)).unwrap_err();
        assert!(error.to_string().contains("rain"));
    }
}
