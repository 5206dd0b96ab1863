//! How a command ends: the exit code, and what is said to the user when it is not the one that was hoped for.
use std::process::ExitCode;

use crate::next::Next;

/// Exit codes; part of the interface, see `kubectl shim --help`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done, or healthy.
    Done = 0,
    /// It could not be done or asked.
    Error = 1,
    /// The command line can't be understood.
    Usage = 2,
    /// Nothing had to be changed, and `--error-unchanged` asked to be told.
    Unchanged = 3,
    /// The question was answered, and the answer is bad.
    Unhealthy = 4,
    /// `--timeout` passed while the work was still in progress.
    Timeout = 124,
    /// Ctrl-C: 128 + SIGINT.
    Interrupted = 130,
}

/// Text of the exit codes for `--help`.
pub const EXIT_CODES: &str = "\
Exit codes:
  0    done, or healthy
  1    error
  2    usage error
  3    nothing changed, with --error-unchanged
  4    asked and unhealthy: a node failed, or the rollout can't go on by itself
  124  --timeout passed
  130  interrupted";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    /// The complete text for the user, prefix included.
    pub text: String,
    /// The exit code.
    pub exit: Exit,
    /// What to do next.
    pub next: Vec<Next>,
}

impl Failure {
    /// `error: …`, exit code 1.
    pub fn error(text: impl std::fmt::Display) -> Self {
        Self::worded(format!("error: {text}"))
    }

    /// A complete text in kubectl's words, exit code 1.
    pub fn worded(text: impl Into<String>) -> Self {
        Self { text: text.into(), exit: Exit::Error, next: Vec::new() }
    }

    /// A usage error that only shows after parsing.
    pub fn usage(text: impl std::fmt::Display) -> Self {
        Self { exit: Exit::Usage, ..Self::error(text) }
    }

    /// The same with one more command to try.
    #[must_use]
    pub fn then(mut self, next: Next) -> Self {
        self.next.push(next);
        self
    }
}
