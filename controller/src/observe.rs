//! Watches; from them and a fresh list of Jobs, the World.
use std::{
    borrow::Borrow,
    collections::HashMap,
    fmt::Debug,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use futures::{Stream, StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod, node::v1::RuntimeClass};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, PartialObjectMeta},
    runtime::{
        WatchStreamExt,
        reflector::{self, Store},
        watcher,
    },
};
use prometheus_client::metrics::counter::Counter;
use serde::de::DeserializeOwned;
use shim_core::{
    api::Shim,
    names::{GROUP, MANAGED_BY_LABEL, MANAGER},
    world::{LeanNode, NodeView, Objects, World},
};
use tokio::{sync::Notify, time::timeout};

use crate::metrics::Metrics;

/// A list that takes longer is not worth waiting for; the next pass asks again.
const LIST_DEADLINE: Duration = Duration::from_secs(30);

/// What the controller sees.
pub(crate) struct Observer {
    jobs: Api<Job>,
    pods: Api<Pod>,
    shims: Store<Shim>,
    nodes: Store<LeanNode>,
    classes: Store<RuntimeClass>,
    written: HashMap<String, Arc<LeanNode>>,
}

impl Observer {
    /// Starts the watches. The future keeps them going and never ends; `changed` is notified of what could matter.
    pub(crate) fn start(
        client: &Client,
        namespace: &str,
        changed: &Arc<Notify>,
        metrics: &Metrics,
    ) -> (Self, impl Future<Output = ()> + use<>) {
        let (shims, shim_writer) = reflector::store();
        let (nodes, node_writer) = reflector::store();
        let (classes, class_writer) = reflector::store();
        let ours = watcher::Config::default().labels(&format!("{MANAGED_BY_LABEL}={MANAGER}"));
        let jobs: Api<PartialObjectMeta<Job>> = Api::namespaced(client.clone(), namespace);
        let errors = |kind| metrics.watch_errors(kind);
        let nodes_read = watch::<LeanNode>(client).modify(slim).reflect(node_writer);
        let watches = futures::future::join4(
            follow(watch::<Shim>(client).reflect(shim_writer), changed.clone(), errors("Shim"), always),
            follow(nodes_read, changed.clone(), errors("Node"), node_matters),
            follow(
                watch::<RuntimeClass>(client).reflect(class_writer),
                changed.clone(),
                errors("RuntimeClass"),
                always,
            ),
            follow(watcher(jobs, ours).default_backoff(), changed.clone(), errors("Job"), always),
        );
        let observer = Self {
            jobs: Api::namespaced(client.clone(), namespace),
            pods: Api::namespaced(client.clone(), namespace),
            shims,
            nodes,
            classes,
            written: HashMap::new(),
        };
        (observer, async move {
            let ((), (), (), ()) = Box::pin(watches).await;
        })
    }

    /// Waits until every cache has its first list.
    pub(crate) async fn synced(&self) -> anyhow::Result<()> {
        self.shims.wait_until_ready().await?;
        self.nodes.wait_until_ready().await?;
        self.classes.wait_until_ready().await?;
        Ok(())
    }

    /// The Shim as the cache has it.
    pub(crate) fn shim(&self, name: &str) -> Option<Arc<Shim>> {
        self.shims.get(&reflector::ObjectRef::new(name))
    }

    /// The RuntimeClass as the cache has it.
    pub(crate) fn runtime_class(&self, name: &str) -> Option<Arc<RuntimeClass>> {
        self.classes.get(&reflector::ObjectRef::new(name))
    }

    /// Remembers what we wrote until the cache has caught up: the planner must never decide on a Node that it has
    /// already changed.
    pub(crate) fn wrote(&mut self, node: LeanNode) {
        self.written.insert(node.name_any(), Arc::new(node));
    }

    /// The World: Jobs from a fresh list, since a stale one overruns budgets; the rest from caches.
    pub(crate) async fn world(&mut self) -> anyhow::Result<World> {
        let ours = ListParams::default().labels(&format!("{MANAGED_BY_LABEL}={MANAGER}"));
        let lists = futures::future::try_join(self.jobs.list(&ours), self.pods.list(&ours));
        let (jobs, pods) = timeout(LIST_DEADLINE, lists).await??;
        let nodes = self.current_nodes();
        Ok(World::read(
            Timestamp::now(),
            &Objects {
                shims: &self.shims.state(),
                nodes: &nodes,
                jobs: &jobs.items,
                pods: &pods.items,
                runtime_classes: &self.classes.state(),
            },
        ))
    }

    fn current_nodes(&mut self) -> Vec<Arc<LeanNode>> {
        let mut nodes = self.nodes.state();
        let mut pending = HashMap::new();
        for node in &mut nodes {
            let Some((name, written)) = self.written.remove_entry(&node.name_any()) else { continue };
            if written.uid() == node.uid() && version(&written) > version(node) {
                *node = written.clone();
                pending.insert(name, written);
            }
        }
        self.written = pending;
        nodes
    }
}

/// Resource versions grow with every write; Kubernetes allows comparing them as numbers since 1.35, and etcd makes them so.
fn version(node: &LeanNode) -> u64 {
    node.resource_version().and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn watch<K>(client: &Client) -> impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send + use<K>
where
    K: Resource<Scope = kube::core::ClusterResourceScope> + Clone + Debug + DeserializeOwned + Send + 'static,
    K::DynamicType: Default,
{
    watcher(Api::<K>::all(client.clone()), watcher::Config::default()).default_backoff()
}

/// Of a Node's metadata only what is read is kept; managedFields alone are most of it.
fn slim(node: &mut LeanNode) {
    node.metadata.managed_fields = None;
    node.annotations_mut().retain(|key, _| key.starts_with(GROUP));
}

/// Passes on what could change a plan. A deletion always counts; of the rest, `matters` decides with its own memory.
async fn follow<K, S, M>(stream: S, changed: Arc<Notify>, errors: Counter, new_filter: fn() -> M)
where
    S: Stream<Item = watcher::Result<watcher::Event<K>>>,
    M: FnMut(&watcher::Event<K>) -> bool,
{
    let mut matters = new_filter();
    let stream = stream.inspect_err(|error| {
        errors.inc();
        tracing::warn!("a watch was broken off and is taken up again: {error}");
    });
    let mut stream = std::pin::pin!(stream);
    while let Some(event) = stream.next().await {
        if event.is_ok_and(|event| matters(&event)) {
            changed.notify_one();
        }
    }
}

fn always<K>() -> impl FnMut(&watcher::Event<K>) -> bool {
    |_| true
}

/// A kubelet reports its whole status every few minutes; only what the planner reads counts.
fn node_matters() -> impl FnMut(&watcher::Event<LeanNode>) -> bool {
    let mut last: HashMap<String, u64> = HashMap::new();
    move |event| match event {
        watcher::Event::Apply(node) => {
            let hash = hash_of(node);
            last.insert(node.name_any(), hash) != Some(hash)
        }
        watcher::Event::Delete(node) => {
            last.remove(&node.name_any());
            true
        }
        watcher::Event::Init | watcher::Event::InitApply(_) => false,
        watcher::Event::InitDone => true,
    }
}

fn hash_of(node: impl Borrow<LeanNode>) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{:?}", NodeView::read(node.borrow())).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(ready: &str, heartbeat: &str) -> LeanNode {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "n", "uid": "u", "resourceVersion": heartbeat},
            "status": {"conditions": [{"type": "Ready", "status": ready, "lastHeartbeatTime": heartbeat}]},
        }))
        .unwrap()
    }

    #[test]
    fn a_heartbeat_does_not_matter_and_a_change_does() {
        let mut matters = node_matters();
        assert!(matters(&watcher::Event::Apply(node("True", "1"))));
        assert!(!matters(&watcher::Event::Apply(node("True", "2"))));
        assert!(matters(&watcher::Event::Apply(node("False", "3"))));
        assert!(matters(&watcher::Event::Delete(node("False", "4"))));
        assert!(matters(&watcher::Event::Apply(node("False", "5"))));
    }
}
