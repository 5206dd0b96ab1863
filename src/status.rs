//! What people are told: one row per node, and from the rows counts, conditions and problems.
//! The controller writes it to `.status`; the plugin computes the same rows for its tables.
use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::{
    api::{Problem, RevisionStatus, ShimStatus},
    board::{Board, Calm, Gate, Pair, Side, Skip, Stand, Weight, Word, served},
    job::Start,
    limits,
    names::{Build, NodeName},
    report::{Failure, Outcome, Step},
    task::Op,
    world::{JobView, Life, NodeView, Phase},
};

/// State of a Shim on a node, worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeState {
    /// The last tries failed; the node has what it had before.
    Failed,
    /// The last try failed, and the next is soon.
    Retrying,
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
            Self::Retrying => "Retrying",
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

/// Why a row says what it says.
enum Situation<'w> {
    /// A Job is under way.
    Running(&'w JobView, &'w Op),
    /// The node is as wanted.
    Kept,
    /// Nothing may be done.
    Held,
    /// The node can't be served.
    Skipped(Skip<'w>),
    /// The last try did not get it done.
    Told(Word<'w>),
    /// The node does not answer.
    Silent,
    /// It will be removed.
    Leaving,
    /// It will be installed.
    Waiting,
    /// It is verified there, but the kubelet does not report it: it will be installed again, not before this time.
    Denied(Timestamp),
}

/// The rows of a Shim, worst first: every node that it selects or has touched.
pub fn rows(board: &Board<'_>, side: &Side<'_>) -> Vec<NodeRow> {
    let mut rows: Vec<_> = board
        .pairs(&side.shim.name)
        .filter_map(|pair| Some(row(board, side, pair.node, &situation(board, side, &pair)?)))
        .collect();
    rows.sort_by(|a, b| (a.state, &a.node).cmp(&(b.state, &b.node)));
    rows
}

fn situation<'w>(board: &Board<'w>, side: &Side<'w>, pair: &Pair<'_, 'w>) -> Option<Situation<'w>> {
    let Pair { node, stand, jobs } = *pair;
    if stand == Stand::Apart {
        return None;
    }
    if let Some((job, op)) = running(side, jobs) {
        return Some(Situation::Running(job, op));
    }
    let op = if jobs.is_empty() { None } else { stand.op(side.shim) };
    if let Some(word) = op.and_then(|op| board.word(side, node, &op)) {
        return Some(if stand.kept().is_some() { Situation::Kept } else { Situation::Told(word) });
    }
    Some(match stand {
        Stand::Apart => return None,
        Stand::Kept(_) | Stand::Stale(_) => Situation::Kept,
        Stand::Held => Situation::Held,
        Stand::Skipped(skip) => Situation::Skipped(skip),
        Stand::Leaving | Stand::Wanted(_) if !node.ready => Situation::Silent,
        Stand::Leaving => Situation::Leaving,
        Stand::Wanted(_) => {
            let repair = stand.op(side.shim).and_then(|op| side.repair_at(node, &op));
            repair.map_or(Situation::Waiting, Situation::Denied)
        }
    })
}

/// What is under way on a node for the Shim. A check of what is there changes nothing, and does not show.
fn running<'w>(side: &Side<'w>, jobs: &[&'w JobView]) -> Option<(&'w JobView, &'w Op)> {
    let unfinished = jobs.iter().filter(|job| job.finished().is_none());
    let mut ops = unfinished.filter_map(|job| Some((*job, job.task.ops.get(&side.shim.name)?)));
    ops.find(|(_, op)| !matches!(op, Op::Check(_)))
}

impl Situation<'_> {
    fn state(&self) -> NodeState {
        match self {
            Self::Running(job, _) if job.phase == Phase::Stuck => NodeState::Unknown,
            Self::Running(_, Op::Remove) | Self::Leaving => NodeState::Removing,
            Self::Running(..) => NodeState::Updating,
            Self::Kept => NodeState::Ready,
            Self::Skipped(_) => NodeState::Skipped,
            Self::Silent => NodeState::Unknown,
            Self::Held | Self::Waiting | Self::Denied(_) => NodeState::Waiting,
            Self::Told(word) => match word.weight {
                Weight::Waits => NodeState::Waiting,
                Weight::Trial => NodeState::Retrying,
                Weight::Failed => NodeState::Failed,
            },
        }
    }

    /// Whether the node counts as failed: also while it is tried again.
    fn has_failed(&self, side: &Side<'_>) -> bool {
        match self {
            Self::Running(job, _) => job.task.tries.get(&side.shim.name).is_some_and(|tries| tries.counted),
            Self::Told(word) => word.weight == Weight::Failed,
            _ => false,
        }
    }

    /// Whether people should hear of it.
    fn is_problem(&self, side: &Side<'_>) -> bool {
        match self {
            Self::Running(job, _) => {
                let hindered = matches!(job.start, Start::Hindered { .. });
                hindered || job.phase == Phase::Stuck || self.has_failed(side)
            }
            Self::Skipped(_) | Self::Told(_) | Self::Silent | Self::Denied(_) => true,
            Self::Kept | Self::Held | Self::Leaving | Self::Waiting => false,
        }
    }
}

fn row(board: &Board<'_>, side: &Side<'_>, node: &NodeView, situation: &Situation<'_>) -> NodeRow {
    let served = served(&side.shim.name, node);
    let mut row = NodeRow {
        node: node.name.clone(),
        state: situation.state(),
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
    match situation {
        Situation::Running(job, op) => row.of_running(side, job, op),
        Situation::Kept => row.of_kept(),
        Situation::Held => row.of_held(side),
        Situation::Skipped(skip) => row.of_skip(skip, node),
        Situation::Told(word) => row.of_word(board, side, word),
        Situation::Silent => row.say("NodeNotReady", "the node is not Ready"),
        Situation::Leaving => row.say("Removing", "waits for its turn"),
        Situation::Waiting => row.of_waiting(side),
        Situation::Denied(next) => row.of_denied(board, side, *next),
    }
    row
}

impl NodeRow {
    fn say(&mut self, reason: &str, message: impl Into<String>) {
        (self.reason, self.message) = (reason.to_owned(), message.into());
    }

    fn fail(&mut self, failure: &Failure, more: &str) {
        self.step = Some(failure.step);
        self.say(failure.reason.as_str(), format!("{}{more}", failure.message));
    }

    fn of_running(&mut self, side: &Side<'_>, job: &JobView, op: &Op) {
        self.job = Some(job.name.clone());
        self.attempts = job.task.attempt(&side.shim.name);
        let again = if self.attempts > 1 { format!(", attempt {}", self.attempts) } else { String::new() };
        let word = if *op == Op::Remove { "Removing" } else { "Updating" };
        match (&job.phase, &job.start) {
            (Phase::Stuck, _) => self.say("NodeLost", "the node does not answer while its Job runs"),
            (_, Start::Hindered { why, .. }) => {
                self.since = Some(job.created);
                self.fail(why, "");
            }
            (_, Start::Waiting) => self.say(word, format!("the installer starts{again}")),
            (_, Start::Begun) => self.say(word, format!("the installer runs{again}")),
        }
    }

    fn of_kept(&mut self) {
        if self.disrupted > 0 {
            self.message = format!("the restart ended {} of other Shims", pods(self.disrupted));
        }
    }

    fn of_held(&mut self, side: &Side<'_>) {
        if let Some(conflict) = &side.conflict {
            self.say("Conflict", conflict.0.clone());
        } else if let Err(error) = &side.shim.spec {
            self.say("InvalidSpec", error.clone());
        }
    }

    fn of_skip(&mut self, skip: &Skip<'_>, node: &NodeView) {
        let kept = if self.build.is_some() { "; it keeps what it has" } else { "" };
        self.say(skip.reason(), format!("{}{kept}", skip.message()));
        if node.marks.is_none() {
            self.since = None;
        }
    }

    fn of_word(&mut self, board: &Board<'_>, side: &Side<'_>, word: &Word<'_>) {
        self.job = Some(word.job.name.clone());
        self.attempts = word.job.task.attempt(&side.shim.name);
        self.since = Some(word.finished.at);
        self.log.clone_from(&word.finished.report.log);
        match word.outcome {
            Outcome::InUse { pods: count } => {
                let message =
                    format!("{} with this runtime still on the node; {}", pods(*count), next_try(board, word));
                self.say("InUse", message);
            }
            Outcome::Failed(failure) => self.fail(failure, ""),
            Outcome::Done { .. } => {}
        }
    }

    fn of_denied(&mut self, board: &Board<'_>, side: &Side<'_>, next: Timestamp) {
        let handler = side.shim.spec.as_ref().map_or("", |spec| spec.handler.as_str());
        let what = next_repair(board, side, next);
        self.say("HandlerNotReported", format!("the kubelet does not report handler {handler}; {what}"));
    }

    fn of_waiting(&mut self, side: &Side<'_>) {
        let of = |count: usize| format!("{count} of {}", nodes(side.tally.nodes));
        match side.gate() {
            Gate::Paused => self.say("Paused", "the rollout is paused"),
            Gate::Stopped => self.say("Stopped", format!("the rollout stopped: {} failed", of(side.tally.failed))),
            Gate::Canary => self.say("Canary", canary_text(side)),
            Gate::Open => self.say("Pending", "waits for its turn"),
        }
    }
}

fn next_repair(board: &Board<'_>, side: &Side<'_>, next: Timestamp) -> String {
    match () {
        () if side.is_paused() => "the rollout is paused".to_owned(),
        () if next > board.world.now => format!("installed again at {}", clock(next)),
        () => "to be installed again".to_owned(),
    }
}

fn canary_text(side: &Side<'_>) -> String {
    let text = format!("waits for the canary: {} of {} done", side.tally.kept, nodes(side.canary()));
    match &side.fallback {
        Some(fallback) => format!("{text}; until then new nodes get revision {}", fallback.revision.number),
        None => text,
    }
}

fn next_try(board: &Board<'_>, word: &Word<'_>) -> String {
    if word.next > board.world.now {
        format!("asked again at {}", clock(word.next))
    } else {
        "asked again now".to_owned()
    }
}

fn clock(time: Timestamp) -> String {
    time.strftime("%H:%M:%S UTC").to_string()
}

/// `1 pod`, `2 pods`.
pub fn pods(count: u32) -> String {
    format!("{count} pod{}", if count == 1 { "" } else { "s" })
}

/// `1 node`, `2 nodes`.
pub fn nodes(count: usize) -> String {
    format!("{count} node{}", if count == 1 { "" } else { "s" })
}

/// What a Shim's status comes to.
#[derive(Debug)]
pub struct Summary {
    /// The status that it should have.
    pub status: ShimStatus,
    /// Whether every node that can be served and answers has what is wanted.
    pub is_ready: bool,
}

/// The nodes of a Shim by state, and the worst of them.
#[derive(Default)]
struct Census {
    states: BTreeMap<NodeState, usize>,
    nodes: usize,
    ready: usize,
    updated: usize,
    updating: usize,
    failed: usize,
    unavailable: usize,
    disrupted: u32,
    worst: Vec<NodeRow>,
}

impl Census {
    /// Rows are made for the worst only: most nodes of a large cluster have nothing to say.
    fn take(board: &Board<'_>, side: &Side<'_>) -> Self {
        let mut census = Self::of_calm(side.calm);
        let mut problems = Vec::new();
        for pair in board.restless_pairs(&side.shim.name) {
            let node = pair.node;
            census.count_mark(side, node, pair.stand);
            let Some(situation) = situation(board, side, &pair) else { continue };
            census.nodes += 1;
            *census.states.entry(situation.state()).or_default() += 1;
            census.updating +=
                usize::from(matches!(situation, Situation::Running(..)) && situation.state() != NodeState::Unknown);
            census.failed += usize::from(situation.has_failed(side));
            census.unavailable += usize::from(is_unavailable(side, node, pair.stand));
            if situation.is_problem(side) {
                problems.push((situation.state(), node, situation));
            }
        }
        problems.sort_by_key(|(state, node, _)| (*state, &node.name));
        problems.truncate(limits::PROBLEMS);
        census.worst = problems.iter().map(|(_, node, situation)| row(board, side, node, situation)).collect();
        census
    }

    fn of_calm(calm: Calm) -> Self {
        let states = if calm.nodes > 0 { BTreeMap::from([(NodeState::Ready, calm.nodes)]) } else { BTreeMap::new() };
        let Calm { nodes, disrupted } = calm;
        Self { states, nodes, ready: nodes, updated: nodes, disrupted, ..Self::default() }
    }

    /// What the node has: also one that is skipped or does not answer now.
    fn count_mark(&mut self, side: &Side<'_>, node: &NodeView, stand: Stand<'_>) {
        let kept = stand.kept();
        let served = || if stand == Stand::Apart { None } else { served(&side.shim.name, node) };
        let Some(ready) = kept.or_else(served) else { return };
        self.ready += 1;
        self.disrupted += ready.disrupted;
        self.updated += usize::from(kept.is_some() || side.build(node) == Some(&ready.build));
    }

    fn count(&self, states: &[NodeState]) -> usize {
        states.iter().filter_map(|state| self.states.get(state)).sum()
    }
}

/// Whether pods of the Shim can't run on a node where they should; one that serves an older build can run them.
fn is_unavailable(side: &Side<'_>, node: &NodeView, stand: Stand<'_>) -> bool {
    let Stand::Wanted(artifact) = stand else { return false };
    served(&side.shim.name, node).is_none_or(|ready| ready.build == artifact.build)
}

/// What the status of a Shim should be.
pub fn summarize(board: &Board<'_>, side: &Side<'_>) -> Summary {
    let shim = side.shim;
    let census = Census::take(board, side);
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let verdict = verdict(side, &census);
    let handler = shim.spec.as_ref().ok().map(|spec| spec.handler.to_string());
    let revision = side
        .revision
        .map(|revision| RevisionStatus { number: revision.number, version: revision.inputs.version.clone() });
    let status = ShimStatus {
        observed_generation: shim.generation,
        conditions: conditions(board, side, &verdict),
        handler: shim.status.handler.clone().or(handler),
        revision: revision.or_else(|| shim.status.revision.clone()),
        nodes: number(census.nodes),
        nodes_ready: number(census.ready),
        nodes_updated: number(census.updated),
        nodes_updating: number(census.updating),
        nodes_failed: number(census.failed),
        nodes_unavailable: number(census.unavailable),
        nodes_skipped: number(census.count(&[NodeState::Skipped])),
        pods_disrupted: census.disrupted,
        problems: census.worst.iter().map(problem).collect(),
    };
    Summary { status, is_ready: verdict.ready }
}

fn problem(row: &NodeRow) -> Problem {
    Problem {
        node: row.node.to_string(),
        state: row.state.to_string(),
        step: row.step.map(|step| step.to_string()),
        reason: row.reason.clone(),
        message: row.message.clone(),
        attempts: row.attempts,
        since: row.since.map(|time| time.to_string()),
        log: row.log.clone(),
    }
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

fn verdict(side: &Side<'_>, census: &Census) -> Verdict {
    if side.shim.life == Life::Deleting {
        return removing(census);
    }
    if let Err(error) = &side.shim.spec {
        return Verdict::stalled("InvalidSpec", error.clone());
    }
    if let Some(conflict) = &side.conflict {
        return Verdict::stalled("Conflict", conflict.0.clone());
    }
    of_census(side, census)
}

/// What holds up a removal: pods, or a failure.
fn removing(census: &Census) -> Verdict {
    let told = |row: &&NodeRow| row.job.is_some() && row.state != NodeState::Unknown;
    match census.worst.iter().find(told) {
        Some(row) => Verdict::new("Removing", sentence(row)),
        None => Verdict::new("Removing", format!("{} left", nodes(census.nodes))),
    }
}

fn sentence(row: &NodeRow) -> String {
    format!("{}: {}: {}", row.node, row.reason, row.message)
}

fn of_census(side: &Side<'_>, census: &Census) -> Verdict {
    let moving = census.count(&[NodeState::Updating, NodeState::Removing, NodeState::Retrying]);
    let waiting = census.count(&[NodeState::Waiting]);
    let failed = census.failed;
    let reachable = census.nodes - census.count(&[NodeState::Skipped, NodeState::Unknown]);
    let paused = side.is_paused();
    if failed > 0 || side.is_stopped() {
        let message = failure_text(side, census, failed, reachable);
        let going_on = !side.is_stopped() && (moving > 0 || (waiting > 0 && !paused));
        return if going_on { Verdict::new("Failed", message) } else { Verdict::stalled("Failed", message) };
    }
    // Those that wait for an upgrade are ready too, with what they have.
    let done = |word: &str| format!("{} of {} {word}", census.count(&[NodeState::Ready]), nodes(reachable));
    if moving + waiting > 0 {
        let reason = if paused && moving == 0 { "Paused" } else { "Updating" };
        return Verdict::new(reason, progress_text(side, census, done("updated")));
    }
    if side.revision.is_none() {
        return Verdict::new("Updating", "the revision is not on record yet");
    }
    if census.nodes == 0 {
        return Verdict::ready("NoNodes", "no node matches spec.nodeSelector");
    }
    Verdict::ready("Ready", done("ready"))
}

fn failure_text(side: &Side<'_>, census: &Census, failed: usize, reachable: usize) -> String {
    let stopped = if side.is_stopped() { "; the rollout stopped" } else { "" };
    let worst = census.worst.first().map(|row| format!("; {}", sentence(row))).unwrap_or_default();
    format!("{} of {} failed{stopped}{worst}", failed.max(side.tally.failed), nodes(reachable.max(side.tally.nodes)))
}

/// How far it is, and what it waits for.
fn progress_text(side: &Side<'_>, census: &Census, progress: String) -> String {
    let told = |row: &&NodeRow| !matches!(row.state, NodeState::Skipped | NodeState::Unknown);
    if let Some(row) = census.worst.iter().find(told) {
        return format!("{progress}; {}", sentence(row));
    }
    match side.gate() {
        Gate::Canary => format!("{progress}; canary: {} of {} done", side.tally.kept, nodes(side.canary())),
        Gate::Paused | Gate::Stopped | Gate::Open => progress,
    }
}

fn conditions(board: &Board<'_>, side: &Side<'_>, verdict: &Verdict) -> Vec<Condition> {
    let paused = side.shim.spec.as_ref().is_ok_and(|spec| spec.rollout.paused);
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
    .map(|(kind, on, (reason, message))| condition(board, side, kind, on, reason, message))
    .to_vec()
}

/// Keeps the time of the last change, so that a pass that changes nothing writes nothing.
fn condition(board: &Board<'_>, side: &Side<'_>, kind: &str, on: bool, reason: &str, message: String) -> Condition {
    let status = if on { "True" } else { "False" };
    let before = side.shim.status.conditions.iter().find(|c| c.type_ == kind && c.status == status);
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: side.shim.generation,
        last_transition_time: before.map_or(Time(board.world.now), |condition| condition.last_transition_time.clone()),
    }
}
