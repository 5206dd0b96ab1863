//! Small Worlds, and plans in words: `n1 marks a claimed`, `n1 job a+2 b-`.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use shim_core::{
    api::{FetchStrategy, HttpArtifact, RuntimeClassSpec, ShimStatus},
    job::{Finished, Start, job_name},
    mark::{self, Mark, Ready},
    names::{Build, ShimName},
    plan::{Action, MarkWrite, plan},
    report::{FORMAT, Failure, Outcome, Reason, Report, Step},
    revision::{Fate, Inputs, Record, RevisionView},
    runtime_class::runtime_class_for,
    task::{self, Install, Op, Task},
    world::{Artifact, JobView, Life, NodeView, Phase, ShimView, Source, SpecView, World, place},
};

use crate::setting::AT_ONCE;

/// What the plan does where there is nothing to do.
pub const NOTHING: [&str; 0] = [];

/// The time in every World that is not told another.
pub fn now() -> Timestamp {
    "2026-11-30T08:00:00Z".parse().unwrap()
}

pub fn seconds_ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

/// The build that a Shim's handler makes of an artifact.
pub fn build(shim: &str, number: u32) -> Build {
    artifact(shim, number).build
}

pub fn artifact(shim: &str, number: u32) -> Artifact {
    source(shim, number).artifact("amd64").unwrap().clone()
}

pub fn name(text: &str) -> ShimName {
    text.parse().unwrap()
}

/// What a spec says of a build; what it means is `source`.
pub fn inputs(number: u32) -> Inputs {
    let artifact = HttpArtifact { location: format!("https://example.org/{number}"), sha256: format!("{number:064}") };
    Inputs {
        version: format!("v{number}"),
        fetch_strategy: FetchStrategy { anon_http: Some(artifact), ..FetchStrategy::default() },
        binary: None,
        containerd_runtime_options: None,
    }
}

pub fn source(shim: &str, number: u32) -> Source {
    Source::read(&inputs(number), &shim.parse().unwrap()).unwrap()
}

/// A Shim that has been there for a while and asks for build 1 on all nodes at once.
pub fn shim(text: &str) -> ShimView {
    let spec = SpecView {
        inputs: inputs(1),
        source: source(text, 1),
        selector: BTreeMap::new(),
        tolerations: Vec::new(),
        handler: text.parse().unwrap(),
        rollout: AT_ONCE,
        history: 10,
        runtime_class: RuntimeClassSpec { name: text.to_owned(), handler: None, overhead: None, tolerations: None },
    };
    ShimView {
        name: name(text),
        uid: format!("uid-{text}"),
        author: "somebody".to_owned(),
        retry: None,
        generation: Some(1),
        created: seconds_ago(3600),
        life: Life::Active,
        finalizer: true,
        spec: Ok(spec),
        status: ShimStatus::default(),
    }
}

pub fn spec(shim: &mut ShimView) -> &mut SpecView {
    shim.spec.as_mut().unwrap()
}

/// `shim` with a changed spec.
pub fn with(mut shim: ShimView, change: impl FnOnce(&mut SpecView)) -> ShimView {
    change(spec(&mut shim));
    shim
}

pub fn asking_for(text: &str, number: u32) -> ShimView {
    with(shim(text), |spec| (spec.inputs, spec.source) = (inputs(number), source(text, number)))
}

/// `shim`, selecting none of our nodes.
pub fn elsewhere(shim: ShimView) -> ShimView {
    with(shim, |spec| spec.selector = BTreeMap::from([("pool".to_owned(), "nowhere".to_owned())]))
}

/// A Linux node with containerd 1.7 and nothing of ours.
pub fn node(text: &str) -> NodeView {
    NodeView {
        name: text.parse().unwrap(),
        place: place(text),
        uid: format!("uid-{text}"),
        machine: Some(format!("machine-{text}").parse().unwrap()),
        labels: BTreeMap::new(),
        taints: Vec::new(),
        cordoned: false,
        ready: true,
        os: "linux".into(),
        arch: "amd64".into(),
        runtime: "containerd://1.7.24".into(),
        handlers: BTreeSet::new(),
        annotation: None,
        marks: mark::parse(None),
    }
}

pub fn nodes(count: usize) -> Vec<NodeView> {
    (0..count).map(|number| node(&format!("n{number}"))).collect()
}

/// `node` with a mark, and the label that goes with it.
pub fn marked(mut node: NodeView, shim: &str, mark: Mark) -> NodeView {
    if let Some(label) = mark.label() {
        node.labels.insert(name(shim).node_label().into(), label.into());
    }
    node.marks.as_mut().unwrap().insert(name(shim), mark);
    node.annotation = mark::render(node.marks.as_ref().unwrap());
    node
}

/// `node` with a build that was verified an hour ago.
pub fn ready(node: NodeView, shim: &str, number: u32) -> NodeView {
    let mark = Mark::Ready(Ready {
        build: if number == 0 { Build::unknown() } else { build(shim, number) },
        machine: node.machine.clone().unwrap(),
        since: seconds_ago(3600),
        disrupted: 0,
        repairs: 0,
    });
    marked(node, shim, mark)
}

/// `node` with build 1 of `a`, that was verified some seconds ago and is not reported by the kubelet.
pub fn denied(text: &str, seconds: i64, repairs: u32) -> NodeView {
    let mut node = node(text);
    node.handlers.insert("runc".into());
    let (build, machine) = (build("a", 1), node.machine.clone().unwrap());
    let ready = Ready { build, machine, since: seconds_ago(seconds), disrupted: 0, repairs };
    marked(node, "a", Mark::Ready(ready))
}

/// A revision of a Shim, and how many of its nodes had it when it completed; none: it is on its way.
pub fn revision(shim: &ShimView, number: i64, inputs: Inputs, completed: Option<u32>) -> RevisionView {
    let record = |updated| Record { fate: Fate::Complete, updated, nodes: updated, at: seconds_ago(3600) };
    RevisionView {
        shim: shim.name.clone(),
        number,
        inputs,
        created: seconds_ago(3600),
        generation: 1,
        author: "somebody".to_owned(),
        record: completed.map(record),
    }
}

/// A World in which every Shim has its RuntimeClass, and what it asks for is on record.
pub fn world(shims: Vec<ShimView>, nodes: Vec<NodeView>) -> World {
    let class = |shim: &ShimView| {
        let spec = shim.spec.as_ref().ok()?;
        Some(runtime_class_for(&shim.name, &spec.handler, &spec.runtime_class))
    };
    let runtime_classes = shims.iter().filter_map(class).collect();
    let on_record = |shim: &ShimView| {
        let inputs = shim.spec.as_ref().ok()?.inputs.clone();
        Some(revision(shim, 1, inputs, Some(1)))
    };
    World {
        now: now(),
        revisions: shims.iter().filter_map(on_record).collect(),
        shims,
        nodes: nodes.into_iter().map(Arc::new).collect(),
        jobs: Vec::new(),
        occupied: BTreeSet::new(),
        runtime_classes,
    }
}

/// A Shim and this node.
pub fn one(node: NodeView) -> World {
    world(vec![shim("a")], vec![node])
}

pub fn install(shim: &str, number: u32) -> (ShimName, Op) {
    let Artifact { location, sha256, build } = artifact(shim, number);
    let handler = shim.parse().unwrap();
    (name(shim), Op::Install(Install { build, location, sha256, binary: None, handler, options: None }))
}

pub fn removal(shim: &str) -> (ShimName, Op) {
    (name(shim), Op::Remove)
}

/// The first Job of a node.
pub fn job(node: &NodeView, ops: &[(ShimName, Op)], phase: Phase) -> JobView {
    let task = Task {
        format: task::FORMAT,
        node: node.name.clone(),
        node_uid: node.uid.clone(),
        machine_id: node.machine.clone().unwrap(),
        serial: 1,
        ops: ops.iter().cloned().collect(),
        tries: BTreeMap::new(),
    };
    JobView {
        name: job_name(&task),
        uid: format!("job-{}", node.name),
        version: String::new(),
        created: seconds_ago(60),
        task,
        phase,
        start: Start::Begun,
    }
}

/// A Job that ended some seconds ago, with this for every operation.
pub fn ended(node: &NodeView, ops: &[(ShimName, Op)], outcome: &Outcome, seconds: i64) -> JobView {
    let outcomes = ops.iter().map(|(shim, _)| (shim.clone(), outcome.clone())).collect();
    let report = Report { format: FORMAT, outcomes, restarted: true, log: "last words".to_owned() };
    job(node, ops, Phase::Finished(Finished { at: seconds_ago(seconds), report, recorded: false }))
}

/// `job` with its report in its annotation.
pub fn recorded(mut job: JobView) -> JobView {
    if let Phase::Finished(finished) = &mut job.phase {
        (finished.report, finished.recorded) = (finished.report.failures(), true);
    }
    job
}

pub fn done() -> Outcome {
    Outcome::Done { disrupted: 0 }
}

pub fn failed(reason: Reason) -> Outcome {
    Outcome::Failed(Failure::new(Step::Fetch, reason, "expected this, got that"))
}

/// What the plan does, status aside, in words.
pub fn deeds(world: &World) -> Vec<String> {
    plan(world).actions.iter().filter_map(deed).collect()
}

fn deed(action: &Action) -> Option<String> {
    Some(match action {
        Action::Mark(write) => marks(write),
        Action::Create(task) => format!("{} job{}", task.node, ops(task)),
        Action::Delete(job) => format!("delete {}", job.uid),
        Action::Withdraw(job, _) => format!("withdraw {}", job.uid),
        Action::Record(job, report) => format!("record {}: {}", job.uid, report.outcomes.len()),
        Action::Hold(shim) => format!("hold {shim}"),
        Action::Release(shim) => format!("release {shim}"),
        Action::Apply(class) => format!("apply class {}", class.metadata.name.as_deref().unwrap()),
        Action::DeleteRuntimeClass(class, shim) => format!("delete class {class} of {shim}"),
        Action::Note(job, failure) => format!("note {}: {}", job.uid, failure.reason),
        Action::Revise(revision) => format!("revise {} {}", revision.shim, revision.number),
        Action::Forget(shim, number) => format!("forget {shim} {number}"),
        Action::Status(..) | Action::Stamp(..) => return None,
    })
}

fn marks(write: &MarkWrite) -> String {
    let word = |mark: &Mark| match mark {
        Mark::Claimed => "claimed".to_owned(),
        Mark::Removing => "removing".to_owned(),
        Mark::Ready(ready) => format!("ready {}", number_of(&ready.build)),
    };
    let marks = mark::parse(write.new.as_deref()).unwrap();
    let marks: Vec<_> = marks.iter().map(|(shim, mark)| format!("{shim} {}", word(mark))).collect();
    format!("{} marks {}", write.node, if marks.is_empty() { "nothing".to_owned() } else { marks.join(" ") })
}

fn ops(task: &Task) -> String {
    let op = |(shim, op): (&ShimName, &Op)| match op {
        Op::Install(install) => format!(" {shim}+{}", number_of(&install.build)),
        Op::Check(check) => format!(" {shim}?{}", number_of(&check.build)),
        Op::Remove => format!(" {shim}-"),
    };
    task.ops.iter().map(op).collect()
}

/// The number of a build of one of our Shims; nothing of one that is not known.
fn number_of(found: &Build) -> String {
    let all = ["a", "b", "c", "d"].into_iter().flat_map(|shim| (1..10).map(move |number| (shim, number)));
    all.into_iter()
        .find(|(shim, number)| build(shim, *number) == *found)
        .map_or_else(String::new, |(_, n)| n.to_string())
}
