//! On the node: `fetch` downloads and unpacks without privileges, `install` changes the node.
//!
//! | module | does |
//! |---|---|
//! | [`fetch`] | the first container: artifacts to binaries |
//! | [`install`] | the second container: the whole flow on the node |
//! | [`host`], [`machine`] | the node's files, and everything else of it; what tests replace |
//! | [`systemd`], [`cri`], [`process`] | how the node is spoken to |
//! | [`state`], [`lock`] | what a run leaves for the next, and keeps from others |
//! | [`deadline`] | waiting that always ends |
pub mod cri;
pub mod deadline;
pub mod fetch;
pub mod host;
pub mod install;
pub mod lock;
pub mod machine;
pub mod process;
pub mod state;
pub mod systemd;
