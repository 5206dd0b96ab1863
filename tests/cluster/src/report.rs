//! What runs now and how long it took, a line each.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

/// A step that takes longer says so this often.
const STILL: Duration = Duration::from_secs(30);

/// Takes the lines of progress.
pub struct Reporter {
    sink: Box<dyn Fn(&str) + Send + Sync>,
}

impl Reporter {
    /// Hands every line to `sink`.
    pub fn new(sink: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { sink: Box::new(sink) }
    }

    /// Lines on standard error.
    pub fn stderr() -> Self {
        Self::new(|line| eprintln!("{line}"))
    }

    /// No lines.
    pub fn silent() -> Self {
        Self::new(|_| ())
    }

    /// One line.
    pub fn say(&self, line: &str) {
        (self.sink)(line);
    }

    /// Runs `work` and reports its start, that it still runs, and its end.
    pub fn step<T>(&self, title: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.say(&format!("{title} …"));
        let start = Instant::now();
        let result = thread::scope(|scope| {
            let (finished, rest) = channel::<()>();
            scope.spawn(move || {
                while rest.recv_timeout(STILL) == Err(RecvTimeoutError::Timeout) {
                    self.say(&format!("{title} … still, after {} s", start.elapsed().as_secs()));
                }
            });
            let result = work();
            drop(finished);
            result
        });
        let verdict = if result.is_ok() { "done" } else { "FAILED" };
        self.say(&format!("{title}: {verdict} in {:.1} s", start.elapsed().as_secs_f32()));
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn a_step_reports_start_and_end() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&lines);
        let reporter = Reporter::new(move |line| kept.lock().unwrap().push(line.to_owned()));
        assert_eq!(reporter.step("build", || Ok(7)).unwrap(), 7);
        assert!(reporter.step("break", || -> Result<()> { anyhow::bail!("no") }).is_err());
        let lines = lines.lock().unwrap();
        assert_eq!(lines[0], "build …");
        assert!(lines[1].starts_with("build: done in ") && lines[3].starts_with("break: FAILED in "), "{lines:?}");
    }
}
