//! The product on a real cluster: four nodes, one of each containerd. Every test starts without a Shim and ends so,
//! with every node as it was.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that can't go on fails")]
mod api;
mod brakes;
mod commands;
mod conflicts;
mod drift;
mod failures;
mod installers;
mod leadership;
mod lifecycle;
mod nodes;
mod requests;
mod restarts;
mod robustness;
mod support;
