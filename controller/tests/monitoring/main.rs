//! The controller's metrics, alerts, dashboard and spans, checked on the real program. Its cluster is a stub on 127.0.0.1
//! whose Jobs end at once. `cargo xtask test monitoring` brings promtool.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that can't go on fails")]

mod alerts;
mod cluster;
mod collector;
mod controller;
mod dashboard;
mod metrics;
mod promtool;
mod spans;
mod store;
