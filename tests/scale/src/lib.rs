//! The controller among thousands of fake nodes: what `cargo xtask bench scale` and the test of scale share.
//!
//! etcd, API server and controller manager are real, and so is the controller, as a plain process in a network namespace of its
//! own. Nodes are objects only; kwok plays their kubelets by the Stages in `stages.yaml`: it renews leases, reports status, and
//! ends the Pods of installer Jobs after a second with the report that an installer writes.
//!
//! | file | what |
//! |---|---|
//! | fleet | the cluster with its nodes, up to where a measurement begins |
//! | node, stages | what a fake node is, and what becomes of it |
//! | controller | the controller's process: started, and what it takes |
//! | shim | the Shims that are rolled out |
//! | rollout, bare, idle | what is measured |
//! | usage | memory, time, bytes and requests between two moments |
//! | requests, metrics | audit log and Prometheus' text, read |
mod bare;
mod controller;
mod fleet;
mod idle;
mod metrics;
mod node;
mod requests;
mod rollout;
mod shim;
mod stages;
mod usage;

pub use bare::{Bare, bare_jobs};
pub use controller::{Controller, Memory, Passes, Traffic};
pub use fleet::{Fleet, Options, with_fleet};
pub use idle::{Heartbeats, Idle, idle};
pub use metrics::Histogram;
pub use requests::Requests;
pub use rollout::{Progress, Rollout, roll_out};
pub use shim::shim;
pub use usage::Usage;
