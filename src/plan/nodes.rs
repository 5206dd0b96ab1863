//! One node after the other: what its Jobs told goes into its marks, then its next Job.
use std::collections::{BTreeMap, BTreeSet};

use compact_str::CompactString;
use jiff::Timestamp;

use super::{Action, MarkWrite, Planner};
use crate::{
    board::{Gate, Side, Stand, Weight, after, served},
    job::Start,
    limits,
    mark::{self, Mark, Marks, Ready},
    names::{Build, ShimName},
    report::{Failure, Outcome, Reason, Step},
    task::{self, Op, Task, Tries},
    world::{Artifact, NodeView, Phase},
};

/// Whether every result on a node has reached a durable place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ledger {
    Settled,
    Open,
}

/// A permission to start, and what went before.
struct Permit {
    tries: Option<Tries>,
    /// Whether it has a place in the budget already.
    placed: bool,
}

impl<'w> Planner<'_, 'w> {
    /// The nodes with something to do, in the order of every rollout: new ones first, since pods wait for them; cordoned
    /// ones last; else by a hash that is the same for all Shims, so that they share Jobs.
    pub(super) fn nodes_in_order(&self) -> Vec<(usize, &'w NodeView)> {
        let board = self.board;
        let nodes = board.restless().map(|index| (index, &*board.world.nodes[index]));
        let mut nodes: Vec<_> = nodes.filter(|(index, node)| !self.only_waits(*index, node)).collect();
        nodes.sort_by_cached_key(|(index, node)| {
            let is_new = |(side, stand): (&Side<'_>, Stand<'_>)| {
                matches!(stand, Stand::Wanted(_)) && served(&side.shim.name, node).is_none()
            };
            (node.cordoned, !board.stands(*index).any(is_new), node.place, &node.name)
        });
        nodes
    }

    pub(super) fn node(&mut self, index: usize, node: &'w NodeView) {
        let Some(before) = &node.marks else { return };
        if self.only_waits(index, node) {
            return;
        }
        let mut marks = before.clone();
        distrust_other_machines(node, &mut marks);
        let trusted = marks.clone();
        self.record_results(node, &mut marks);
        // Record first, forget second: a crash in between only repeats the record.
        let settled = marks == trusted && self.forget_jobs(node) == Ledger::Settled;
        self.look_after_pods(node);
        self.demote(node, &mut marks);
        let free = settled && node.ready && !self.board.is_busy(node);
        let task = if free { self.next_task(node) } else { None };
        if let Some(task) = &task {
            claim(task, &mut marks);
        }
        self.write_marks(node, before, &marks);
        self.creates.extend(task.map(Action::Create));
    }

    /// Most nodes of a long rollout wait for a place: that is seen before anything is worked out for them.
    fn only_waits(&self, index: usize, node: &NodeView) -> bool {
        let waits = |(side, stand): (&Side<'w>, Stand<'w>)| match stand {
            Stand::Wanted(artifact) => !self.has_room(side) || self.is_held_back(side, node, artifact),
            Stand::Stale(_) => !self.has_room(side),
            stand => stand.is_quiet(),
        };
        self.board.jobs_at(index).is_empty()
            && self.board.stands(index).all(waits)
            && node.marks.as_ref().is_none_or(|marks| {
                marks.values().all(|mark| is_trusted(node, mark)) && mark::labels_agree(marks, &node.labels)
            })
    }

    /// Whether a node that serves something else, and that nothing has been tried on, waits for more than a place.
    fn is_held_back(&self, side: &Side<'w>, node: &NodeView, artifact: &Artifact) -> bool {
        let other = |ready: &Ready| ready.build != artifact.build && side.is_true(ready, node);
        let closed = || match side.gate() {
            Gate::Paused | Gate::Stopped => true,
            Gate::Canary | Gate::Open => !self.may_try(side, false),
        };
        served(&side.shim.name, node).is_some_and(other) && closed()
    }

    /// What succeeded goes into the marks, once: a Job that is kept for its failures keeps nothing else.
    fn record_results(&self, node: &NodeView, marks: &mut Marks) {
        let jobs = self.board.jobs_on(&node.name).iter().filter(|job| job.is_for(node));
        for (job, finished) in jobs.filter_map(|job| Some((job, job.finished()?))).filter(|(_, f)| !f.recorded) {
            for (name, op) in &job.task.ops {
                match finished.report.outcomes.get(name) {
                    Some(Outcome::Done { disrupted }) => {
                        let ready = |build: &Build| Ready {
                            build: build.clone(),
                            machine: job.task.machine_id.clone(),
                            since: finished.at,
                            disrupted: *disrupted,
                            repairs: 0,
                        };
                        self.record_done(node, name, op.build().map(ready), marks);
                    }
                    Some(Outcome::Failed(failure)) => record_failed(name, op, failure.reason, marks),
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
        let leaving = self.board.stand(name, &node.name) == Stand::Leaving;
        let ready = follow(marks.get(name), ready);
        marks.insert(name.clone(), if leaving { Mark::Removing } else { Mark::Ready(ready) });
    }

    /// A Job is kept as long as a failure of it is the last word on something that may start again. Nothing starts before that
    /// failure is in its annotation, with what has been recorded left out, or the Job is gone: if its deletion failed it
    /// would tell its successes again, after those of its successor.
    fn forget_jobs(&mut self, node: &NodeView) -> Ledger {
        let mut ledger = Ledger::Settled;
        for job in self.board.jobs_on(&node.name) {
            let Some(finished) = job.finished() else { continue };
            if !job.is_for(node) || !self.board.is_needed(node, job) {
                self.deletes.push(Action::Delete(job.reference()));
            } else if !finished.recorded {
                self.records.push(Action::Record(job.reference(), finished.report.failures()));
            }
            if job.is_for(node) && !finished.recorded {
                ledger = Ledger::Open;
            }
        }
        ledger
    }

    /// Jobs whose Pod does not start, or whose node does not answer.
    fn look_after_pods(&mut self, node: &NodeView) {
        for job in self.board.jobs_on(&node.name) {
            if self.board.is_obsolete(node, job) {
                self.deletes.push(Action::Withdraw(job.reference(), job.version.clone()));
                continue;
            }
            let news = match (&job.phase, &job.start) {
                (Phase::Running, Start::Hindered { why, noted: false }) => Some(why.clone()),
                (Phase::Stuck, Start::Hindered { noted: true, .. }) => None,
                (Phase::Stuck, _) => Some(Failure::new(Step::Start, Reason::NodeLost, "the node does not answer")),
                _ => None,
            };
            self.records.extend(news.map(|why| Action::Note(job.reference(), why)));
        }
    }

    /// No new pods from the moment at which a removal is due; the removal itself waits for its turn.
    fn demote(&self, node: &NodeView, marks: &mut Marks) {
        for (name, mark) in marks {
            let leaves = || self.board.stand(name, &node.name) == Stand::Leaving;
            let paused = || self.board.side(name).is_some_and(Side::is_paused);
            if matches!(mark, Mark::Ready(_)) && leaves() && !paused() {
                *mark = Mark::Removing;
            }
        }
    }

    /// One Job with everything that is due here and may start now.
    fn next_task(&mut self, node: &'w NodeView) -> Option<Task> {
        let machine_id = node.machine.clone()?;
        let board = self.board;
        let wished: Vec<_> =
            board.sides().iter().map(|side| (side, board.wished(side, node).collect::<Vec<_>>())).collect();
        let due = wished.iter().filter(|(_, ops)| !ops.is_empty());
        if let Some(at) = due.clone().filter_map(|(side, _)| self.gathering(side)).max() {
            self.wake(at);
            return None;
        }
        let (mut ops, mut tries) = (BTreeMap::new(), BTreeMap::new());
        for (side, wishes) in due {
            let permit = |op: &Op| self.permit(side, node, op).map(|permit| (op.clone(), permit));
            let Some((op, permit)) = wishes.iter().find_map(permit) else { continue };
            self.take_place(side, node, &op, &permit);
            tries.extend(permit.tries.map(|tries| (side.shim.name.clone(), tries)));
            ops.insert(side.shim.name.clone(), op);
        }
        self.wake_for_retries(node, &wished);
        let serial = 1 + board.jobs_on(&node.name).iter().map(|job| job.task.serial).max().unwrap_or_default();
        let (node, node_uid) = (node.name.clone(), node.uid.clone());
        (!ops.is_empty()).then_some(Task { format: task::FORMAT, node, node_uid, machine_id, serial, ops, tries })
    }

    /// Shims that are applied together share one restart of containerd: the first Job waits for the others.
    fn gathering(&self, side: &Side<'_>) -> Option<Timestamp> {
        let until = after(side.shim.created, limits::GATHER);
        (until > self.board.world.now).then_some(until)
    }

    fn wake_for_retries(&mut self, node: &NodeView, wished: &[(&Side<'w>, Vec<Op>)]) {
        for (side, ops) in wished {
            for op in ops {
                let word = self.board.word(side, node, op).map(|word| word.next);
                word.into_iter().chain(side.repair_at(node, op)).for_each(|at| self.wake(at));
            }
        }
    }

    /// Whether an operation may start now: the brakes, the budget and the pause after the last try allow it.
    fn permit(&self, side: &Side<'w>, node: &NodeView, op: &Op) -> Option<Permit> {
        let word = self.board.word(side, node, op);
        let next = word.as_ref().map(|word| word.next).max(side.repair_at(node, op));
        if !side.shim.finalizer || next.is_some_and(|next| next > self.board.world.now) {
            return None;
        }
        let placed = word.as_ref().is_some_and(|word| word.weight == Weight::Trial && self.is_due(side, node, op));
        let under_way = self.under_way.get(&side.shim.name)?;
        // Who has a place still needs it to be within the budget, which may have shrunk.
        let taken = under_way.jobs + if placed { 0 } else { under_way.trials };
        let room = taken < side.budget();
        let open = word.is_some() || Self::gate_is_open(side, node, op);
        let proven = !side.is_current(node, op) || self.may_try(side, placed);
        (room && open && proven).then_some(Permit { tries: word.map(|word| word.tries), placed })
    }

    /// Whether the budget has a place that nobody has taken.
    fn has_room(&self, side: &Side<'_>) -> bool {
        self.under_way.get(&side.shim.name).is_some_and(|taken| taken.jobs + taken.trials < side.budget())
    }

    fn is_due(&self, side: &Side<'w>, node: &NodeView, op: &Op) -> bool {
        self.board.stand(&side.shim.name, &node.name).op(side.shim).as_ref() == Some(op)
    }

    /// Whether something may be begun on a node that has not been tried with it.
    fn gate_is_open(side: &Side<'w>, node: &NodeView, op: &Op) -> bool {
        let has_it = || served(&side.shim.name, node).map(|ready| &ready.build) == op.build();
        match side.gate() {
            Gate::Paused => false,
            // A repair of what the node has is nothing new.
            Gate::Stopped => !side.is_current(node, op) || has_it(),
            // A node with nothing to serve is no canary as long as there are others: it needs what is proven.
            Gate::Canary => {
                let is_new = served(&side.shim.name, node).is_none();
                !side.is_current(node, op) || has_it() || !is_new || side.tally.older == 0
            }
            Gate::Open => true,
        }
    }

    /// Whether the current revision is on record, and the canary has room.
    fn may_try(&self, side: &Side<'w>, placed: bool) -> bool {
        let taken = self.under_way.get(&side.shim.name).map_or(0, |under_way| {
            under_way.kept + under_way.current_jobs + if placed { 0 } else { under_way.current_trials }
        });
        side.revision.is_some() && (!side.is_canary_open() || taken < side.canary())
    }

    fn take_place(&mut self, side: &Side<'w>, node: &NodeView, op: &Op, permit: &Permit) {
        let Some(under_way) = self.under_way.get_mut(&side.shim.name) else { return };
        let is_current = usize::from(side.is_current(node, op));
        under_way.jobs += 1;
        under_way.current_jobs += is_current;
        if permit.placed {
            under_way.trials -= 1;
            under_way.current_trials -= is_current;
        }
    }

    fn write_marks(&mut self, node: &NodeView, before: &Marks, after: &Marks) {
        if before == after && mark::labels_agree(after, &node.labels) {
            return;
        }
        let names: BTreeSet<_> = before.keys().chain(after.keys()).collect();
        let labels = names.into_iter().map(|name| (name.node_label(), after.get(name).and_then(Mark::label)));
        self.marks.push(Action::Mark(MarkWrite {
            node: node.name.clone(),
            uid: node.uid.clone(),
            old: node.annotation.clone(),
            new: mark::render(after),
            labels: labels
                .filter(|(key, label)| node.labels.get(key.as_str()).map(CompactString::as_str) != *label)
                .collect(),
        }));
    }
}

/// A mark that was verified on another machine says nothing about this one, and its label would send pods here.
fn distrust_other_machines(node: &NodeView, marks: &mut Marks) {
    for mark in marks.values_mut().filter(|mark| !is_trusted(node, mark)) {
        *mark = Mark::Claimed;
    }
}

fn is_trusted(node: &NodeView, mark: &Mark) -> bool {
    match (mark, &node.machine) {
        (Mark::Ready(ready), Some(machine)) => ready.machine == *machine,
        _ => true,
    }
}

/// What was verified before counts on: pods that were ended, and repairs in a row. What the mark says is there is only
/// installed again where the kubelet does not report it.
fn follow(before: Option<&Mark>, ready: Ready) -> Ready {
    match before {
        Some(Mark::Ready(old)) if (&old.build, &old.machine) == (&ready.build, &ready.machine) => {
            // It has been recorded; the process ended before it could say so.
            if old.since == ready.since {
                return old.clone();
            }
            let in_a_row = ready.since < after(old.since, limits::REPAIRS_APART);
            let repairs = if in_a_row { old.repairs.saturating_add(1) } else { 0 };
            Ready { repairs, disrupted: old.disrupted.saturating_add(ready.disrupted), ..ready }
        }
        _ => ready,
    }
}

/// What a failure says about what is there.
fn record_failed(name: &ShimName, op: &Op, reason: Reason, marks: &mut Marks) {
    let Some(mark @ Mark::Ready(_)) = marks.get_mut(name) else { return };
    match (op, reason) {
        // Pods would fail here: none may come until it is repaired.
        (Op::Check(_), Reason::Drifted) => *mark = Mark::Claimed,
        // Pods go on, and the build in force is not known: an upgrade that ended without a word may have come to its end.
        (Op::Check(_), Reason::BuildMismatch) | (Op::Install(_), Reason::NoResult | Reason::PodNotStarted) => {
            if let Mark::Ready(ready) = mark {
                ready.build = Build::unknown();
            }
        }
        _ => {}
    }
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
