//! Network namespaces, the bridge and the links of nodes. This machine's own network, routes and iptables are not touched.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::thread;

use anyhow::{Context, Result, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::command::Cmd;
use crate::plan::{API_PORT, BRIDGE, GATEWAY, GUEST, GUEST_ADDRESS, GUEST_LINK, NETNS, NODE_PREFIX, NodePlan, SERVICE};

/// A node's or guest's end of its link.
pub(crate) const LINK: &str = "host0";

/// Makes the namespace of the control plane with the bridge.
pub(crate) fn make() -> Result<()> {
    ip(&format!("netns add {NETNS}"))?;
    ip_inside("link set lo up")?;
    ip_inside(&format!("link add {BRIDGE} type bridge"))?;
    ip_inside(&format!("addr add {GATEWAY}/24 dev {BRIDGE}"))?;
    // The bridge owns the `kubernetes` service's address: pods reach the API server without a kube-proxy.
    ip_inside(&format!("addr add {SERVICE}/32 dev {BRIDGE}"))?;
    ip_inside(&format!("link set {BRIDGE} up"))?;
    let redirect = format!("-t nat -A PREROUTING -d {SERVICE} -p tcp --dport 443 -j REDIRECT --to-ports {API_PORT}");
    Cmd::inside(NETNS, "iptables").words(&redirect).run()?;
    Cmd::inside(NETNS, "sysctl").words("-qw net.ipv4.ip_forward=1").run()?;
    Ok(())
}

/// Makes a node's namespace, linked to the bridge, with a route to its pods.
pub(crate) fn add_node(node: &NodePlan) -> Result<()> {
    join(&node.machine(), &node.link())?;
    // A route instead of masquerade: pods and nodes meet under their own addresses, as in a real network.
    ip_inside(&format!("route replace {} via {}", node.pods(), node.address()))
}

/// Makes the guest's namespace, with its address.
pub(crate) fn add_guest() -> Result<()> {
    join(GUEST, GUEST_LINK)?;
    let ip_there = |words: &str| ip(&format!("-netns {GUEST} {words}"));
    ip_there("link set lo up")?;
    ip_there(&format!("addr add {GUEST_ADDRESS}/24 dev {LINK}"))?;
    ip_there(&format!("link set {LINK} up"))
}

/// Makes a namespace that is linked to the bridge.
fn join(netns: &str, link: &str) -> Result<()> {
    ip(&format!("netns add {netns}"))?;
    ip(&format!("link add {link} netns {NETNS} type veth peer name {LINK} netns {netns}"))?;
    ip_inside(&format!("link set {link} master {BRIDGE} up"))
}

/// Removes a node's namespace, if it is there.
pub(crate) fn remove_node(machine: &str) -> Result<()> {
    if !namespaces().iter().any(|name| name == machine) {
        return Ok(());
    }
    // A namespace frees its end of a link only some time after it is gone, and the name is taken until then.
    if links(machine).contains(LINK) {
        ip(&format!("-netns {machine} link delete {LINK}"))?;
    }
    ip(&format!("netns delete {machine}"))
}

/// Runs `work` in a thread of its own inside the control plane's namespace: what it connects to is the cluster, without a
/// door in between. Threads that it starts are inside too.
pub fn inside<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let enter = || -> Result<()> {
        let file = File::open(format!("/run/netns/{NETNS}")).context("no cluster runs on this machine")?;
        Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?)
    };
    thread::scope(|scope| {
        let worker = scope.spawn(|| enter().and_then(|()| work()));
        worker.join().unwrap_or_else(|_| bail!("a thread inside the cluster's network crashed"))
    })
}

/// Removes all namespaces of ours.
pub(crate) fn remove() -> Result<()> {
    let names = namespaces();
    for machine in names.iter().filter(|name| name.starts_with(NODE_PREFIX)) {
        remove_node(machine)?;
    }
    if names.iter().any(|name| name == NETNS) {
        ip(&format!("netns delete {NETNS}"))?;
    }
    Ok(())
}

/// The names of all namespaces of ours that exist.
pub(crate) fn namespaces() -> Vec<String> {
    let Ok(entries) = fs::read_dir("/run/netns") else { return Vec::new() };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name == NETNS || name.starts_with(NODE_PREFIX)).collect()
}

/// The processes inside a namespace of ours.
pub(crate) fn processes(netns: &str) -> Vec<u32> {
    // None in a namespace that is not there.
    let listing = Cmd::new("ip").args(["netns", "pids", netns]).run().unwrap_or_default();
    listing.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn links(netns: &str) -> String {
    // A half-made namespace, of a killed `up`, cannot be entered and has no links.
    Cmd::new("ip").args(["-netns", netns, "-oneline", "link"]).run().unwrap_or_default()
}

fn ip(words: &str) -> Result<()> {
    Cmd::new("ip").words(words).run().map(drop)
}

fn ip_inside(words: &str) -> Result<()> {
    ip(&format!("-netns {NETNS} {words}"))
}
