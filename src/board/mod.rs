//! The World, indexed: what the planner and the status both ask of it.
use std::collections::{BTreeMap, HashMap};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::node::v1::RuntimeClass;
use rustc_hash::FxHashMap;

use crate::{
    limits,
    mark::{self, Mark, Ready},
    names::{NodeName, ShimName},
    revision::{Fate, RevisionView},
    runtime_class::{self, Owner},
    task::Op,
    world::{JobView, Life, NodeView, Phase, ShimView, Source, SpecView, World},
};

mod brakes;
mod stand;
mod tries;

pub use brakes::{Gate, Tally};
pub use stand::{Skip, Stand};
pub use tries::{Weight, Word};

/// Why nothing of a Shim is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict(pub String);

/// A Shim, with what holds for all nodes.
#[derive(Debug)]
pub struct Side<'w> {
    /// The Shim.
    pub shim: &'w ShimView,
    /// Why nothing of it is installed, if so.
    pub conflict: Option<Conflict>,
    /// The revision on record that it asks for; nothing new is installed before there is one.
    pub revision: Option<&'w RevisionView>,
    /// What new nodes get while that one has not proven itself.
    pub fallback: Option<Fallback<'w>>,
    /// How far its rollout is.
    pub tally: Tally,
    /// The nodes that have what it wants, and no Job of ours.
    pub calm: Calm,
    /// The other nodes that it has to do with, by their index.
    restless: Vec<usize>,
    times: Times,
}

/// The last revision that completed, other than the current one.
#[derive(Debug)]
pub struct Fallback<'w> {
    /// The revision.
    pub revision: &'w RevisionView,
    source: Source,
}

/// Marks that are older than these.
#[derive(Debug, Clone, Copy)]
struct Times {
    /// The kubelet has had the time to report the handler.
    settled: Timestamp,
    /// It is time to look again.
    old: Timestamp,
}

/// Nodes that are counted, and nothing more: at rest all are like that.
#[derive(Debug, Clone, Copy, Default)]
pub struct Calm {
    /// How many.
    pub nodes: usize,
    /// Pods of others that the restarts ended.
    pub disrupted: u32,
}

/// A node that may have something to do.
#[derive(Debug, Default)]
struct Entry<'w> {
    /// How it stands to each Shim.
    stands: Vec<Stand<'w>>,
    /// Our Jobs for it.
    jobs: Vec<&'w JobView>,
}

/// A node as one Shim sees it.
#[derive(Debug, Clone, Copy)]
pub struct Pair<'b, 'w> {
    /// The node.
    pub node: &'w NodeView,
    /// How they stand to each other.
    pub stand: Stand<'w>,
    /// Our Jobs for the node.
    pub jobs: &'b [&'w JobView],
}

/// An indexed [`World`].
#[derive(Debug)]
pub struct Board<'w> {
    /// What it indexes.
    pub world: &'w World,
    /// The Shims, by name.
    sides: Vec<Side<'w>>,
    /// For each node of the World; `None`: it has nothing to do.
    entries: Vec<Option<Entry<'w>>>,
    nodes: FxHashMap<&'w NodeName, usize>,
    classes: HashMap<&'w str, &'w RuntimeClass>,
    /// When time alone makes something due that is not due now.
    pub wake_at: Option<Timestamp>,
}

impl<'w> Board<'w> {
    /// Indexes a World.
    pub fn new(world: &'w World) -> Self {
        let classes = world.runtime_classes.iter().filter_map(|c| Some((c.metadata.name.as_deref()?, c))).collect();
        let mut board = Self {
            world,
            sides: Vec::new(),
            entries: world.nodes.iter().map(|_| None).collect(),
            nodes: world.nodes.iter().enumerate().map(|(index, node)| (&node.name, index)).collect(),
            classes,
            wake_at: None,
        };
        board.sides = board.find_sides();
        board.assign_jobs();
        board.compare();
        board.count();
        board
    }

    fn assign_jobs(&mut self) {
        for job in &self.world.jobs {
            if let Some(index) = self.node_index(&job.task.node) {
                self.entries[index].get_or_insert_default().jobs.push(job);
            }
        }
    }

    fn find_sides(&self) -> Vec<Side<'w>> {
        let mut conflicts = self.find_conflicts();
        let mut shims: Vec<_> = self.world.shims.iter().collect();
        shims.sort_by_key(|shim| &shim.name);
        let before = |wait| before(self.world.now, wait);
        let times = Times { settled: before(limits::HANDLER_GRACE), old: before(limits::CHECK_EVERY) };
        let side = |shim: &'w ShimView| {
            let revision = self.find_revision(shim);
            let fallback = revision.and_then(|current| self.find_fallback(shim, current));
            let conflict = conflicts.remove(&shim.name);
            Side {
                shim,
                conflict,
                revision,
                fallback,
                tally: Tally::default(),
                calm: Calm::default(),
                restless: Vec::new(),
                times,
            }
        };
        shims.into_iter().map(side).collect()
    }

    /// The newest revision, if it is what the spec asks for.
    fn find_revision(&self, shim: &ShimView) -> Option<&'w RevisionView> {
        let spec = shim.spec.as_ref().ok()?;
        self.revisions_of(shim).max_by_key(|revision| revision.number).filter(|newest| newest.inputs == spec.inputs)
    }

    /// The revisions of a Shim, in no order.
    pub fn revisions_of(&self, shim: &ShimView) -> impl Iterator<Item = &'w RevisionView> + use<'w> {
        let name = shim.name.clone();
        self.world.revisions.iter().filter(move |revision| revision.shim == name)
    }

    fn find_fallback(&self, shim: &ShimView, current: &RevisionView) -> Option<Fallback<'w>> {
        let handler = &shim.spec.as_ref().ok()?.handler;
        let proven = |revision: &&RevisionView| {
            let on_a_node = revision.record.is_some_and(|record| record.updated > 0);
            revision.number != current.number && revision.fate() == Fate::Complete && on_a_node
        };
        let revision = self.revisions_of(shim).filter(proven).max_by_key(|revision| revision.number)?;
        Some(Fallback { revision, source: Source::read(&revision.inputs, handler).ok()? })
    }

    fn compare(&mut self) {
        let mut stands = Vec::with_capacity(self.sides.len());
        for (index, (node, entry)) in self.world.nodes.iter().zip(&mut self.entries).enumerate() {
            let pairs = stand::marks_by_side(&self.sides, node.marks.as_ref());
            stands.extend(pairs.map(|(side, mark)| Stand::of(side, node, mark)));
            let expiry = |(side, stand): (&Side<'_>, &Stand<'_>)| stand::expiry(stand, side, node);
            let expiries = self.sides.iter().zip(&stands).filter_map(expiry);
            self.wake_at = expiries.chain(self.wake_at).min();
            for (side, stand) in self.sides.iter_mut().zip(&stands) {
                match stand {
                    Stand::Apart => {}
                    Stand::Kept(ready) if entry.is_none() => side.calm.add(ready),
                    _ => side.restless.push(index),
                }
            }
            if entry.is_some() || !has_nothing_to_do(node, &stands) {
                entry.get_or_insert_default().stands.clone_from(&stands);
            }
            stands.clear();
        }
    }

    /// The Shims, by name.
    pub fn sides(&self) -> &[Side<'w>] {
        &self.sides
    }

    /// The Shim of this name.
    pub fn side(&self, name: &ShimName) -> Option<&Side<'w>> {
        self.index_of(name).map(|index| &self.sides[index])
    }

    fn index_of(&self, name: &ShimName) -> Option<usize> {
        self.sides.binary_search_by_key(&name, |side| &side.shim.name).ok()
    }

    /// Index of the Node of this name.
    pub fn node_index(&self, name: &NodeName) -> Option<usize> {
        self.nodes.get(name).copied()
    }

    /// The Node of this name.
    pub fn node(&self, name: &NodeName) -> Option<&'w NodeView> {
        self.nodes.get(name).map(|index| &*self.world.nodes[*index])
    }

    /// Nodes that may have something to do, by their index in the World.
    pub fn restless(&self) -> impl Iterator<Item = usize> {
        self.entries.iter().enumerate().filter_map(|(index, entry)| entry.as_ref().map(|_| index))
    }

    /// How a node, by its index in the World, stands to each Shim.
    pub fn stands(&self, node: usize) -> impl Iterator<Item = (&Side<'w>, Stand<'w>)> {
        self.sides.iter().enumerate().map(move |(index, side)| (side, self.stand_at(index, node)))
    }

    /// All nodes, as a Shim sees them.
    pub fn pairs(&self, shim: &ShimName) -> impl Iterator<Item = Pair<'_, 'w>> {
        let shim = self.index_of(shim);
        shim.into_iter().flat_map(move |shim| (0..self.entries.len()).map(move |node| self.pair(shim, node)))
    }

    /// All nodes that a Shim has to do with but its calm ones, as it sees them.
    pub fn restless_pairs(&self, shim: &ShimName) -> impl Iterator<Item = Pair<'_, 'w>> {
        let shim = self.index_of(shim);
        shim.into_iter().flat_map(move |shim| self.sides[shim].restless.iter().map(move |node| self.pair(shim, *node)))
    }

    fn pair(&self, shim: usize, node: usize) -> Pair<'_, 'w> {
        Pair { node: &self.world.nodes[node], stand: self.stand_at(shim, node), jobs: self.jobs_at(node) }
    }

    /// How a node stands to a Shim.
    pub fn stand(&self, shim: &ShimName, node: &NodeName) -> Stand<'w> {
        match (self.index_of(shim), self.node_index(node)) {
            (Some(shim), Some(node)) => self.stand_at(shim, node),
            _ => Stand::Apart,
        }
    }

    fn stand_at(&self, shim: usize, node: usize) -> Stand<'w> {
        if let Some(entry) = &self.entries[node] {
            return entry.stands[shim];
        }
        let (side, node) = (&self.sides[shim], &self.world.nodes[node]);
        Stand::of(side, node, node.marks.as_ref().and_then(|marks| marks.get(&side.shim.name)))
    }

    /// Our Jobs for the node of this name.
    pub fn jobs_on(&self, node: &NodeName) -> &[&'w JobView] {
        self.node_index(node).map_or(&[], |node| self.jobs_at(node))
    }

    /// Our Jobs for a node, by its index in the World.
    pub fn jobs_at(&self, node: usize) -> &[&'w JobView] {
        self.entries[node].as_ref().map_or(&[], |entry| &entry.jobs)
    }

    /// The RuntimeClass of this name.
    pub fn runtime_class(&self, name: &str) -> Option<&'w RuntimeClass> {
        self.classes.get(name).copied()
    }

    /// Whether something of ours may be running on the node.
    pub fn is_busy(&self, node: &NodeView) -> bool {
        self.world.occupied.contains(&node.name)
            || self.jobs_on(&node.name).iter().any(|job| !matches!(job.phase, Phase::Finished(_)))
    }

    /// Operations that may start on the node, sooner or later: what is due, and what a new node gets meanwhile.
    pub fn wished(&self, side: &Side<'w>, node: &NodeView) -> impl Iterator<Item = Op> {
        let stand = self.stand(&side.shim.name, &node.name);
        stand.op(side.shim).into_iter().chain(self.fallback(side, node, stand))
    }

    /// Whether a finished Job is the last word on an operation that may start again.
    pub fn is_needed(&self, node: &NodeView, job: &JobView) -> bool {
        job.task.ops.iter().any(|(name, op)| {
            let Some(side) = self.side(name) else { return false };
            self.word(side, node, op).is_some_and(|word| word.job.uid == job.uid)
                && (self.is_put_off(side, node, op) || self.wished(side, node).any(|wished| wished == *op))
        })
    }

    /// Whether a node carries a mark of the Shim, or a Job of it is left.
    pub fn is_anywhere(&self, shim: &ShimName) -> bool {
        // A node with unreadable marks may be one of them.
        let marked = |node: &NodeView| node.marks.as_ref().is_none_or(|marks| marks.contains_key(shim));
        self.world.nodes.iter().any(|node| marked(node))
            || self.world.jobs.iter().any(|job| job.task.ops.contains_key(shim))
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

impl Side<'_> {
    /// Whether no new node starts because somebody said so.
    pub fn is_paused(&self) -> bool {
        self.shim.life == Life::Active && self.shim.spec.as_ref().is_ok_and(|spec| spec.rollout.paused)
    }
}

impl Calm {
    fn add(&mut self, ready: &Ready) {
        self.nodes += 1;
        self.disrupted += ready.disrupted;
    }
}

/// Whether no Shim wants anything of a node, and every mark is one that is kept and is told by its label.
fn has_nothing_to_do(node: &NodeView, stands: &[Stand<'_>]) -> bool {
    let kept = || stands.iter().filter(|stand| matches!(stand, Stand::Kept(_))).count();
    stands.iter().all(Stand::is_quiet)
        && node.marks.as_ref().is_none_or(|marks| marks.len() == kept() && mark::labels_agree(marks, &node.labels))
}

/// What was verified on a node, if it still is the same machine.
pub fn served<'n>(shim: &ShimName, node: &'n NodeView) -> Option<&'n Ready> {
    match node.marks.as_ref()?.get(shim)? {
        Mark::Ready(ready) if Some(&ready.machine) == node.machine.as_ref() => Some(ready),
        _ => None,
    }
}

/// `time` plus `wait`.
pub(crate) fn after(time: Timestamp, wait: std::time::Duration) -> Timestamp {
    let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
    time.checked_add(wait).unwrap_or(Timestamp::MAX)
}

fn before(time: Timestamp, wait: std::time::Duration) -> Timestamp {
    let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
    time.checked_sub(wait).unwrap_or(Timestamp::MIN)
}
