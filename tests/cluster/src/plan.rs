//! Names and addresses of a cluster, all in one place so that nothing else spells them.

use std::net::Ipv4Addr;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::pins::Containerd;

/// The network namespace of bridge, control plane, registry and file server.
pub const NETNS: &str = "shim-net";
/// Namespaces, cgroups and processes of the nodes start with it; whatever does is ours to clear.
pub(crate) const NODE_PREFIX: &str = "shim-node-";
pub(crate) const BRIDGE: &str = "shim0";
/// The bridge's address, where API server, registry and file server listen.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The `kubernetes` service's address; the bridge owns it too.
pub(crate) const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
pub(crate) const SERVICE_RANGE: &str = "10.96.0.0/16";
pub(crate) const API_PORT: u16 = 6443;
/// The API server's port on the machine's loopback.
pub const DOOR_PORT: u16 = 16443;
pub(crate) const REGISTRY_PORT: u16 = 5000;
/// Image with busybox and all its applets, in the registry of every cluster; it is the sandbox ("pause") image too.
pub const BUSYBOX_IMAGE: &str = "10.77.0.1:5000/busybox:1";

/// More nodes than this have no addresses.
pub(crate) const MOST_NODES: usize = 200;
/// A guest's network namespace; it starts as those of nodes do, so that it is cleared with them.
pub(crate) const GUEST: &str = "shim-node-guest";
/// The bridge's end of the guest's link.
pub(crate) const GUEST_LINK: &str = "shim-guest";
/// A guest's address, above those of all nodes.
pub(crate) const GUEST_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 250);
/// The lease of a kubelet.
const LEASE_SECONDS: usize = 40;
/// Most renewals of fake nodes' leases.
const RENEWALS_PER_SECOND: usize = 100;

/// What one node is called, where it is and what it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodePlan {
    pub(crate) name: String,
    pub(crate) number: u8,
    pub(crate) containerd: Containerd,
}

impl NodePlan {
    /// The network namespace's name, which is also the cgroup's and the machine's.
    pub(crate) fn machine(&self) -> String {
        format!("{NODE_PREFIX}{}", self.number)
    }

    pub(crate) fn address(&self) -> Ipv4Addr {
        // One octet holds MOST_NODES and the ten addresses below.
        Ipv4Addr::new(10, 77, 0, self.number.saturating_add(10))
    }

    pub(crate) fn pods(&self) -> String {
        format!("10.78.{}.0/24", self.number)
    }

    /// The name of the bridge's end of the node's link.
    pub(crate) fn link(&self) -> String {
        format!("shim-v{}", self.number)
    }
}

/// How fast the controller manager works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Controllers {
    /// As it comes: 20 requests a second, about 5 Jobs a second.
    #[default]
    Default,
    /// As clusters of thousands of nodes have it: 300 requests a second, 30 Jobs a second or more.
    Raised,
}

/// Nodes that are objects only: the caller creates them, and kwok plays their kubelets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FakeNodes {
    /// How many there will be.
    pub count: usize,
    /// kwok's configuration, YAML: the Stages that its nodes and their pods go through.
    pub stages: String,
}

impl FakeNodes {
    /// As a kubelet's lease, and for more than a thousand nodes longer: its renewals, four in its time, would else be more
    /// work than everything that is measured.
    pub(crate) fn lease_seconds(&self) -> usize {
        LEASE_SECONDS.max(4 * self.count / RENEWALS_PER_SECOND)
    }
}

/// All that tells one cluster from another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClusterPlan {
    pub(crate) nodes: Vec<NodePlan>,
    pub(crate) fake: Option<FakeNodes>,
    pub(crate) controllers: Controllers,
}

impl ClusterPlan {
    /// What is done when it is booted, for people.
    pub(crate) fn title(&self) -> String {
        match &self.fake {
            Some(fake) => format!("booting a control plane for {} fake nodes", fake.count),
            None => format!("booting a control plane and {} nodes", self.nodes.len()),
        }
    }
}

/// The nodes of a cluster: `lines` repeated until there are `count`.
pub(crate) fn plan(count: usize, lines: &[Containerd]) -> Result<Vec<NodePlan>> {
    if count > MOST_NODES || (count > 0 && lines.is_empty()) {
        bail!("{count} nodes of {} containerd lines: at most {MOST_NODES} nodes, and at least one line", lines.len());
    }
    let node =
        |(number, line): (u8, &Containerd)| NodePlan { name: format!("node-{number}"), number, containerd: *line };
    Ok((1..=u8::MAX).zip(lines.iter().cycle()).take(count).map(node).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn nodes_cycle_through_the_lines() {
        let nodes = plan(5, &Containerd::ALL).unwrap();
        let lines: Vec<_> = nodes.iter().map(|node| node.containerd.line()).collect();
        assert_eq!(lines, ["1.6", "1.7", "2.2", "2.4", "1.6"]);
        assert_eq!(nodes[4].name, "node-5");
        assert_eq!(nodes[4].machine(), "shim-node-5");
        assert_eq!(nodes[4].address().to_string(), "10.77.0.15");
        assert_eq!(nodes[4].pods(), "10.78.5.0/24");
    }

    #[test]
    fn addresses_and_names_differ_up_to_the_limit() {
        let nodes = plan(MOST_NODES, &[Containerd::V2_4]).unwrap();
        let distinct: HashSet<_> = nodes.iter().map(|node| (node.address(), node.link())).collect();
        assert_eq!(distinct.len(), MOST_NODES);
        // A link's name of 16 bytes or more is refused by the kernel.
        assert!(nodes.iter().all(|node| node.link().len() < 16));
    }

    #[test]
    fn impossible_plans_are_refused() {
        assert!(plan(MOST_NODES + 1, &Containerd::ALL).is_err());
        assert!(plan(1, &[]).is_err());
        assert_eq!(plan(0, &[]).unwrap(), []);
    }

    #[test]
    fn leases_of_many_nodes_are_renewed_no_more_often_than_this_machine_can_bear() {
        let lease = |count| FakeNodes { count, stages: String::new() }.lease_seconds();
        assert_eq!([lease(1), lease(1000), lease(15_000)], [40, 40, 600]);
    }

    #[test]
    fn a_guest_has_an_address_and_a_link_that_no_node_has() {
        let nodes = plan(MOST_NODES, &[Containerd::V2_4]).unwrap();
        assert!(nodes.iter().all(|node| node.address() != GUEST_ADDRESS && node.link() != GUEST_LINK));
        assert!(GUEST.starts_with(NODE_PREFIX) && nodes.iter().all(|node| node.machine() != GUEST));
    }

    #[test]
    fn the_image_is_in_our_registry() {
        assert!(BUSYBOX_IMAGE.starts_with(&format!("{GATEWAY}:{REGISTRY_PORT}/")));
    }
}
