//! The controller's process: started as the guest of the cluster, under its own account, and what it takes.
use std::{path::Path, time::Duration};

use anyhow::{Context, Result};
use procfs::process::Process;
use shim_cluster::{Cluster, Guest, until};
use shim_core::{
    manifests::{CONTROLLER, HTTP_PORT},
    names::DEFAULT_NAMESPACE,
};

use crate::metrics::Histogram;

/// Until its caches are full and it holds the Lease.
const START_LIMIT: Duration = Duration::from_secs(120);
/// The end of its account's name.
pub(crate) const ACCOUNT: &str = ":shim-controller";

/// The controller.
#[derive(Debug)]
pub struct Controller {
    guest: Guest,
    process: Process,
}

/// How long passes took, by what they did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Passes {
    /// Lists of Jobs and Pods.
    pub observe: Histogram,
    /// What has to be done.
    pub plan: Histogram,
    /// Writes.
    pub act: Histogram,
}

impl Passes {
    /// What came after `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            observe: self.observe.since(&before.observe),
            plan: self.plan.since(&before.plan),
            act: self.act.since(&before.act),
        }
    }
}

/// Memory of a process, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// Resident now.
    pub now: u64,
    /// The most that was ever resident.
    pub peak: u64,
}

/// Bytes on the wire, with all headers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// To the controller.
    pub received: u64,
    /// From the controller.
    pub sent: u64,
}

impl Controller {
    /// Starts it and waits until it leads and has seen the cluster: before its first pass its caches are empty.
    pub(crate) fn start(cluster: &Cluster, program: &Path) -> Result<Self> {
        let guest = cluster.guest()?;
        let token = cluster.kubectl(&["create", "token", CONTROLLER, "-n", DEFAULT_NAMESPACE, "--duration=24h"])?;
        let kubeconfig = guest.kubeconfig(token.trim())?;
        let listen = format!("127.0.0.1:{HTTP_PORT}");
        let args =
            ["--namespace", DEFAULT_NAMESPACE, "--image", "registry.example/kubectl-shim:scale", "--listen", &listen];
        let pid = guest.start(program, &args, &[("KUBECONFIG", &kubeconfig)])?;
        let controller = Self { process: Process::new(pid.try_into()?)?, guest };
        until("the controller's first pass", START_LIMIT, || {
            controller.guest.pid()?;
            let has_seen = |text: String| text.lines().any(|line| line.starts_with("shim_controller_nodes "));
            Ok(controller.metrics().is_ok_and(has_seen).then_some(()))
        })?;
        Ok(controller)
    }

    /// Ends it as a Pod ends: it gives its Lease back.
    pub fn stop(self) -> Result<()> {
        self.guest.stop()
    }

    /// Its memory.
    pub fn memory(&self) -> Result<Memory> {
        let status = self.process.status()?;
        let bytes = |kib: Option<u64>| kib.map(|kib| kib << 10).context("the controller has ended");
        Ok(Memory { now: bytes(status.vmrss)?, peak: bytes(status.vmhwm)? })
    }

    /// The time that processors have worked for it.
    pub fn cpu(&self) -> Result<Duration> {
        let stat = self.process.stat()?;
        Ok(Duration::from_millis((stat.utime + stat.stime) * 1000 / procfs::ticks_per_second()))
    }

    /// What went over its network; nothing else is in it.
    pub fn traffic(&self) -> Result<Traffic> {
        let links = self.process.dev_status()?;
        let link = links.get(Guest::LINK).context("the controller's network has no link")?;
        Ok(Traffic { received: link.recv_bytes, sent: link.sent_bytes })
    }

    /// Times of its passes.
    pub fn passes(&self) -> Result<Passes> {
        let text = self.metrics()?;
        let phase = |phase| Histogram::read(&text, "shim_controller_pass_duration_seconds", ("phase", phase));
        Ok(Passes { observe: phase("observe"), plan: phase("plan"), act: phase("act") })
    }

    fn metrics(&self) -> Result<String> {
        self.guest.get(HTTP_PORT.try_into()?, "/metrics")
    }
}
