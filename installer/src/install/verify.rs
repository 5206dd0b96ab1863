//! What CRI says: before a restart, until it is well again, and with a throw-away sandbox.
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use shim_core::report::{Failure, Reason, Step};

use super::{
    context::{Context, OrFail as _, ended},
    discover::Daemon,
};
use crate::{
    cri::{Cri, CriError, Life, Origin, Readiness, Status},
    deadline::{Deadline, Ended},
};

/// What must be true of the handlers after a restart.
#[derive(Debug, Clone, Default)]
pub struct Expected {
    /// Ours.
    pub served: BTreeSet<String>,
    /// Everybody else's that were served before and are configured still.
    pub kept: BTreeSet<String>,
    /// Those that were taken away.
    pub gone: BTreeSet<String>,
}

/// What one look at the daemon has shown.
enum Look {
    Well,
    /// It may still come.
    NotYet(Failure),
    /// It will not come by waiting.
    Never(Failure),
}

/// Waits until containerd is as expected, and stays so for a while.
pub fn wait(context: &Context<'_>, daemon: &Daemon, cri: &dyn Cri, expected: &Expected) -> Result<(), Failure> {
    let deadline = context.patient(context.limits.verify);
    let mut last = not_ready("CRI was not asked");
    // One and the same process all the time: one that ends and is started again answers in between.
    let mut first = None;
    let mut well_since = None;
    let verdict = deadline.poll(|| match look(context, daemon, cri, expected, &mut first) {
        Look::Well => {
            let since = *well_since.get_or_insert_with(Instant::now);
            (since.elapsed() >= context.limits.stable).then_some(Ok(()))
        }
        Look::NotYet(failure) => {
            (well_since, last) = (None, failure);
            None
        }
        Look::Never(failure) => Some(Err(failure)),
    });
    verdict.unwrap_or_else(|why| Err(if why == Ended::Interrupted { interrupted(&last) } else { last }))
}

fn interrupted(last: &Failure) -> Failure {
    let message = format!("told to end while waiting for containerd: {}", last.message);
    Failure::new(Step::Verify, Reason::Interrupted, message)
}

fn not_ready(message: impl std::fmt::Display) -> Failure {
    Failure::new(Step::Verify, Reason::RuntimeNotReady, message)
}

fn pid(context: &Context<'_>, daemon: &Daemon) -> Result<Option<u32>, Failure> {
    context.machine.main_pid(daemon.layout.unit()).map_err(not_ready)
}

fn look(context: &Context<'_>, daemon: &Daemon, cri: &dyn Cri, expected: &Expected, first: &mut Option<u32>) -> Look {
    match pid(context, daemon) {
        Ok(Some(pid)) if *first.get_or_insert(pid) == pid => {}
        Ok(_) => return Look::Never(not_ready("containerd ended after its start")),
        Err(failure) => return Look::NotYet(failure),
    }
    let status = match cri.version().and_then(|_| cri.status()) {
        Ok(status) => status,
        Err(error) => return Look::NotYet(not_ready(error)),
    };
    if let Readiness::NotReady(why) = &status.readiness {
        return Look::NotYet(not_ready(format!("RuntimeReady is false: {why}")));
    }
    // A daemon has its handlers from its start on.
    handlers(&status, expected).map_or_else(Look::Never, |()| Look::Well)
}

fn handlers(status: &Status, expected: &Expected) -> Result<(), Failure> {
    let missing = |wanted: &BTreeSet<String>| wanted.difference(&status.handlers).next().cloned();
    let failure = |reason, message: String| Err(Failure::new(Step::Verify, reason, message));
    if let Some(handler) = missing(&expected.kept) {
        return failure(Reason::HandlerLost, format!("the handler {handler} is not served any more"));
    }
    if let Some(handler) = missing(&expected.served) {
        return failure(Reason::HandlerMissing, format!("containerd does not serve the handler {handler}"));
    }
    match expected.gone.intersection(&status.handlers).next() {
        Some(handler) => failure(Reason::Internal, format!("containerd still serves the handler {handler}")),
        None => Ok(()),
    }
}

/// What became of containerd under a throw-away sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It answers.
    Lives,
    /// It runs, as far as systemd tells, and has not answered for as long as after a restart.
    Silent,
    /// It may have been started again by systemd, with the handler that it ended of.
    Ended,
}

/// What became of the daemon whose process was `before`. Only systemd knows of an end: an answer that does not come is
/// none.
pub fn fate(context: &Context<'_>, daemon: &Daemon, cri: &dyn Cri, before: Option<u32>) -> Fate {
    let deadline = context.patient(context.limits.verify);
    let fate = deadline.poll(|| {
        // Asked before systemd is: if a new process answers, systemd knows of it by then.
        let answers = cri.version().is_ok();
        match (before, pid(context, daemon)) {
            (_, Ok(None)) => Some(Fate::Ended),
            (Some(before), Ok(Some(now))) if before != now => Some(Fate::Ended),
            _ => answers.then_some(Fate::Lives),
        }
    });
    fate.unwrap_or(Fate::Silent)
}

/// Which pods run, to tell afterwards which do not any more.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    sandboxes: BTreeSet<String>,
    /// Container and its sandbox.
    containers: BTreeMap<String, String>,
}

/// The pods of others that run now.
pub fn snapshot(context: &Context<'_>, cri: &dyn Cri) -> Result<Snapshot, CriError> {
    let own = context.own_pod.as_deref();
    let mine = |uid: &str| own == Some(uid);
    let up = cri.sandboxes()?.into_iter().filter(|sandbox| sandbox.life == Life::Up && sandbox.origin == Origin::Pod);
    let sandboxes: BTreeSet<_> = up.filter(|sandbox| !mine(&sandbox.pod_uid)).map(|sandbox| sandbox.id).collect();
    let running = cri.containers()?.into_iter().filter(|container| container.life == Life::Up);
    let containers = running.filter(|container| sandboxes.contains(&container.sandbox));
    Ok(Snapshot { containers: containers.map(|container| (container.id, container.sandbox)).collect(), sandboxes })
}

/// How many pods of `before` have lost a container or their sandbox. One that has ended with success, or that is not
/// known any more because its Pod was deleted, has ended by itself.
pub fn disrupted(cri: &dyn Cri, before: &Snapshot) -> Result<u32, CriError> {
    let down = |sandbox: &crate::cri::Sandbox| sandbox.life == Life::Down && before.sandboxes.contains(&sandbox.id);
    let mut pods: BTreeSet<_> = cri.sandboxes()?.into_iter().filter(down).map(|sandbox| sandbox.id).collect();
    for container in cri.containers()?.into_iter().filter(|container| container.life == Life::Down) {
        let Some(sandbox) = before.containers.get(&container.id) else { continue };
        if cri.exit_code(&container.id).is_ok_and(|code| code != 0) {
            pods.insert(sandbox.clone());
        }
    }
    Ok(u32::try_from(pods.len()).unwrap_or(u32::MAX))
}

/// Starts a throw-away sandbox with a handler, the surest proof that it works short of a pod.
pub fn probe(cri: &dyn Cri, handler: &str, systemd_cgroup: bool, deadline: &Deadline) -> Result<(), Failure> {
    deadline.check().map_err(ended(Step::Verify))?;
    let parent = probe_parent(cri, systemd_cgroup).or_fail(Step::Verify, Reason::SandboxFailed)?;
    let sandbox = cri.run_probe(handler, &parent, deadline.left()).or_fail(Step::Verify, Reason::SandboxFailed)?;
    if let Err(error) = cri.remove_sandbox(&sandbox) {
        tracing::warn!(%error, sandbox, "a throw-away sandbox could not be removed; the kubelet will");
    }
    Ok(())
}

/// The cgroup in which the kubelet's pods are: an empty one fails under the systemd driver.
fn probe_parent(cri: &dyn Cri, systemd_cgroup: bool) -> Result<String, CriError> {
    for sandbox in cri.sandboxes()?.iter().filter(|sandbox| sandbox.life == Life::Up && sandbox.origin == Origin::Pod) {
        // A pod may have gone since the list was made.
        if let Ok(Some(parent)) = cri.cgroup_parent(&sandbox.id) {
            return Ok(above_pod(&parent));
        }
    }
    Ok(if systemd_cgroup { "kubepods-besteffort.slice" } else { "/kubepods/besteffort" }.to_owned())
}

/// The parent of a pod's own cgroup: `/kubepods/besteffort/pod…`, or `…/kubepods-besteffort-pod….slice`, whose name
/// tells its parent.
fn above_pod(pod: &str) -> String {
    let (above, name) = pod.rsplit_once('/').map_or(("", pod), |(above, name)| (above, name));
    match name.strip_suffix(".slice").and_then(|name| name.rsplit_once("-pod")) {
        Some((_, _)) if !above.is_empty() => above.to_owned(),
        Some((parent, _)) => format!("{parent}.slice"),
        None if name.starts_with("pod") && !above.is_empty() => above.to_owned(),
        None => pod.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_runs_beside_the_pods_not_in_one() {
        for (pod, parent) in [
            ("/kubepods/besteffort/pod3c1a", "/kubepods/besteffort"),
            ("/kubepods/pod3c1a", "/kubepods"),
            ("kubepods-besteffort-pod3c1a.slice", "kubepods-besteffort.slice"),
            ("kubepods-pod3c1a.slice", "kubepods.slice"),
            (
                "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod3c1a.slice",
                "/kubepods.slice/kubepods-besteffort.slice",
            ),
            ("/elsewhere", "/elsewhere"),
        ] {
            assert_eq!(above_pod(pod), parent);
        }
    }
}
