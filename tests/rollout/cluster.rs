//! The true cluster: what the API server and the machines hold, whatever anybody has seen of it.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::node::v1::RuntimeClass;
use shim_core::{
    job::Start,
    mark::{self, Mark},
    names::{Build, Handler, MachineId, NodeName, ShimName},
    revision::RevisionView,
    task::Task,
    world::{Handlers, JobView, Life, NodeView, Phase, ShimView, SpecView, World},
};

use crate::log::Log;

/// A Shim, and what the planner can't see of it.
#[derive(Debug, Clone)]
pub struct Shim {
    pub view: ShimView,
    /// Whether it goes once our finalizer is off.
    pub deleted: bool,
    /// The spec that comes back after one that could not be read.
    pub legible: SpecView,
    /// Number of the newest build that it ever asked for.
    pub newest: u32,
}

/// A revision, and the Shim that it goes with.
#[derive(Debug, Clone)]
pub struct Revision {
    pub view: RevisionView,
    pub owner: String,
}

/// A Job and its Pod.
#[derive(Debug, Clone)]
pub struct Job {
    pub view: JobView,
}

impl Job {
    /// Whether the installer has begun to touch the machine.
    pub fn has_begun(&self) -> bool {
        self.view.start == Start::Begun
    }

    pub fn task(&self) -> &Task {
        &self.view.task
    }

    pub fn is_finished(&self) -> bool {
        matches!(self.view.phase, Phase::Finished(_))
    }
}

/// What lies on a machine of one Shim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnDisk {
    /// The build in force; none: leftovers of an installation.
    pub build: Option<Build>,
    pub state: DiskState,
    pub handler: Handler,
    /// Uid of the Node for which it was touched last.
    pub by: String,
}

/// What an installer has found of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskState {
    /// Installed and verified.
    Verified,
    /// An installer ended in the middle.
    Touched,
    /// It was verified, and somebody has taken the handler out of the configuration.
    Drifted,
}

pub type Disk = BTreeMap<ShimName, OnDisk>;

/// Everything that is true.
#[derive(Debug, Clone)]
pub struct Cluster {
    pub now: Timestamp,
    pub shims: Log<ShimName, Shim>,
    pub nodes: Log<NodeName, NodeView>,
    pub classes: Log<String, RuntimeClass>,
    /// By object name.
    pub revisions: Log<String, Revision>,
    pub jobs: BTreeMap<String, Job>,
    /// Pods that run on although their Job was deleted.
    pub strays: Vec<Job>,
    /// Disks by machine.
    pub machines: BTreeMap<MachineId, Disk>,
    /// The machine behind each Node, by uid; the kubelet says it a moment later.
    pub hosts: BTreeMap<String, MachineId>,
    /// Upgrades whose Job was deleted by hand before anybody could read its result: which build runs is not knowable.
    pub untold: BTreeSet<(String, ShimName)>,
    /// Uids of Nodes whose kubelet reports nothing but the runtime's own handler.
    pub deaf: BTreeSet<String>,
    /// How many times in a row a node has been marked with the very build that it had, by node uid.
    pub repairs: BTreeMap<(String, ShimName), u32>,
    /// Labels of ours that somebody has taken off, by node uid.
    pub torn_labels: BTreeSet<(String, ShimName)>,
    next_id: u64,
}

impl Cluster {
    pub fn new() -> Self {
        Self {
            now: Timestamp::from_second(1_800_000_000).unwrap(),
            shims: Log::new(),
            nodes: Log::new(),
            classes: Log::new(),
            revisions: Log::new(),
            jobs: BTreeMap::new(),
            strays: Vec::new(),
            machines: BTreeMap::new(),
            hosts: BTreeMap::new(),
            untold: BTreeSet::new(),
            deaf: BTreeSet::new(),
            repairs: BTreeMap::new(),
            torn_labels: BTreeSet::new(),
            next_id: 0,
        }
    }

    pub fn id(&mut self) -> String {
        self.next_id += 1;
        format!("u{}", self.next_id)
    }

    pub fn pass_seconds(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    /// The disk of the machine behind a Node.
    pub fn disk(&self, node: &NodeView) -> &Disk {
        &self.machines[self.host(node)]
    }

    pub fn host(&self, node: &NodeView) -> &MachineId {
        &self.hosts[&node.uid]
    }

    /// The Node of a task, if it still is the same.
    pub fn node_of(&self, task: &Task) -> Option<&NodeView> {
        self.nodes.get(&task.node).filter(|node| node.uid == task.node_uid)
    }

    /// Jobs and stray Pods that may be touching a machine.
    pub fn running(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values().filter(|job| !job.is_finished()).chain(&self.strays)
    }

    /// Whether an operation on the Shim on this Node has not been told to the planner in full.
    pub fn is_open(&self, node: &NodeView, shim: &ShimName) -> bool {
        let untold = |job: &&Job| !matches!(&job.view.phase, Phase::Finished(finished) if finished.recorded);
        let about = |job: &Job| job.task().node_uid == node.uid && job.task().ops.contains_key(shim);
        self.jobs.values().filter(untold).chain(&self.strays).any(about)
            || self.untold.contains(&(node.uid.clone(), shim.clone()))
    }

    pub fn job_views(&self) -> Vec<JobView> {
        self.jobs.values().map(|job| job.view.clone()).collect()
    }

    /// What a process sees that has just started: everything.
    pub fn world(&self) -> World {
        let shims: Vec<_> = self.shims.iter().map(|shim| shim.view.clone()).collect();
        World {
            now: self.now,
            revisions: revisions_of(&shims, self.revisions.iter()),
            shims,
            nodes: self.nodes.iter().cloned().map(Arc::new).collect(),
            jobs: self.job_views(),
            occupied: self.strays.iter().map(|stray| stray.task().node.clone()).collect(),
            runtime_classes: self.classes.iter().cloned().collect(),
        }
    }

    /// Handlers that the runtime on a machine serves, as a kubelet would report them.
    pub fn handlers(&self, machine: &MachineId) -> Handlers {
        let copies = self.machines[machine].values();
        let served = copies.filter(|copy| copy.build.is_some() && copy.state != DiskState::Drifted);
        served.map(|copy| copy.handler.as_str().into()).chain(["runc".into()]).collect()
    }

    /// Kubelets tell which machine they are on, and which handlers it has.
    pub fn kubelets_report(&mut self) {
        for name in self.nodes.keys() {
            self.kubelet_reports(&name);
        }
    }

    pub fn kubelet_reports(&mut self, name: &NodeName) {
        let Some(node) = self.nodes.get(name).filter(|node| node.ready) else { return };
        let machine = self.host(node).clone();
        // containerd 1.x tells no handlers.
        let silent = node.handlers.is_empty();
        if silent && node.machine.as_ref() == Some(&machine) {
            return;
        }
        let handlers = match silent {
            true => Handlers::new(),
            false if self.deaf.contains(&node.uid) => ["runc".into()].into(),
            false => self.handlers(&machine),
        };
        if node.handlers != handlers || node.machine.as_ref() != Some(&machine) {
            self.nodes.change(self.now, name, |node| (node.handlers, node.machine) = (handlers, Some(machine)));
        }
    }

    /// Replaces the annotation of a Node and changes labels, as our patch does.
    pub fn write_marks(
        &mut self,
        name: &NodeName,
        text: Option<&String>,
        labels: &BTreeMap<String, Option<&'static str>>,
    ) {
        self.count_repairs(name, text);
        self.nodes.change(self.now, name, |node| {
            node.annotation = text.cloned();
            node.marks = mark::parse(text.map(String::as_str));
            for (key, value) in labels {
                match value {
                    Some(value) => node.labels.insert(key.into(), (*value).into()),
                    None => node.labels.remove(key.as_str()),
                };
            }
        });
    }

    fn count_repairs(&mut self, name: &NodeName, text: Option<&String>) {
        let Some(node) = self.nodes.get(name) else { return };
        for (shim, mark) in mark::parse(text.map(String::as_str)).unwrap_or_default() {
            let before = node.marks.as_ref().and_then(|marks| marks.get(&shim));
            let (Mark::Ready(new), Some(Mark::Ready(old))) = (mark, before) else { continue };
            let count = self.repairs.entry((node.uid.clone(), shim)).or_default();
            match (new.build == old.build, new.since.duration_since(old.since).as_secs()) {
                (true, 0) => {}
                (true, 1..86_400) => *count += 1,
                _ => *count = 0,
            }
        }
    }

    /// Takes our finalizer off; a deleted Shim goes with it.
    pub fn release(&mut self, name: &ShimName) {
        let goes = self.shims.get(name).is_some_and(|shim| shim.deleted);
        if goes {
            self.shims.set(self.now, name.clone(), None);
        } else {
            self.shims.change(self.now, name, |shim| shim.view.finalizer = false);
        }
    }

    /// Revisions go with their Shim, a while later.
    pub fn collect_garbage(&mut self) {
        let uids: BTreeSet<_> = self.shims.iter().map(|shim| shim.view.uid.clone()).collect();
        for name in self.revisions.keys() {
            if self.revisions.get(&name).is_some_and(|revision| !uids.contains(&revision.owner)) {
                self.revisions.set(self.now, name, None);
            }
        }
    }

    pub fn delete_shim(&mut self, name: &ShimName, life: Life) {
        self.shims.change(self.now, name, |shim| (shim.deleted, shim.view.life) = (true, life));
        if self.shims.get(name).is_some_and(|shim| !shim.view.finalizer) {
            self.release(name);
        }
    }
}

/// The revisions that belong to these Shims, not to earlier ones of their names.
pub fn revisions_of<'c>(shims: &[ShimView], revisions: impl Iterator<Item = &'c Revision>) -> Vec<RevisionView> {
    let belongs = |revision: &&Revision| shims.iter().any(|shim| shim.uid == revision.owner);
    revisions.filter(belongs).map(|revision| revision.view.clone()).collect()
}
