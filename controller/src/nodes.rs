//! Nodes as the planner sees them, kept up to date by a watch. What a kubelet says every few minutes and nobody reads is
//! forgotten at once: a cluster at rest costs nothing.
use std::{
    collections::{BTreeMap, HashMap},
    mem::take,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kube::{ResourceExt, core::ObjectMeta, runtime::watcher::Event};
use sha2::{Digest as _, Sha256};
use shim_core::world::{LeanNode, NodeView};
use tokio::sync::watch;

/// A Node, and the write that made it so.
#[derive(Debug, Clone)]
struct Seen {
    view: Arc<NodeView>,
    version: u64,
    digest: Digest,
}

impl Seen {
    fn read(node: &LeanNode) -> Option<Self> {
        Self::read_with(node, digest(node))
    }

    fn read_with(node: &LeanNode, digest: Digest) -> Option<Self> {
        Some(Self { view: Arc::new(NodeView::read(node)?), version: version(node), digest })
    }
}

/// SHA-256.
type Digest = [u8; 32];

/// Of all that the view of a Node is read from. Reading it again, only to find it the same, costs several times as much.
fn digest(node: &LeanNode) -> Digest {
    let LeanNode { metadata, spec, status } = node;
    // All metadata that a LeanNode has but the resource version.
    let ObjectMeta { name, uid, labels, annotations, .. } = metadata;
    let mut hasher = Sha256::new();
    // Neither can such maps be refused by JSON nor can a hasher refuse bytes.
    let _ = serde_json::to_writer(&mut hasher, &(name, uid, labels, annotations, spec, status));
    hasher.finalize().into()
}

/// Resource versions grow with every write; comparing them as numbers is allowed since Kubernetes 1.35, and etcd has
/// always made them so.
fn version(node: &LeanNode) -> u64 {
    node.resource_version().and_then(|text| text.parse().ok()).unwrap_or_default()
}

#[derive(Debug, Default)]
struct Cache {
    nodes: BTreeMap<String, Seen>,
    /// A list that is not complete yet.
    coming: BTreeMap<String, Seen>,
    /// The latest write that the watch has told of.
    version: u64,
    /// What we wrote, until the watch has caught up.
    written: HashMap<String, Seen>,
    /// Uids of what was not there any more when we asked, until the watch has caught up.
    gone: HashMap<String, String>,
}

/// Whether an event could change a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// It could.
    Some,
    /// Nothing that the planner reads.
    None,
}

/// The writing end: fed by a watch.
#[derive(Debug, Clone)]
pub(crate) struct Feed {
    cache: Arc<Mutex<Cache>>,
    full: watch::Sender<bool>,
}

/// The reading end.
pub(crate) struct Nodes {
    cache: Arc<Mutex<Cache>>,
    full: watch::Receiver<bool>,
}

/// A cache, empty.
pub(crate) fn cache() -> (Nodes, Feed) {
    let cache = Arc::new(Mutex::new(Cache::default()));
    let (sender, receiver) = watch::channel(false);
    (Nodes { cache: cache.clone(), full: receiver }, Feed { cache, full: sender })
}

fn lock(cache: &Mutex<Cache>) -> MutexGuard<'_, Cache> {
    cache.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Feed {
    /// Takes an event of the watch.
    pub(crate) fn take(&self, event: &Event<LeanNode>) -> News {
        let mut cache = lock(&self.cache);
        if let Event::Apply(node) | Event::InitApply(node) | Event::Delete(node) = event {
            cache.version = cache.version.max(version(node));
        }
        match event {
            Event::Init => cache.coming.clear(),
            Event::InitApply(node) => {
                cache.coming.extend(Seen::read(node).map(|seen| (node.name_any(), seen)));
            }
            Event::InitDone => {
                cache.nodes = take(&mut cache.coming);
                self.full.send_replace(true);
                return News::Some;
            }
            Event::Apply(node) => return cache.apply(node),
            Event::Delete(node) => {
                cache.nodes.remove(&node.name_any());
                return News::Some;
            }
        }
        News::None
    }
}

impl Cache {
    fn apply(&mut self, node: &LeanNode) -> News {
        let (name, digest) = (node.name_any(), digest(node));
        if let Some(known) = self.nodes.get_mut(&name)
            && known.digest == digest
        {
            known.version = version(node);
            return News::None;
        }
        let Some(seen) = Seen::read_with(node, digest) else { return News::None };
        self.nodes.insert(name, seen);
        News::Some
    }
}

impl Nodes {
    /// Waits for the first list.
    pub(crate) async fn synced(&self) -> Result<(), watch::error::RecvError> {
        self.full.clone().wait_for(|full| *full).await.map(drop)
    }

    /// Remembers what we wrote: the planner must never decide on a Node that it has already changed.
    pub(crate) fn wrote(&self, node: &LeanNode) {
        lock(&self.cache).written.extend(Seen::read(node).map(|seen| (node.name_any(), seen)));
    }

    /// Remembers that a Node is not there any more.
    pub(crate) fn lost(&self, name: &str) {
        let mut cache = lock(&self.cache);
        cache.written.remove(name);
        let known = cache.nodes.get(name).map(|seen| seen.view.uid.clone());
        cache.gone.extend(known.map(|uid| (name.to_owned(), uid)));
    }

    /// All Nodes, by name.
    pub(crate) fn views(&self) -> Vec<Arc<NodeView>> {
        let Cache { nodes, version, written, gone, .. } = &mut *lock(&self.cache);
        // Until the watch has told of all writes up to ours, what it shows or does not show is older.
        written.retain(|name, written| {
            *version < written.version || nodes.get(name).is_some_and(|seen| seen.version < written.version)
        });
        gone.retain(|name, uid| nodes.get(name).is_some_and(|seen| seen.view.uid == *uid));
        let there = nodes.iter().filter(|(name, _)| !gone.contains_key(*name));
        let mut views: BTreeMap<_, _> = there.map(|(name, seen)| (name, &seen.view)).collect();
        views.extend(written.iter().map(|(name, written)| (name, &written.view)));
        views.into_values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Taint;
    use shim_core::names::STATE_ANNOTATION;

    use super::*;

    fn node(uid: &str, version: u64, label: &str) -> LeanNode {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "n", "uid": uid, "resourceVersion": version.to_string(), "labels": {"l": label}},
            "status": {"conditions": [
                {"type": "Ready", "status": "True", "lastHeartbeatTime": version.to_string()},
                {"type": "DiskPressure", "status": if version.is_multiple_of(2) { "True" } else { "False" }},
            ]},
        }))
        .unwrap()
    }

    fn labels(nodes: &Nodes) -> Vec<String> {
        nodes.views().iter().map(|view| view.labels["l"].to_string()).collect()
    }

    #[test]
    fn a_heartbeat_is_no_news_and_a_change_is() {
        let (nodes, feed) = cache();
        assert_eq!(feed.take(&Event::Apply(node("u", 1, "a"))), News::Some);
        let before = nodes.views();
        assert_eq!(feed.take(&Event::Apply(node("u", 2, "a"))), News::None);
        assert!(Arc::ptr_eq(&before[0], &nodes.views()[0]));
        assert_eq!(feed.take(&Event::Apply(node("u", 3, "b"))), News::Some);
        assert_eq!(feed.take(&Event::Delete(node("u", 4, "b"))), News::Some);
        assert!(nodes.views().is_empty());
    }

    #[test]
    fn whatever_a_node_is_read_from_is_news() {
        let with = |change: fn(&mut LeanNode)| {
            let mut node = node("u", 2, "a");
            change(&mut node);
            node
        };
        let changed = [
            with(|node| node.metadata.uid = Some("v".to_owned())),
            with(|node| drop(node.labels_mut().insert("m".to_owned(), String::new()))),
            with(|node| drop(node.annotations_mut().insert(STATE_ANNOTATION.to_owned(), "{}".to_owned()))),
            with(|node| node.spec.unschedulable = true),
            with(|node| node.spec.taints.push(Taint::default())),
            with(|node| node.status.conditions.clear()),
            with(|node| node.status.node_info.machine_id = "m".to_owned()),
            with(|node| node.status.runtime_handlers.resize_with(1, Default::default)),
        ];
        for node in changed {
            let (nodes, feed) = cache();
            feed.take(&Event::Apply(self::node("u", 1, "a")));
            assert_eq!(feed.take(&Event::Apply(node.clone())), News::Some, "{node:?}");
            assert_eq!(*nodes.views()[0], NodeView::read(&node).unwrap());
        }
    }

    #[test]
    fn a_list_replaces_what_was_there_when_it_is_complete() {
        let (nodes, feed) = cache();
        feed.take(&Event::Apply(node("u", 1, "a")));
        feed.take(&Event::Init);
        assert_eq!(labels(&nodes), ["a"]);
        feed.take(&Event::InitApply(node("u", 2, "b")));
        assert_eq!(labels(&nodes), ["a"]);
        assert_eq!(feed.take(&Event::InitDone), News::Some);
        assert_eq!(labels(&nodes), ["b"]);
    }

    #[test]
    fn what_we_wrote_is_believed_until_the_cache_is_newer() {
        let (nodes, feed) = cache();
        feed.take(&Event::Apply(node("u", 1, "a")));
        nodes.wrote(&node("u", 5, "ours"));
        assert_eq!(labels(&nodes), ["ours"]);
        feed.take(&Event::Apply(node("u", 4, "older")));
        assert_eq!(labels(&nodes), ["ours"]);
        feed.take(&Event::Apply(node("u", 6, "newer")));
        assert_eq!(labels(&nodes), ["newer"]);
    }

    #[test]
    fn a_node_that_was_read_as_another_of_its_name_is_not_taken_for_the_old_one() {
        let (nodes, feed) = cache();
        feed.take(&Event::Apply(node("old", 1, "a")));
        nodes.wrote(&node("new", 5, "b"));
        assert_eq!(labels(&nodes), ["b"]);
        feed.take(&Event::Delete(node("old", 4, "a")));
        assert_eq!(labels(&nodes), ["b"], "the new one is not gone with the old one");
        feed.take(&Event::Delete(node("new", 6, "b")));
        assert!(nodes.views().is_empty());
        nodes.wrote(&node("third", 7, "c"));
        nodes.lost("n");
        assert!(nodes.views().is_empty());
        feed.take(&Event::Apply(node("fourth", 8, "d")));
        nodes.lost("n");
        assert!(nodes.views().is_empty(), "the cache does not know yet");
        feed.take(&Event::Apply(node("fifth", 9, "e")));
        assert_eq!(labels(&nodes), ["e"]);
    }
}
