//! The cluster with its fake nodes, up to where a measurement begins.
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use http::Request;
use k8s_openapi::api::{
    batch::v1::Job,
    coordination::v1::Lease,
    core::v1::{Node, Pod, ServiceAccount},
};
use kube::{
    Api, Client, Config,
    api::{ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use shim_cluster::{
    Cluster, Controllers, FakeNodes, Paths, Reporter, Running, UpOptions, down, inside, install_packages, up,
};
use shim_core::{manifests, names::DEFAULT_NAMESPACE};
use shim_e2e::{Product, Profile, product};
use tokio::time::sleep;

use crate::{Controller, node, stages::STAGES};

/// Namespace of Jobs that nobody controls but Kubernetes.
pub(crate) const BARE: &str = "bare";
/// Nodes that are created at the same time.
const CREATED_AT_ONCE: usize = 32;
/// Objects of one page of a list.
const PAGE: u32 = 500;
/// Until thousands of objects are as they should be.
const SETTLED_LIMIT: Duration = Duration::from_secs(900);
/// How often the API server is asked whether they are.
const ASK_EVERY: Duration = Duration::from_secs(2);

/// How large, and with what.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Number of fake nodes.
    pub nodes: usize,
    /// How the controller is built.
    pub profile: Profile,
    /// How fast Kubernetes' own controllers work.
    pub controllers: Controllers,
}

/// Fake nodes and the cluster that they are in.
pub struct Fleet {
    /// The cluster.
    pub cluster: Cluster,
    pub(crate) client: Client,
    product: Product,
    nodes: usize,
}

/// Boots a cluster with fake nodes, does the work, and takes the cluster down; after a failure it stays, to be looked into.
pub fn with_fleet<T: Send>(
    options: &Options,
    report: &Reporter,
    work: impl AsyncFnOnce(&mut Fleet) -> Result<T> + Send,
) -> Result<T> {
    install_packages(report)?;
    let product = product(options.profile, report)?;
    let paths = Paths::of_this_workspace();
    let fake = FakeNodes { count: options.nodes, stages: STAGES.to_owned() };
    let up_options = UpOptions {
        nodes: 0,
        containerd: Vec::new(),
        fake: Some(fake),
        controllers: options.controllers,
        running: Running::Replace,
    };
    let cluster = up(&paths, &up_options, report)?;
    let result = inside(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut fleet = Fleet::new(cluster, product, options.nodes).await?;
            fleet.fill(report).await?;
            work(&mut fleet).await
        })
    })?;
    down(&paths, report)?;
    Ok(result)
}

impl Fleet {
    async fn new(cluster: Cluster, product: Product, nodes: usize) -> Result<Self> {
        // Two providers could be linked; the choice must not depend on which.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig())?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Self { cluster, client: Client::try_from(config)?, product, nodes })
    }

    /// How many nodes there are.
    pub fn size(&self) -> usize {
        self.nodes
    }

    /// Starts the controller and waits until it leads.
    pub fn controller(&self) -> Result<Controller> {
        Controller::start(&self.cluster, &self.product.controller)
    }

    /// Everything that the controller and bare Jobs need, and the nodes.
    async fn fill(&self, report: &Reporter) -> Result<()> {
        self.install()?;
        let start = Instant::now();
        self.create_nodes().await?;
        report.say(&format!("{} nodes created in {:.0} s", self.nodes, start.elapsed().as_secs_f32()));
        self.settled().await?;
        report.say(&format!("{} nodes settled after {:.0} s", self.nodes, start.elapsed().as_secs_f32()));
        Ok(())
    }

    /// CRD, account and rights of the controller, but no Deployment: it is started as a process.
    fn install(&self) -> Result<()> {
        let mut objects =
            vec![manifests::crd()?, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": BARE}})];
        objects.extend(manifests::rbac(DEFAULT_NAMESPACE)?);
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        self.cluster.kubectl_with(&["apply", "--server-side", "-f", "-"], list.to_string())?;
        self.cluster.kubectl(&["wait", "--for=condition=Established", "crd", manifests::CRD, "--timeout=60s"]).map(drop)
    }

    async fn create_nodes(&self) -> Result<()> {
        let api: Api<Node> = Api::all(self.client.clone());
        let api = &api;
        let creations = stream::iter(1..=self.nodes).map(|number| async move {
            let node = node::node(number)?;
            api.create(&PostParams::default(), &node).await.with_context(|| node::name(number)).map(drop)
        });
        creations.buffer_unordered(CREATED_AT_ONCE).try_collect().await
    }

    /// Kubernetes' controllers have let the nodes in, kwok holds their leases, and Pods may be created.
    async fn settled(&self) -> Result<()> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), "kube-node-lease");
        self.poll("leases of all nodes", async || {
            Ok(leases.list_metadata(&ListParams::default()).await?.items.len() >= self.nodes)
        })
        .await?;
        self.poll("nodes without taints", async || Ok(self.free_nodes().await? == self.nodes)).await?;
        for namespace in [DEFAULT_NAMESPACE, BARE] {
            let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
            self.poll("the default account", async || Ok(accounts.get_opt("default").await?.is_some())).await?;
        }
        Ok(())
    }

    async fn free_nodes(&self) -> Result<usize> {
        let api: Api<Node> = Api::all(self.client.clone());
        let mut params = ListParams::default().limit(PAGE);
        let mut free = 0;
        loop {
            let page = api.list(&params).await?;
            let taints = |node: &Node| node.spec.as_ref().and_then(|spec| spec.taints.as_ref()).map_or(0, Vec::len);
            free += page.items.iter().filter(|node| taints(node) == 0).count();
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(free),
            }
        }
    }

    /// Waits until no Job and no Pod of a namespace is left.
    pub(crate) async fn empty(&self, namespace: &str) -> Result<()> {
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), namespace);
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let one = ListParams::default().limit(1);
        self.poll(&format!("no Jobs and Pods in {namespace}"), async || {
            Ok(jobs.list_metadata(&one).await?.items.is_empty() && pods.list_metadata(&one).await?.items.is_empty())
        })
        .await
    }

    /// What the API server tells Prometheus.
    pub(crate) async fn metrics(&self) -> Result<String> {
        let request = Request::get("/metrics").body(Vec::new())?;
        Ok(self.client.request_text(request).await?)
    }

    async fn poll(&self, what: &str, mut probe: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
        let end = Instant::now() + SETTLED_LIMIT;
        while !probe().await? {
            if Instant::now() > end {
                bail!("waited {} s in vain for {what}", SETTLED_LIMIT.as_secs());
            }
            sleep(ASK_EVERY).await;
        }
        Ok(())
    }
}
