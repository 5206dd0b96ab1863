//! A node's machine: systemd-nspawn with systemd as its init.

use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Signal;

use super::disk;
use crate::cgroup::{self, CgroupMode};
use crate::command::Cmd;
use crate::network;
use crate::paths::Paths;
use crate::plan::NodePlan;
use crate::process::{Identity, Life, Processes, children};
use crate::record::Record;
use crate::wait::until;

/// Enters the cgroups whose files are in `ENTER`, then becomes the machine: a process enters by itself, before it has children.
/// Systemd's unified hierarchy beside version 1 may refuse it, and is not needed then.
const LAUNCH: &str = r#"for procs in $ENTER; do echo $$ > "$procs" || echo "not entered: $procs" >&2; done; exec "$@""#;

/// Boots the machine; it is up some time later.
pub(super) fn start(paths: &Paths, node: &NodePlan) -> Result<()> {
    let (machine, mode) = (node.machine(), mode()?);
    network::add_node(node)?;
    let enter = mode.make(&machine)?.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" ");
    let cmd = mode.launcher(&machine).map_or_else(|| Cmd::new("sh"), |launcher| launcher.arg("sh"));
    let cmd = cmd
        .arg("-c")
        .arg(LAUNCH)
        .arg("sh")
        .arg("systemd-nspawn")
        .args(nspawn(node))
        .arg("-D")
        .arg(disk::root(paths, node));
    // Without the first, /sys and /proc/sys are read-only and pods can't have networks; without the second, nspawn's
    // filter refuses system calls that containers need.
    let cmd = cmd.env("SYSTEMD_NSPAWN_API_VFS_WRITABLE", "1").env("SYSTEMD_SECCOMP", "0").env("ENTER", enter);
    processes().record(&machine, cmd.start(&paths.log(&node.name))?)
}

fn nspawn(node: &NodePlan) -> Vec<String> {
    let machine = node.machine();
    // Neither machined nor a scope unit of its own: this machine's init may not be systemd.
    // /dev/kmsg is what a kubelet reads out-of-memory kills from; it does not start without.
    let flags = format!(
        "--quiet --register=no --keep-unit --machine={machine} --network-namespace-path=/run/netns/{machine}
         --capability=all --bind=/dev/kmsg --console=read-only --boot"
    );
    flags.split_whitespace().map(str::to_owned).collect()
}

/// Cuts the machine's power: whatever runs in it is gone at once, and its cgroups and network with it.
pub(crate) fn kill(machine: &str) -> Result<()> {
    until(&format!("the end of machine {machine}"), Duration::from_secs(20), || {
        // The init takes its whole pid namespace with it. SIGTERM to nspawn would start an orderly stop of up to 90 s,
        // and SIGKILL to nspawn would leave the machine running without it.
        let rest = remaining(machine);
        for process in rest.iter().filter_map(|&pid| Identity::of(pid)) {
            process.signal(Signal::KILL);
        }
        Ok(rest.is_empty().then_some(()))
    })?;
    if let Some(nspawn) = processes().get(machine) {
        nspawn.kill()?;
    }
    cgroup::remove(machine)?;
    network::remove_node(machine)?;
    processes().forget(machine);
    Ok(())
}

/// The processes of a machine, found without its nspawn, which may be gone.
fn remaining(machine: &str) -> Vec<u32> {
    let nspawn = processes().get(machine).filter(|nspawn| nspawn.life() == Life::Running);
    let mut found = nspawn.map(|nspawn| children(nspawn.pid)).unwrap_or_default();
    found.extend(network::processes(machine));
    found.extend(cgroup::processes(machine));
    found.retain(|&pid| Identity::of(pid).is_some_and(|process| process.life() == Life::Running));
    found
}

/// The machine's init, by its process id on this machine.
pub(super) fn init(machine: &str) -> Result<u32> {
    let nspawn = processes().get(machine).filter(|nspawn| nspawn.life() == Life::Running);
    let init = nspawn.and_then(|nspawn| children(nspawn.pid).first().copied());
    init.with_context(|| format!("{machine} does not run"))
}

/// Whether the machine runs.
pub(super) fn life(machine: &str) -> Life {
    if init(machine).is_ok() { Life::Running } else { Life::Ended }
}

fn mode() -> Result<CgroupMode> {
    CgroupMode::detect().context("this machine has neither cgroup v1 with systemd's hierarchy nor cgroup v2")
}

fn processes() -> Processes {
    Record::well_known().processes()
}
