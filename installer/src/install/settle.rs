//! All operations of a task: one edit, one restart, and each operation's own verdict.
//!
//! # When a throw-away sandbox fails
//!
//! The daemon is well and every other handler is served: only this handler does not work. Then only its operation is
//! undone: the link goes back to the build from before, or away, and the configuration's text goes back to what it was
//! for this handler. The other operations of the task stand.
//!
//! A second restart is made only if the daemon has loaded a table that a verified build needs in another form, that is
//! after a change of options. The handler of a first install that failed stays loaded, without a binary, until
//! containerd starts the next time. That is deliberate: nothing can reach it, since the RuntimeClass selects nodes whose
//! label says `ready`; containerd was measured to serve everything else as before with such a handler; while a second
//! restart would end running pods once more, and a failing Shim that is tried again and again would do so each time. A
//! next try finds the handler loaded as it needs it, so it costs no restart at all.
//!
//! If containerd itself has ended of a sandbox, it is started again without the handler, and the build is not tried
//! again on this node with this release of containerd. If it only does not answer any more, it is restarted too, and the
//! build may be tried again.
use std::collections::{BTreeMap, BTreeSet};

use shim_core::{
    containerd::runtime::Runtimes,
    names::{Handler, ShimName},
    report::{Failure, Outcome, Reason, Step},
    task::Task,
};

use super::{
    Results,
    artifact::Artifacts,
    change::{Progress, Restart, Stopped},
    discover,
    operation::{Kind, Ready},
    session::{Plan, Session},
    verify::{self, Fate, Snapshot},
};
use crate::state::Shim;

/// Does every operation of the task; each gets an outcome.
pub(super) fn settle(
    session: &mut Session<'_>,
    task: &Task,
    artifacts: &Artifacts,
    results: &mut Results,
) -> Result<(), Failure> {
    let mut ready = Vec::new();
    for (shim, op) in &task.ops {
        match session.prepare(shim, op, artifacts) {
            Ok(operation) => ready.push(operation),
            Err(outcome) => drop(results.outcomes.insert(shim.clone(), outcome)),
        }
    }
    if ready.is_empty() {
        return Ok(());
    }
    match bring_about(session, &ready, results) {
        Ok(disrupted) => finish(session, &ready, disrupted, results),
        Err(failure) => {
            give_up(session, &ready, &failure, results);
            Ok(())
        }
    }
}

/// Everything up to the verdicts; an error is one of the whole task, and the node is as it was before.
fn bring_about(session: &mut Session<'_>, ready: &[Ready], results: &mut Results) -> Result<u32, Failure> {
    let target = session.target(&removed(ready), &wanted(ready))?;
    let plan = session.plan(target)?;
    session.check_time(Step::Configure)?;
    let due = session.restart_due(&plan, &handlers(ready));
    if due {
        discover::check_restart(session.context, session.daemon.layout)?;
    }
    let before = snapshot(session);
    match session.change(&plan, if due { Restart::Due } else { Restart::NotDue }) {
        Ok(progress) => results.restarted |= progress == Progress::Restarted,
        Err(stopped) => return Err(failed(session, stopped, results)),
    }
    let disrupted = if due { disrupted(session, &before) } else { 0 };
    let probes = probe(session, ready);
    if !probes.broken.is_empty() {
        results.log = session.daemon_log();
        take_out(session, ready, &plan, &probes, results)?;
    }
    session.accept();
    Ok(disrupted)
}

fn failed(session: &mut Session<'_>, stopped: Stopped, results: &mut Results) -> Failure {
    results.restarted |= stopped.progress == Progress::Restarted;
    // Before the roll back: afterwards the last lines are of the good start.
    results.log = session.daemon_log();
    session.roll_back(stopped)
}

/// What the throw-away sandboxes have shown.
struct Probes {
    broken: BTreeMap<ShimName, Failure>,
    daemon: Fate,
}

/// Runs a throw-away sandbox for each installed handler; also on an upgrade, which restarts nothing.
fn probe(session: &mut Session<'_>, ready: &[Ready]) -> Probes {
    let mut probes = Probes { broken: BTreeMap::new(), daemon: Fate::Lives };
    // One limit for all: a shim that hangs must not make the whole run outlive its Job.
    let deadline = session.context.patient(session.context.limits.verify);
    let pid = session.pid();
    for operation in ready {
        let Kind::Install { handler, build, .. } = &operation.kind else { continue };
        let result = match probes.daemon {
            Fate::Lives => {
                verify::probe(session.cri.as_ref(), handler.as_str(), session.base.systemd_cgroup(), &deadline)
            }
            Fate::Silent | Fate::Ended => Err(untried()),
        };
        let Err(failure) = result else { continue };
        tracing::error!(%failure, shim = %operation.shim, "the throw-away sandbox failed");
        probes.broken.insert(operation.shim.clone(), failure);
        if probes.daemon == Fate::Lives {
            probes.daemon = verify::fate(session.context, &session.daemon, session.cri.as_ref(), pid);
            if probes.daemon == Fate::Ended {
                session.condemn(&operation.shim, build);
            }
        }
    }
    probes
}

fn untried() -> Failure {
    let message = "another shim of this task made containerd end or hang; not tried yet";
    Failure::new(Step::Verify, Reason::SandboxFailed, message)
}

/// Takes the operations in `broken` out again, see the module.
fn take_out(
    session: &mut Session<'_>,
    ready: &[Ready],
    full: &Plan,
    probes: &Probes,
    results: &mut Results,
) -> Result<(), Failure> {
    let broken = &probes.broken;
    for (operation, failure) in ready.iter().filter_map(|operation| Some((operation, broken.get(&operation.shim)?))) {
        let failure = undo(session, operation, failure);
        results.outcomes.insert(operation.shim.clone(), Outcome::Failed(failure));
    }
    let good: Vec<_> = ready.iter().filter(|operation| !broken.contains_key(&operation.shim)).cloned().collect();
    reduce(session, &good, full, probes.daemon, results).map_err(|failure| {
        let restarted = results.restarted || probes.daemon == Fate::Ended;
        let progress = if restarted { Progress::Restarted } else { Progress::Written };
        failed(session, Stopped { failure, progress }, results)
    })
}

/// From the full edit to that of the good operations alone.
fn reduce(
    session: &mut Session<'_>,
    good: &[Ready],
    full: &Plan,
    daemon: Fate,
    results: &mut Results,
) -> Result<(), Failure> {
    session.deadline = session.context.patient(session.context.limits.prepare);
    // A plan is made for the files as they were at the start.
    session.put_back()?;
    let plan = session.plan(session.target(&removed(good), &wanted(good))?)?;
    session.write(&plan)?;
    // A table that stays, and is loaded in another form.
    let as_loaded = plan.runtimes.iter().all(|(handler, runtime)| full.runtimes.get(handler) == Some(runtime));
    if as_loaded && daemon == Fate::Lives {
        return Ok(());
    }
    discover::check_restart(session.context, session.daemon.layout)?;
    results.restarted = true;
    session.restart_for(&plan)
}

fn finish(session: &mut Session<'_>, ready: &[Ready], disrupted: u32, results: &mut Results) -> Result<(), Failure> {
    let good: Vec<_> = ready.iter().filter(|operation| !results.outcomes.contains_key(&operation.shim)).collect();
    for operation in &good {
        record(session, operation);
    }
    // What the node does not remember, its next run undoes: that is not done.
    session.save()?;
    results.outcomes.extend(good.iter().map(|operation| (operation.shim.clone(), Outcome::Done { disrupted })));
    Ok(())
}

fn record(session: &mut Session<'_>, operation: &Ready) {
    session.state.condemned.remove(&operation.shim);
    let shims = &mut session.state.shims;
    let old = shims.remove(&operation.shim);
    if let Kind::Install { build, handler, runtime } = &operation.kind {
        let previous = old.and_then(|old| if old.applied.as_ref() == Some(build) { old.previous } else { old.applied });
        let new = Shim {
            handler: handler.clone(),
            options: runtime.options.clone(),
            desired: build.clone(),
            applied: Some(build.clone()),
            previous,
        };
        shims.insert(operation.shim.clone(), new);
    }
}

fn give_up(session: &mut Session<'_>, ready: &[Ready], failure: &Failure, results: &mut Results) {
    for operation in ready {
        let failure = undo(session, operation, failure);
        results.outcomes.entry(operation.shim.clone()).or_insert(Outcome::Failed(failure));
    }
}

fn undo(session: &mut Session<'_>, operation: &Ready, failure: &Failure) -> Failure {
    match &operation.kind {
        Kind::Install { build, .. } => session.withdraw(&operation.shim, build, failure.clone()),
        Kind::Remove { .. } => failure.clone(),
    }
}

/// Not knowing who was disturbed is no reason to fail.
fn snapshot(session: &Session<'_>) -> Snapshot {
    verify::snapshot(session.context, session.cri.as_ref()).unwrap_or_default()
}

fn disrupted(session: &Session<'_>, before: &Snapshot) -> u32 {
    verify::disrupted(session.cri.as_ref(), before).unwrap_or_default()
}

fn handlers(ready: &[Ready]) -> BTreeSet<Handler> {
    ready.iter().flat_map(Ready::handlers).collect()
}

fn removed(ready: &[Ready]) -> BTreeSet<ShimName> {
    let removals = ready.iter().filter(|operation| matches!(operation.kind, Kind::Remove { .. }));
    removals.map(|operation| operation.shim.clone()).collect()
}

fn wanted(ready: &[Ready]) -> Runtimes {
    let mut wanted = Runtimes::new();
    for operation in ready {
        if let Kind::Install { handler, runtime, .. } = &operation.kind {
            wanted.insert(handler.clone(), runtime.clone());
        }
    }
    wanted
}
