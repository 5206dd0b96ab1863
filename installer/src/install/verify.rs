//! What CRI says: before a restart, until it is well again, and with a throw-away sandbox.
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use shim_core::report::{Failure, Reason, Step};

use super::{context::Context, discover::Daemon};
use crate::{
    cri::{Cri, CriError, Life, Origin, Readiness, Status},
    deadline::Ended,
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

/// Waits until containerd is as expected, and stays so for a while.
pub fn wait(context: &Context<'_>, daemon: &Daemon, cri: &dyn Cri, expected: &Expected) -> Result<(), Failure> {
    let deadline = context.patient(context.limits.verify);
    let mut last = Failure::new(Step::Verify, Reason::RuntimeNotReady, "CRI was not asked");
    // The daemon must be one and the same process all the time: one that dies and is started again answers in between.
    let mut good: Option<(u32, Instant)> = None;
    let stable = deadline.poll(|| match look(context, daemon, cri, expected) {
        Ok(pid) => {
            let since = good.filter(|(before, _)| *before == pid).map_or_else(Instant::now, |(_, since)| since);
            good = Some((pid, since));
            (since.elapsed() >= context.limits.stable).then_some(())
        }
        Err(failure) => {
            (good, last) = (None, failure);
            None
        }
    });
    stable.map_err(|why| if why == Ended::Interrupted { interrupted(&last) } else { last })
}

fn interrupted(last: &Failure) -> Failure {
    Failure::new(Step::Verify, Reason::Interrupted, format!("told to end while waiting for containerd: {}", last.message))
}

/// One look; the daemon's process id if all is well.
fn look(context: &Context<'_>, daemon: &Daemon, cri: &dyn Cri, expected: &Expected) -> Result<u32, Failure> {
    let not_ready = |message: String| Failure::new(Step::Verify, Reason::RuntimeNotReady, message);
    cri.version().map_err(|error| not_ready(error.to_string()))?;
    let status = cri.status().map_err(|error| not_ready(error.to_string()))?;
    if let Readiness::NotReady(why) = &status.readiness {
        return Err(not_ready(format!("RuntimeReady is false: {why}")));
    }
    handlers(&status, expected)?;
    let pid = context.machine.main_pid(daemon.layout.unit()).map_err(|error| not_ready(error.to_string()))?;
    pid.ok_or_else(|| not_ready("containerd does not run".to_owned()))
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

/// Starts a throw-away sandbox with each handler, the surest proof that it works short of a pod.
pub fn probe(cri: &dyn Cri, handler: &str, systemd_cgroup: bool) -> Result<(), Failure> {
    let failure = |error: CriError| Failure::new(Step::Verify, Reason::SandboxFailed, error);
    let parent = probe_parent(cri, systemd_cgroup).map_err(failure)?;
    let sandbox = cri.run_probe(handler, &parent).map_err(failure)?;
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
            ("/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod3c1a.slice", "/kubepods.slice/kubepods-besteffort.slice"),
            ("/elsewhere", "/elsewhere"),
        ] {
            assert_eq!(above_pod(pod), parent);
        }
    }
}
