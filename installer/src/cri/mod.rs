//! What containerd says of itself and of its pods, over CRI.
mod client;
mod messages;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use shim_core::containerd::runtime::Runtime;

pub use self::client::Client;

/// Label of our throw-away sandboxes.
pub const PROBE_LABEL: &str = "shim.dev/probe";

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CriError {
    /// Nobody listens, or the answer did not come in time.
    #[error("CRI does not answer: {0}")]
    Unreachable(String),
    /// The answer is an error.
    #[error("CRI {call}: {message}")]
    Refused {
        /// Name of the call.
        call: &'static str,
        /// containerd's message.
        message: String,
    },
}

/// Whether containerd can run pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// It can.
    Ready,
    /// It cannot, for this reason.
    NotReady(String),
}

/// Answer to Status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Condition RuntimeReady.
    pub readiness: Readiness,
    /// Every handler that is served.
    pub handlers: BTreeSet<String>,
    /// The runtimes that the daemon has loaded; absent where it does not tell.
    pub loaded: Option<BTreeMap<String, Runtime>>,
}

/// Whether a sandbox or container runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// It runs.
    Up,
    /// It has ended, or was never started.
    Down,
}

/// A pod's sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sandbox {
    /// containerd's id.
    pub id: String,
    /// The Pod's uid.
    pub pod_uid: String,
    /// Ready or not.
    pub life: Life,
    /// Empty: the default.
    pub handler: String,
    /// Whether it is a throw-away sandbox of ours.
    pub origin: Origin,
}

/// Who made a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A kubelet, or whoever else.
    Pod,
    /// We.
    Probe,
}

/// A container of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// containerd's id.
    pub id: String,
    /// Its sandbox.
    pub sandbox: String,
    /// Running or not.
    pub life: Life,
}

/// The calls that we need.
pub trait Cri {
    /// Name and version of the runtime; the cheapest proof that CRI is served.
    fn version(&self) -> Result<String, CriError>;
    /// State of the runtime.
    fn status(&self) -> Result<Status, CriError>;
    /// All sandboxes, ended ones too.
    fn sandboxes(&self) -> Result<Vec<Sandbox>, CriError>;
    /// All containers, ended ones too.
    fn containers(&self) -> Result<Vec<Container>, CriError>;
    /// Exit code of a container.
    fn exit_code(&self, container: &str) -> Result<i32, CriError>;
    /// The cgroup that a sandbox was given as its parent.
    fn cgroup_parent(&self, sandbox: &str) -> Result<Option<String>, CriError>;
    /// Starts a throw-away sandbox with the node's network; its id.
    fn run_probe(&self, handler: &str, cgroup_parent: &str, limit: Duration) -> Result<String, CriError>;
    /// Stops and removes a sandbox; one that is gone already is fine.
    fn remove_sandbox(&self, sandbox: &str) -> Result<(), CriError>;
}
