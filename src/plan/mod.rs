//! What has to be done next: `plan(&World) -> Plan`, total, deterministic, without IO and without a clock of its own.
//!
//! # Invariants
//! After every single API write, under cache lag, crash and retry (`tests/rollout` checks them):
//! - S1 budget: nodes with an unfinished Job that touches a Shim are at most its `maxUpdate`, counted when one starts.
//! - S2 exclusion: at most one unfinished Job per node, across all Shims.
//! - S3 no lies: `ready` on a node means installed and verified on this node and machine, and no removal has begun.
//! - S4 brakes: while paused or stopped by failures, no untouched node starts; what runs finishes and is recorded;
//!   retries, and removals of a deleted Shim, go on.
//! - S5 identity: nothing is done to a Node whose uid or machine id is not the planned one.
//! - S6 canary: until `canary` nodes have a revision, verified, at most that many run it or are tried with it.
//! - S7 no orphan: a node that may have been touched carries a mark until its removal succeeded.
//! - S8 finalizer: it goes only when no existing node carries a mark and no Job is left.
//! - S9 ownership: a Job, label or RuntimeClass that we did not make is never touched.
//! - S10 no harm: what serves on a node is taken away only by a removal that is wanted.
//! - L1: when nothing changes any more, the wanted state is reached and the plan is empty and stays empty.
//! - L2: a node that fails or does not answer blocks no other, longer than [`limits::TRIAL`](crate::limits::TRIAL).
//! - L3: what failed is tried again, with capped back-off, and at once when it is another operation or was asked for.
//! - L4: passes, Jobs and writes per node and build are bounded by a small constant.
use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use k8s_openapi::api::node::v1::RuntimeClass;

use crate::{
    api::ShimStatus,
    board::{Board, Tally, after},
    job::{Finished, Start},
    limits,
    names::{NodeName, ShimName},
    report::{Failure, Outcome, Report},
    revision::{Record, RevisionView},
    task::Task,
    world::{JobView, NodeView, Phase, World},
};

mod nodes;
mod shims;

/// One write to the API server.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Put our finalizer on a Shim.
    Hold(ShimName),
    /// Number a change of a Shim.
    Revise(RevisionView),
    /// Create or correct a RuntimeClass of ours.
    Apply(RuntimeClass),
    /// Write down why the Pod of a Job does not start.
    Note(JobRef, Failure),
    /// Keep a Job's report in its annotation; its Pod may vanish.
    Record(JobRef, Report),
    /// Replace the marks of a node.
    Mark(MarkWrite),
    /// Delete a Job that has ended and is not needed any more.
    Delete(JobRef),
    /// Delete a Job that has not begun and is not wanted any more, unless it has changed since this resourceVersion.
    Withdraw(JobRef, String),
    /// Start a Job.
    Create(Task),
    /// Delete the RuntimeClass of this name, if there is one and it belongs to this Shim.
    DeleteRuntimeClass(String, ShimName),
    /// Take our finalizer off a Shim.
    Release(ShimName),
    /// Tell people.
    Status(ShimName, ShimStatus),
    /// Write down what became of a revision.
    Stamp(ShimName, i64, Record),
    /// Delete an old revision.
    Forget(ShimName, i64),
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
    for (index, node) in planner.nodes_in_order() {
        planner.node(index, node);
    }
    planner.farewells();
    planner.statuses();
    planner.look_again();
    planner.into_plan()
}

struct Planner<'b, 'w> {
    board: &'b Board<'w>,
    /// What is under way, with what this plan starts.
    under_way: HashMap<&'w ShimName, Tally>,
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
        let [records, marks, deletes, creates, first, last] = Default::default();
        Self {
            board,
            under_way: board.sides().iter().map(|side| (&side.shim.name, side.tally)).collect(),
            records,
            marks,
            deletes,
            creates,
            first,
            last,
            wake_at: board.wake_at,
        }
    }

    fn into_plan(self) -> Plan {
        let parts = [self.first, self.marks, self.records, self.deletes, self.creates, self.last];
        Plan { actions: parts.into_iter().flatten().collect(), wake_at: self.wake_at }
    }

    /// Why a Pod does not start, or that one has gone which no Job explains: no event of a Job tells.
    fn look_again(&mut self) {
        let world = self.board.world;
        let is_silent = |job: &JobView| job.phase == Phase::Running && job.start == Start::Waiting;
        if !world.occupied.is_empty() || world.jobs.iter().any(is_silent) {
            self.wake(after(world.now, limits::LOOK_AGAIN));
        }
    }

    fn wake(&mut self, at: Timestamp) {
        if at > self.board.world.now {
            self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
        }
    }
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

    /// Whether it was made for this very Node.
    pub fn is_for(&self, node: &NodeView) -> bool {
        self.task.node_uid == node.uid
    }
}
