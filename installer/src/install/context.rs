//! What every step needs.
use std::{fmt::Display, time::Duration};

use shim_core::{
    limits,
    report::{Failure, Reason, Step},
};

use crate::{
    deadline::{Deadline, Ended, Interrupt},
    host::Host,
    machine::Machine,
    process::RunError,
};

/// The node, and how long it may take.
pub struct Context<'a> {
    /// Its files.
    pub host: &'a Host,
    /// The rest of it.
    pub machine: &'a dyn Machine,
    /// How long anything may take.
    pub limits: Limits,
    /// Whether we were told to end.
    pub interrupt: Interrupt,
    /// Uid of the Pod that we are: it proves which containerd runs this node's pods.
    pub own_pod: Option<String>,
}

impl Context<'_> {
    /// Runs a program of the node; if it does not end well, `step` fails for `reason`.
    pub fn run(
        &self,
        program: &str,
        args: &[&str],
        deadline: &Deadline,
        step: Step,
        reason: Reason,
    ) -> Result<String, Failure> {
        match self.machine.run(program, args, &deadline.within(self.limits.probe)) {
            Ok(output) => Ok(output.stdout),
            // What it would have said is not known.
            Err(RunError::Killed { program, why }) => {
                Err(Failure::new(step, reason_of(why), format!("{program} was ended: {why}")))
            }
            Err(error) => Err(Failure::new(step, reason, error)),
        }
    }

    /// For a step that should be brought to its end even when we are told to end.
    pub fn patient(&self, limit: Duration) -> Deadline {
        Deadline::with_grace(limit, &self.interrupt, self.limits.interrupted)
    }
}

/// How long anything may take; shorter in tests.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// See [`limits::PREPARE_DEADLINE`].
    pub prepare: Duration,
    /// See [`limits::VERIFY_DEADLINE`].
    pub verify: Duration,
    /// See [`limits::STABLE_FOR`].
    pub stable: Duration,
    /// See [`limits::PROBE_DEADLINE`].
    pub probe: Duration,
    /// See [`limits::LOCK_DEADLINE`].
    pub lock: Duration,
    /// What is left for a wait after a restart once we were told to end: a roll back must still fit into the Pod's
    /// grace period.
    pub interrupted: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            prepare: limits::PREPARE_DEADLINE,
            verify: limits::VERIFY_DEADLINE,
            stable: limits::STABLE_FOR,
            probe: limits::PROBE_DEADLINE,
            lock: limits::LOCK_DEADLINE,
            interrupted: Duration::from_secs(25),
        }
    }
}

/// Any error as the failure of a step.
pub trait OrFail<T> {
    /// Fails `step` for `reason`, with the error's text as the message.
    fn or_fail(self, step: Step, reason: Reason) -> Result<T, Failure>;
}

impl<T, E: Display> OrFail<T> for Result<T, E> {
    fn or_fail(self, step: Step, reason: Reason) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(step, reason, error))
    }
}

/// The failure of a wait before anything was changed.
pub fn ended(step: Step) -> impl Fn(Ended) -> Failure {
    move |why| Failure::new(step, reason_of(why), why)
}

fn reason_of(why: Ended) -> Reason {
    match why {
        Ended::Interrupted => Reason::Interrupted,
        Ended::TooLong(_) => Reason::DeadlineExceeded,
    }
}
