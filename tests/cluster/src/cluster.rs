//! The whole cluster: brought up, found again, taken down.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::audit::AuditLog;
use crate::build::{Freshness, Kind, build_for, freshness};
use crate::clear::{clear, leftovers};
use crate::control_plane::{self, Part};
use crate::guest::Guest;
use crate::images::{self, Images};
use crate::node::Node;
use crate::paths::Paths;
use crate::pins::Containerd;
use crate::plan::{ClusterPlan, Controllers, FakeNodes, plan};
use crate::process::Life;
use crate::record::Record;
use crate::report::Reporter;
use crate::serve::FileServer;
use crate::wait::until;
use crate::{network, pki, prerequisites};

/// How long all nodes may take to be Ready after the API server is.
const READY_LIMIT: Duration = Duration::from_secs(180);

/// What kind of cluster to bring up.
#[derive(Clone, Debug)]
pub struct UpOptions {
    /// How many nodes; none for tests of the control plane alone.
    pub nodes: usize,
    /// What containerd they run; repeated if there are more nodes.
    pub containerd: Vec<Containerd>,
    /// In place of nodes: objects that the caller creates, with kwok for their kubelets.
    pub fake: Option<FakeNodes>,
    /// How fast its controller manager works.
    pub controllers: Controllers,
    /// What to do with a cluster of the same shape that runs already.
    pub running: Running,
}

/// What to do with a cluster that runs already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Running {
    /// Take it as it is, if it has the wanted nodes and all of it runs.
    Keep,
    /// Take it down first.
    Replace,
}

impl Default for UpOptions {
    fn default() -> Self {
        Self {
            nodes: 4,
            containerd: Containerd::ALL.to_vec(),
            fake: None,
            controllers: Controllers::Default,
            running: Running::Keep,
        }
    }
}

/// A cluster that runs on this machine.
#[derive(Clone, Debug)]
pub struct Cluster {
    paths: Paths,
    plan: ClusterPlan,
}

/// Brings a cluster up and waits until all of its nodes are Ready: about 10 s once everything is built.
/// Clears away first what an earlier cluster, of any checkout, left here.
pub fn up(paths: &Paths, options: &UpOptions, report: &Reporter) -> Result<Cluster> {
    prerequisites::check(paths, options.nodes, report)?;
    ensure!(options.nodes == 0 || options.fake.is_none(), "kwok would play the kubelets of real nodes too");
    let nodes = plan(options.nodes, &options.containerd)?;
    let plan = ClusterPlan { nodes, fake: options.fake.clone(), controllers: options.controllers };
    let kind = if plan.fake.is_some() { Kind::Fake } else { Kind::Real };
    let wanted = Cluster { paths: paths.clone(), plan };
    let record = Record::well_known();
    let _lock = record.lock(report)?;
    // Nodes stand on what is built: nothing of it may be replaced below a running one.
    let fresh = freshness(kind, paths) == Freshness::Fresh;
    if fresh && options.running == Running::Keep && wanted.life(&record) == Life::Running {
        report.say("the cluster runs already");
        return Ok(wanted);
    }
    if record.run().is_some() || !leftovers(&record, &paths.run())?.is_empty() {
        report.step("clearing away the cluster that was here", || clear(&record, &paths.run()))?;
    }
    build_for(kind, paths, report)?;
    report
        .step(&wanted.plan.title(), || wanted.boot(&record))
        .with_context(|| format!("logs are in {}", paths.run().join("log").display()))?;
    Ok(wanted)
}

/// Takes the cluster down, whatever is left of it, and checks that nothing of it stays.
pub fn down(paths: &Paths, report: &Reporter) -> Result<()> {
    let record = Record::well_known();
    let _lock = record.lock(report)?;
    report.step("taking the cluster down", || clear(&record, &paths.run()))
}

impl Cluster {
    /// The cluster that runs from these paths.
    pub fn open(paths: &Paths) -> Result<Self> {
        let text = fs::read_to_string(plan_file(paths))
            .context("no cluster runs from this checkout; start one with `cargo xtask cluster up`")?;
        Ok(Self { paths: paths.clone(), plan: serde_json::from_str(&text)? })
    }

    /// The kubeconfig for use inside the cluster's network namespace.
    pub fn kubeconfig(&self) -> PathBuf {
        self.paths.kubeconfig()
    }

    /// The kubeconfig for use on this machine, through the door on loopback.
    pub fn loopback_kubeconfig(&self) -> PathBuf {
        self.paths.loopback_kubeconfig()
    }

    /// All nodes.
    pub fn nodes(&self) -> Vec<Node> {
        self.plan.nodes.iter().map(|plan| Node::new(&self.paths, plan)).collect()
    }

    /// The node with this name.
    pub fn node(&self, name: &str) -> Result<Node> {
        self.nodes()
            .into_iter()
            .find(|node| node.name() == name)
            .with_context(|| format!("the cluster has no node {name}"))
    }

    /// Runs kubectl as administrator; its standard output, an error if it failed.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        control_plane::kubectl(&self.paths).args(args).run()
    }

    /// Runs kubectl with `input` as its standard input (`apply -f -`).
    pub fn kubectl_with(&self, args: &[&str], input: impl Into<Vec<u8>>) -> Result<String> {
        control_plane::kubectl(&self.paths).args(args).stdin(input).run()
    }

    /// The log of a control plane part.
    pub fn log(&self, part: Part) -> PathBuf {
        self.paths.log(part.name())
    }

    /// The API server's audit log.
    pub fn audit(&self) -> AuditLog {
        AuditLog::open(self.paths.log("audit"))
    }

    /// Images for the nodes.
    pub fn images(&self) -> Images {
        Images::new(&self.paths)
    }

    /// Serves the files of a folder to nodes and pods over HTTP until the result is dropped.
    pub fn serve_files(&self, dir: impl Into<PathBuf>) -> Result<FileServer> {
        FileServer::start(&self.paths, dir.into())
    }

    /// A place for one program beside the cluster, under an address of its own: made now, and gone with the cluster.
    pub fn guest(&self) -> Result<Guest> {
        Guest::make(&self.paths)
    }

    /// Starts the controller manager anew with another pace.
    pub fn set_controllers(&mut self, controllers: Controllers) -> Result<()> {
        self.plan.controllers = controllers;
        fs::write(plan_file(&self.paths), serde_json::to_string(&self.plan)?)?;
        self.restart(Part::ControllerManager)
    }

    /// Ends a part at once, as a crash would.
    pub fn kill(&self, part: Part) -> Result<()> {
        control_plane::kill(part)
    }

    /// Starts a part, if it does not run; waits until the API server is ready.
    pub fn start(&self, part: Part) -> Result<()> {
        if control_plane::life(part) == Life::Ended {
            self.launch(part)?;
        }
        control_plane::wait_for_api(&self.paths)
    }

    /// Ends a part and starts it again.
    pub fn restart(&self, part: Part) -> Result<()> {
        self.kill(part)?;
        self.start(part)
    }

    /// Waits until the API server reports these nodes Ready.
    pub fn wait_ready(&self, names: &[&str]) -> Result<()> {
        until(&format!("Ready nodes: {}", names.join(", ")), READY_LIMIT, || {
            let ready = self.ready_nodes()?;
            Ok(names.iter().all(|name| ready.iter().any(|other| other == name)).then_some(()))
        })
    }

    /// The names of the nodes that the API server reports Ready.
    pub fn ready_nodes(&self) -> Result<Vec<String>> {
        let path = "jsonpath={range .items[*]}{.metadata.name}={.status.conditions[?(@.type==\"Ready\")].status}{\"\\n\"}{end}";
        let list = self.kubectl(&["get", "nodes", "-o", path])?;
        Ok(list.lines().filter_map(|line| line.strip_suffix("=True")).map(str::to_owned).collect())
    }

    fn launch(&self, part: Part) -> Result<()> {
        control_plane::start(&self.paths, part, &self.plan)
    }

    fn boot(&self, record: &Record) -> Result<()> {
        let paths = &self.paths;
        record.claim(&paths.run())?;
        fs::create_dir_all(paths.run().join("log"))?;
        fs::write(plan_file(paths), serde_json::to_string(&self.plan)?)?;
        network::make()?;
        pki::make(paths, &self.plan.nodes)?;
        control_plane::configure(paths, &self.plan)?;
        self.start_everything()?;
        let nodes = self.nodes();
        self.wait_ready(&nodes.iter().map(Node::name).collect::<Vec<_>>())?;
        self.wait_for_service_account()?;
        Ok(fs::write(complete_file(paths), "")?)
    }

    /// The API server refuses pods until the controller manager has made the account that they run as.
    fn wait_for_service_account(&self) -> Result<()> {
        until("the default service account", READY_LIMIT, || {
            Ok(self.kubectl(&["get", "serviceaccount", "default"]).ok())
        })
        .map(drop)
    }

    /// Starts control plane, registry and nodes beside each other; what needs another waits for it.
    fn start_everything(&self) -> Result<()> {
        let nodes = self.nodes();
        thread::scope(|scope| {
            let boot =
                |node: &Node| node.make_disk().and_then(|()| node.launch()).with_context(|| node.name().to_owned());
            let mut threads = vec![scope.spawn(|| self.start_control_plane())];
            if self.has(Part::Registry) {
                threads.push(scope.spawn(|| self.start_registry()));
            }
            threads.extend(nodes.iter().map(|node| scope.spawn(move || boot(node))));
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().unwrap_or_else(|_| bail!("a starting thread crashed")))
        })
    }

    fn start_control_plane(&self) -> Result<()> {
        for part in [Part::Etcd, Part::ApiServer, Part::Door] {
            self.launch(part)?;
        }
        control_plane::wait_for_api(&self.paths)?;
        let mut rest =
            [Part::ControllerManager, Part::Scheduler, Part::Kwok].into_iter().filter(|&part| self.has(part));
        rest.try_for_each(|part| self.launch(part))
    }

    fn has(&self, part: Part) -> bool {
        control_plane::parts(&self.plan).contains(&part)
    }

    fn start_registry(&self) -> Result<()> {
        self.launch(Part::Registry)?;
        images::push_busybox(&self.images())
    }

    /// Whether this very cluster runs, with all that belongs to it.
    fn life(&self, record: &Record) -> Life {
        let same = record.run().as_deref() == Some(&self.paths.run())
            && complete_file(&self.paths).exists()
            && Self::open(&self.paths).is_ok_and(|running| running.plan == self.plan);
        let parts = || control_plane::parts(&self.plan).iter().all(|&part| control_plane::life(part) == Life::Running);
        let machines = || self.nodes().iter().all(|node| node.life() == Life::Running);
        let ready = || {
            let names = self.ready_nodes().unwrap_or_default();
            self.plan.nodes.iter().all(|node| names.contains(&node.name))
        };
        if same && parts() && machines() && ready() { Life::Running } else { Life::Ended }
    }
}

fn plan_file(paths: &Paths) -> PathBuf {
    paths.run().join("cluster.json")
}

/// Written last: a cluster that failed half-way has everything else, and is good for looking into only.
fn complete_file(paths: &Paths) -> PathBuf {
    paths.run().join("complete")
}
