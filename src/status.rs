//! What people are told: one row per node, and from the rows counts, conditions and problems.
//! The controller writes it to `.status`; the plugin computes the same rows for its tables.
use std::fmt;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::{
    api::{Problem, ShimStatus},
    board::{Board, Due, Skip, Try},
    limits,
    mark::Mark,
    names::{Build, NodeName},
    report::{Outcome, Step},
    task::Op,
    world::{JobView, Life, NodeView, Phase, ShimView},
};

/// State of a Shim on a node, worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeState {
    /// The last Job failed; the node has what it had before.
    Failed,
    /// Its kubelet does not report.
    Unknown,
    /// A removal is under way or waits for its turn.
    Removing,
    /// An installation or upgrade is under way.
    Updating,
    /// Something is due that has not started, or a removal waits for pods.
    Waiting,
    /// Selected, and can't be served.
    Skipped,
    /// Serves the current build.
    Ready,
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
            Self::Removing => "Removing",
            Self::Updating => "Updating",
            Self::Waiting => "Waiting",
            Self::Skipped => "Skipped",
            Self::Ready => "Ready",
        })
    }
}

/// One node in the table of a Shim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRow {
    /// The Node.
    pub node: NodeName,
    /// Judgement.
    pub state: NodeState,
    /// Step of the installer that failed.
    pub step: Option<Step>,
    /// A word for programs; empty where all is well.
    pub reason: String,
    /// A sentence for people; empty where there is nothing to say.
    pub message: String,
    /// The build that the node serves, verified.
    pub build: Option<Build>,
    /// Tries so far of what is due.
    pub attempts: u32,
    /// When the state began, where that is known.
    pub since: Option<Timestamp>,
    /// Name of the Job that speaks.
    pub job: Option<String>,
    /// Last lines of the installer's log.
    pub log: String,
    /// Pods of others that the restart ended.
    pub disrupted: u32,
}

/// The rows of a Shim, worst first: every node that it selects or has touched.
pub fn rows(board: &Board<'_>, shim: &ShimView) -> Vec<NodeRow> {
    let mut rows: Vec<_> = board.world.nodes.iter().filter_map(|node| row(board, shim, node)).collect();
    rows.sort_by(|a, b| (a.state, &a.node).cmp(&(b.state, &b.node)));
    rows
}

/// The row of one node, if the Shim has to do with it.
pub fn row(board: &Board<'_>, shim: &ShimView, node: &NodeView) -> Option<NodeRow> {
    let marked = node.marks.as_ref().is_some_and(|marks| marks.contains_key(&shim.name));
    if !marked && !board.is_selected(shim, node) {
        return None;
    }
    let served = board.serves(shim, node);
    let mut row = NodeRow {
        node: node.name.clone(),
        state: NodeState::Ready,
        step: None,
        reason: String::new(),
        message: String::new(),
        build: served.map(|ready| ready.build.clone()),
        attempts: 0,
        since: served.map(|ready| ready.since),
        job: None,
        log: String::new(),
        disrupted: served.map_or(0, |ready| ready.disrupted),
    };
    match running(board, shim, node) {
        Some(job) => row.of_running(job, &job.task.ops[&shim.name]),
        None => row.of_due(board, shim, node),
    }
    Some(row)
}

fn running<'w>(board: &Board<'w>, shim: &ShimView, node: &NodeView) -> Option<&'w JobView> {
    let touches = |job: &&&JobView| job.task.ops.contains_key(&shim.name) && job.finished().is_none();
    board.jobs_on(&node.name).iter().find(touches).copied()
}

impl NodeRow {
    fn set(&mut self, state: NodeState, reason: &str, message: impl Into<String>) {
        (self.state, self.reason, self.message) = (state, reason.to_owned(), message.into());
    }

    fn of_running(&mut self, job: &JobView, op: &Op) {
        self.job = Some(job.name.clone());
        self.attempts = job.task.attempt;
        let again = if job.task.attempt > 1 { format!(", attempt {}", job.task.attempt) } else { String::new() };
        match (op, &job.phase) {
            (_, Phase::Stuck) => {
                self.set(NodeState::Unknown, "NodeLost", "the node does not answer while its Job runs");
            }
            (Op::Remove, _) => self.set(NodeState::Removing, "Removing", format!("the installer runs{again}")),
            (Op::Install(_), _) => self.set(NodeState::Updating, "Updating", format!("the installer runs{again}")),
        }
    }

    fn of_due(&mut self, board: &Board<'_>, shim: &ShimView, node: &NodeView) {
        match board.due(shim, node) {
            Due::Skip(skip) => self.of_skip(&skip, node),
            Due::Op(op) => self.of_op(board, shim, node, &op),
            Due::Nothing => self.of_nothing(board, shim),
        }
    }

    fn of_skip(&mut self, skip: &Skip, node: &NodeView) {
        let kept = if self.build.is_some() { "; it keeps what it has" } else { "" };
        self.set(NodeState::Skipped, skip.reason(), format!("{}{kept}", skip.message()));
        if node.marks.is_none() {
            self.since = None;
        }
    }

    fn of_nothing(&mut self, board: &Board<'_>, shim: &ShimView) {
        if let Some(conflict) = board.conflict(&shim.name) {
            self.set(NodeState::Waiting, "Conflict", conflict.0.clone());
        } else if let Err(error) = &shim.spec {
            self.set(NodeState::Waiting, "InvalidSpec", error.clone());
        } else if self.disrupted > 0 {
            self.message = format!("the restart ended {} of other Shims", pods(self.disrupted));
        }
    }

    fn of_op(&mut self, board: &Board<'_>, shim: &ShimView, node: &NodeView, op: &Op) {
        if let Some((job, finished)) = board.last_failure(node, &shim.name, op) {
            self.job = Some(job.name.clone());
            self.attempts = job.task.attempt;
            self.since = Some(finished.at);
            self.log.clone_from(&finished.report.log);
            let retry = retry_text(board, board.next_try(node, &shim.name, op));
            self.of_failure(job.failure(&shim.name), &retry);
        } else if !node.ready {
            self.set(NodeState::Unknown, "NodeNotReady", "the node is not Ready");
        } else if *op == Op::Remove {
            self.set(NodeState::Removing, "Removing", "waits for its turn");
        } else {
            let paused = shim.spec.as_ref().is_ok_and(|spec| spec.paused);
            let message = if paused { "the rollout is paused" } else { "waits for its turn" };
            self.set(NodeState::Waiting, if paused { "Paused" } else { "Pending" }, message);
        }
    }

    fn of_failure(&mut self, outcome: Option<&Outcome>, retry: &str) {
        match outcome {
            Some(Outcome::Failed(failure)) => {
                self.step = Some(failure.step);
                self.set(NodeState::Failed, failure.reason.as_str(), failure.message.clone());
            }
            Some(Outcome::InUse { pods: count }) => {
                let message = format!("{} with this runtime still on the node; {retry}", pods(*count));
                self.set(NodeState::Waiting, "InUse", message);
            }
            Some(Outcome::Done { .. }) | None => {}
        }
    }
}

fn retry_text(board: &Board<'_>, next: Try) -> String {
    match next {
        Try::Again { at, .. } if at > board.world.now => {
            format!("asked again at {}", at.strftime("%H:%M:%S UTC"))
        }
        _ => "asked again now".to_owned(),
    }
}

/// `1 pod`, `2 pods`.
pub fn pods(count: u32) -> String {
    format!("{count} pod{}", if count == 1 { "" } else { "s" })
}

/// The status that a Shim should have.
pub fn summarize(board: &Board<'_>, shim: &ShimView) -> ShimStatus {
    let rows = rows(board, shim);
    let count =
        |state: fn(&NodeRow) -> bool| u32::try_from(rows.iter().filter(|row| state(row)).count()).unwrap_or(u32::MAX);
    let verdict = verdict(board, shim, &rows);
    let handler = shim.spec.as_ref().ok().map(|spec| spec.handler.to_string());
    ShimStatus {
        observed_generation: shim.generation,
        conditions: conditions(board, shim, &verdict),
        handler: shim.status.handler.clone().or(handler),
        nodes: count(|_| true),
        nodes_ready: count(|row| row.build.is_some()),
        nodes_updated: updated(board, shim),
        nodes_updating: count(|row| {
            matches!(row.state, NodeState::Updating | NodeState::Removing) && row.job.is_some()
        }),
        nodes_failed: count(|row| row.state == NodeState::Failed),
        nodes_skipped: count(|row| row.state == NodeState::Skipped),
        pods_disrupted: rows.iter().map(|row| row.disrupted).sum(),
        problems: problems(&rows),
    }
}

/// Nodes that have the current build, verified: also those that are skipped or do not answer now.
fn updated(board: &Board<'_>, shim: &ShimView) -> u32 {
    let Ok(spec) = &shim.spec else { return 0 };
    let current = |node: &&NodeView| {
        let wanted = spec.artifact(&node.arch).map(|artifact| &artifact.build);
        let has = node.marks.as_ref().and_then(|marks| marks.get(&shim.name));
        matches!((has, wanted), (Some(Mark::Ready(ready)), Some(build)) if ready.build == *build)
    };
    u32::try_from(board.world.nodes.iter().filter(current).count()).unwrap_or(u32::MAX)
}

fn problems(rows: &[NodeRow]) -> Vec<Problem> {
    let is_problem = |row: &&NodeRow| match row.state {
        NodeState::Failed | NodeState::Skipped | NodeState::Unknown => true,
        NodeState::Waiting => row.reason == "InUse",
        NodeState::Removing | NodeState::Updating | NodeState::Ready => false,
    };
    let problem = |row: &NodeRow| Problem {
        node: row.node.to_string(),
        state: row.state.to_string(),
        step: row.step.map(|step| step.to_string()),
        reason: row.reason.clone(),
        message: row.message.clone(),
        attempts: row.attempts,
        since: row.since.map(|time| time.to_string()),
        log: row.log.clone(),
    };
    rows.iter().filter(is_problem).take(limits::PROBLEMS).map(problem).collect()
}

/// The Shim as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Verdict {
    ready: bool,
    stalled: bool,
    reason: &'static str,
    message: String,
}

impl Verdict {
    fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { ready: false, stalled: false, reason, message: message.into() }
    }

    fn ready(reason: &'static str, message: impl Into<String>) -> Self {
        Self { ready: true, ..Self::new(reason, message) }
    }

    fn stalled(reason: &'static str, message: impl Into<String>) -> Self {
        Self { stalled: true, ..Self::new(reason, message) }
    }
}

fn verdict(board: &Board<'_>, shim: &ShimView, rows: &[NodeRow]) -> Verdict {
    if shim.life == Life::Deleting {
        return removing(rows);
    }
    if let Err(error) = &shim.spec {
        return Verdict::stalled("InvalidSpec", error.clone());
    }
    if let Some(conflict) = board.conflict(&shim.name) {
        return Verdict::stalled("Conflict", conflict.0.clone());
    }
    let paused = shim.spec.as_ref().is_ok_and(|spec| spec.paused);
    of_rows(rows, paused)
}

fn removing(rows: &[NodeRow]) -> Verdict {
    match rows.iter().find(|row| row.reason == "InUse" || row.state == NodeState::Failed) {
        Some(row) => Verdict::new("Removing", format!("{}: {}: {}", row.node, row.reason, row.message)),
        None => Verdict::new("Removing", format!("{} left", nodes(rows.len()))),
    }
}

fn of_rows(rows: &[NodeRow], paused: bool) -> Verdict {
    let count = |wanted: &[NodeState]| rows.iter().filter(|row| wanted.contains(&row.state)).count();
    let moving = count(&[NodeState::Updating, NodeState::Removing]);
    let (failed, waiting) = (count(&[NodeState::Failed]), count(&[NodeState::Waiting]));
    let reachable = rows.len() - count(&[NodeState::Skipped, NodeState::Unknown]);
    let progress = format!("{} of {} ready", count(&[NodeState::Ready]), nodes(reachable));
    if let Some(worst) = rows.iter().find(|row| row.state == NodeState::Failed) {
        let message =
            format!("{failed} of {} failed; {}: {}: {}", nodes(reachable), worst.node, worst.reason, worst.message);
        let going_on = moving > 0 || (waiting > 0 && !paused);
        return if going_on { Verdict::new("Failed", message) } else { Verdict::stalled("Failed", message) };
    }
    if moving + waiting > 0 {
        let idle = paused && moving == 0;
        return Verdict::new(if idle { "Paused" } else { "Updating" }, progress);
    }
    if rows.is_empty() {
        return Verdict::ready("NoNodes", "no node matches spec.nodeSelector");
    }
    Verdict::ready("Ready", progress)
}

/// `1 node`, `2 nodes`.
pub fn nodes(count: usize) -> String {
    format!("{count} node{}", if count == 1 { "" } else { "s" })
}

fn conditions(board: &Board<'_>, shim: &ShimView, verdict: &Verdict) -> Vec<Condition> {
    let paused = shim.spec.as_ref().is_ok_and(|spec| spec.paused);
    let reconciling = !verdict.ready && !verdict.stalled && verdict.reason != "Paused";
    let flag = |on: bool, yes: &'static str, no: &'static str| {
        if on { (yes, verdict.message.clone()) } else { (no, String::new()) }
    };
    [
        ("Ready", verdict.ready, (verdict.reason, verdict.message.clone())),
        ("Reconciling", reconciling, flag(reconciling, verdict.reason, "Settled")),
        ("Stalled", verdict.stalled, flag(verdict.stalled, verdict.reason, "NotStalled")),
        ("Paused", paused, (if paused { "Paused" } else { "NotPaused" }, String::new())),
    ]
    .map(|(kind, on, (reason, message))| condition(board, shim, kind, on, reason, message))
    .to_vec()
}

/// Keeps the time of the last change, so that a pass that changes nothing writes nothing.
fn condition(board: &Board<'_>, shim: &ShimView, kind: &str, on: bool, reason: &str, message: String) -> Condition {
    let status = if on { "True" } else { "False" };
    let before = shim.status.conditions.iter().find(|c| c.type_ == kind && c.status == status);
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: shim.generation,
        last_transition_time: before.map_or(Time(board.world.now), |condition| condition.last_transition_time.clone()),
    }
}
