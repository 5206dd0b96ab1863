//! Planners with a fault: each is ours with a World that was twisted before it, or with a plan that was twisted after it.
//! An invariant that no mutant breaks is not checked by anything.
use std::{collections::BTreeSet, sync::Arc};

use shim_core::{
    board::Board,
    job::{Finished, Start},
    mark::{self, Mark, Ready},
    names::{NodeName, ShimName},
    plan::{Action, MarkWrite, Plan, plan},
    report::{Outcome, Reason},
    revision::RevisionView,
    task::{Op, Task, Tries},
    world::{JobView, Life, NodeView, Phase, Share, ShimView, SpecView, World},
};

use crate::views::Views;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    DeletesAJobBeforeItRecords,
    StartsBesideAnUnrecordedSuccess,
    RemovesWithoutDemotion,
    IgnoresNodeIdentity,
    ForgetsRunningJobsInTheBudget,
    IgnoresPause,
    NeverRetries,
    RetriesAtOnce,
    StartsBesideARunningJob,
    StartsBesideAStuckJob,
    StartsBesideAStrayPod,
    StartsWithoutAClaim,
    ForgetsAClaimAfterAFailure,
    ReleasesEarly,
    DeletesTheRuntimeClassEarly,
    ReadsJobsFromACache,
    TrustsMarksOfOtherMachines,
    BelievesThatAKilledUpgradeChangedNothing,
    DeletesFailedJobsAtOnce,
    TakesForeignRuntimeClasses,
    StartsOnNodesThatAreNotReady,
    DoesNotGather,
    NeverRemoves,
    RecordsFailuresAsSuccess,
    StartsWithoutAFinalizer,
    StartsBeforeOldJobsAreGone,
    LeavesLabelsTorn,
    AppliesBeforeItHolds,
    HoldsNoShimInConflict,
    NeverWakes,
    DropsResultsOfShimsThatAreGone,
    /// In the simulator: a leader that was stopped goes on.
    WritesWithoutItsLease,
    IgnoresTheCanary,
    StartsWhatIsNotOnRecord,
    IgnoresFailures,
    ForgetsAFailureWhileItTriesAgain,
    NeverDoublesThePause,
    NumbersWhatIsOnRecord,
    ForgetsTheLastCompleteRevision,
    DemotesWhatItUpgrades,
    WithdrawsJobsThatHaveBegun,
    ForgetsRepairs,
}

impl Mutant {
    /// What it sees.
    pub fn disturb(self, world: &mut World, views: &Views) {
        match self {
            Self::IgnoresNodeIdentity => each_job(world, |job, node| {
                job.task.node_uid.clone_from(&node.uid);
                job.task.machine_id = node.machine.clone().unwrap_or(job.task.machine_id.clone());
            }),
            Self::ForgetsRunningJobsInTheBudget => {
                let running = world.jobs.iter().filter(|job| job.phase == Phase::Running);
                world.occupied.extend(running.map(|job| job.task.node.clone()).collect::<Vec<_>>());
                world.jobs.retain(|job| job.phase != Phase::Running);
            }
            Self::IgnoresPause => {
                each_spec(world, |spec| spec.rollout.paused = false);
            }
            Self::IgnoresTheCanary => each_spec(world, |spec| spec.rollout.canary = Share::Count(0)),
            Self::IgnoresFailures => each_spec(world, |spec| spec.rollout.max_failures = Share::Count(1000)),
            Self::StartsWhatIsNotOnRecord => pretend_records(world),
            Self::ForgetsAFailureWhileItTriesAgain => {
                each_try(world, |tries| tries.counted = false);
            }
            Self::NeverDoublesThePause => each_try(world, |tries| (tries.failed, tries.waited) = (0, 0)),
            Self::ForgetsRepairs => each_node(world, |node| {
                each_ready(node, |ready| ready.repairs = 0);
            }),
            Self::NeverRetries => {
                let now = world.now;
                each_failure(world, |finished| finished.at = now);
            }
            Self::RetriesAtOnce => each_failure(world, |finished| finished.at = jiff::Timestamp::UNIX_EPOCH),
            Self::StartsBesideARunningJob => world.jobs.retain(|job| job.phase != Phase::Running),
            Self::StartsBesideAStuckJob => world.jobs.retain(|job| job.phase != Phase::Stuck),
            Self::StartsBesideAStrayPod => world.occupied.clear(),
            Self::ReadsJobsFromACache => world.jobs = views.cached_jobs(),
            Self::TrustsMarksOfOtherMachines => each_node(world, trust_marks),
            Self::BelievesThatAKilledUpgradeChangedNothing => each_failure(world, soften),
            Self::TakesForeignRuntimeClasses => world.runtime_classes.retain(|class| class.metadata.labels.is_some()),
            Self::StartsOnNodesThatAreNotReady => each_node(world, |node| node.ready = true),
            Self::DoesNotGather => world.shims.iter_mut().for_each(|shim| shim.created = jiff::Timestamp::UNIX_EPOCH),
            Self::RecordsFailuresAsSuccess => each_failure(world, |finished| {
                finished.report.outcomes.values_mut().for_each(|outcome| *outcome = Outcome::Done { disrupted: 0 });
            }),
            Self::StartsWithoutAFinalizer => world.shims.iter_mut().for_each(|shim| shim.finalizer = true),
            _ => {}
        }
    }

    /// What it does with what ours would do in the World that it `saw`.
    pub fn spoil(self, made: &mut Plan, saw: &World) {
        match self {
            Self::DeletesAJobBeforeItRecords => delete_early(made, saw),
            Self::StartsBeforeOldJobsAreGone => start_at_once(made, saw),
            Self::StartsBesideAnUnrecordedSuccess => {
                start_without(made, saw, |job| job.finished().is_some_and(has_success));
            }
            Self::RemovesWithoutDemotion => each_mark_write(made, saw, keep_ready),
            Self::StartsWithoutAClaim => each_mark_write(made, saw, drop_claim),
            Self::ForgetsAClaimAfterAFailure => forget_claims(made, saw),
            Self::ReleasesEarly => made.actions.extend(leaving(saw).map(|shim| Action::Release(shim.name.clone()))),
            Self::DeletesTheRuntimeClassEarly => made.actions.extend(leaving(saw).filter_map(delete_class)),
            Self::DeletesFailedJobsAtOnce => delete_all(made, saw),
            Self::LeavesLabelsTorn => made.actions.retain(|action| !is_label_only(action)),
            Self::AppliesBeforeItHolds => apply_all(made, saw),
            Self::HoldsNoShimInConflict => {
                let board = Board::new(saw);
                let conflict = |shim: &ShimName| board.side(shim).is_some_and(|side| side.conflict.is_some());
                made.actions.retain(|action| !matches!(action, Action::Hold(shim) if conflict(shim)));
            }
            Self::NeverWakes => made.wake_at = None,
            Self::DropsResultsOfShimsThatAreGone => each_mark_write(made, saw, |name, before, after| {
                if saw.shims.iter().any(|shim| shim.name == *name) { after } else { before.cloned() }
            }),
            Self::NumbersWhatIsOnRecord => made.actions.extend(
                newest(saw)
                    .map(|revision| Action::Revise(RevisionView { number: revision.number + 1, ..revision.clone() })),
            ),
            Self::ForgetsTheLastCompleteRevision => {
                made.actions.extend(newest(saw).map(|revision| Action::Forget(revision.shim.clone(), revision.number)));
            }
            Self::DemotesWhatItUpgrades => demote_upgraded(made, saw),
            Self::WithdrawsJobsThatHaveBegun => {
                let begun = saw.jobs.iter().filter(|job| job.phase == Phase::Running && job.start == Start::Begun);
                made.actions.extend(begun.map(|job| Action::Withdraw(job.reference(), String::new())));
            }
            Self::NeverRemoves => made.actions.retain_mut(loses_no_removal),
            _ => {}
        }
    }
}

fn each_spec(world: &mut World, change: impl FnMut(&mut SpecView)) {
    world.shims.iter_mut().flat_map(|shim| &mut shim.spec).for_each(change);
}

fn each_node(world: &mut World, change: impl Fn(&mut NodeView)) {
    world.nodes.iter_mut().for_each(|node| change(Arc::make_mut(node)));
}

fn each_try(world: &mut World, change: impl Fn(&mut Tries)) {
    world.jobs.iter_mut().flat_map(|job| job.task.tries.values_mut()).for_each(change);
}

fn newest(world: &World) -> impl Iterator<Item = &RevisionView> {
    world.shims.iter().filter_map(|shim| {
        world.revisions.iter().filter(|revision| revision.shim == shim.name).max_by_key(|revision| revision.number)
    })
}

/// Every spec as if it had been numbered.
fn pretend_records(world: &mut World) {
    for shim in &world.shims {
        let (Ok(spec), Some(newest)) = (
            &shim.spec,
            world.revisions.iter_mut().filter(|revision| revision.shim == shim.name).max_by_key(|r| r.number),
        ) else {
            continue;
        };
        newest.inputs = spec.inputs.clone();
    }
}

/// Takes `ready` off where an upgrade starts.
fn demote_upgraded(made: &mut Plan, saw: &World) {
    for task in
        made.actions.clone().into_iter().filter_map(|a| if let Action::Create(task) = a { Some(task) } else { None })
    {
        let Some(node) = saw.nodes.iter().find(|node| node.uid == task.node_uid) else { continue };
        let mut marks = node.marks.clone().unwrap_or_default();
        for (name, op) in &task.ops {
            if let (Op::Install(_), Some(mark @ Mark::Ready(_))) = (op, marks.get_mut(name)) {
                *mark = Mark::Claimed;
            }
        }
        let labels = marks.iter().map(|(name, mark)| (name.node_label(), mark.label())).collect();
        let (node, uid, old) = (node.name.clone(), node.uid.clone(), node.annotation.clone());
        made.actions.insert(0, Action::Mark(MarkWrite { node, uid, old, new: mark::render(&marks), labels }));
    }
}

fn delete_early(made: &mut Plan, saw: &World) {
    let early = finished(saw).filter(|(_, finished)| has_success(finished));
    made.actions.splice(0..0, early.map(|(job, _)| Action::Delete(job.reference())));
}

fn delete_all(made: &mut Plan, saw: &World) {
    let kept: Vec<_> = finished(saw).filter(|(job, _)| !deletes(made, job)).collect();
    made.actions.extend(kept.into_iter().map(|(job, _)| Action::Delete(job.reference())));
}

fn leaving(saw: &World) -> impl Iterator<Item = &ShimView> {
    saw.shims.iter().filter(|shim| shim.life == Life::Deleting)
}

fn delete_class(shim: &ShimView) -> Option<Action> {
    let class = shim.spec.as_ref().ok()?.runtime_class.name.clone();
    Some(Action::DeleteRuntimeClass(class, shim.name.clone()))
}

fn apply_all(made: &mut Plan, saw: &World) {
    let mut held = saw.clone();
    held.shims.iter_mut().for_each(|shim| shim.finalizer = true);
    made.actions.extend(plan(&held).actions.into_iter().filter(|action| matches!(action, Action::Apply(_))));
}

fn is_label_only(action: &Action) -> bool {
    matches!(action, Action::Mark(write) if write.old == write.new)
}

/// Takes the removals out; whether anything is left.
fn loses_no_removal(action: &mut Action) -> bool {
    let Action::Create(task) = action else { return true };
    task.ops.retain(|_, op| *op != Op::Remove);
    !task.ops.is_empty()
}

fn keep_ready(_: &ShimName, before: Option<&Mark>, after: Option<Mark>) -> Option<Mark> {
    let demoted = matches!((before, &after), (Some(Mark::Ready(_)), Some(Mark::Removing)));
    if demoted { before.cloned() } else { after }
}

fn drop_claim(_: &ShimName, before: Option<&Mark>, after: Option<Mark>) -> Option<Mark> {
    after.filter(|mark| before.is_some() || *mark != Mark::Claimed)
}

/// Deletes Jobs, and goes on as if they were gone.
fn start_at_once(made: &mut Plan, saw: &World) {
    let (old, jobs): (Vec<_>, Vec<_>) = saw.jobs.iter().cloned().partition(|job| deletes(made, job));
    let serial = |node: &NodeName| old.iter().filter(|job| job.task.node == *node).map(|job| job.task.serial).max();
    *made = plan(&World { jobs, ..saw.clone() });
    for action in &mut made.actions {
        if let Action::Create(task) = action {
            task.serial += serial(&task.node).unwrap_or_default();
        }
    }
    made.actions.splice(0..0, old.iter().map(|job| Action::Delete(job.reference())));
}

/// Starts what would be started if some Jobs were not there.
fn start_without(made: &mut Plan, saw: &World, is_overlooked: impl Fn(&JobView) -> bool) {
    let (overlooked, jobs): (Vec<_>, Vec<_>) = saw.jobs.iter().cloned().partition(is_overlooked);
    let nodes: BTreeSet<_> = overlooked.into_iter().map(|job| job.task.node).collect();
    let forgetful = World { jobs, ..saw.clone() };
    made.actions.extend(plan(&forgetful).actions.into_iter().filter_map(|action| match action {
        Action::Create(task) if nodes.contains(&task.node) => {
            Some(Action::Create(Task { serial: task.serial + 1, ..task }))
        }
        _ => None,
    }));
}

fn each_job(world: &mut World, change: impl Fn(&mut JobView, &NodeView)) {
    for job in &mut world.jobs {
        if let Some(node) = world.nodes.iter().find(|node| node.name == job.task.node) {
            change(job, node);
        }
    }
}

fn each_failure(world: &mut World, change: impl Fn(&mut Finished)) {
    for job in &mut world.jobs {
        if let Phase::Finished(finished) = &mut job.phase {
            change(finished);
        }
    }
}

fn finished(world: &World) -> impl Iterator<Item = (&JobView, &Finished)> {
    world.jobs.iter().filter_map(|job| Some((job, job.finished()?)))
}

fn has_success(finished: &Finished) -> bool {
    !finished.recorded && finished.report.outcomes.values().any(|outcome| matches!(outcome, Outcome::Done { .. }))
}

fn deletes(made: &Plan, job: &JobView) -> bool {
    made.actions.contains(&Action::Delete(job.reference()))
}

fn trust_marks(node: &mut NodeView) {
    let Some(machine) = node.machine.clone() else { return };
    each_ready(node, |ready| ready.machine.clone_from(&machine));
}

fn each_ready(node: &mut NodeView, change: impl Fn(&mut Ready)) {
    for mark in node.marks.iter_mut().flat_map(|marks| marks.values_mut()) {
        if let Mark::Ready(ready) = mark {
            change(ready);
        }
    }
}

fn soften(finished: &mut Finished) {
    for outcome in finished.report.outcomes.values_mut() {
        if let Outcome::Failed(failure) = outcome {
            failure.reason = Reason::DownloadFailed;
        }
    }
}

/// Changes marks in the writes of a plan: `change` gets the old and the new one.
fn each_mark_write(
    made: &mut Plan,
    saw: &World,
    change: impl Fn(&ShimName, Option<&Mark>, Option<Mark>) -> Option<Mark>,
) {
    made.actions.retain_mut(|action| {
        let Action::Mark(write) = action else { return true };
        rewrite(write, saw, &change);
        write.old != write.new
    });
}

fn rewrite(
    write: &mut MarkWrite,
    saw: &World,
    change: impl Fn(&ShimName, Option<&Mark>, Option<Mark>) -> Option<Mark>,
) {
    let Some(node) = saw.nodes.iter().find(|node| node.uid == write.uid) else { return };
    let before = node.marks.clone().unwrap_or_default();
    let after = mark::parse(write.new.as_deref()).unwrap();
    let names: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let marks = names.into_iter().filter_map(|name| {
        let mark = change(name, before.get(name), after.get(name).cloned())?;
        Some((name.clone(), mark))
    });
    let marks: mark::Marks = marks.collect();
    write.labels = marks.iter().map(|(name, mark)| (name.node_label(), mark.label())).collect();
    write.labels.extend(before.keys().filter(|name| !marks.contains_key(*name)).map(|name| (name.node_label(), None)));
    write.new = mark::render(&marks);
}

/// A failed first installation is taken for one that left nothing.
fn forget_claims(made: &mut Plan, saw: &World) {
    for (job, finished) in finished(saw) {
        let Some(node) = saw.nodes.iter().find(|node| node.uid == job.task.node_uid) else { continue };
        let mut marks = node.marks.clone().unwrap_or_default();
        let failed = |name: &ShimName| matches!(finished.report.outcomes.get(name), Some(Outcome::Failed(_)));
        marks.retain(|name, mark| *mark != Mark::Claimed || !failed(name));
        let (node, uid, old) = (node.name.clone(), node.uid.clone(), node.annotation.clone());
        let write = MarkWrite { node, uid, old, new: mark::render(&marks), labels: std::collections::BTreeMap::new() };
        if write.old != write.new {
            made.actions.push(Action::Mark(write));
        }
    }
}
