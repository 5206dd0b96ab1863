//! The whole flow on a directory, with a containerd that is played.
pub(crate) mod faults;
mod flow;
mod kill;
mod node;
mod recipe;
mod trouble;
