//! Power failures: a run ends at the n-th change, as if the process had been killed there.
use std::{cell::Cell, panic, rc::Rc};

/// What a test's unwinding carries.
#[derive(Debug)]
pub(crate) struct Killed;

/// Counts changes, and ends the run at one of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    done: Rc<Cell<u32>>,
    at: Rc<Cell<Option<u32>>>,
}

impl Faults {
    /// The run ends before its change number `at`, counted from 0.
    pub(crate) fn kill_at(&self, at: Option<u32>) {
        self.done.set(0);
        self.at.set(at);
    }

    /// Called before every change.
    pub(crate) fn step(&self) {
        let done = self.done.get();
        if self.at.get() == Some(done) {
            panic::panic_any(Killed);
        }
        self.done.set(done + 1);
    }
}
