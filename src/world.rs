//! What the planner sees of the cluster: plain data, read from Kubernetes objects in one place.
use std::{
    borrow::Borrow,
    collections::{BTreeMap, BTreeSet},
    str::FromStr,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        batch::v1::Job,
        core::v1::{Pod, Taint, Toleration},
        node::v1::RuntimeClass,
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::{Resource, ResourceExt, core::ObjectMeta};
use serde::{Deserialize, Serialize};

use crate::{
    api::{FetchStrategy, RuntimeClassSpec, Shim, ShimStatus},
    job,
    mark::{self, Marks},
    names::{Build, FINALIZER, Handler, MachineId, NodeName, ORPHAN_ANNOTATION, STATE_ANNOTATION, Sha256Hex, ShimName},
    task::{OptionValue, Options, Task},
};

/// Everything that a plan depends on.
#[derive(Debug, Clone)]
pub struct World {
    /// The only clock of the planner.
    pub now: Timestamp,
    /// All Shims.
    pub shims: Vec<ShimView>,
    /// All Nodes.
    pub nodes: Vec<NodeView>,
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

/// What a Shim asks for.
#[derive(Debug, Clone)]
pub struct SpecView {
    /// For people.
    pub version: String,
    /// Labels that a node must have.
    pub selector: BTreeMap<String, String>,
    /// Taints that do not matter.
    pub tolerations: Vec<Toleration>,
    /// What to install, by platform.
    pub artifacts: Artifacts,
    /// File in the artifact.
    pub binary: Option<String>,
    /// containerd's name for the runtime.
    pub handler: Handler,
    /// The runtime's options.
    pub options: Option<Options>,
    /// Budget.
    pub max_update: MaxUpdate,
    /// No new node starts.
    pub paused: bool,
    /// The RuntimeClass.
    pub runtime_class: RuntimeClassSpec,
}

/// Artifacts by platform.
#[derive(Debug, Clone)]
pub enum Artifacts {
    /// The same for every node.
    One(Artifact),
    /// By architecture, as Go names it.
    ByArch(BTreeMap<String, Artifact>),
}

/// One artifact and what it makes of a node.
#[derive(Debug, Clone)]
pub struct Artifact {
    /// Where it is.
    pub location: String,
    /// Its digest.
    pub sha256: Sha256Hex,
    /// What the node has once it is installed.
    pub build: Build,
}

impl SpecView {
    /// The artifact for an architecture.
    pub fn artifact(&self, arch: &str) -> Option<&Artifact> {
        match &self.artifacts {
            Artifacts::One(artifact) => Some(artifact),
            Artifacts::ByArch(map) => map.get(arch),
        }
    }
}

/// Nodes in progress at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxUpdate {
    /// That many.
    Count(u32),
    /// That share, rounded up.
    Percent(u32),
}

impl MaxUpdate {
    /// Used where the spec gives none.
    pub const DEFAULT: Self = Self::Percent(10);

    /// The budget for that many nodes; at least 1.
    pub fn of(self, nodes: usize) -> usize {
        match self {
            Self::Count(count) => count.max(1) as usize,
            Self::Percent(percent) => (nodes * percent as usize).div_ceil(100).max(1),
        }
    }
}

impl FromStr for MaxUpdate {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = match text.strip_suffix('%') {
            Some(percent) => percent.parse().ok().filter(|p| (1..=100).contains(p)).map(Self::Percent),
            None => text.parse().ok().filter(|count| *count > 0).map(Self::Count),
        };
        parsed.ok_or_else(|| {
            format!("maxUpdate must be a number of at least 1 or a percentage from 1% to 100%, not {text:?}")
        })
    }
}

/// A Node.
#[derive(Debug, Clone)]
pub struct NodeView {
    /// Its name.
    pub name: NodeName,
    /// `metadata.uid`: another one is another node.
    pub uid: String,
    /// `status.nodeInfo.machineID`.
    pub machine: Option<MachineId>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Taints.
    pub taints: Vec<Taint>,
    /// Whether it is cordoned.
    pub cordoned: bool,
    /// Whether its kubelet says Ready.
    pub ready: bool,
    /// Operating system, as Go names it.
    pub os: String,
    /// Architecture, as Go names it.
    pub arch: String,
    /// `status.nodeInfo.containerRuntimeVersion`.
    pub runtime: String,
    /// Handlers that the kubelet reports; empty: it does not say.
    pub handlers: BTreeSet<String>,
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
    /// What it was made for.
    pub task: Task,
    /// How far it is.
    pub phase: Phase,
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

/// The Kubernetes objects that a [`World`] is made of.
#[derive(Debug, Clone, Copy)]
pub struct Objects<'a, S = Shim, N = LeanNode, R = RuntimeClass> {
    /// All Shims.
    pub shims: &'a [S],
    /// All Nodes.
    pub nodes: &'a [N],
    /// Our Jobs.
    pub jobs: &'a [Job],
    /// The Pods of our Jobs.
    pub pods: &'a [Pod],
    /// All RuntimeClasses.
    pub runtime_classes: &'a [R],
}

impl World {
    /// Reads the objects. What can't be read is left alone: a node without a legal name or uid, a Job without a task.
    pub fn read<S, N, R>(now: Timestamp, objects: &Objects<'_, S, N, R>) -> Self
    where
        S: Borrow<Shim>,
        N: Borrow<LeanNode>,
        R: Borrow<RuntimeClass>,
    {
        let jobs: Vec<_> = objects.jobs.iter().filter_map(|job| JobView::read(job, objects.pods)).collect();
        Self {
            now,
            shims: objects.shims.iter().filter_map(|shim| ShimView::read(shim.borrow())).collect(),
            nodes: objects.nodes.iter().filter_map(|node| NodeView::read(node.borrow())).collect(),
            occupied: job::occupied(objects.jobs, objects.pods, &jobs),
            jobs,
            runtime_classes: objects.runtime_classes.iter().map(|class| class.borrow().clone()).collect(),
        }
    }
}

impl ShimView {
    /// Reads a Shim.
    pub fn read(shim: &Shim) -> Option<Self> {
        let name: ShimName = shim.name_any().parse().ok()?;
        let life = match (shim.annotations().contains_key(ORPHAN_ANNOTATION), &shim.metadata.deletion_timestamp) {
            (true, _) => Life::Orphaned,
            (false, Some(_)) => Life::Deleting,
            (false, None) => Life::Active,
        };
        Some(Self {
            generation: shim.metadata.generation,
            created: shim.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            life,
            finalizer: shim.finalizers().iter().any(|finalizer| finalizer == FINALIZER),
            spec: SpecView::read(&name, shim),
            status: shim.status.clone().unwrap_or_default(),
            name,
        })
    }
}

impl SpecView {
    fn read(name: &ShimName, shim: &Shim) -> Result<Self, String> {
        let spec = &shim.spec;
        let assigned = shim.status.as_ref().and_then(|status| status.handler.as_deref());
        let handler = spec.runtime_class.handler.as_deref().or(assigned).unwrap_or(name.as_str());
        let handler: Handler = handler.parse().map_err(|error| format!("{error}"))?;
        let options = spec.containerd_runtime_options.clone().map(read_options).transpose()?;
        let rollout = spec.rollout_strategy.clone().unwrap_or_default();
        Ok(Self {
            version: spec.version.clone(),
            selector: spec.node_selector.clone().unwrap_or_default(),
            tolerations: spec.tolerations.clone().unwrap_or_default(),
            artifacts: Artifacts::read(&spec.fetch_strategy, spec.binary.as_deref(), &handler, options.as_ref())?,
            binary: spec.binary.clone(),
            handler,
            options,
            max_update: read_max_update(rollout.rolling.and_then(|rolling| rolling.max_update).as_ref())?,
            paused: rollout.paused.unwrap_or_default(),
            runtime_class: spec.runtime_class.clone(),
        })
    }
}

impl Artifacts {
    fn read(
        strategy: &FetchStrategy,
        binary: Option<&str>,
        handler: &Handler,
        options: Option<&Options>,
    ) -> Result<Self, String> {
        let options = serde_json::to_string(&options).map_err(|error| error.to_string())?;
        let artifact = |location: &str, sha256: &str| {
            let build = Build::of_parts([sha256, binary.unwrap_or_default(), handler.as_str(), &options]);
            let sha256 = sha256.parse().map_err(|error| format!("{error}"))?;
            Ok::<_, String>(Artifact { location: location.to_owned(), sha256, build })
        };
        match (&strategy.anon_http, &strategy.platforms) {
            (Some(one), None) => Ok(Self::One(artifact(&one.location, &one.sha256)?)),
            (None, Some(many)) => {
                let entries = many.iter().map(|p| Ok((p.arch.clone(), artifact(&p.location, &p.sha256)?)));
                Ok(Self::ByArch(entries.collect::<Result<_, String>>()?))
            }
            _ => Err("exactly one of anonHttp and platforms must be set".to_owned()),
        }
    }
}

fn read_options(options: BTreeMap<String, serde_json::Value>) -> Result<Options, String> {
    let read = |(key, value): (String, serde_json::Value)| match serde_json::from_value::<OptionValue>(value) {
        Ok(value) => Ok((key, value)),
        Err(_) => Err(format!("containerdRuntimeOptions.{key} is not a TOML value: null is not allowed")),
    };
    options.into_iter().map(read).collect()
}

fn read_max_update(value: Option<&IntOrString>) -> Result<MaxUpdate, String> {
    match value {
        None => Ok(MaxUpdate::DEFAULT),
        Some(IntOrString::Int(count)) => count.to_string().parse(),
        Some(IntOrString::String(text)) => text.parse(),
    }
}

impl NodeView {
    /// Reads a Node.
    pub fn read(node: &LeanNode) -> Option<Self> {
        let annotation = node.annotations().get(STATE_ANNOTATION).cloned();
        let info = &node.status.node_info;
        Some(Self {
            name: node.name_any().parse().ok()?,
            uid: node.uid()?,
            machine: info.machine_id.parse().ok(),
            labels: node.labels().clone(),
            taints: node.spec.taints.clone(),
            cordoned: node.spec.unschedulable,
            ready: node.status.conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True"),
            os: info.operating_system.clone(),
            arch: info.architecture.clone(),
            runtime: info.container_runtime_version.clone(),
            handlers: node.status.runtime_handlers.iter().map(|handler| handler.name.clone()).collect(),
            marks: mark::parse(annotation.as_deref()),
            annotation,
        })
    }
}

/// A Node without what we do not read: decoding skips images, volumes and managedFields, most of its bytes.
#[derive(Resource, Serialize, Deserialize, Clone, Debug, Default)]
#[resource(inherit = "k8s_openapi::api::core::v1::Node")]
pub struct LeanNode {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// Its spec.
    #[serde(default)]
    pub spec: LeanSpec,
    /// Its status.
    #[serde(default)]
    pub status: LeanStatus,
}

/// Part of `Node.spec`.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub struct LeanSpec {
    /// Cordoned.
    #[serde(default)]
    pub unschedulable: bool,
    /// Taints.
    #[serde(default)]
    pub taints: Vec<Taint>,
}

/// Part of `Node.status`.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase")]
pub struct LeanStatus {
    /// Conditions.
    #[serde(default)]
    pub conditions: Vec<LeanCondition>,
    /// What the kubelet says of its machine.
    #[serde(default)]
    pub node_info: LeanInfo,
    /// Handlers that the runtime reports; containerd does from 2.0 on.
    #[serde(default)]
    pub runtime_handlers: Vec<LeanHandler>,
}

/// Part of a Node's condition.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub struct LeanCondition {
    /// Its type.
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    pub status: String,
}

/// Part of `Node.status.nodeInfo`.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase")]
pub struct LeanInfo {
    /// /etc/machine-id
    #[serde(default, rename = "machineID")]
    pub machine_id: String,
    /// As Go names it.
    #[serde(default)]
    pub operating_system: String,
    /// As Go names it.
    #[serde(default)]
    pub architecture: String,
    /// `containerd://1.7.24` and the like.
    #[serde(default)]
    pub container_runtime_version: String,
}

/// A handler that the kubelet reports.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub struct LeanHandler {
    /// Its name; empty for the default.
    #[serde(default)]
    pub name: String,
}
