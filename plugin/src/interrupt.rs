//! Ctrl-C, from one moment on. `tokio::signal::ctrl_c` listens only while it is awaited: one that comes between two
//! rounds of a loop would be lost, since the process no longer dies of it.
use std::io;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};
#[cfg(windows)]
use tokio::signal::windows::{CtrlC, ctrl_c};

/// Hears Ctrl-C until it is dropped.
#[derive(Debug)]
pub struct Interrupt {
    #[cfg(unix)]
    signal: Signal,
    #[cfg(windows)]
    signal: CtrlC,
}

impl Interrupt {
    /// Listens from now on.
    pub fn listen() -> io::Result<Self> {
        #[cfg(unix)]
        let signal = signal(SignalKind::interrupt())?;
        #[cfg(windows)]
        let signal = ctrl_c()?;
        Ok(Self { signal })
    }

    /// Ends when Ctrl-C has come, also if that was before the call.
    pub async fn heard(&mut self) {
        self.signal.recv().await;
    }
}
