//! What the controller tells the installer: one task per node, with every due operation on it.
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::names::{Build, Handler, MachineId, NodeName, Sha256Hex, ShimName};

/// Version of the task's format. An installer or controller leaves alone what is newer than itself.
pub const FORMAT: u32 = 1;
/// Environment variable of both containers of the installer Pod that holds the [`Task`] as JSON.
pub const TASK_ENV: &str = "SHIM_TASK";
/// Environment variable of the installer that holds its Pod's uid: a containerd that does not run this Pod is not the
/// one that runs the node's pods.
pub const POD_UID_ENV: &str = "SHIM_POD_UID";
/// Directory in both containers that carries the fetched files from `fetch` to `install`.
pub const WORK_DIR: &str = "/work";
/// Where the node's root file system is mounted in the `install` container.
pub const HOST_ROOT: &str = "/host";
/// Our directory on the node.
pub const SHIM_DIR: &str = "/opt/shim";

/// What has to be done on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// [`FORMAT`].
    pub format: u32,
    /// The Node.
    pub node: NodeName,
    /// `metadata.uid` of the Node.
    pub node_uid: String,
    /// The machine that is meant; the installer refuses any other.
    pub machine_id: MachineId,
    /// Higher than that of every other Job that the node has: which of two spoke last.
    pub serial: u32,
    /// One operation for each Shim.
    pub ops: BTreeMap<ShimName, Op>,
    /// What went before, for each operation that is not a first try.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tries: BTreeMap<ShimName, Tries>,
}

/// Tries of one operation that did not get it done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tries {
    /// How many failed.
    pub failed: u32,
    /// How many found pods that were still running.
    pub waited: u32,
    /// When the first of them ended, in seconds since 1970 (UTC).
    pub since: i64,
    /// Whether the node counts as failed: it still does while it is tried again.
    pub counted: bool,
}

/// One operation for one Shim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "op")]
pub enum Op {
    /// Install or upgrade.
    Install(Install),
    /// Look whether the node still has what it had; nothing is changed.
    Check(Check),
    /// Take off the node.
    Remove,
}

/// What a node should have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// The build in force.
    pub build: Build,
    /// containerd's name for the runtime.
    pub handler: Handler,
}

/// What to install.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Install {
    /// Names the result on the node.
    pub build: Build,
    /// http or https URL of the artifact for this node's platform.
    pub location: String,
    /// Digest of the artifact as it is downloaded.
    pub sha256: Sha256Hex,
    /// File name of the binary in the artifact; absent: its only `containerd-shim-*` file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binary: Option<String>,
    /// containerd's name for the runtime.
    pub handler: Handler,
    /// The runtime's `options` table; absent: `SystemdCgroup` as the node's default runtime has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Options>,
}

/// A table of TOML values.
pub type Options = BTreeMap<String, OptionValue>;

/// A TOML value that JSON can carry: no dates, no null.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OptionValue {
    /// true, false
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// Any other number; never NaN or infinite, which JSON does not have.
    Float(f64),
    /// A text.
    String(String),
    /// An array.
    Array(Vec<OptionValue>),
    /// A table in the table.
    Table(Options),
}

// JSON has no NaN, so equality is total.
impl Eq for OptionValue {}

impl Task {
    /// Number of this try of a Shim's operation, from 1.
    pub fn attempt(&self, shim: &ShimName) -> u32 {
        1 + self.tries.get(shim).map_or(0, |tries| tries.failed + tries.waited)
    }
}

impl Op {
    /// The build that the Shim has on the node once this succeeded.
    pub fn build(&self) -> Option<&Build> {
        match self {
            Self::Install(install) => Some(&install.build),
            Self::Check(check) => Some(&check.build),
            Self::Remove => None,
        }
    }
}

/// What the init container leaves for the installer in `WORK_DIR/<shim>/fetched.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "fetched")]
pub enum Fetched {
    /// The binary lies beside this file.
    Binary {
        /// File name beside this file.
        file: String,
        /// Digest of that file.
        sha256: Sha256Hex,
    },
    /// It could not be had; the other Shims go on.
    Failed(crate::report::Failure),
}
