//! Planners with a fault: each is ours with a World that was twisted before it, or with a plan that was twisted after it.
//! An invariant that no mutant breaks is not checked by anything.
use std::collections::BTreeSet;

use shim_core::{
    job::Finished,
    mark::{self, Mark},
    names::ShimName,
    plan::{Action, MarkWrite, Plan, plan},
    report::{Outcome, Reason},
    task::Op,
    world::{JobView, Life, NodeView, Phase, World},
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
            Self::IgnoresPause => world.shims.iter_mut().flat_map(|shim| &mut shim.spec).for_each(|spec| spec.paused = false),
            Self::NeverRetries => {
                let now = world.now;
                each_failure(world, |finished| finished.at = now);
            }
            Self::RetriesAtOnce => each_failure(world, |finished| finished.at = jiff::Timestamp::UNIX_EPOCH),
            Self::StartsBesideARunningJob => world.jobs.retain(|job| job.phase != Phase::Running),
            Self::StartsBesideAStuckJob => world.jobs.retain(|job| job.phase != Phase::Stuck),
            Self::StartsBesideAStrayPod => world.occupied.clear(),
            Self::ReadsJobsFromACache => world.jobs = views.cached_jobs(),
            Self::TrustsMarksOfOtherMachines => world.nodes.iter_mut().for_each(trust_marks),
            Self::BelievesThatAKilledUpgradeChangedNothing => each_failure(world, soften),
            Self::TakesForeignRuntimeClasses => world.runtime_classes.retain(|class| class.metadata.labels.is_some()),
            Self::StartsOnNodesThatAreNotReady => world.nodes.iter_mut().for_each(|node| node.ready = true),
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
            Self::DeletesAJobBeforeItRecords => {
                let early: Vec<_> = finished(saw).filter(|(_, finished)| has_success(finished)).map(|(job, _)| Action::Delete(job.reference())).collect();
                made.actions.splice(0..0, early);
            }
            Self::StartsBesideAnUnrecordedSuccess => {
                let mut forgetful = saw.clone();
                forgetful.jobs.retain(|job| !matches!(&job.phase, Phase::Finished(finished) if has_success(finished)));
                let starts = plan(&forgetful).actions.into_iter().filter(|action| matches!(action, Action::Create(_)));
                made.actions.extend(starts);
            }
            Self::RemovesWithoutDemotion => each_mark_write(made, saw, |_, before, after| {
                if matches!((before, &after), (Some(Mark::Ready(_)), Some(Mark::Removing))) { before.cloned() } else { after }
            }),
            Self::StartsWithoutAClaim => each_mark_write(made, saw, |_, before, after| {
                if before.is_none() && after == Some(Mark::Claimed) { None } else { after }
            }),
            Self::ForgetsAClaimAfterAFailure => forget_claims(made, saw),
            Self::ReleasesEarly => {
                let leaving = saw.shims.iter().filter(|shim| shim.life == Life::Deleting);
                made.actions.extend(leaving.map(|shim| Action::Release(shim.name.clone())));
            }
            Self::DeletesTheRuntimeClassEarly => {
                let leaving = saw.shims.iter().filter(|shim| shim.life == Life::Deleting);
                made.actions.extend(leaving.filter_map(|shim| {
                    let class = shim.spec.as_ref().ok()?.runtime_class.name.clone();
                    Some(Action::DeleteRuntimeClass(class, shim.name.clone()))
                }));
            }
            Self::DeletesFailedJobsAtOnce => {
                made.actions.extend(finished(saw).filter(|(job, _)| !deletes(made, job)).map(|(job, _)| Action::Delete(job.reference())).collect::<Vec<_>>());
            }
            Self::NeverRemoves => made.actions.retain_mut(|action| {
                let Action::Create(task) = action else { return true };
                task.ops.retain(|_, op| *op != Op::Remove);
                !task.ops.is_empty()
            }),
            _ => {}
        }
    }
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
    let Some(machine) = &node.machine else { return };
    for mark in node.marks.iter_mut().flat_map(|marks| marks.values_mut()) {
        if let Mark::Ready(ready) = mark {
            ready.machine = machine.clone();
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
fn each_mark_write(made: &mut Plan, saw: &World, change: impl Fn(&ShimName, Option<&Mark>, Option<Mark>) -> Option<Mark>) {
    made.actions.retain_mut(|action| {
        let Action::Mark(write) = action else { return true };
        rewrite(write, saw, &change);
        write.old != write.new
    });
}

fn rewrite(write: &mut MarkWrite, saw: &World, change: impl Fn(&ShimName, Option<&Mark>, Option<Mark>) -> Option<Mark>) {
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
