//! What the controller sees: Shims, Nodes and RuntimeClasses through caches that lag, each for itself and never backwards;
//! Jobs as they are. Its own accepted writes to Nodes are laid over the cache until that has caught up.
use std::collections::BTreeMap;

use jiff::SignedDuration;
use shim_core::{
    mark,
    names::{GROUP, NodeName},
    world::{JobView, NodeView, World},
};

use crate::{cluster::Cluster, rng::Rng};

/// No cache is older than this, in seconds.
const LAG: i64 = 20;

/// A write of ours that the Node cache may not show yet.
#[derive(Debug)]
struct Written {
    /// Version of the Nodes that has it.
    at: usize,
    node: NodeView,
}

/// The caches of one process.
#[derive(Debug, Default)]
pub struct Views {
    shims: usize,
    nodes: usize,
    classes: usize,
    written: BTreeMap<NodeName, Written>,
    /// Only for a controller that reads Jobs from a cache, which ours does not.
    jobs: Vec<JobView>,
}

impl Views {
    /// What a process sees that has just started.
    pub fn fresh(cluster: &Cluster) -> Self {
        Self {
            shims: cluster.shims.head(),
            nodes: cluster.nodes.head(),
            classes: cluster.classes.head(),
            written: BTreeMap::new(),
            jobs: cluster.world().jobs,
        }
    }

    /// The caches get some events; at the least those that are `LAG` old.
    pub fn catch_up(&mut self, cluster: &Cluster, rng: &mut Rng) {
        let old = cluster.now - SignedDuration::from_secs(LAG);
        let mut next = |seen: usize, due: usize, head: usize| match rng.chance(60) {
            true => seen.max(due) + rng.below(head - seen.max(due) + 1),
            false => head,
        };
        self.shims = next(self.shims, cluster.shims.head_at(old), cluster.shims.head());
        self.nodes = next(self.nodes, cluster.nodes.head_at(old), cluster.nodes.head());
        self.classes = next(self.classes, cluster.classes.head_at(old), cluster.classes.head());
        self.written.retain(|_, written| written.at > self.nodes);
    }

    /// The cache of Jobs that we do not have gets its events.
    pub fn catch_up_jobs(&mut self, cluster: &Cluster) {
        self.jobs = cluster.world().jobs;
    }

    pub fn cached_jobs(&self) -> Vec<JobView> {
        self.jobs.clone()
    }

    /// The API server has answered our patch with this Node.
    pub fn wrote(&mut self, cluster: &Cluster, name: &NodeName) {
        if let Some(node) = cluster.nodes.get(name).cloned() {
            self.written.insert(name.clone(), Written { at: cluster.nodes.head(), node });
        }
    }

    /// The World of the next pass.
    pub fn world(&self, cluster: &Cluster) -> World {
        World {
            shims: cluster.shims.at(self.shims).map(|shim| shim.view.clone()).collect(),
            nodes: cluster.nodes.at(self.nodes).map(|node| self.overlaid(node.clone())).collect(),
            runtime_classes: cluster.classes.at(self.classes).cloned().collect(),
            jobs: cluster.jobs.values().map(|job| job.view.clone()).collect(),
            occupied: cluster.strays.iter().map(|stray| stray.task().node.clone()).collect(),
            now: cluster.now,
        }
    }

    fn overlaid(&self, mut node: NodeView) -> NodeView {
        let Some(written) = self.written.get(&node.name).filter(|written| written.node.uid == node.uid) else { return node };
        let is_ours = |key: &String| key.starts_with(GROUP);
        node.annotation.clone_from(&written.node.annotation);
        node.marks = mark::parse(node.annotation.as_deref());
        node.labels.retain(|key, _| !is_ours(key));
        node.labels.extend(written.node.labels.iter().filter(|(key, _)| is_ours(key)).map(|(k, v)| (k.clone(), v.clone())));
        node
    }
}
