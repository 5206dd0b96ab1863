//! The container `install`: places binaries, configures containerd, restarts it if it must, verifies, and undoes
//! whatever did not work.
//!
//! | file | does |
//! |---|---|
//! | `context` | the node, and how long anything may take |
//! | `artifact` | what `fetch` left |
//! | `recover` | undoes what a killed run has left |
//! | `discover` | which containerd runs this node's pods |
//! | `session` | what was found, and the edit that follows from it |
//! | `operation` | one operation: what it needs before containerd is touched, and how it is undone |
//! | `check` | whether the node still has what was verified on it |
//! | `place` | the binary and the link |
//! | `configuration` | containerd's files and what its own binary makes of them |
//! | `change` | edit, restart, roll back |
//! | `verify` | what CRI says, and the throw-away sandbox |
//! | `settle` | all operations of a task, one edit, one restart |
//! | `prune` | files that nothing needs any more |
pub mod artifact;
mod change;
mod check;
mod configuration;
pub mod context;
mod discover;
mod operation;
mod place;
mod prune;
mod recover;
mod session;
mod settle;
#[cfg(test)]
pub(crate) mod tests;
mod verify;

use std::collections::BTreeMap;

use shim_core::{
    names::ShimName,
    report::{self, Failure, Outcome, Reason, Report, Step},
    task::{self, Op, SHIM_DIR, Task},
};

use self::{
    artifact::Artifacts,
    context::{Context, OrFail as _},
    discover::{Layout, Trouble},
    session::Session,
};
use crate::{
    deadline::Deadline,
    lock::{self, LockError},
    state::{State, StateError},
};

/// What is known of a run so far.
#[derive(Debug, Default)]
struct Results {
    outcomes: BTreeMap<ShimName, Outcome>,
    restarted: bool,
    log: String,
}

/// Does the task, as far as it can be done.
pub fn install(context: &Context<'_>, task: &Task, artifacts: &Artifacts) -> Report {
    let mut results = Results::default();
    if let Err(failure) = perform(context, task, artifacts, &mut results) {
        tracing::error!(%failure, "the task failed");
        for shim in task.ops.keys() {
            results.outcomes.entry(shim.clone()).or_insert_with(|| Outcome::Failed(failure.clone()));
        }
    }
    Report { format: report::FORMAT, outcomes: results.outcomes, restarted: results.restarted, log: results.log }
}

fn perform(context: &Context<'_>, task: &Task, artifacts: &Artifacts, results: &mut Results) -> Result<(), Failure> {
    check_task(task)?;
    check_machine(context, task)?;
    let _lock = lock::acquire(context.host, &Deadline::new(context.limits.lock, &context.interrupt)).map_err(locked)?;
    let mut state = State::load(context.host).map_err(state_failure)?;
    if is_nothing_to_do(context, task, &state) {
        results.outcomes.extend(task.ops.keys().map(|shim| (shim.clone(), Outcome::Done { disrupted: 0 })));
        return Ok(());
    }
    recover::recover(context, &mut state)?;
    let mut session = open(context, &state, results)?;
    let settled = settle::settle(&mut session, task, artifacts, results);
    let cleaned = clean(&mut session);
    settled.and(cleaned)
}

/// Looks at the node. If a run before this one has left containerd unwell, its configuration is the good one again by
/// now, and a restart is owed. A daemon that is well is not restarted, whatever else is wrong.
fn open<'a>(context: &'a Context<'a>, state: &State, results: &mut Results) -> Result<Session<'a>, Failure> {
    let deadline = || Deadline::new(context.limits.prepare, &context.interrupt);
    match Session::open(context, state.clone(), deadline()) {
        Err(Trouble::Unwell(failure)) if state.restart_owed.is_some() => {
            tracing::warn!(%failure, "containerd is not well after a run that was ended; restarting it");
            discover::check_restart(context, Layout::Plain)?;
            results.restarted = true;
            recover::revive(context, || Ok(Session::open(context, state.clone(), deadline())?))
        }
        opened => Ok(opened?),
    }
}

fn check_task(task: &Task) -> Result<(), Failure> {
    if task.format > task::FORMAT {
        let message = format!("the task has format {}, this installer knows {}", task.format, task::FORMAT);
        return Err(Failure::new(Step::Preflight, Reason::Internal, message));
    }
    Ok(())
}

/// A Node object may stand for another machine since the task was made.
fn check_machine(context: &Context<'_>, task: &Task) -> Result<(), Failure> {
    let mut id = String::new();
    // The kubelet's order.
    for path in ["/etc/machine-id", "/var/lib/dbus/machine-id"] {
        if id.trim().is_empty() {
            id = context.host.read(path).or_fail(Step::Preflight, Reason::MachineMismatch)?.unwrap_or_default();
        }
    }
    if id.trim() == task.machine_id.as_str() {
        return Ok(());
    }
    let message = format!("the task is for the machine {}, this is {}", task.machine_id, id.trim());
    Err(Failure::new(Step::Preflight, Reason::MachineMismatch, message))
}

/// A removal on a node that has nothing of ours must not fail because its containerd is not one of ours either.
fn is_nothing_to_do(context: &Context<'_>, task: &Task, state: &State) -> bool {
    let only_removals = task.ops.values().all(|op| *op == Op::Remove);
    only_removals && state.is_empty() && !context.host.exists(SHIM_DIR)
}

/// What is in force is in force: files that could not be removed are no reason to call an operation failed.
fn clean(session: &mut Session<'_>) -> Result<(), Failure> {
    session.save()?;
    let in_use = session.in_use()?;
    let config = configuration::load(session.context.host, &session.daemon.config)?;
    let configured = config.ours().or_fail(Step::Configure, Reason::ConfigUnusable)?;
    let cleaned = prune::prune(session.context.host, &session.state, &in_use, &configured)
        .and_then(|()| prune::tidy(session.context.host, &mut session.state));
    if let Err(error) = cleaned {
        tracing::warn!(%error, "files that are not needed any more could not be removed");
    }
    if session.state.is_empty() { Ok(()) } else { session.save() }
}

fn locked(error: LockError) -> Failure {
    match error {
        LockError::Busy(why) if why == crate::deadline::Ended::Interrupted => context::ended(Step::Preflight)(why),
        _ => Failure::new(Step::Preflight, Reason::Locked, error),
    }
}

fn state_failure(error: StateError) -> Failure {
    let reason = if matches!(error, StateError::TooNew(_)) { Reason::StateTooNew } else { Reason::Internal };
    Failure::new(Step::Preflight, reason, error)
}
