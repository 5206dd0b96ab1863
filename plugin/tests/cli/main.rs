//! The built program, as users call it: what it prints where, and how it ends. Clusters are a stub on 127.0.0.1.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod help;
mod history;
mod install;
mod offline;
mod rig;
mod rollout;
mod scene;
mod setup;
mod status;
mod stub;
mod uninstall;
mod upgrade;
mod wait;
