//! The World, indexed: what the planner and the status both ask of it. The only place that compares desired with observed.
use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{Taint, Toleration},
    node::v1::RuntimeClass,
};

use crate::{
    job::Finished,
    limits,
    mark::{Mark, Ready},
    names::{NodeName, ShimName},
    plan::after,
    report::Outcome,
    runtime_class::{self, Owner},
    task::{Install, Op},
    world::{Artifact, JobView, Life, NodeView, Phase, ShimView, SpecView, World},
};

/// What stands between a Shim and a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    /// They agree, or the node is not ours to touch.
    Nothing,
    /// This brings them closer.
    Op(Op),
    /// The node is selected and can't be served.
    Skip(Skip),
}

/// Why a selected node can't be served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Skip {
    /// Another operating system.
    NotLinux(String),
    /// Another container runtime.
    NotContainerd(String),
    /// A taint that the Shim does not tolerate.
    Taint(String),
    /// The Shim has no artifact for this architecture.
    NoArtifact(String),
    /// The kubelet has not said which machine it is.
    NoMachineId,
    /// A newer version of us has written its annotation, or somebody by hand.
    StateUnreadable,
}

impl Skip {
    /// The word for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotLinux(_) => "NotLinux",
            Self::NotContainerd(_) => "NotContainerd",
            Self::Taint(_) => "UntoleratedTaint",
            Self::NoArtifact(_) => "NoArtifact",
            Self::NoMachineId => "NoMachineId",
            Self::StateUnreadable => "StateUnreadable",
        }
    }

    /// The sentence for people.
    pub fn message(&self) -> String {
        match self {
            Self::NotLinux(os) => format!("os is {os}"),
            Self::NotContainerd(runtime) => format!("container runtime is {runtime}, not containerd"),
            Self::Taint(taint) => format!("taint {taint} is not in spec.tolerations"),
            Self::NoArtifact(arch) => format!("spec.fetchStrategy.platforms has no entry for linux/{arch}"),
            Self::NoMachineId => "the kubelet has not reported a machine id".to_owned(),
            Self::StateUnreadable => "annotation shim.dev/state was written by a newer version or by hand".to_owned(),
        }
    }
}

/// Which try the next one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Try {
    /// Nothing has failed yet.
    First,
    /// That many have failed; the next may start at `at`.
    Again {
        /// Number of the failed try.
        failed: u32,
        /// Earliest time of the next.
        at: Timestamp,
    },
}

/// Why nothing of a Shim is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict(pub String);

/// An indexed [`World`].
#[derive(Debug)]
pub struct Board<'w> {
    /// What it indexes.
    pub world: &'w World,
    shims: HashMap<&'w ShimName, &'w ShimView>,
    nodes: HashMap<&'w NodeName, &'w NodeView>,
    jobs: HashMap<&'w NodeName, Vec<&'w JobView>>,
    classes: HashMap<&'w str, &'w RuntimeClass>,
    conflicts: HashMap<&'w ShimName, Conflict>,
    budgets: HashMap<&'w ShimName, usize>,
}

impl<'w> Board<'w> {
    /// Indexes a World.
    pub fn new(world: &'w World) -> Self {
        let mut jobs: HashMap<_, Vec<_>> = HashMap::new();
        for job in &world.jobs {
            jobs.entry(&job.task.node).or_default().push(job);
        }
        let classes = world.runtime_classes.iter().filter_map(|c| Some((c.metadata.name.as_deref()?, c))).collect();
        let mut board = Self {
            world,
            shims: world.shims.iter().map(|shim| (&shim.name, shim)).collect(),
            nodes: world.nodes.iter().map(|node| (&node.name, node)).collect(),
            jobs,
            classes,
            conflicts: HashMap::new(),
            budgets: HashMap::new(),
        };
        board.conflicts = board.find_conflicts();
        board.budgets = world.shims.iter().map(|shim| (&shim.name, board.find_budget(shim))).collect();
        board
    }

    /// The Shim of this name.
    pub fn shim(&self, name: &ShimName) -> Option<&'w ShimView> {
        self.shims.get(name).copied()
    }

    /// The Node of this name.
    pub fn node(&self, name: &NodeName) -> Option<&'w NodeView> {
        self.nodes.get(name).copied()
    }

    /// Our Jobs for a node of this name.
    pub fn jobs_on(&self, node: &NodeName) -> &[&'w JobView] {
        self.jobs.get(node).map_or(&[], Vec::as_slice)
    }

    /// The RuntimeClass of this name.
    pub fn runtime_class(&self, name: &str) -> Option<&'w RuntimeClass> {
        self.classes.get(name).copied()
    }

    /// Why nothing of this Shim is installed, if so.
    pub fn conflict(&self, shim: &ShimName) -> Option<&Conflict> {
        self.conflicts.get(shim)
    }

    /// Nodes that may be in progress for this Shim at the same time.
    pub fn budget(&self, shim: &ShimView) -> usize {
        self.budgets.get(&shim.name).copied().unwrap_or(1)
    }

    /// Whether something of ours may be running on the node.
    pub fn is_busy(&self, node: &NodeView) -> bool {
        self.world.occupied.contains(&node.name)
            || self.jobs_on(&node.name).iter().any(|job| !matches!(job.phase, Phase::Finished(_)))
    }

    /// Whether the Shim wants to be on the node.
    pub fn is_selected(&self, shim: &ShimView, node: &NodeView) -> bool {
        let Ok(spec) = &shim.spec else { return false };
        let has = |(key, value): (&String, &String)| node.labels.get(key) == Some(value);
        shim.life == Life::Active && spec.selector.iter().all(has)
    }

    /// Compares what is wanted on a node with what it is known to have.
    pub fn due(&self, shim: &ShimView, node: &NodeView) -> Due {
        let (Life::Active | Life::Deleting, Some(marks)) = (shim.life, &node.marks) else {
            let unreadable = shim.life != Life::Orphaned && self.is_selected(shim, node);
            return if unreadable { Due::Skip(Skip::StateUnreadable) } else { Due::Nothing };
        };
        let mark = marks.get(&shim.name);
        match &shim.spec {
            Ok(spec) if self.is_selected(shim, node) => self.due_selected(shim, spec, node, mark),
            // What can't be read says nothing about which nodes it wants: they keep what they have.
            Err(_) if shim.life == Life::Active => Due::Nothing,
            _ => mark.map_or(Due::Nothing, |_| Due::Op(Op::Remove)),
        }
    }

    fn due_selected(&self, shim: &ShimView, spec: &SpecView, node: &NodeView, mark: Option<&Mark>) -> Due {
        if let Some(skip) = skip(spec, node) {
            return Due::Skip(skip);
        }
        let Some(artifact) = spec.artifact(&node.arch) else { return Due::Skip(Skip::NoArtifact(node.arch.clone())) };
        let kept = match mark {
            Some(Mark::Ready(ready)) => ready.build == artifact.build && self.is_true(ready, spec, node),
            Some(Mark::Claimed | Mark::Removing) | None => false,
        };
        let blocked = self.conflict(&shim.name).is_some();
        if kept || blocked { Due::Nothing } else { Due::Op(install(spec, artifact)) }
    }

    /// Whether the node still is what was verified: the same machine, and its kubelet does not deny the handler.
    fn is_true(&self, ready: &Ready, spec: &SpecView, node: &NodeView) -> bool {
        let denied = denies(node, spec) && after(ready.since, limits::HANDLER_GRACE) <= self.world.now;
        Some(&ready.machine) == node.machine.as_ref() && !denied
    }

    /// Until when a mark is believed although the kubelet does not report the handler.
    pub fn handler_awaited(&self, shim: &ShimView, node: &NodeView) -> Option<Timestamp> {
        let Mark::Ready(ready) = node.marks.as_ref()?.get(&shim.name)? else { return None };
        let until = after(ready.since, limits::HANDLER_GRACE);
        let awaited = until > self.world.now && denies(node, shim.spec.as_ref().ok()?) && self.is_selected(shim, node);
        awaited.then_some(until)
    }

    /// Whether the node serves the Shim's handler, verified, whatever the build.
    pub fn serves(&self, shim: &ShimView, node: &NodeView) -> Option<&'w Ready> {
        let node = self.node(&node.name)?;
        match node.marks.as_ref()?.get(&shim.name)? {
            Mark::Ready(ready) if Some(&ready.machine) == node.machine.as_ref() => Some(ready),
            _ => None,
        }
    }

    /// Whether a node carries a mark of the Shim, or a Job of it is left.
    pub fn is_anywhere(&self, shim: &ShimName) -> bool {
        // A node with unreadable marks may be one of them.
        let marked = |node: &NodeView| node.marks.as_ref().is_none_or(|marks| marks.contains_key(shim));
        self.world.nodes.iter().any(marked) || self.world.jobs.iter().any(|job| job.task.ops.contains_key(shim))
    }

    /// The failure that is the last word on this very operation on this node.
    pub fn last_failure(&self, node: &NodeView, shim: &ShimName, op: &Op) -> Option<(&'w JobView, &'w Finished)> {
        let of_this = |job: &&&'w JobView| job.task.node_uid == node.uid && job.task.ops.get(shim) == Some(op);
        let jobs = self.jobs_on(&node.name).iter().filter(of_this);
        let last = jobs.max_by_key(|job| job.task.serial).filter(|job| !self.is_superseded(job, shim))?;
        let finished = last.failure(shim).and(last.finished())?;
        // A Job that succeeded since may be gone while this one is kept for another Shim.
        let history = match node.marks.as_ref()?.get(shim)? {
            Mark::Ready(ready) => ready.since > finished.at,
            Mark::Claimed | Mark::Removing => false,
        };
        (!history).then_some((*last, finished))
    }

    /// Which try the next one is, and when it may start.
    pub fn next_try(&self, node: &NodeView, shim: &ShimName, op: &Op) -> Try {
        let Some((job, finished)) = self.last_failure(node, shim, op) else { return Try::First };
        let wait = match job.failure(shim) {
            Some(Outcome::InUse { .. }) => limits::IN_USE_RETRY_AFTER,
            _ => limits::RETRY_AFTER,
        };
        Try::Again { failed: job.task.attempt, at: after(finished.at, wait) }
    }

    /// Whether a later Job on the same node has to do with the Shim: then this one's word on it is history.
    pub fn is_superseded(&self, job: &JobView, shim: &ShimName) -> bool {
        let later = |other: &&JobView| other.task.serial > job.task.serial && other.task.ops.contains_key(shim);
        self.jobs_on(&job.task.node).iter().any(later)
    }

    /// Whether a finished Job is the last word on an operation that is still due.
    pub fn is_needed(&self, node: &NodeView, job: &JobView) -> bool {
        job.task.ops.iter().any(|(name, op)| {
            let due = || self.shim(name).is_some_and(|shim| self.due(shim, node) == Due::Op(op.clone()));
            self.last_failure(node, name, op).is_some_and(|(last, _)| last.uid == job.uid) && due()
        })
    }

    fn find_budget(&self, shim: &ShimView) -> usize {
        let max_update = shim.spec.as_ref().map_or(crate::world::MaxUpdate::DEFAULT, |spec| spec.max_update);
        let counts = |node: &&NodeView| match &shim.spec {
            Ok(spec) if shim.life == Life::Active => self.is_selected(shim, node) && skip(spec, node).is_none(),
            _ => node.marks.as_ref().is_some_and(|marks| marks.contains_key(&shim.name)),
        };
        max_update.of(self.world.nodes.iter().filter(counts).count())
    }

    /// The older of two Shims keeps a handler or RuntimeClass; the younger gets nothing.
    fn find_conflicts(&self) -> HashMap<&'w ShimName, Conflict> {
        let mut shims: Vec<_> = self.world.shims.iter().filter(|shim| shim.life != Life::Orphaned).collect();
        shims.sort_by_key(|shim| (shim.created, &shim.name));
        let (mut handlers, mut classes) = (BTreeMap::new(), BTreeMap::new());
        let mut conflicts = HashMap::new();
        for shim in shims {
            let Ok(spec) = &shim.spec else {
                // What can't be read keeps what it has on the nodes, and so its handler.
                if let Some(handler) = &shim.status.handler {
                    handlers.entry(handler.as_str()).or_insert(&shim.name);
                }
                continue;
            };
            let handler = *handlers.entry(spec.handler.as_str()).or_insert(&shim.name);
            let class = *classes.entry(&spec.runtime_class.name).or_insert(&shim.name);
            let found = conflict_with(shim, spec, handler, class).or_else(|| self.conflict_with_class(shim, spec));
            conflicts.extend(found.map(|conflict| (&shim.name, conflict)));
        }
        conflicts
    }

    fn conflict_with_class(&self, shim: &ShimView, spec: &SpecView) -> Option<Conflict> {
        let name = &spec.runtime_class.name;
        let class = self.runtime_class(name)?;
        match runtime_class::owner(class) {
            Owner::Foreign => {
                Some(format!("RuntimeClass {name} exists and was not made by kubectl-shim: delete it or choose another spec.runtimeClass.name"))
            }
            Owner::Shim(other) if other != shim.name.as_str() => {
                Some(format!("RuntimeClass {name} belongs to Shim {other}: delete it or choose another spec.runtimeClass.name"))
            }
            Owner::Shim(_) if class.handler != spec.handler.as_str() => {
                Some(format!("RuntimeClass {name} has handler {} and can't be changed: delete it", class.handler))
            }
            Owner::Shim(_) => None,
        }
        .map(Conflict)
    }
}

fn conflict_with(shim: &ShimView, spec: &SpecView, handler: &ShimName, class: &ShimName) -> Option<Conflict> {
    if *handler != shim.name {
        return Some(Conflict(format!("handler {} belongs to Shim {handler}, which is older", spec.handler)));
    }
    (*class != shim.name)
        .then(|| Conflict(format!("RuntimeClass {} belongs to Shim {class}, which is older", spec.runtime_class.name)))
}

/// The operation that puts this artifact of `spec` on a node.
fn install(spec: &SpecView, artifact: &Artifact) -> Op {
    Op::Install(Install {
        build: artifact.build.clone(),
        location: artifact.location.clone(),
        sha256: artifact.sha256.clone(),
        binary: spec.binary.clone(),
        handler: spec.handler.clone(),
        options: spec.options.clone(),
    })
}

/// Whether the kubelet reports handlers, and this one is not among them.
fn denies(node: &NodeView, spec: &SpecView) -> bool {
    !node.handlers.is_empty() && !node.handlers.contains(spec.handler.as_str())
}

/// Why a node can't be served, whatever it is asked for.
pub fn skip(spec: &SpecView, node: &NodeView) -> Option<Skip> {
    if node.os != "linux" {
        return Some(Skip::NotLinux(node.os.clone()));
    }
    if !node.runtime.starts_with("containerd://") {
        let name = node.runtime.split("://").next().unwrap_or_default();
        return Some(Skip::NotContainerd(name.to_owned()));
    }
    if let Some(taint) = node.taints.iter().find(|taint| !is_tolerated(taint, &spec.tolerations)) {
        return Some(Skip::Taint(format!("{}:{}", taint.key, taint.effect)));
    }
    if spec.artifact(&node.arch).is_none() {
        return Some(Skip::NoArtifact(node.arch.clone()));
    }
    node.machine.is_none().then_some(Skip::NoMachineId)
}

fn is_tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    let matters =
        matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute") && !taint.key.starts_with("node.kubernetes.io/");
    !matters || tolerations.iter().any(|toleration| tolerates(toleration, taint))
}

/// As the scheduler reads it: an absent effect or, with Exists, an absent key matches all.
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let filled = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let effect = filled(&toleration.effect).is_none_or(|effect| effect == taint.effect);
    let key = filled(&toleration.key);
    let exists = toleration.operator.as_deref() == Some("Exists");
    let same_key = key.as_ref().map_or(exists, |key| *key == taint.key);
    let value = exists || toleration.value.clone().unwrap_or_default() == taint.value.clone().unwrap_or_default();
    effect && same_key && value
}
