//! What has to be done next: `plan(&World) -> Plan`, total, deterministic, without IO and without a clock of its own.
//!
//! # Invariants
//! After every single API write, under cache lag, crash and retry (`tests/rollout` checks them):
//! - S1 budget: nodes with an unfinished Job that touches a Shim are at most its `maxUpdate`, counted when one starts.
//! - S2 exclusion: at most one unfinished Job per node, across all Shims.
//! - S3 no lies: `ready` on a node means installed and verified on this node and machine, and no removal has begun.
//! - S4 brakes: while paused, no untouched node starts; what runs finishes and is recorded; retries go on.
//! - S5 identity: nothing is done to a Node whose uid or machine id is not the planned one.
//! - S7 no orphan: a node that may have been touched carries a mark until its removal succeeded.
//! - S8 finalizer: it goes only when no existing node carries a mark and no Job is left.
//! - S9 ownership: a Job, label or RuntimeClass that we did not make is never touched.
//! - L1: when nothing changes any more, the wanted state is reached and the plan is empty and stays empty.
//! - L2: a node that fails or does not answer blocks no other.
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Bound,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::node::v1::RuntimeClass;

use crate::{
    api::ShimStatus,
    board::{Board, Due, Try},
    job::Finished,
    limits,
    mark::{self, Mark, Marks, Ready},
    names::{Build, NodeName, ShimName},
    report::{Outcome, Reason, Report},
    runtime_class::{self, Owner, runtime_class_for},
    status,
    task::{self, Op, Task},
    world::{JobView, Life, NodeView, Phase, ShimView, World},
};

/// One write to the API server.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "a plan holds few actions, and lives for one pass")]
pub enum Action {
    /// Put our finalizer on a Shim.
    Hold(ShimName),
    /// Create or correct a RuntimeClass of ours.
    Apply(RuntimeClass),
    /// Keep a Job's report in its annotation; its Pod may vanish.
    Record(JobRef, Report),
    /// Replace the marks of a node.
    Mark(MarkWrite),
    /// Delete a Job that has ended and is not needed any more.
    Delete(JobRef),
    /// Start a Job.
    Create(Task),
    /// Delete the RuntimeClass of this name, if there is one and it belongs to this Shim.
    DeleteRuntimeClass(String, ShimName),
    /// Take our finalizer off a Shim.
    Release(ShimName),
    /// Tell people.
    Status(ShimName, ShimStatus),
}

/// A Job, by name and uid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRef {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
}

/// New marks of a node; refused unless uid and annotation are as the planner saw them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkWrite {
    /// The Node.
    pub node: NodeName,
    /// Its uid.
    pub uid: String,
    /// The annotation that is replaced, word for word.
    pub old: Option<String>,
    /// Its new text.
    pub new: Option<String>,
    /// Labels of ours that change; `None`: it goes.
    pub labels: BTreeMap<String, Option<&'static str>>,
}

/// What to do now, in this order, and when to look again if nothing happens before.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// In order: a claim stands before the Job that it is for, a demotion before the removal.
    pub actions: Vec<Action>,
    /// The earliest moment at which waiting alone makes a difference.
    pub wake_at: Option<Timestamp>,
}

/// Decides what has to be done next.
pub fn plan(world: &World) -> Plan {
    let board = Board::new(world);
    let mut planner = Planner::new(&board);
    planner.shims();
    for node in nodes_in_order(world) {
        planner.node(node);
    }
    planner.farewells();
    planner.statuses();
    planner.into_plan()
}

/// The same order for all Shims, so that the nodes of one are the nodes of the next and they share Jobs; cordoned ones last.
fn nodes_in_order(world: &World) -> Vec<&NodeView> {
    let mut nodes: Vec<_> = world.nodes.iter().collect();
    nodes.sort_by_cached_key(|node| (node.cordoned, spread(&node.uid), node.name.clone()));
    nodes
}

/// FNV-1a: names that count upwards are spread over zones; nobody chooses uids to harm the order.
fn spread(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// What every Node label of ours starts with, see [`ShimName::node_label`].
const LABEL_PREFIX: &str = "shim.dev/";

/// Whether every result on a node has reached a durable place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ledger {
    Settled,
    Open,
}

struct Planner<'b, 'w> {
    board: &'b Board<'w>,
    /// Nodes with an unfinished Job that touches the Shim, with those that this plan starts.
    in_progress: HashMap<&'w ShimName, usize>,
    records: Vec<Action>,
    marks: Vec<Action>,
    deletes: Vec<Action>,
    creates: Vec<Action>,
    first: Vec<Action>,
    last: Vec<Action>,
    wake_at: Option<Timestamp>,
}

impl<'b, 'w> Planner<'b, 'w> {
    fn new(board: &'b Board<'w>) -> Self {
        let mut in_progress = HashMap::new();
        for job in board.world.jobs.iter().filter(|job| job.phase == Phase::Running) {
            for name in job.task.ops.keys() {
                *in_progress.entry(name).or_default() += 1;
            }
        }
        let [records, marks, deletes, creates, first, last] = Default::default();
        Self { board, in_progress, records, marks, deletes, creates, first, last, wake_at: None }
    }

    fn into_plan(self) -> Plan {
        let parts = [self.first, self.marks, self.records, self.deletes, self.creates, self.last];
        Plan { actions: parts.into_iter().flatten().collect(), wake_at: self.wake_at }
    }

    fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Finalizers before anything else: a node must never be touched for a Shim that could vanish meanwhile.
    fn shims(&mut self) {
        for shim in &self.board.world.shims {
            let (Life::Active, Ok(spec)) = (shim.life, &shim.spec) else { continue };
            // In spite of a conflict: one of its name may have been here before, and left marks that have to go.
            if !shim.finalizer {
                self.first.push(Action::Hold(shim.name.clone()));
            }
            // Without a finalizer it may be gone already, and nobody would delete its RuntimeClass.
            if !shim.finalizer || self.board.conflict(&shim.name).is_some() {
                continue;
            }
            let wanted = runtime_class_for(&shim.name, &spec.handler, &spec.runtime_class);
            let found = self.board.runtime_class(&spec.runtime_class.name);
            if !found.is_some_and(|found| runtime_class::is_current(found, &wanted)) {
                self.first.push(Action::Apply(wanted));
            }
        }
    }

    fn node(&mut self, node: &'w NodeView) {
        let Some(before) = &node.marks else { return };
        let mut marks = before.clone();
        distrust_other_machines(node, &mut marks);
        let trusted = marks.clone();
        self.record_results(node, &mut marks);
        self.wake_for_handlers(node);
        // Record first, forget second: a crash in between only repeats the record.
        let settled = marks == trusted && self.forget_jobs(node) == Ledger::Settled;
        self.demote(node, &mut marks);
        let free = settled && node.ready && !self.board.is_busy(node);
        let task = free.then(|| self.next_task(node)).flatten();
        if let Some(task) = &task {
            claim(task, &mut marks);
        }
        self.write_marks(node, before, &marks);
        self.creates.extend(task.map(Action::Create));
    }

    /// What succeeded goes into the marks, once: a Job that is kept for its failures keeps nothing else.
    fn record_results(&self, node: &NodeView, marks: &mut Marks) {
        let jobs = self.board.jobs_on(&node.name).iter().filter(|job| job.task.node_uid == node.uid);
        for (job, finished) in jobs.filter_map(|job| Some((job, job.finished()?))).filter(|(_, f)| !f.recorded) {
            for (name, op) in &job.task.ops {
                match finished.report.outcomes.get(name) {
                    Some(Outcome::Done { disrupted }) => {
                        let ready = |build: &Build| Ready {
                            build: build.clone(),
                            machine: job.task.machine_id.clone(),
                            since: finished.at,
                            disrupted: *disrupted,
                        };
                        self.record_done(node, name, op.build().map(ready), marks);
                    }
                    Some(Outcome::Failed(failure)) if failure.reason == Reason::NoResult => doubt(name, marks),
                    _ => {}
                }
            }
        }
    }

    fn record_done(&self, node: &NodeView, name: &ShimName, ready: Option<Ready>, marks: &mut Marks) {
        let Some(ready) = ready else {
            marks.remove(name);
            return;
        };
        // The machine changed while the Job ran: nothing to vouch for.
        if node.machine.as_ref() != Some(&ready.machine) {
            return;
        }
        let leaving = self.board.shim(name).is_some_and(|shim| self.board.due(shim, node) == Due::Op(Op::Remove));
        marks.insert(name.clone(), if leaving { Mark::Removing } else { Mark::Ready(ready) });
    }

    /// A Job is kept as long as a failure of it is the last word on something that is due. Nothing starts before that
    /// failure is in its annotation, with what has been recorded left out, or the Job is gone: if its deletion failed it
    /// would tell its successes again, after those of its successor.
    fn forget_jobs(&mut self, node: &NodeView) -> Ledger {
        let mut ledger = Ledger::Settled;
        for job in self.board.jobs_on(&node.name) {
            let Some(finished) = job.finished() else { continue };
            let is_of_another = job.task.node_uid != node.uid;
            if is_of_another || !self.board.is_needed(node, job) {
                self.deletes.push(Action::Delete(job.reference()));
            } else if !finished.recorded {
                self.records.push(Action::Record(job.reference(), finished.report.failures()));
            }
            if !is_of_another && !finished.recorded {
                ledger = Ledger::Open;
            }
        }
        ledger
    }

    /// When a handler that the kubelet does not report starts to count as lost.
    fn wake_for_handlers(&mut self, node: &NodeView) {
        let shims = &self.board.world.shims;
        if let Some(at) = shims.iter().filter_map(|shim| self.board.handler_awaited(shim, node)).min() {
            self.wake(at);
        }
    }

    /// No new pods from the moment at which a removal is due; the removal itself waits for its turn.
    fn demote(&mut self, node: &NodeView, marks: &mut Marks) {
        for shim in &self.board.world.shims {
            let Some(mark @ Mark::Ready(_)) = marks.get_mut(&shim.name) else { continue };
            if !is_paused(shim) && self.board.due(shim, node) == Due::Op(Op::Remove) {
                *mark = Mark::Removing;
            }
        }
    }

    /// One Job with everything that is due here and may start now.
    fn next_task(&mut self, node: &'w NodeView) -> Option<Task> {
        let machine_id = node.machine.clone()?;
        let due: Vec<_> =
            self.board.world.shims.iter().filter_map(|shim| Some((shim, self.due_op(shim, node)?))).collect();
        if let Some(at) = due.iter().filter_map(|(shim, _)| self.gathering(shim)).max() {
            self.wake(at);
            return None;
        }
        let mut ops = BTreeMap::new();
        let mut attempt = 1;
        for (shim, op) in due {
            let Some(next) = self.may_start(shim, node, &op) else { continue };
            attempt = attempt.max(next);
            ops.insert(shim.name.clone(), op);
        }
        for name in ops.keys() {
            if let Some(shim) = self.board.shim(name) {
                *self.in_progress.entry(&shim.name).or_default() += 1;
            }
        }
        let serial = 1 + self.board.jobs_on(&node.name).iter().map(|job| job.task.serial).max().unwrap_or_default();
        let (node, node_uid) = (node.name.clone(), node.uid.clone());
        (!ops.is_empty()).then_some(Task { format: task::FORMAT, node, node_uid, machine_id, attempt, serial, ops })
    }

    fn due_op(&self, shim: &ShimView, node: &NodeView) -> Option<Op> {
        match self.board.due(shim, node) {
            Due::Op(op) => Some(op),
            Due::Nothing | Due::Skip(_) => None,
        }
    }

    /// Shims that are applied together share one restart of containerd: the first Job waits for the others.
    fn gathering(&self, shim: &ShimView) -> Option<Timestamp> {
        let until = after(shim.created, limits::GATHER);
        (until > self.board.world.now).then_some(until)
    }

    /// The number of this try, if the brakes, the budget and the pause after a failure allow it now.
    fn may_start(&mut self, shim: &'w ShimView, node: &NodeView, op: &Op) -> Option<u32> {
        let attempt = match self.board.next_try(node, &shim.name, op) {
            Try::First => 1,
            Try::Again { failed: attempt, at } if at <= self.board.world.now => attempt + 1,
            Try::Again { at, .. } => {
                self.wake(at);
                return None;
            }
        };
        let started = self.in_progress.get(&shim.name).copied().unwrap_or_default();
        let braked = is_paused(shim) && attempt == 1;
        (!braked && shim.finalizer && started < self.board.budget(shim)).then_some(attempt)
    }

    fn write_marks(&mut self, node: &NodeView, before: &Marks, after: &Marks) {
        if before == after && labels_agree(node, after) {
            return;
        }
        let names: BTreeSet<_> = before.keys().chain(after.keys()).collect();
        let labels = names.into_iter().map(|name| (name.node_label(), after.get(name).and_then(Mark::label)));
        self.marks.push(Action::Mark(MarkWrite {
            node: node.name.clone(),
            uid: node.uid.clone(),
            old: node.annotation.clone(),
            new: mark::render(after),
            labels: labels.filter(|(key, label)| node.labels.get(key).map(String::as_str) != *label).collect(),
        }));
    }

    /// Jobs whose node is gone, then Shims that have nothing left on any node.
    fn farewells(&mut self) {
        for job in &self.board.world.jobs {
            if self.board.node(&job.task.node).is_none() && matches!(job.phase, Phase::Finished(_)) {
                self.deletes.push(Action::Delete(job.reference()));
            }
        }
        for shim in self.board.world.shims.iter().filter(|shim| shim.finalizer) {
            match shim.life {
                Life::Active => {}
                Life::Orphaned => self.last.push(Action::Release(shim.name.clone())),
                Life::Deleting if self.board.is_anywhere(&shim.name) => {}
                Life::Deleting => self.farewell(shim),
            }
        }
    }

    fn farewell(&mut self, shim: &ShimView) {
        let ours = |class: &&RuntimeClass| runtime_class::owner(class) == Owner::Shim(shim.name.to_string());
        let seen = self.board.world.runtime_classes.iter().filter(ours).filter_map(|class| class.metadata.name.clone());
        // What we applied a moment ago may not be in the cache yet, and would be left behind.
        let asked_for = shim.spec.as_ref().ok().map(|spec| spec.runtime_class.name.clone());
        let unseen = asked_for.filter(|name| self.board.runtime_class(name).is_none());
        for name in seen.chain(unseen) {
            self.last.push(Action::DeleteRuntimeClass(name, shim.name.clone()));
        }
        self.last.push(Action::Release(shim.name.clone()));
    }

    fn statuses(&mut self) {
        for shim in &self.board.world.shims {
            let status = status::summarize(self.board, shim);
            if status != shim.status && shim.life != Life::Orphaned {
                self.last.push(Action::Status(shim.name.clone(), status));
            }
        }
        // A Shim that has just been released is gone: its status would be a write to nothing.
        let released: BTreeSet<_> =
            self.last.iter().filter_map(|a| if let Action::Release(n) = a { Some(n.clone()) } else { None }).collect();
        self.last.retain(|action| !matches!(action, Action::Status(name, _) if released.contains(name)));
    }
}

/// A mark that was verified on another machine says nothing about this one, and its label would send pods here.
fn distrust_other_machines(node: &NodeView, marks: &mut Marks) {
    let Some(machine) = &node.machine else { return };
    for mark in marks.values_mut() {
        if matches!(mark, Mark::Ready(ready) if ready.machine != *machine) {
            *mark = Mark::Claimed;
        }
    }
}

/// An upgrade that ended without a word may have come to its end: pods go on, and the build in force is not known.
fn doubt(name: &ShimName, marks: &mut Marks) {
    if let Some(Mark::Ready(ready)) = marks.get_mut(name) {
        ready.build = Build::unknown();
    }
}

/// Whether the labels say what the marks say: somebody may have taken one off. Others' labels do not count.
fn labels_agree(node: &NodeView, marks: &Marks) -> bool {
    let told = marks.iter().filter_map(|(name, mark)| Some((name.as_str(), mark.label()?)));
    let prefixed = node.labels.range::<str, _>((Bound::Included(LABEL_PREFIX), Bound::Unbounded));
    let ours = prefixed.map_while(|(key, value)| Some((key.strip_prefix(LABEL_PREFIX)?, value.as_str())));
    told.eq(ours.filter(|(name, _)| marks.contains_key(*name)))
}

fn is_paused(shim: &ShimView) -> bool {
    shim.life == Life::Active && shim.spec.as_ref().is_ok_and(|spec| spec.paused)
}

/// Written before the Job: whatever happens to it, the node is known to be touched.
fn claim(task: &Task, marks: &mut Marks) {
    for (name, op) in &task.ops {
        let mark = marks.entry(name.clone()).or_insert(Mark::Claimed);
        // A retry starts while paused, when nothing is demoted: no removal begins under a `ready`.
        if *op == Op::Remove {
            *mark = Mark::Removing;
        }
    }
}

/// `time` plus `wait`.
pub(crate) fn after(time: Timestamp, wait: std::time::Duration) -> Timestamp {
    let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
    time.checked_add(wait).unwrap_or(Timestamp::MAX)
}

impl JobView {
    /// Name and uid.
    pub fn reference(&self) -> JobRef {
        JobRef { name: self.name.clone(), uid: self.uid.clone() }
    }

    /// How it ended, if it has.
    pub fn finished(&self) -> Option<&Finished> {
        match &self.phase {
            Phase::Finished(finished) => Some(finished),
            Phase::Running | Phase::Stuck => None,
        }
    }

    /// What it says of a Shim that it did not get done; `None` where it succeeded, or has not ended.
    pub fn failure(&self, shim: &ShimName) -> Option<&Outcome> {
        let outcome = self.finished()?.report.outcomes.get(shim)?;
        (!matches!(outcome, Outcome::Done { .. })).then_some(outcome)
    }
}
