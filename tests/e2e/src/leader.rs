//! The controller that holds the Lease, and what may happen to it.
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde_json::Value;
use shim_cluster::Node;

use crate::Lab;

/// A holder that lives renews its Lease more often.
const FRESH: Duration = Duration::from_secs(5);
/// What a controller's pod sends to others and gets from them; its own kubelet's probes go another way.
const FORWARDED: [&str; 2] = ["-s", "-d"];

/// The process that holds the Lease.
#[derive(Debug, Clone)]
pub struct Leader {
    /// Name of its pod.
    pub pod: String,
    /// Its node.
    pub node: Node,
    /// Its process id on the node.
    pub pid: String,
    address: String,
}

/// A pod that reaches nothing beyond its node, until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct CutOff(Leader);

impl Leader {
    /// Ends the process at once, as a crash would.
    pub fn kill(&self) -> Result<()> {
        self.signal("-KILL")
    }

    /// Stops the process, as a host that is suspended would.
    pub fn stop(&self) -> Result<()> {
        self.signal("-STOP")
    }

    /// Lets the process go on.
    pub fn go_on(&self) -> Result<()> {
        self.signal("-CONT")
    }

    fn signal(&self, signal: &str) -> Result<()> {
        self.node.run(&["kill", signal, &self.pid]).map(drop)
    }

    /// Drops every packet between the pod and the rest of the network.
    pub fn cut_off(&self) -> Result<CutOff> {
        let cut = CutOff(self.clone());
        cut.filter("-I")?;
        Ok(cut)
    }
}

impl CutOff {
    fn filter(&self, change: &str) -> Result<()> {
        FORWARDED.iter().try_for_each(|end| {
            let rule = ["iptables", "-w", change, "FORWARD", end, &self.0.address, "-j", "DROP"];
            self.0.node.run(&rule).map(drop)
        })
    }
}

impl Drop for CutOff {
    fn drop(&mut self) {
        if let Err(error) = self.filter("-D") {
            eprintln!("{} stays cut off: {error:#}", self.0.pod);
        }
    }
}

impl Lab {
    /// The controller that leads now.
    pub fn leader(&self) -> Result<Leader> {
        let holder = self.wait("a leader", Duration::from_secs(60), || self.holder())?;
        let pod: Value = serde_json::from_str(&self.cluster.kubectl(&[
            "-n",
            "shim-system",
            "get",
            "pod",
            &holder,
            "-o",
            "json",
        ])?)?;
        let text = |value: &Value| value.as_str().map(str::to_owned).context("the leader's pod does not run");
        let node = self.cluster.node(&text(&pod["spec"]["nodeName"])?)?;
        let pid = process_of(&node, &holder)?;
        Ok(Leader { pod: holder, node, pid, address: text(&pod["status"]["podIP"])? })
    }

    /// The pod that has renewed the Lease a moment ago.
    fn holder(&self) -> Result<Option<String>> {
        let lease = self.list(&["lease", "-n", "shim-system"])?.into_iter().next().unwrap_or_default();
        let renewed = lease["spec"]["renewTime"].as_str().and_then(|time| time.parse::<Timestamp>().ok());
        let age = renewed.and_then(|time| Duration::try_from(Timestamp::now().duration_since(time)).ok());
        // The process adds to the pod's name what tells it from its predecessors.
        let pod = lease["spec"]["holderIdentity"].as_str().and_then(|identity| identity.split('_').next());
        Ok(pod.filter(|pod| !pod.is_empty() && age.is_some_and(|age| age < FRESH)).map(str::to_owned))
    }
}

/// The controller's process of a pod: all replicas may be on one node.
fn process_of(node: &Node, pod: &str) -> Result<String> {
    let script = r#"for pid in $(pgrep -x shim-controller); do
        if tr '\0' '\n' < /proc/$pid/environ | grep -qx "POD_NAME=$0"; then echo $pid; fi; done"#;
    let pids = node.run(&["sh", "-c", script, pod])?;
    ensure!(pids.lines().count() == 1, "{pod} has not one process, but {pids:?}");
    Ok(pids.trim().to_owned())
}
