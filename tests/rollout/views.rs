//! What the controller sees: Shims, Nodes and RuntimeClasses through caches that lag, each for itself and never backwards;
//! Jobs as they are. Its own accepted writes to Nodes are laid over the cache until that has caught up.
use std::{
    collections::{BTreeMap, BTreeSet},
    mem::take,
    sync::Arc,
};

use jiff::SignedDuration;
use shim_core::{
    mark,
    names::{GROUP, NodeName},
    world::{JobView, NodeView, World},
};

use crate::{
    cluster::{Cluster, revisions_of},
    rng::Rng,
};

/// No cache is older than this, in seconds.
const LAG: i64 = 20;

/// A write of ours that the Node cache may not show yet.
#[derive(Debug)]
struct Written {
    /// Version of the Nodes that has it.
    at: usize,
    /// None: it was not there any more.
    node: Option<NodeView>,
}

/// A watch that delivers as late as it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Slow {
    #[default]
    None,
    Shims,
    Nodes,
    Classes,
    Revisions,
}

/// The caches of one process.
#[derive(Debug, Default)]
pub struct Views {
    shims: usize,
    nodes: usize,
    classes: usize,
    revisions: usize,
    /// How much the clock of this process is ahead, in seconds.
    ahead: i64,
    written: BTreeMap<NodeName, Written>,
    /// Nodes of which a write was refused or got no answer: they are read before the next pass.
    unsure: BTreeSet<NodeName>,
    slow: Slow,
    /// Only for a controller that reads Jobs from a cache, which ours does not.
    jobs: Vec<JobView>,
}

impl Views {
    /// What a process sees that has just started.
    pub fn fresh(cluster: &Cluster, rng: &mut Rng) -> Self {
        let slow = [Slow::None, Slow::None, Slow::None, Slow::Shims, Slow::Nodes, Slow::Classes, Slow::Revisions];
        let ahead = [0, 0, 0, 0, 0, 7, 3600, -3600][rng.below(8)];
        Self {
            shims: cluster.shims.head(),
            nodes: cluster.nodes.head(),
            classes: cluster.classes.head(),
            revisions: cluster.revisions.head(),
            ahead,
            written: BTreeMap::new(),
            unsure: BTreeSet::new(),
            slow: slow[rng.below(slow.len())],
            jobs: cluster.job_views(),
        }
    }

    /// The faults end: its clock is right.
    pub fn accurate(self) -> Self {
        Self { ahead: 0, ..self }
    }

    /// The caches get some events; at the least those that are `LAG` old.
    pub fn catch_up(&mut self, cluster: &Cluster, rng: &mut Rng) {
        let old = cluster.now - SignedDuration::from_secs(LAG);
        let mut next = |is_slow: bool, least: usize, head: usize| match rng.below(10) {
            _ if is_slow => least,
            0..=5 => least + rng.below(head - least + 1),
            _ => head,
        };
        let slow = self.slow;
        self.shims = next(slow == Slow::Shims, self.shims.max(cluster.shims.head_at(old)), cluster.shims.head());
        self.nodes = next(slow == Slow::Nodes, self.nodes.max(cluster.nodes.head_at(old)), cluster.nodes.head());
        self.classes =
            next(slow == Slow::Classes, self.classes.max(cluster.classes.head_at(old)), cluster.classes.head());
        self.revisions =
            next(slow == Slow::Revisions, self.revisions.max(cluster.revisions.head_at(old)), cluster.revisions.head());
        for name in take(&mut self.unsure) {
            self.wrote(cluster, &name);
        }
        self.written.retain(|_, written| written.at > self.nodes);
    }

    /// The cache of Jobs that we do not have gets its events.
    pub fn catch_up_jobs(&mut self, cluster: &Cluster) {
        self.jobs = cluster.job_views();
    }

    pub fn cached_jobs(&self) -> Vec<JobView> {
        self.jobs.clone()
    }

    /// Our patch was refused, or got no answer.
    pub fn is_unsure(&mut self, name: &NodeName) {
        self.unsure.insert(name.clone());
    }

    /// The API server has answered with this Node.
    pub fn wrote(&mut self, cluster: &Cluster, name: &NodeName) {
        let node = cluster.nodes.get(name).cloned();
        self.written.insert(name.clone(), Written { at: cluster.nodes.head(), node });
    }

    /// The World of the next pass.
    pub fn world(&self, cluster: &Cluster) -> World {
        let shims: Vec<_> = cluster.shims.at(self.shims).map(|shim| shim.view.clone()).collect();
        World {
            revisions: revisions_of(&shims, cluster.revisions.at(self.revisions)),
            shims,
            nodes: self.nodes_of(cluster),
            runtime_classes: cluster.classes.at(self.classes).cloned().collect(),
            jobs: cluster.job_views(),
            occupied: cluster.strays.iter().map(|stray| stray.task().node.clone()).collect(),
            now: cluster.now + SignedDuration::from_secs(self.ahead),
        }
    }

    fn nodes_of(&self, cluster: &Cluster) -> Vec<Arc<NodeView>> {
        let cached = cluster.nodes.at(self.nodes).map(|node| (node.name.clone(), self.overlaid(node.clone())));
        let mut nodes: BTreeMap<_, _> = cached.collect();
        for (name, written) in &self.written {
            match &written.node {
                Some(node) => drop(nodes.entry(name.clone()).or_insert_with(|| node.clone())),
                None => drop(nodes.remove(name)),
            }
        }
        nodes.into_values().map(Arc::new).collect()
    }

    fn overlaid(&self, mut node: NodeView) -> NodeView {
        let Some(written) = self.written.get(&node.name).and_then(|written| written.node.as_ref()) else { return node };
        // Another one has come under the name, and the cache does not show it yet.
        if written.uid != node.uid {
            return written.clone();
        }
        let is_ours = |key: &str| key.starts_with(GROUP);
        node.annotation.clone_from(&written.annotation);
        node.marks = mark::parse(node.annotation.as_deref());
        node.labels.retain(|key, _| !is_ours(key));
        node.labels.extend(written.labels.iter().filter(|(key, _)| is_ours(key)).map(|(k, v)| (k.clone(), v.clone())));
        node
    }
}
