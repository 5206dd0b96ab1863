//! Waiting that always ends: at a deadline, or because we were told to stop.
use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Between two looks at what is waited for.
const PAUSE: Duration = Duration::from_millis(50);

/// Whether the installer was told to end (SIGTERM).
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

/// Why a wait ended without what was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// SIGTERM.
    #[error("the installer was told to end")]
    Interrupted,
    /// Time is up.
    #[error("it took longer than {} s", .0.as_secs())]
    TooLong(Duration),
}

impl Interrupt {
    /// The flag that a signal handler sets.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    /// Whether it is set.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A point in time, and what may come before it.
#[derive(Debug, Clone)]
pub struct Deadline {
    start: Instant,
    limit: Duration,
    interrupt: Interrupt,
    /// How long the wait goes on after an interrupt.
    grace: Duration,
    interrupted_at: Cell<Option<Instant>>,
}

impl Deadline {
    /// `limit` from now; an interrupt ends it at once.
    pub fn new(limit: Duration, interrupt: &Interrupt) -> Self {
        Self::with_grace(limit, interrupt, Duration::ZERO)
    }

    /// `limit` from now; after an interrupt at most `grace` more: for a step that should be brought to its end.
    pub fn with_grace(limit: Duration, interrupt: &Interrupt, grace: Duration) -> Self {
        let interrupted_at = Cell::new(None);
        Self { start: Instant::now(), limit, interrupt: interrupt.clone(), grace, interrupted_at }
    }

    /// The same end, but at most `limit` from now.
    #[must_use]
    pub fn within(&self, limit: Duration) -> Self {
        Self::with_grace(limit.min(self.left()), &self.interrupt, self.grace)
    }

    /// Time that is left.
    pub fn left(&self) -> Duration {
        self.limit.saturating_sub(self.start.elapsed())
    }

    /// An error once the wait has to end.
    pub fn check(&self) -> Result<(), Ended> {
        if self.interrupt.is_set() && self.since_interrupt() >= self.grace {
            Err(Ended::Interrupted)
        } else if self.left().is_zero() {
            Err(Ended::TooLong(self.limit))
        } else {
            Ok(())
        }
    }

    fn since_interrupt(&self) -> Duration {
        let at = self.interrupted_at.get().unwrap_or_else(Instant::now);
        self.interrupted_at.set(Some(at));
        at.elapsed()
    }

    /// Asks again and again until there is an answer.
    pub fn poll<T>(&self, mut ask: impl FnMut() -> Option<T>) -> Result<T, Ended> {
        loop {
            if let Some(answer) = ask() {
                return Ok(answer);
            }
            self.check()?;
            thread::sleep(PAUSE.min(self.left()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_the_answer_the_deadline_or_the_interrupt() {
        let interrupt = Interrupt::default();
        let long = Deadline::new(Duration::from_secs(60), &interrupt);
        let mut asked = 0;
        let third = long.poll(|| {
            asked += 1;
            (asked == 3).then_some(asked)
        });
        assert_eq!(third, Ok(3));
        let short = Duration::from_millis(1);
        assert_eq!(Deadline::new(short, &interrupt).poll(|| None::<()>), Err(Ended::TooLong(short)));
        interrupt.flag().store(true, Ordering::Relaxed);
        assert_eq!(long.poll(|| None::<()>), Err(Ended::Interrupted));
        assert_eq!(long.poll(|| Some(1)), Ok(1), "an answer that is there is taken");
        let patient = Deadline::with_grace(Duration::from_secs(60), &interrupt, short);
        assert_eq!(patient.poll(|| None::<()>), Err(Ended::Interrupted));
    }
}
