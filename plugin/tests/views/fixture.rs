//! Clusters in code.
use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{apps::v1::ControllerRevision, batch::v1::Job, node::v1::RuntimeClass},
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::ResourceExt as _;
use kubectl_shim::{
    palette::Palette,
    views::{Facts, Picture, Screen, Snapshot},
};
use serde_json::json;
use shim_core::{
    api::Shim,
    names::Build,
    report::{FORMAT, Failure, Outcome, Reason, Report, Step},
    revision::{Fate, Inputs, Record, RevisionView},
    task::Task,
    world::{LeanNode, ShimView, SpecView},
};

/// Noon of a day.
pub fn now() -> Timestamp {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

fn ago(seconds: i64) -> Timestamp {
    now().checked_sub(SignedDuration::from_secs(seconds)).unwrap()
}

/// A cluster of which everything may be read.
pub struct Cluster {
    pub shims: Vec<Shim>,
    /// Number of the revision that is on record of each.
    pub number: i64,
    nodes: Vec<LeanNode>,
    jobs: Vec<Job>,
    classes: Vec<RuntimeClass>,
}

impl Default for Cluster {
    fn default() -> Self {
        Self { shims: Vec::new(), number: 1, nodes: Vec::new(), jobs: Vec::new(), classes: Vec::new() }
    }
}

impl Cluster {
    pub fn snapshot(&self) -> Snapshot {
        let facts = Facts::All {
            revisions: self.shims.iter().filter_map(|shim| revision(shim, self.number)).collect(),
            nodes: self.nodes.clone(),
            jobs: self.jobs.clone(),
            pods: Vec::new(),
            runtime_classes: self.classes.clone(),
        };
        Snapshot { now: now(), shims: self.shims.clone(), facts }
    }

    pub fn picture(&self) -> Picture {
        Picture::of(&self.snapshot())
    }

    /// What somebody sees who may only read Shims: `.status` as the controller writes it.
    pub fn without_rights(&self) -> Picture {
        let full = self.picture();
        let shims = self.shims.iter().cloned().map(|mut shim| {
            shim.status = full.shim(&shim.name_any()).map(|picture| picture.status.clone());
            shim
        });
        Picture::of(&Snapshot { now: now(), shims: shims.collect(), facts: Facts::Denied(vec!["nodes", "jobs"]) })
    }

    pub fn shim(&mut self, name: &str, version: &str, age: i64) -> &mut Shim {
        let shim = json!({
            "apiVersion": "shim.dev/v1alpha1", "kind": "Shim",
            "metadata": {"name": name, "uid": name, "generation": 1, "creationTimestamp": ago(age).to_string(),
                "finalizers": ["shim.dev/nodes"]},
            "spec": {
                "version": version,
                "fetchStrategy": {"anonHttp": {"location": "https://example.com/a", "sha256": digest(version)}},
                "runtimeClass": {"name": name},
            },
        });
        self.shims.push(serde_json::from_value(shim).unwrap());
        self.shims.last_mut().unwrap()
    }

    fn spec(&self, name: &str) -> SpecView {
        let shim = self.shims.iter().find(|shim| shim.name_any() == name).unwrap();
        ShimView::read(shim).unwrap().spec.unwrap()
    }

    fn build(&self, name: &str) -> Build {
        self.spec(name).source.artifact("amd64").unwrap().build.clone()
    }

    pub fn node(&mut self, name: &str) -> &mut LeanNode {
        let node = json!({
            "metadata": {"name": name, "uid": format!("uid-{name}"), "labels": {}, "annotations": {}},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "nodeInfo": {"machineID": format!("m-{name}"), "operatingSystem": "linux", "architecture": "amd64",
                    "containerRuntimeVersion": "containerd://1.7.27"},
            },
        });
        self.nodes.push(serde_json::from_value(node).unwrap());
        self.nodes.last_mut().unwrap()
    }

    fn mark(&mut self, node: &str, entry: &str) {
        let node = self.nodes.iter_mut().find(|found| found.name_any() == node).unwrap();
        let text = node.annotations_mut().entry("shim.dev/state".to_owned()).or_insert_with(|| "v1".to_owned());
        text.push(',');
        text.push_str(entry);
    }

    /// The node has the current build of the Shim.
    pub fn ready(&mut self, node: &str, shim: &str, seconds: i64) {
        let build = self.build(shim);
        self.mark(node, &format!("{shim}={build}@m-{node}@{}", ago(seconds)));
    }

    /// The node has another build.
    pub fn outdated(&mut self, node: &str, shim: &str, seconds: i64) {
        self.mark(node, &format!("{shim}=0123456789ab@m-{node}@{}", ago(seconds)));
    }

    /// A restart on the node ended pods of others.
    pub fn disrupted(&mut self, node: &str, shim: &str, seconds: i64, pods: u32) {
        let build = self.build(shim);
        self.mark(node, &format!("{shim}={build}@m-{node}@{}@{pods}", ago(seconds)));
    }

    /// A mark as it stands.
    pub fn marked(&mut self, node: &str, shim: &str, mark: &str) {
        self.mark(node, &format!("{shim}={mark}"));
    }

    /// A Job that installs or removes, without an end.
    pub fn running(&mut self, node: &str, shim: &str, attempt: u32) -> &mut Job {
        let spec = self.spec(shim);
        let artifact = spec.source.artifact("amd64").unwrap();
        let op = json!({"op": "install", "build": artifact.build, "location": artifact.location,
            "sha256": artifact.sha256, "handler": spec.handler});
        self.job(node, shim, attempt, &op)
    }

    /// A Job that removes.
    pub fn removing(&mut self, node: &str, shim: &str, attempt: u32) -> &mut Job {
        self.job(node, shim, attempt, &json!({"op": "remove"}))
    }

    fn job(&mut self, node: &str, shim: &str, attempt: u32, op: &serde_json::Value) -> &mut Job {
        let task: Task = serde_json::from_value(json!({"format": 1, "node": node, "nodeUid": format!("uid-{node}"),
            "machineId": format!("m-{node}"), "serial": attempt, "ops": {shim: op},
            "tries": {shim: {"failed": attempt - 1, "waited": 0, "since": ago(60).as_second(), "counted": attempt > 3}}}))
        .unwrap();
        let job = json!({"metadata": {"name": format!("shim-{node}-0123456789ab"), "uid": format!("job-{node}-{shim}"),
            "annotations": {"shim.dev/task": serde_json::to_string(&task).unwrap()}}});
        self.jobs.push(serde_json::from_value(job).unwrap());
        self.jobs.last_mut().unwrap()
    }

    /// The last try failed.
    pub fn failed(&mut self, node: &str, shim: &str, attempt: u32, seconds: i64) {
        let message = "expected eec8df96fa3a0b1c, got 9b9df8d64551a2b3: is the URL that of another version?";
        let outcome = Outcome::Failed(Failure::new(Step::Fetch, Reason::ChecksumMismatch, message));
        let log = "GET https://example.com/a\n200 OK, 12345678 bytes\ndigest is 9b9df8d64551a2b3\n";
        finish(self.running(node, shim, attempt), shim, outcome, log, seconds);
    }

    /// The last try failed for a reason that may pass.
    pub fn tripped(&mut self, node: &str, shim: &str, seconds: i64) {
        let failure = Failure::new(Step::Fetch, Reason::DownloadFailed, "connection reset by peer");
        finish(self.running(node, shim, 1), shim, Outcome::Failed(failure), "", seconds);
    }

    /// A removal found pods.
    pub fn in_use(&mut self, node: &str, shim: &str, pods: u32, seconds: i64) {
        finish(self.removing(node, shim, 1), shim, Outcome::InUse { pods }, "", seconds);
    }
}

fn finish(job: &mut Job, shim: &str, outcome: Outcome, log: &str, seconds: i64) {
    let outcomes = BTreeMap::from([(shim.parse().unwrap(), outcome)]);
    let report = Report { format: FORMAT, outcomes, restarted: false, log: log.to_owned() };
    job.annotations_mut().insert("shim.dev/result".to_owned(), serde_json::to_string(&report).unwrap());
    let status =
        json!({"conditions": [{"type": "Failed", "status": "True", "lastTransitionTime": ago(seconds).to_string()}]});
    job.status = Some(serde_json::from_value(status).unwrap());
}

/// What the Shim asks for, on record.
fn revision(shim: &Shim, number: i64) -> Option<ControllerRevision> {
    let view = RevisionView {
        shim: shim.name_any().parse().ok()?,
        number,
        inputs: Inputs::from(&shim.spec),
        created: ago(3600),
        generation: 1,
        author: String::new(),
        record: None,
    };
    view.object(&shim.uid()?, "shim-system").ok()
}

/// A revision on record: its number, its version, how long ago it was made, what became of it after so many seconds.
pub fn on_record(number: i64, version: &str, age: i64, fate: Option<(Fate, u32, u32, i64)>) -> RevisionView {
    let inputs = json!({"version": version, "fetchStrategy": {"anonHttp": {"location": format!("https://example.com/{version}.tar.gz"), "sha256": digest(version)}}});
    RevisionView {
        shim: "spin-v2".parse().unwrap(),
        number,
        inputs: serde_json::from_value(inputs).unwrap(),
        created: ago(age),
        generation: number,
        author: "kubectl-shim (alice)".to_owned(),
        record: fate.map(|(fate, updated, nodes, took)| Record { fate, updated, nodes, at: ago(age - took) }),
    }
}

fn digest(version: &str) -> String {
    format!("{:064x}", version.bytes().fold(7_u128, |sum, byte| sum * 31 + u128::from(byte)))
}

/// `.status` that the controller has written for the Shim's generation.
pub fn written(shim: &mut Shim, conditions: &[(&str, bool)]) {
    let generation = shim.metadata.generation;
    let status = shim.status.get_or_insert_default();
    status.observed_generation = generation;
    status.conditions = conditions
        .iter()
        .map(|(kind, on)| Condition {
            type_: (*kind).to_owned(),
            status: if *on { "True" } else { "False" }.to_owned(),
            reason: "Written".to_owned(),
            message: String::new(),
            observed_generation: generation,
            last_transition_time: Time(now()),
        })
        .collect();
}

/// A plain screen.
pub fn screen(width: Option<usize>) -> Screen {
    Screen { palette: Palette::Plain, width, now: now() }
}

/// Four nodes, one Shim: one ready, one failed, one busy, one to come.
pub fn rollout() -> Cluster {
    let mut cluster = Cluster::default();
    cluster.shim("spin-v2", "v0.23.0", 86_400 * 41);
    for name in ["node-01", "node-02", "node-03", "node-04"] {
        cluster.node(name);
    }
    cluster.ready("node-01", "spin-v2", 171);
    cluster.outdated("node-02", "spin-v2", 86_400);
    cluster.failed("node-02", "spin-v2", 3, 40);
    cluster.outdated("node-03", "spin-v2", 86_400);
    cluster.running("node-03", "spin-v2", 1);
    cluster
}

/// Three Shims in three states, and nodes that can't be served.
pub fn zoo() -> Cluster {
    let mut cluster = rollout();
    cluster.shim("gvisor", "20260817", 86_400 * 90);
    cluster.shim("wasmtime", "v0.6.0", 7_200).spec.node_selector =
        Some(BTreeMap::from([("pool".into(), "none".into())]));
    let windows = cluster.node("windows-01");
    windows.status.node_info.operating_system = "windows".into();
    let lost = cluster.node("node-05");
    lost.status.conditions[0].status = "Unknown".into();
    for name in ["node-01", "node-02", "node-03", "node-04"] {
        cluster.ready(name, "gvisor", 86_400 * 3);
    }
    cluster.disrupted("node-05", "gvisor", 600, 2);
    cluster
}
