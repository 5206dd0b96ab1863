//! Watches; from them and a fresh list of Jobs, the World.
use std::{collections::BTreeMap, fmt::Debug, sync::Arc, time::Duration};

use futures::{Stream, StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::ControllerRevision,
    batch::v1::Job,
    core::v1::{Event, Pod, PodSpec},
    node::v1::RuntimeClass,
};
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
    job::JOB_UID_LABEL,
    names::{MANAGED_BY_LABEL, MANAGER, NodeName},
    world::{LeanNode, Objects, World},
};
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    metrics::Metrics,
    nodes::{self, News, Nodes},
};

/// A list that takes longer is not worth waiting for; the next pass asks again.
const LIST_DEADLINE: Duration = Duration::from_secs(30);
/// Objects of one answer to a list: of thousands at once the text alone would be most of our memory.
const PAGE: u32 = 250;
/// Events that come with less time between them come together.
const LULL: Duration = Duration::from_millis(2);
/// As long as events wait that could not change a plan; shorter than a pass follows the last one.
const PAUSE: Duration = Duration::from_millis(200);
/// A Job that has no Pod after this time may have been refused one.
const POD_BY: Duration = Duration::from_secs(3);

/// What the controller sees.
pub(crate) struct Observer {
    jobs: Api<Job>,
    pods: Api<Pod>,
    events: Api<Event>,
    shims: Store<Shim>,
    nodes: Nodes,
    classes: Store<RuntimeClass>,
    revisions: Store<ControllerRevision>,
}

impl Observer {
    /// Starts the watches, which never end by themselves; `changed` is notified of what could matter.
    pub(crate) fn start(
        client: &Client,
        namespace: &str,
        changed: &Arc<Notify>,
        metrics: &Metrics,
    ) -> (Self, JoinSet<()>) {
        let (shims, shim_writer) = reflector::store();
        let (nodes, feed) = nodes::cache();
        let (classes, class_writer) = reflector::store();
        let (revisions, revision_writer) = reflector::store();
        let ours = watcher::Config::default().labels(&format!("{MANAGED_BY_LABEL}={MANAGER}"));
        let jobs: Api<PartialObjectMeta<Job>> = Api::namespaced(client.clone(), namespace);
        let recorded: Api<ControllerRevision> = Api::namespaced(client.clone(), namespace);
        let errors = |kind| metrics.watch_errors(kind);
        let shims_read = watch::<Shim>(client).reflect(shim_writer);
        let nodes_read = watch::<LeanNode>(client);
        let classes_read = watch::<RuntimeClass>(client).reflect(class_writer);
        let revisions_read = watcher(recorded, ours.clone()).default_backoff().reflect(revision_writer);
        // Tasks of their own: an event of one costs the others nothing.
        let mut watches = JoinSet::new();
        watches.spawn(follow(shims_read, changed.clone(), errors("Shim"), always));
        watches.spawn(follow(nodes_read, changed.clone(), errors("Node"), move |event| feed.take(event)));
        watches.spawn(follow(classes_read, changed.clone(), errors("RuntimeClass"), always));
        watches.spawn(follow(revisions_read, changed.clone(), errors("ControllerRevision"), always));
        watches.spawn(follow(watcher(jobs, ours).default_backoff(), changed.clone(), errors("Job"), always));
        let observer = Self {
            jobs: Api::namespaced(client.clone(), namespace),
            pods: Api::namespaced(client.clone(), namespace),
            events: Api::namespaced(client.clone(), namespace),
            shims,
            nodes,
            classes,
            revisions,
        };
        (observer, watches)
    }

    /// Waits until every cache has its first list.
    pub(crate) async fn synced(&self) -> anyhow::Result<()> {
        self.shims.wait_until_ready().await?;
        self.nodes.synced().await?;
        self.classes.wait_until_ready().await?;
        self.revisions.wait_until_ready().await?;
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

    /// Remembers a Node as the API server has just told it.
    pub(crate) fn wrote(&self, node: &LeanNode) {
        self.nodes.wrote(node);
    }

    /// Forgets a Node that is not there any more.
    pub(crate) fn lost(&self, name: &NodeName) {
        self.nodes.lost(name.as_str());
    }

    /// The World: Jobs from a fresh list, since a stale one overruns budgets; the rest from caches.
    pub(crate) async fn world(&self) -> anyhow::Result<World> {
        let ours = ListParams::default().labels(&format!("{MANAGED_BY_LABEL}={MANAGER}"));
        // One after the other: a Job that has ended must not meet its Pod as it was before, without a result.
        let lists = async {
            Ok::<_, kube::Error>((list(&self.jobs, &ours, slim_job).await?, list(&self.pods, &ours, slim_pod).await?))
        };
        let (jobs, pods) = timeout(LIST_DEADLINE, lists).await??;
        let refusals = self.refusals(&jobs, &pods).await;
        let objects = Objects {
            shims: &self.shims.state(),
            revisions: &self.revisions.state(),
            nodes: &self.nodes.views(),
            jobs: &jobs,
            pods: &pods,
            refusals: &refusals,
            runtime_classes: &self.classes.state(),
        };
        Ok(World::read(Timestamp::now(), &objects))
    }

    /// Why Jobs can't make their Pods (quota, admission), by uid: only Events tell, and they are read only when a Job
    /// should have a Pod by now.
    async fn refusals(&self, jobs: &[Job], pods: &[Pod]) -> BTreeMap<String, String> {
        if !jobs.iter().any(|job| is_waiting_for_its_pod(job, pods)) {
            return BTreeMap::new();
        }
        let refused = ListParams::default().fields("involvedObject.kind=Job,reason=FailedCreate");
        match timeout(LIST_DEADLINE, self.events.list(&refused)).await {
            Ok(Ok(events)) => events.items.into_iter().filter_map(refusal).collect(),
            Ok(Err(error)) => {
                tracing::warn!("Events can't be read: {error}");
                BTreeMap::new()
            }
            Err(_) => BTreeMap::new(),
        }
    }
}

/// Whether everything that is read may be read.
pub(crate) async fn rehearse(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let one = ListParams::default().limit(1);
    let lists = async {
        Api::<PartialObjectMeta<Shim>>::all(client.clone()).list(&one).await?;
        Api::<LeanNode>::all(client.clone()).list(&one).await?;
        Api::<RuntimeClass>::all(client.clone()).list(&one).await?;
        Api::<ControllerRevision>::namespaced(client.clone(), namespace).list(&one).await?;
        Api::<Job>::namespaced(client.clone(), namespace).list(&one).await?;
        Api::<Pod>::namespaced(client.clone(), namespace).list(&one).await
    };
    Ok(timeout(LIST_DEADLINE, lists).await?.map(drop)?)
}

/// All objects as they are now: the pages of one list are of one moment.
async fn list<K>(api: &Api<K>, params: &ListParams, slim: fn(&mut K)) -> kube::Result<Vec<K>>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut params = params.clone().limit(PAGE);
    let mut all = Vec::new();
    loop {
        let mut page = api.list(&params).await?;
        page.items.iter_mut().for_each(slim);
        all.append(&mut page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(all),
        }
    }
}

fn slim_job(job: &mut Job) {
    job.metadata.managed_fields = None;
    slim_spec(job.spec.as_mut().and_then(|spec| spec.template.spec.as_mut()));
}

fn slim_pod(pod: &mut Pod) {
    pod.metadata.managed_fields = None;
    slim_spec(pod.spec.as_mut());
}

/// Of what we asked for ourselves only the node is read.
fn slim_spec(spec: Option<&mut PodSpec>) {
    if let Some(spec) = spec {
        *spec = PodSpec { node_name: spec.node_name.take(), ..PodSpec::default() };
    }
}

fn is_waiting_for_its_pod(job: &Job, pods: &[Pod]) -> bool {
    let created = job.metadata.creation_timestamp.as_ref().map_or(Timestamp::MAX, |time| time.0);
    let ended = job.status.as_ref().is_some_and(|status| status.completion_time.is_some() || status.failed.is_some());
    !ended
        && Timestamp::now().duration_since(created) >= POD_BY.try_into().unwrap_or_default()
        && !pods.iter().any(|pod| pod.labels().get(JOB_UID_LABEL) == job.metadata.uid.as_ref())
}

fn refusal(event: Event) -> Option<(String, String)> {
    Some((event.involved_object.uid?, event.message?))
}

fn watch<K>(client: &Client) -> impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send + use<K>
where
    K: Resource<Scope = kube::core::ClusterResourceScope> + Clone + Debug + DeserializeOwned + Send + 'static,
    K::DynamicType: Default,
{
    watcher(Api::<K>::all(client.clone()), watcher::Config::default()).default_backoff()
}

/// Passes on what could change a plan, at once. What could not (the reports of kubelets) is read several at a time: most
/// of what one costs is to wake up for it.
async fn follow<K, S, M>(stream: S, changed: Arc<Notify>, errors: Counter, mut news: M)
where
    S: Stream<Item = watcher::Result<watcher::Event<K>>>,
    M: FnMut(&watcher::Event<K>) -> News,
{
    let stream = stream.inspect_err(|error| {
        errors.inc();
        tracing::warn!("a watch was broken off and is taken up again: {error}");
    });
    let mut stream = std::pin::pin!(stream);
    let mut tell = |event: &watcher::Result<watcher::Event<K>>| {
        let is_news = event.as_ref().is_ok_and(|event| news(event) == News::Some);
        if is_news {
            changed.notify_one();
        }
        is_news
    };
    while let Some(event) = stream.next().await {
        if tell(&event) || !matches!(event, Ok(watcher::Event::Apply(_))) {
            continue;
        }
        while let Ok(Some(event)) = timeout(LULL, stream.next()).await {
            tell(&event);
        }
        sleep(PAUSE).await;
    }
}

fn always<K>(_: &watcher::Event<K>) -> News {
    News::Some
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::channel::mpsc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn news_is_told_at_once_and_reports_without_any_are_read_together() {
        let (sender, stream) = mpsc::unbounded();
        let changed = Arc::new(Notify::new());
        let read = Arc::new(AtomicUsize::new(0));
        let counter = read.clone();
        let news = move |event: &watcher::Event<LeanNode>| {
            counter.fetch_add(1, Ordering::Relaxed);
            if matches!(event, watcher::Event::Apply(node) if node.spec.unschedulable) {
                News::Some
            } else {
                News::None
            }
        };
        tokio::spawn(follow(stream, changed.clone(), Counter::default(), news));
        let send = |is_news: bool| {
            let mut node = LeanNode::default();
            node.spec.unschedulable = is_news;
            sender.unbounded_send(Ok(watcher::Event::Apply(node))).unwrap();
        };
        for _ in 0..2 {
            send(true);
            timeout(LULL, changed.notified()).await.expect("nothing is slept over after news");
        }
        send(false);
        sleep(LULL * 2).await;
        assert_eq!(read.load(Ordering::Relaxed), 3);
        send(false);
        send(true);
        sleep(PAUSE / 2).await;
        assert_eq!(read.load(Ordering::Relaxed), 3, "they wait for more");
        timeout(PAUSE, changed.notified()).await.expect("news among them is told after the pause");
        assert_eq!(read.load(Ordering::Relaxed), 5);
    }
}
