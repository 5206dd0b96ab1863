//! What the planner sees of the cluster: plain data, read from Kubernetes objects in one place.
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
    sync::Arc,
};

use compact_str::CompactString;
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{Taint, Toleration},
    node::v1::RuntimeClass,
};

use crate::{
    api::{RuntimeClassSpec, ShimStatus},
    job::{self, Start},
    mark::Marks,
    names::{Build, Handler, MachineId, NodeName, RETRY_ANNOTATION, Sha256Hex, ShimName},
    revision::{Inputs, RevisionView},
    task::{Options, Task},
};

mod class;
mod lean;
mod read;

pub use lean::LeanNode;
pub use read::{AsNode, Objects, int_or_percent_text, place};

/// Everything that a plan depends on.
#[derive(Debug, Clone, Default)]
pub struct World {
    /// The only clock of the planner.
    pub now: Timestamp,
    /// All Shims.
    pub shims: Vec<ShimView>,
    /// The revisions of all Shims.
    pub revisions: Vec<RevisionView>,
    /// All Nodes.
    pub nodes: Vec<Arc<NodeView>>,
    /// All our Jobs; never from a cache: a stale list overruns budgets.
    pub jobs: Vec<JobView>,
    /// Nodes where something of ours runs that no readable Job explains: a Pod whose Job was deleted, a newer format.
    pub occupied: BTreeSet<NodeName>,
    /// All RuntimeClasses.
    pub runtime_classes: Vec<RuntimeClass>,
}

/// A Shim.
#[derive(Debug, Clone)]
pub struct ShimView {
    /// Its name.
    pub name: ShimName,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// `metadata.creationTimestamp`, in whole seconds.
    pub created: Timestamp,
    /// Where its life stands.
    pub life: Life,
    /// Whether our finalizer is on it.
    pub finalizer: bool,
    /// What it asks for, or why that can't be read.
    pub spec: Result<SpecView, String>,
    /// Who changed the spec last: a field manager, and the user that the plugin claims.
    pub author: String,
    /// What is to be tried again at once.
    pub retry: Option<Retry>,
    /// As it was last written.
    pub status: ShimStatus,
}

/// Where a Shim's life stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// It is wanted.
    Active,
    /// It is deleted; nodes are to be cleaned.
    Deleting,
    /// Its nodes are let go as they are.
    Orphaned,
}

/// The wish to try again now what has failed: `<RFC 3339 time>`, or `<time>=<node>,<node>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// Failures that ended before this.
    pub at: Timestamp,
    /// On these nodes; `None`: on all.
    pub nodes: Option<BTreeSet<NodeName>>,
}

impl FromStr for Retry {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (time, nodes) = text.split_once('=').map_or((text, None), |(time, nodes)| (time, Some(nodes)));
        let nodes = nodes.map(|nodes| nodes.split(',').map(str::parse).collect::<Result<_, _>>());
        Ok(Self {
            at: time.parse().map_err(|error| format!("{RETRY_ANNOTATION}: {error}"))?,
            nodes: nodes.transpose().map_err(|error| format!("{RETRY_ANNOTATION}: {error}"))?,
        })
    }
}

impl fmt::Display for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.at)?;
        let names: Vec<_> = self.nodes.iter().flatten().map(NodeName::as_str).collect();
        if self.nodes.is_some() { write!(f, "={}", names.join(",")) } else { Ok(()) }
    }
}

/// What a Shim asks for.
#[derive(Debug, Clone)]
pub struct SpecView {
    /// What a revision keeps of it, word for word.
    pub inputs: Inputs,
    /// The same, read.
    pub source: Source,
    /// Labels that a node must have.
    pub selector: BTreeMap<String, String>,
    /// Taints that do not matter.
    pub tolerations: Vec<Toleration>,
    /// containerd's name for the runtime.
    pub handler: Handler,
    /// How fast, and when to stop.
    pub rollout: Rollout,
    /// Old revisions to keep.
    pub history: usize,
    /// The RuntimeClass.
    pub runtime_class: RuntimeClassSpec,
}

/// What nodes get.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// What to install, by platform.
    pub artifacts: Artifacts,
    /// File in the artifact.
    pub binary: Option<String>,
    /// The runtime's options.
    pub options: Option<Options>,
}

/// Artifacts by platform.
#[derive(Debug, Clone, PartialEq)]
pub enum Artifacts {
    /// The same for every node.
    One(Artifact),
    /// By architecture, as Go names it.
    ByArch(BTreeMap<String, Artifact>),
}

/// One artifact and what it makes of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct Artifact {
    /// Where it is.
    pub location: String,
    /// Its digest.
    pub sha256: Sha256Hex,
    /// What the node has once it is installed.
    pub build: Build,
}

impl Source {
    /// The artifact for an architecture.
    pub fn artifact(&self, arch: &str) -> Option<&Artifact> {
        match &self.artifacts {
            Artifacts::One(artifact) => Some(artifact),
            Artifacts::ByArch(map) => map.get(arch),
        }
    }

    /// The build for an architecture.
    pub fn build(&self, arch: &str) -> Option<&Build> {
        self.artifact(arch).map(|artifact| &artifact.build)
    }
}

/// How fast a rollout goes, and when it stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rollout {
    /// Nodes in progress at the same time.
    pub max_update: Share,
    /// Nodes that must succeed before the rest start.
    pub canary: Share,
    /// No untouched node starts once that many have failed.
    pub max_failures: Share,
    /// No new node starts.
    pub paused: bool,
}

impl Default for Rollout {
    fn default() -> Self {
        Self { max_update: Share::Percent(10), canary: Share::Count(1), max_failures: Share::Count(1), paused: false }
    }
}

/// Some of the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// That many.
    Count(u32),
    /// That share, rounded up.
    Percent(u32),
}

impl Share {
    /// So many of that many nodes.
    pub fn of(self, nodes: usize) -> usize {
        match self {
            Self::Count(count) => count as usize,
            Self::Percent(percent) => (nodes * percent as usize).div_ceil(100),
        }
    }

    /// At least one.
    pub fn at_least_one_of(self, nodes: usize) -> usize {
        self.of(nodes).max(1)
    }

    /// Reads `5` or `10%`; `field` and the least that is allowed are for the error.
    pub fn parse(text: &str, field: &str, least: u32) -> Result<Self, String> {
        let parsed = match text.strip_suffix('%') {
            Some(percent) => percent.parse().ok().filter(|p| (least..=100).contains(p)).map(Self::Percent),
            None => text.parse().ok().filter(|count| *count >= least).map(Self::Count),
        };
        let number = if least == 0 { "a number".to_owned() } else { format!("a number of at least {least}") };
        parsed.ok_or_else(|| format!("{field} must be {number} or a percentage from {least}% to 100%, not {text:?}"))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// Labels of a Node. Short texts lie in the map itself: a pass reads some of every node, and what lies elsewhere in memory
/// is slow to come by.
pub type Labels = BTreeMap<CompactString, CompactString>;
/// Handlers, by name.
pub type Handlers = BTreeSet<CompactString>;

/// A Node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeView {
    /// Its name.
    pub name: NodeName,
    /// `metadata.uid`: another one is another node.
    pub uid: String,
    /// Its place in every rollout, see [`place`].
    pub place: u64,
    /// `status.nodeInfo.machineID`.
    pub machine: Option<MachineId>,
    /// Labels.
    pub labels: Labels,
    /// Taints.
    pub taints: Vec<Taint>,
    /// Whether it is cordoned.
    pub cordoned: bool,
    /// Whether its kubelet says Ready.
    pub ready: bool,
    /// Operating system, as Go names it.
    pub os: CompactString,
    /// Architecture, as Go names it.
    pub arch: CompactString,
    /// `status.nodeInfo.containerRuntimeVersion`.
    pub runtime: CompactString,
    /// Handlers that the kubelet reports; empty: it does not say.
    pub handlers: Handlers,
    /// Our annotation, word for word: a write is guarded by it.
    pub annotation: Option<String>,
    /// The annotation read; `None`: written by a newer version, leave the node alone.
    pub marks: Option<Marks>,
}

/// A Job of ours.
#[derive(Debug, Clone)]
pub struct JobView {
    /// Its name.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub version: String,
    /// `metadata.creationTimestamp`, in whole seconds.
    pub created: Timestamp,
    /// What it was made for.
    pub task: Task,
    /// How far it is.
    pub phase: Phase,
    /// How far its Pod is, while it runs.
    pub start: Start,
}

/// How far a Job is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// It may be touching its node.
    Running,
    /// It failed and can't end, because its node does not answer: the node stays excluded, the budget does not.
    Stuck,
    /// It ended.
    Finished(job::Finished),
}
