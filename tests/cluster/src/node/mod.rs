//! A node: a systemd machine with containerd and a kubelet.

mod config;
mod disk;
pub(crate) mod machine;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::command::Cmd;
use crate::paths::Paths;
use crate::pins::Containerd;
use crate::plan::NodePlan;
use crate::process::Life;
use crate::wait::until;

/// How long a machine may take until commands can be run in it.
const BOOT_LIMIT: Duration = Duration::from_secs(60);

/// The id of the message that systemd writes when a unit has started (systemd/sd-messages.h).
const UNIT_STARTED: &str = "39f53479d3a045ac8e11786248231fbf";

/// One node of the cluster.
#[derive(Clone, Debug)]
pub struct Node {
    paths: Paths,
    plan: NodePlan,
}

impl Node {
    pub(crate) fn new(paths: &Paths, plan: &NodePlan) -> Self {
        Self { paths: paths.clone(), plan: plan.clone() }
    }

    /// The name of the Kubernetes node.
    pub fn name(&self) -> &str {
        &self.plan.name
    }

    /// The line of containerd that it runs.
    pub fn containerd(&self) -> Containerd {
        self.plan.containerd
    }

    /// Its address in the cluster's network.
    pub fn address(&self) -> Ipv4Addr {
        self.plan.address()
    }

    /// The root of its file system as this machine sees it: its disk, without what is mounted inside (`/run`, `/tmp`).
    pub fn root(&self) -> PathBuf {
        disk::root(&self.paths, &self.plan)
    }

    /// The console's output of its machine.
    pub fn log(&self) -> PathBuf {
        self.paths.log(self.name())
    }

    /// Runs a command in the node as root, in the machine's namespaces, and waits for its end. An error only if the node does not run.
    pub fn exec(&self, command: &[&str]) -> Result<Output> {
        self.command(command)?.output()
    }

    /// Runs a command in the node; its standard output, an error if it failed.
    pub fn run(&self, command: &[&str]) -> Result<String> {
        self.command(command)?.run().with_context(|| format!("on {}", self.name()))
    }

    /// Runs a command in the node with `input` as its standard input; its standard output, an error if it failed.
    pub fn run_with(&self, command: &[&str], input: impl Into<Vec<u8>>) -> Result<String> {
        self.command(command)?.stdin(input).run().with_context(|| format!("on {}", self.name()))
    }

    fn command(&self, command: &[&str]) -> Result<Cmd> {
        let init = machine::init(&self.plan.machine())?.to_string();
        let enter = Cmd::new("nsenter").args(["-t", &init, "-m", "-u", "-i", "-n", "-p", "--"]);
        // The node's commands see none of this machine's environment.
        let clean = enter.args([
            "env",
            "-i",
            "-C",
            "/",
            "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG=C.UTF-8",
            "SYSTEMD_COLORS=0",
        ]);
        Ok(clean.args(command))
    }

    /// The text of a file as the running node sees it, also below `/run`.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<String> {
        self.run(&["cat", &path.as_ref().display().to_string()])
    }

    /// containerd's process id inside the node.
    pub fn containerd_pid(&self) -> Result<u32> {
        let pid = self.run(&["systemctl", "show", "--property=MainPID", "--value", "containerd"])?;
        match pid.trim().parse() {
            Ok(0) | Err(_) => bail!("containerd does not run on {}", self.name()),
            Ok(pid) => Ok(pid),
        }
    }

    /// How often containerd was started since the node booted, counted from the journal: 1 after boot, one more with every
    /// restart, whoever asked for it.
    pub fn containerd_starts(&self) -> Result<usize> {
        // What was logged a moment ago may not be written yet.
        self.run(&["journalctl", "--sync"])?;
        let id = format!("MESSAGE_ID={UNIT_STARTED}");
        let found = self.exec(&["journalctl", "--boot", "--quiet", "--output=cat", &id, "UNIT=containerd.service"])?;
        Ok(String::from_utf8_lossy(&found.stdout).lines().count())
    }

    /// Everything that a unit logged since the node booted.
    pub fn journal(&self, unit: &str) -> Result<String> {
        self.run(&["journalctl", "--boot", "--quiet", "--no-pager", "--unit", unit])
    }

    /// Cuts the node's power. Its disk stays.
    pub fn stop(&self) -> Result<()> {
        machine::kill(&self.plan.machine())
    }

    /// Boots the node from its disk, if it does not run, and waits until commands can be run in it; the kubelet reports it some time later.
    pub fn start(&self) -> Result<()> {
        if machine::life(&self.plan.machine()) == Life::Running {
            return Ok(());
        }
        // What a machine leaves that ended by itself, or was killed from outside.
        machine::kill(&self.plan.machine())?;
        machine::start(&self.paths, &self.plan)?;
        self.wait_for_boot()
    }

    /// Destroys the machine with its disk, and boots a fresh one under the same name. The Node object stays as it is.
    pub fn wipe(&self) -> Result<()> {
        self.wipe_with(|_| Ok(()))
    }

    /// Like [`Node::wipe`], with `change` applied to the fresh root before it boots.
    pub fn wipe_with(&self, change: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        self.stop()?;
        disk::remove(&self.paths, &self.plan)?;
        self.make_disk()?;
        change(&self.root())?;
        self.start()
    }

    pub(crate) fn make_disk(&self) -> Result<()> {
        disk::make(&self.paths, &self.plan)
    }

    /// Boots a machine of which nothing is there but its disk; it is up some time later.
    pub(crate) fn launch(&self) -> Result<()> {
        machine::start(&self.paths, &self.plan)
    }

    fn wait_for_boot(&self) -> Result<()> {
        until(&format!("{} to boot", self.name()), BOOT_LIMIT, || {
            // The socket is systemd's own: systemctl works as soon as it is there.
            Ok(self.run(&["systemctl", "show", "--property=Version"]).ok())
        })
        .map(drop)
        .with_context(|| format!("its console: {}", self.log().display()))
    }

    /// Whether the machine runs.
    pub(crate) fn life(&self) -> Life {
        machine::life(&self.plan.machine())
    }
}
