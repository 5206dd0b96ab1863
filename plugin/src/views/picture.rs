//! What was read of the cluster, digested by the same code as the controller's.
use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::{
    api::{apps::v1::ControllerRevision, batch::v1::Job, core::v1::Pod, node::v1::RuntimeClass},
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::ResourceExt as _;
use shim_core::{
    api::{Shim, ShimStatus},
    board::{Board, Side},
    names::{Build, NodeName},
    status::{self, NodeRow, NodeState},
    world::{LeanNode, Life, NodeView, Objects, Rollout, ShimView, World},
};

/// What was read.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// When.
    pub now: Timestamp,
    /// All Shims.
    pub shims: Vec<Shim>,
    /// What they are about.
    pub facts: Facts,
}

/// What the nodes say.
#[derive(Debug, Clone)]
pub enum Facts {
    /// Everything that the controller sees too.
    All {
        /// The revisions of all Shims.
        revisions: Vec<ControllerRevision>,
        /// All Nodes.
        nodes: Vec<LeanNode>,
        /// Our Jobs.
        jobs: Vec<Job>,
        /// Their Pods.
        pods: Vec<Pod>,
        /// All RuntimeClasses.
        runtime_classes: Vec<RuntimeClass>,
    },
    /// Some of it may not be read, so only `.status` is left.
    Denied(Vec<&'static str>),
}

/// What views show.
#[derive(Debug, Clone)]
pub struct Picture {
    /// All Shims, by name.
    pub shims: Vec<ShimPicture>,
    /// All Nodes; none where they may not be read.
    pub nodes: Vec<Arc<NodeView>>,
    /// What may not be read.
    pub denied: Vec<&'static str>,
}

/// One Shim.
#[derive(Debug, Clone)]
pub struct ShimPicture {
    /// Its name.
    pub name: String,
    /// `spec.version`.
    pub version: String,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// Name of its RuntimeClass.
    pub runtime_class: String,
    /// `spec.nodeSelector`.
    pub selector: BTreeMap<String, String>,
    /// Nodes at a time, where the nodes are known.
    pub budget: Option<usize>,
    /// `spec.rolloutStrategy.type`
    pub strategy: String,
    /// How fast, and when to stop.
    pub rollout: Rollout,
    /// Where its life stands.
    pub life: Life,
    /// What the controller has written, if it speaks of this generation.
    pub settled: Settled,
    /// Computed now, or else as the controller wrote it.
    pub status: ShimStatus,
    /// As the controller wrote it.
    pub written: ShimStatus,
    /// `metadata.generation`
    pub generation: Option<i64>,
    /// Its nodes, worst first; none where they may not be read.
    pub rows: Option<Vec<RowPicture>>,
}

/// One node of a Shim.
#[derive(Debug, Clone)]
pub struct RowPicture {
    /// What the controller would say.
    pub row: NodeRow,
    /// The Shim's version, or the build that it has instead.
    pub version: Option<String>,
    /// As Go names it.
    pub arch: String,
    /// `containerd://1.7.24` and the like.
    pub runtime: String,
}

/// Whether the controller has more to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// It has, or has not looked yet.
    Open,
    /// Every node is as it should be.
    Ready,
    /// It won't get further without a person.
    Stalled,
}

impl Picture {
    /// Digests what was read. Shims with names that only a broken API server accepts are left out.
    pub fn of(snapshot: &Snapshot) -> Self {
        let (world, denied) = match &snapshot.facts {
            Facts::All { revisions, nodes, jobs, pods, runtime_classes } => {
                let (shims, refusals) = (&snapshot.shims, &BTreeMap::new());
                let objects = Objects { shims, revisions, nodes, jobs, pods, refusals, runtime_classes };
                (Some(World::read(snapshot.now, &objects)), Vec::new())
            }
            Facts::Denied(denied) => (None, denied.clone()),
        };
        let board = world.as_ref().map(Board::new);
        let mut shims: Vec<_> =
            snapshot.shims.iter().filter_map(|shim| ShimPicture::of(shim, board.as_ref())).collect();
        shims.sort_by(|a, b| a.name.cmp(&b.name));
        Self { shims, nodes: world.map(|world| world.nodes).unwrap_or_default(), denied }
    }

    /// The Shim of this name.
    pub fn shim(&self, name: &str) -> Option<&ShimPicture> {
        self.shims.iter().find(|shim| shim.name == name)
    }
}

impl ShimPicture {
    fn of(shim: &Shim, board: Option<&Board<'_>>) -> Option<Self> {
        let view = ShimView::read(shim)?;
        let spec = view.spec.as_ref().ok();
        let side = board.and_then(|board| Some((board, board.side(&view.name)?)));
        let seen = side.map(|(board, side)| (status::summarize(board, side).status, rows(board, side)));
        let strategy = shim.spec.rollout_strategy.as_ref().and_then(|strategy| strategy.kind.clone());
        let (status, rows) = seen.map_or_else(|| (view.status.clone(), None), |(status, rows)| (status, Some(rows)));
        Some(Self {
            name: shim.name_any(),
            version: shim.spec.version.clone(),
            created: shim.metadata.creation_timestamp.as_ref().map(|time| time.0),
            runtime_class: shim.spec.runtime_class.name.clone(),
            selector: shim.spec.node_selector.clone().unwrap_or_default(),
            budget: side.map(|(_, side)| side.budget()),
            strategy: strategy.unwrap_or_else(|| "rolling".to_owned()),
            rollout: spec.map(|spec| spec.rollout).unwrap_or_default(),
            life: view.life,
            settled: settled(&view, side),
            status,
            written: view.status.clone(),
            generation: view.generation,
            rows,
        })
    }

    /// The Ready condition.
    pub fn ready(&self) -> Option<&Condition> {
        self.condition("Ready")
    }

    /// Whether the condition is there and True.
    pub fn is(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(|condition| condition.status == "True")
    }

    fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.type_ == kind)
    }

    /// Whether what the controller wrote speaks of the spec as it is now.
    pub fn is_observed(&self) -> bool {
        self.written.observed_generation == self.generation
    }

    /// Whether the controller has written a condition with this status.
    pub fn has_written(&self, kind: &str, status: &str) -> bool {
        self.written.conditions.iter().any(|condition| condition.type_ == kind && condition.status == status)
    }

    /// One word for the whole.
    pub fn state(&self) -> &str {
        self.ready().map_or("Pending", |condition| condition.reason.as_str())
    }

    /// One sentence for the whole.
    pub fn message(&self) -> &str {
        self.ready().map_or("the controller has not looked at it yet", |condition| condition.message.as_str())
    }

    /// Nodes that count: selected, and not skipped for what they are.
    pub fn wanted(&self) -> u32 {
        self.status.nodes.saturating_sub(self.status.nodes_skipped).max(self.status.nodes_ready)
    }
}

fn rows(board: &Board<'_>, side: &Side<'_>) -> Vec<RowPicture> {
    let picture = |row: NodeRow| {
        let node = board.node(&row.node);
        let arch = node.map(|node| node.arch.to_string()).unwrap_or_default();
        let runtime = node.map(|node| node.runtime.to_string()).unwrap_or_default();
        RowPicture { version: version(side.shim, &row, &arch), row, arch, runtime }
    };
    status::rows(board, side).into_iter().map(picture).collect()
}

fn version(shim: &ShimView, row: &NodeRow, arch: &str) -> Option<String> {
    let build = row.build.as_ref()?;
    if *build == Build::unknown() {
        return Some("<unknown>".to_owned());
    }
    let spec = shim.spec.as_ref().ok();
    let current = spec.filter(|spec| spec.source.build(arch) == Some(build));
    Some(current.map_or_else(|| format!("build {build}"), |spec| spec.inputs.version.clone()))
}

fn settled(shim: &ShimView, side: Option<(&Board<'_>, &Side<'_>)>) -> Settled {
    let status = &shim.status;
    let is = |kind: &str| status.conditions.iter().any(|c| c.type_ == kind && c.status == "True");
    // A paused rollout with nothing under way waits for a person too.
    let paused = status.conditions.iter().any(|c| c.type_ == "Ready" && c.reason == "Paused");
    let observed = status.observed_generation.is_some() && status.observed_generation == shim.generation;
    match (observed, is("Ready"), is("Stalled") || paused) {
        (true, true, _) => Settled::Ready,
        (true, false, true) if !is_retried(shim, side) => Settled::Stalled,
        _ => Settled::Open,
    }
}

/// Whether somebody has asked for another try that has not begun: an annotation makes no new generation.
fn is_retried(shim: &ShimView, side: Option<(&Board<'_>, &Side<'_>)>) -> bool {
    let Some(retry) = &shim.retry else { return false };
    let asked = |node: &NodeName, since: Timestamp| {
        since < retry.at && retry.nodes.as_ref().is_none_or(|nodes| nodes.contains(node))
    };
    match side {
        // One that does not answer is not tried.
        Some((board, side)) => status::rows(board, side).iter().any(|row| {
            row.state == NodeState::Failed
                && row.since.is_some_and(|since| asked(&row.node, since))
                && board.node(&row.node).is_some_and(|node| node.ready)
        }),
        None => shim.status.problems.iter().any(|problem| {
            let since = problem.since.as_ref().and_then(|since| since.parse().ok());
            problem.state == "Failed"
                && problem.node.parse().ok().zip(since).is_some_and(|(node, since)| asked(&node, since))
        }),
    }
}
