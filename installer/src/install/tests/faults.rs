//! Power failures: a run ends at the n-th change, as if the process had been killed there. And full disks.
use std::{cell::Cell, io, panic, rc::Rc};

/// What a test's unwinding carries.
#[derive(Debug)]
pub(crate) struct Killed;

/// Counts changes, and ends the run at one of them; or has no room for any content.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    done: Rc<Cell<u32>>,
    at: Rc<Cell<Option<u32>>>,
    full: Rc<Cell<bool>>,
}

impl Faults {
    /// The run ends before its change number `at`, counted from 0.
    pub(crate) fn kill_at(&self, at: Option<u32>) {
        self.done.set(0);
        self.at.set(at);
    }

    /// From here on there is no room on the disk, or some again.
    pub(crate) fn fill_disk(&self, full: bool) {
        self.full.set(full);
    }

    /// Called before content is written.
    pub(crate) fn need_room(&self) -> io::Result<()> {
        if self.full.get() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
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
