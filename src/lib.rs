//! The functional core of kubectl-shim: what a Shim is on a cluster, and what has to happen next.
//!
//! Nothing here does IO, has a clock or spawns a task. The controller, the plugin and the installer are thin shells
//! around it, so that they can never disagree about a name, a rule or the wire between them.
//!
//! | module | answers |
//! |---|---|
//! | [`names`] | what things are called: newtypes, labels, annotations |
//! | [`task`], [`report`] | what the controller tells the installer, and what comes back |
//! | [`containerd`] | text to text edits of containerd's configuration |
//! | [`limits`] | every deadline, size and interval, in one table |
#![cfg_attr(
    feature = "cluster",
    doc = "| [`api`] | the `Shim` resource: schema, rules, status |\n\
           | [`world`] | what the planner sees of the cluster |\n\
           | [`mark`] | what a Node remembers of a Shim |\n\
           | [`board`] | the World, indexed; the one comparison of desired with observed |\n\
           | [`plan`] | what has to be done next |\n\
           | [`revision`] | numbered changes of a Shim, and what became of them |\n\
           | [`status`] | what people are told |\n\
           | [`job`], [`runtime_class`], [`manifests`] | the objects that we create |"
)]

pub mod containerd;
pub mod limits;
pub mod names;
pub mod report;
pub mod task;

#[cfg(feature = "cluster")]
pub mod api;
#[cfg(feature = "cluster")]
pub mod board;
#[cfg(feature = "cluster")]
pub mod events;
#[cfg(feature = "cluster")]
pub mod job;
#[cfg(feature = "cluster")]
pub mod manifests;
#[cfg(feature = "cluster")]
pub mod mark;
#[cfg(feature = "cluster")]
pub mod plan;
#[cfg(feature = "cluster")]
pub mod revision;
#[cfg(feature = "cluster")]
pub mod runtime_class;
#[cfg(feature = "cluster")]
pub mod status;
#[cfg(feature = "cluster")]
pub mod world;
