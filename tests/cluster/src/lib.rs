//! A real Kubernetes cluster on this machine, from public packages alone.
//!
//! ```no_run
//! use shim_cluster::{Paths, Reporter, UpOptions, down, install_packages, up};
//!
//! # fn main() -> anyhow::Result<()> {
//! let (paths, report) = (Paths::of_this_workspace(), Reporter::stderr());
//! install_packages(&report)?;
//! let cluster = up(&paths, &UpOptions::default(), &report)?;
//! println!("{}", cluster.kubectl(&["get", "nodes", "-o", "wide"])?);
//! cluster.node("node-1")?.run(&["systemctl", "restart", "containerd"])?;
//! down(&paths, &report)?;
//! # Ok(())
//! # }
//! ```
//!
//! It needs root on Linux with Debian's tools, and neither a container engine nor systemd as init. A cluster is
//!
//! - etcd, API server, controller manager and scheduler as processes of one Go program (`kube/`), with an audit log
//!   that tests read by [`AuditLog`];
//! - nodes, each a systemd machine in systemd-nspawn with containerd, runc, CNI plugins and a kubelet. They cycle through
//!   containerd 1.6, 1.7, 2.2 and 2.4 ([`Containerd`]), so every test meets all of them;
//! - an image registry that the nodes pull from ([`Images`]), and HTTP servers for files ([`FileServer`]).
//!
//! In place of machines, nodes can be objects by the thousand ([`FakeNodes`]): their kubelets are then played by kwok, and there
//! is neither scheduler nor registry. A program under test runs beside such a cluster as its [`Guest`].
//!
//! Everything is in network namespaces of its own: `shim-net` has the bridge with control plane, registry and file servers,
//! each node has one. This machine's own network is not touched. People come in by a door on loopback,
//! `kubectl --kubeconfig target/cluster/run/loopback.kubeconfig`; tests call [`Cluster::kubectl`]. Pods reach the API server
//! as the `kubernetes` service by its address; there are no other services, no cluster DNS, and no way to the internet.
//!
//! # Where to look
//!
//! | folder or file | what |
//! |---|---|
//! | `pins` | every version, and the Debian packages |
//! | `build` | what is made once and kept in `target/cluster/cache`, as layers of the nodes' file systems |
//! | `plan` | names and addresses |
//! | `cluster` | up, open, down: the order of things |
//! | `control_plane`, `pki`, `network` | what is made for a cluster before its nodes |
//! | `node` | a node's files, disk and machine |
//! | `guest` | a program beside the cluster |
//! | `clear`, `record`, `process` | how a cluster is found again and cleared away, also one that was killed from outside |
//! | `cgroup` | where cgroup version 1 and 2 differ. Version 2 is written from documentation and not tried |
//!
//! `target/cluster/run` has everything of the running cluster: `log` with a log for each part and node, the nodes' disks in
//! `node`, certificates in `pki`. There is one cluster on a machine at a time, whichever checkout started it: `up` clears
//! away any other. `up` takes about 10 s and `down` one or two; the first build takes a quarter of an hour and 10 GB.
#![cfg(target_os = "linux")]

pub mod audit;
mod build;
mod cgroup;
mod clear;
mod cluster;
mod command;
mod control_plane;
mod guest;
mod images;
mod kubeconfig;
mod mounts;
mod network;
mod node;
mod packages;
mod paths;
pub mod pins;
mod pki;
pub mod plan;
mod prerequisites;
mod process;
mod record;
mod report;
mod serve;
mod text;
mod wait;

pub use audit::AuditLog;
pub use build::build;
pub use cgroup::CgroupMode;
pub use cluster::{Cluster, Running, UpOptions, down, up};
pub use command::CommandFailed;
pub use control_plane::Part;
pub use guest::Guest;
pub use images::Images;
pub use network::inside;
pub use node::Node;
pub use packages::{install_packages, unpack_package};
pub use paths::Paths;
pub use pins::{Containerd, PACKAGES};
pub use plan::{BUSYBOX_IMAGE, Controllers, FakeNodes};
pub use prerequisites::{Missing, check};
pub use report::Reporter;
pub use serve::FileServer;
pub use wait::until;
