//! The invariants of `shim_core::plan`, checked against the true cluster with every single write.
use std::{collections::BTreeMap, fmt};

use jiff::{SignedDuration, Timestamp};
use shim_core::{
    job::{Finished, Start},
    mark::{self, Mark, Marks, Ready},
    names::{Build, ShimName},
    plan::{Action, JobRef, MarkWrite},
    report::{Outcome, Reason, Report},
    revision::{Fate, RevisionView},
    task::{Op, Task},
    world::{JobView, Life, NodeView, Phase, ShimView, World},
};

use crate::{
    cluster::{Cluster, DiskState, Job},
    oracle::{self, Wanted},
};

/// What must never be broken; the words are those of `shim_core::plan`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    S1Budget,
    S2Exclusion,
    S3NoLies,
    S4Brakes,
    S5Identity,
    S6Canary,
    S7NoOrphan,
    S8Finalizer,
    S9Ownership,
    S10NoHarm,
    L1Converges,
    L2NotReady,
    L3BackOff,
    L4Bounded,
    /// A success is in the marks before its Job goes.
    NoSuccessLost,
    /// What is there and verified is not installed again.
    NoRedundantInstall,
    /// Shims that are applied together share a Job.
    Gathered,
    P1Deterministic,
    P3OrderIndependent,
    /// Before `wake_at` nothing becomes due by waiting.
    P4WakesInTime,
}

/// What was broken, and how.
#[derive(Debug, Clone)]
pub struct Broken {
    pub invariant: Invariant,
    pub how: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.invariant, self.how)
    }
}

type Verdict = Result<(), Broken>;

pub fn must(holds: bool, invariant: Invariant, how: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(Broken { invariant, how: how() }) }
}

/// A write that the API server is about to accept, from a controller that sees `view`.
pub fn check_write(cluster: &Cluster, view: &World, action: &Action) -> Verdict {
    match action {
        Action::Create(task) => check_create(cluster, view, task),
        Action::Delete(job) => check_delete(cluster, view, job),
        Action::Withdraw(job, _) => check_withdrawal(view, &cluster.jobs[&job.name]),
        Action::Record(job, report) => check_record(cluster, view, job, report),
        Action::Mark(write) => {
            check_labels_are_ours(write)?;
            check_no_harm(cluster, view, write)
        }
        Action::Revise(revision) => check_revision(cluster, view, revision),
        Action::Forget(shim, number) => check_forgotten(view, shim, *number),
        Action::DeleteRuntimeClass(name, shim) => check_nowhere(cluster, shim, || format!("RuntimeClass {name} goes")),
        Action::Release(shim) => check_release(cluster, shim),
        Action::Hold(_) | Action::Apply(_) | Action::Status(..) | Action::Note(..) | Action::Stamp(..) => Ok(()),
    }
}

fn check_create(cluster: &Cluster, view: &World, task: &Task) -> Verdict {
    check_exclusion(cluster, task)?;
    let node = view.nodes.iter().find(|node| node.name == task.node);
    let Some(node) = node else { return must(false, Invariant::S5Identity, || format!("{} is not there", task.node)) };
    let same = node.uid == task.node_uid && node.machine.as_ref() == Some(&task.machine_id);
    must(same, Invariant::S5Identity, || format!("a task for {} names another machine", task.node))?;
    must(node.ready, Invariant::L2NotReady, || format!("a Job starts on {}, which is not Ready", task.node))?;
    for (name, op) in &task.ops {
        let shim = view.shims.iter().find(|shim| shim.name == *name);
        let Some(shim) = shim else {
            return must(false, Invariant::S9Ownership, || format!("a Job for {name}, which is not there"));
        };
        check_operation(cluster, view, node, shim, op)?;
        check_news(cluster, task, name, op)?;
    }
    Ok(())
}

fn check_exclusion(cluster: &Cluster, task: &Task) -> Verdict {
    let other = cluster.running().find(|job| job.task().node == task.node);
    must(other.is_none(), Invariant::S2Exclusion, || format!("a second Job on {}", task.node))
}

fn check_operation(cluster: &Cluster, view: &World, node: &NodeView, shim: &ShimView, op: &Op) -> Verdict {
    let (name, on) = (&shim.name, &node.name);
    must(shim.finalizer, Invariant::S8Finalizer, || format!("a Job for {name}, which has no finalizer"))?;
    let running = cluster
        .jobs
        .values()
        .filter(|job| job.view.phase == Phase::Running && job.task().ops.contains_key(name))
        .count();
    let budget = oracle::budget(view, shim);
    must(running < budget, Invariant::S1Budget, || format!("{name}: {} nodes of {budget} in progress", running + 1))?;
    check_brakes(view, node, shim, op)?;
    check_canary(cluster, view, node, shim, op)?;
    let young = view.now < shim.created + SignedDuration::from_secs(2);
    must(!young, Invariant::Gathered, || format!("{name} does not wait for others"))?;
    match op {
        Op::Install(install) => {
            check_repair(cluster, view, node, shim, &install.build)?;
            check_install(view, node, shim, &install.build)
        }
        Op::Check(check) => {
            let kept = has(node, name, &check.build);
            must(kept, Invariant::NoRedundantInstall, || {
                format!("{name} is looked for on {on}, which does not have it")
            })
        }
        Op::Remove => {
            let gone = oracle::wanted(view, shim, node) == Wanted::Nothing;
            must(gone, Invariant::L1Converges, || format!("{name} is removed from {on}, which it selects"))
        }
    }
}

/// Paused: only what has failed is tried again. Stopped: the current build starts only where it has been tried. And
/// nothing that has failed starts too early.
fn check_brakes(view: &World, node: &NodeView, shim: &ShimView, op: &Op) -> Verdict {
    let failure = last_failure(view, node, &shim.name, op);
    let paused = shim.life == Life::Active && shim.spec.as_ref().is_ok_and(|spec| spec.rollout.paused);
    must(!paused || failure.is_some(), Invariant::S4Brakes, || {
        format!("{} is paused and starts on {}", shim.name, node.name)
    })?;
    let current = is_current(view, node, shim, op);
    let known = || failure.is_some() || op.build().is_some_and(|build| has(node, &shim.name, build));
    must(!current || known() || !oracle::is_stopped(view, shim), Invariant::S4Brakes, || {
        format!("{} has stopped and starts on {}", shim.name, node.name)
    })?;
    let Some((job, outcome, at)) = failure else { return Ok(()) };
    let wait = if asks_again(shim, node, at) { 0 } else { shortest_pause(view, job, &shim.name, outcome, at) };
    let early = view.now < at + SignedDuration::from_secs(wait);
    must(!early, Invariant::L3BackOff, || format!("{} is tried again on {} too early", shim.name, node.name))
}

fn asks_again(shim: &ShimView, node: &NodeView, before: Timestamp) -> bool {
    let asked = shim.retry.as_ref().filter(|retry| retry.at > before);
    asked.is_some_and(|retry| retry.nodes.as_ref().is_none_or(|nodes| nodes.contains(&node.name)))
}

/// A kubelet that goes on denying what is there makes ever fewer Jobs.
fn check_repair(cluster: &Cluster, view: &World, node: &NodeView, shim: &ShimView, build: &Build) -> Verdict {
    let Some(Mark::Ready(ready)) = node.marks.as_ref().and_then(|marks| marks.get(&shim.name)) else { return Ok(()) };
    let repairs = cluster.repairs.get(&(node.uid.clone(), shim.name.clone())).copied().unwrap_or_default();
    let wait = doubled(60, repairs, 1800);
    let early = ready.build == *build
        && Some(&ready.machine) == node.machine.as_ref()
        && view.now < ready.since + SignedDuration::from_secs(wait)
        && !asks_again(shim, node, ready.since);
    must(!early, Invariant::L3BackOff, || format!("{} is repaired too early on {}", shim.name, node.name))
}

fn doubled(first: i64, times: u32, most: i64) -> i64 {
    (first << times.min(20)).min(most)
}

/// Seconds between a failure and the next try.
fn shortest_pause(view: &World, job: &JobView, shim: &ShimName, outcome: &Outcome, at: Timestamp) -> i64 {
    let tries = job.task.tries.get(shim);
    let (failed, waited) = tries.map_or((1, 1), |tries| (tries.failed + 1, tries.waited + 1));
    let Outcome::Failed(failure) = outcome else { return doubled(30, waited - 1, 300) };
    let first = tries.map_or(at, |tries| Timestamp::from_second(tries.since).unwrap());
    let over = view.now >= first + SignedDuration::from_secs(300) || tries.is_some_and(|tries| tries.counted);
    match failure.reason {
        Reason::ChecksumMismatch => doubled(60, failed - 1, 1800),
        _ if failed >= 3 || over => doubled(60, failed.saturating_sub(3), 1800),
        _ => 20,
    }
}

fn is_current(view: &World, node: &NodeView, shim: &ShimView, op: &Op) -> bool {
    let wanted = oracle::wanted(view, shim, node);
    matches!((op, wanted), (Op::Install(install), Wanted::Build(build)) if build == install.build)
}

/// While a revision has not proven itself, few nodes run it or are tried with it.
fn check_canary(cluster: &Cluster, view: &World, node: &NodeView, shim: &ShimView, op: &Op) -> Verdict {
    if !is_current(view, node, shim, op) {
        return Ok(());
    }
    let on_record = view.revisions.iter().filter(|revision| revision.shim == shim.name);
    let newest = on_record.max_by_key(|revision| revision.number);
    let recorded = newest.is_some_and(|newest| newest.inputs == shim.spec.as_ref().unwrap().inputs);
    must(recorded, Invariant::S6Canary, || format!("{} starts a revision that is not on record", shim.name))?;
    let Some(canary) = oracle::open_canary(view, shim) else { return Ok(()) };
    let installs = |job: &&Job| {
        let there = cluster.node_of(job.task());
        let same =
            job.task().ops.get(&shim.name).is_some_and(|op| there.is_some_and(|n| is_current(view, n, shim, op)));
        job.view.phase == Phase::Running && same
    };
    let trying = cluster.jobs.values().filter(installs).count();
    let run = oracle::proven(view, shim) + trying + 1;
    must(run <= canary, Invariant::S6Canary, || format!("{run} nodes run what {} tries on {canary}", shim.name))
}

/// Numbers are given once, and not to what is on record already.
fn check_revision(cluster: &Cluster, view: &World, revision: &RevisionView) -> Verdict {
    let Some(shim) = view.shims.iter().find(|shim| shim.name == revision.shim) else {
        return must(false, Invariant::S9Ownership, || format!("a revision of {}, which is not there", revision.shim));
    };
    let known = cluster.revisions.iter().filter(|known| known.owner == shim.uid);
    let newest = known.max_by_key(|known| known.view.number);
    let news = newest
        .is_none_or(|newest| newest.view.inputs != revision.inputs || newest.view.generation > revision.generation);
    must(news, Invariant::L4Bounded, || format!("{} gets revision {} twice", revision.shim, revision.number))
}

/// What new nodes would get stays.
fn check_forgotten(view: &World, shim: &ShimName, number: i64) -> Verdict {
    let ours = || view.revisions.iter().filter(|revision| revision.shim == *shim);
    let newest = ours().map(|revision| revision.number).max();
    let proven = |revision: &&RevisionView| {
        Some(revision.number) != newest
            && revision.record.as_ref().is_some_and(|record| record.fate == Fate::Complete && record.updated > 0)
    };
    let kept = [newest, ours().filter(proven).map(|revision| revision.number).max()];
    must(!kept.contains(&Some(number)), Invariant::S6Canary, || format!("revision {number} of {shim} is forgotten"))
}

/// `ready` is taken off only where a removal is wanted, the machine is another, or what was there is not there any more.
fn check_no_harm(cluster: &Cluster, view: &World, write: &MarkWrite) -> Verdict {
    let Some(node) = view.nodes.iter().find(|node| node.uid == write.uid) else { return Ok(()) };
    let after = mark::parse(write.new.as_deref()).unwrap_or_default();
    for (shim, mark) in node.marks.iter().flatten() {
        let Mark::Ready(ready) = mark else { continue };
        let kept = matches!(after.get(shim), Some(Mark::Ready(_)));
        let other_machine = node.machine.as_ref().is_some_and(|machine| *machine != ready.machine);
        let leaving = view.shims.iter().find(|view| view.name == *shim);
        let leaving = leaving.is_none_or(|leaving| oracle::wanted(view, leaving, node) == Wanted::Nothing);
        let removed = view.jobs.iter().any(|job| job.is_for(node) && job.task.ops.get(shim) == Some(&Op::Remove));
        let lost = cluster.machines.get(&ready.machine).and_then(|disk| disk.get(shim));
        let lost = lost.is_none_or(|found| found.state != DiskState::Verified);
        let fair = kept || other_machine || leaving || removed || lost;
        must(fair, Invariant::S10NoHarm, || format!("{} stops serving {shim}", node.name))?;
    }
    Ok(())
}

fn last_failure<'w>(
    view: &'w World,
    node: &NodeView,
    shim: &ShimName,
    op: &Op,
) -> Option<(&'w JobView, &'w Outcome, Timestamp)> {
    let about = |job: &&JobView| job.task.node_uid == node.uid && job.task.ops.contains_key(shim);
    let last = view.jobs.iter().filter(about).max_by_key(|job| job.task.serial)?;
    let Phase::Finished(Finished { at, report, .. }) = &last.phase else { return None };
    let outcome = report.outcomes.get(shim).filter(|outcome| !matches!(outcome, Outcome::Done { .. }))?;
    (last.task.ops.get(shim) == Some(op) && !is_history(node, shim, *at)).then_some((last, outcome, *at))
}

/// Whether the Shim has been installed or removed on the node since.
fn is_history(node: &NodeView, shim: &ShimName, failed: Timestamp) -> bool {
    match node.marks.as_ref().and_then(|marks| marks.get(shim)) {
        Some(Mark::Ready(ready)) => ready.since > failed,
        Some(Mark::Claimed | Mark::Removing) => false,
        None => true,
    }
}

fn check_install(view: &World, node: &NodeView, shim: &ShimView, build: &Build) -> Verdict {
    let (name, on) = (&shim.name, &node.name);
    must(!oracle::in_conflict(view, shim), Invariant::S9Ownership, || {
        format!("{name} has a conflict and is installed")
    })?;
    let wanted = oracle::wanted(view, shim, node) == Wanted::Build(build.clone())
        || oracle::stopgap(view, shim, node).as_ref() == Some(build);
    must(wanted, Invariant::L1Converges, || format!("{name} is installed on {on} with a build that it does not want"))?;
    let Some(Mark::Ready(ready)) = node.marks.as_ref().and_then(|marks| marks.get(name)) else { return Ok(()) };
    let handler = shim.spec.as_ref().unwrap().handler.as_str();
    let denied = !node.handlers.is_empty() && !node.handlers.contains(handler);
    let redundant = ready.build == *build && Some(&ready.machine) == node.machine.as_ref() && !denied;
    must(!redundant, Invariant::NoRedundantInstall, || format!("{name} is installed again on {on}"))
}

/// What this very pass has recorded counts, too.
fn check_news(cluster: &Cluster, task: &Task, shim: &ShimName, op: &Op) -> Verdict {
    let told = |job: &&Job| job.task().node_uid == task.node_uid && job.task().ops.get(shim) == Some(op);
    let done = cluster.jobs.values().filter(told).find(|job| match &job.view.phase {
        Phase::Finished(finished) => {
            !finished.recorded && matches!(finished.report.outcomes.get(shim), Some(Outcome::Done { .. }))
        }
        Phase::Running | Phase::Stuck => false,
    });
    must(done.is_none(), Invariant::NoRedundantInstall, || format!("{} has just done it", done.unwrap().view.name))
}

fn check_delete(cluster: &Cluster, view: &World, job: &JobRef) -> Verdict {
    let job = &cluster.jobs[&job.name];
    let Phase::Finished(finished) = &job.view.phase else {
        return must(false, Invariant::S4Brakes, || format!("{} is deleted before it has ended", job.view.name));
    };
    check_told(cluster, view, job, finished, None)?;
    let forgets = job.task().ops.iter().any(|(shim, op)| is_last_word(view, job, finished, shim, op));
    must(!forgets, Invariant::L3BackOff, || format!("the failure of {} is forgotten", job.view.name))
}

/// Whether a Job can't begin, and somebody has asked for another try of one of its Shims after it was made.
fn is_asked_for_again(view: &World, node: &NodeView, job: Option<&JobView>) -> bool {
    let Some(job) = job.filter(|job| matches!(job.start, Start::Hindered { .. })) else { return false };
    let retries =
        view.shims.iter().filter(|shim| job.task.ops.contains_key(&shim.name)).filter_map(|shim| shim.retry.as_ref());
    retries
        .filter(|retry| retry.at > job.created)
        .any(|retry| retry.nodes.as_ref().is_none_or(|nodes| nodes.contains(&node.name)))
}

/// A Job that has not ended goes only if it has not begun as far as anybody knew, and nobody needs what it is for, or it
/// can't begin and is to be tried again.
fn check_withdrawal(view: &World, job: &Job) -> Verdict {
    let seen = view.jobs.iter().find(|seen| seen.uid == job.view.uid);
    let begun = seen.is_none_or(|seen| seen.start == Start::Begun || seen.phase != Phase::Running);
    must(!begun, Invariant::S4Brakes, || format!("{} is deleted before it has ended", job.view.name))?;
    let node = view.nodes.iter().find(|node| node.uid == job.task().node_uid);
    let needed = |(name, op): (&ShimName, &Op)| {
        let shim = view.shims.iter().find(|shim| shim.name == *name);
        let (Some(shim), Some(node)) = (shim, node) else { return false };
        let mark = node.marks.as_ref().and_then(|marks| marks.get(name));
        let serves = matches!(mark, Some(Mark::Ready(ready)) if Some(&ready.machine) == node.machine.as_ref());
        (is_current(view, node, shim, op) && !is_asked_for_again(view, node, seen)) || serves
    };
    let needed = job.task().ops.iter().any(needed);
    must(!needed, Invariant::L1Converges, || format!("{} is deleted and needed", job.view.name))
}

/// Whether a failure of the Job holds back the next try of the operation.
fn is_last_word(view: &World, job: &Job, finished: &Finished, shim: &ShimName, op: &Op) -> bool {
    let failed = finished.report.outcomes.get(shim).is_some_and(|outcome| !matches!(outcome, Outcome::Done { .. }));
    let later = |other: &&JobView| other.task.node_uid == job.task().node_uid && other.task.serial > job.task().serial;
    let superseded = view.jobs.iter().filter(later).any(|other| other.task.ops.contains_key(shim));
    let node = view.nodes.iter().find(|node| node.uid == job.task().node_uid);
    let shim = view.shims.iter().find(|view| view.name == *shim);
    let (Some(node), Some(shim)) = (node, shim) else { return false };
    let asked_for = oracle::asked_for(view, shim, node);
    let due = match (oracle::wanted(view, shim, node), op) {
        (Wanted::Build(_) | Wanted::AsIs, Op::Install(install)) => {
            asked_for.is_some_and(|build| build == install.build && !has(node, &shim.name, &build))
        }
        (Wanted::Nothing, Op::Remove) => node.marks.as_ref().is_some_and(|marks| marks.contains_key(&shim.name)),
        _ => false,
    };
    failed && !superseded && due && !is_history(node, &shim.name, finished.at)
}

fn has(node: &NodeView, shim: &ShimName, build: &Build) -> bool {
    matches!(node.marks.as_ref().and_then(|marks| marks.get(shim)), Some(Mark::Ready(ready)) if ready.build == *build)
}

fn check_record(cluster: &Cluster, view: &World, job: &JobRef, report: &Report) -> Verdict {
    let job = &cluster.jobs[&job.name];
    let Phase::Finished(finished) = &job.view.phase else {
        return must(false, Invariant::S9Ownership, || format!("a result for {}, which has not ended", job.view.name));
    };
    check_told(cluster, view, job, finished, Some(report))
}

/// Whatever of a Job goes away now, because it is deleted or replaced by `report`, has to be in the marks.
fn check_told(cluster: &Cluster, view: &World, job: &Job, finished: &Finished, report: Option<&Report>) -> Verdict {
    let Some(node) = cluster.node_of(job.task()).filter(|node| *cluster.host(node) == job.task().machine_id) else {
        return Ok(());
    };
    let marks = node.marks.clone().unwrap_or_default();
    for (shim, outcome) in &finished.report.outcomes {
        let kept = report.is_some_and(|report| report.outcomes.contains_key(shim));
        let superseded =
            view.jobs.iter().any(|other| other.task.serial > job.task().serial && other.task.ops.contains_key(shim));
        let done = matches!(outcome, Outcome::Done { .. }) && !finished.recorded && !superseded;
        let told = match job.task().ops[shim].build() {
            // A check has nothing to tell but that all is well.
            Some(_) if matches!(job.task().ops[shim], Op::Check(_)) => true,
            Some(build) => matches!(marks.get(shim), Some(Mark::Removing)) || has(node, shim, build),
            // Claimed: for the next Job, in the same write or a later one.
            None => matches!(marks.get(shim), None | Some(Mark::Claimed)),
        };
        must(!done || kept || told, Invariant::NoSuccessLost, || format!("{shim} on {}", node.name))?;
    }
    Ok(())
}

fn check_labels_are_ours(write: &MarkWrite) -> Verdict {
    let foreign = write.labels.keys().find(|key| !key.starts_with("shim.dev/"));
    must(foreign.is_none(), Invariant::S9Ownership, || format!("label {foreign:?} of {}", write.node))
}

fn check_release(cluster: &Cluster, name: &ShimName) -> Verdict {
    match cluster.shims.get(name).map(|shim| shim.view.life) {
        Some(Life::Orphaned) | None => Ok(()),
        Some(Life::Active) => must(false, Invariant::S8Finalizer, || format!("{name} is wanted and let go")),
        Some(Life::Deleting) => check_nowhere(cluster, name, || format!("{name} is let go")),
    }
}

fn check_nowhere(cluster: &Cluster, shim: &ShimName, what: impl Fn() -> String) -> Verdict {
    let marked = |node: &&NodeView| node.marks.as_ref().is_none_or(|marks| marks.contains_key(shim));
    let node = cluster.nodes.iter().find(marked);
    must(node.is_none(), Invariant::S8Finalizer, || format!("{} and {} carries its mark", what(), node.unwrap().name))?;
    let job = cluster.jobs.values().find(|job| job.task().ops.contains_key(shim));
    must(job.is_none(), Invariant::S8Finalizer, || format!("{} and {} is left", what(), job.unwrap().view.name))
}

/// What has to hold in every state of the cluster.
pub fn check_state(cluster: &Cluster) -> Verdict {
    for node in cluster.nodes.iter() {
        let marks = node.marks.as_ref();
        let Some(marks) = marks else {
            return must(false, Invariant::S7NoOrphan, || format!("marks of {} are illegible", node.name));
        };
        for (shim, mark) in marks {
            check_label(cluster, node, shim, mark)?;
            if let Mark::Ready(ready) = mark {
                check_truth(cluster, node, shim, ready)?;
            }
        }
        check_no_orphan(cluster, node, marks)?;
    }
    Ok(())
}

fn check_label(cluster: &Cluster, node: &NodeView, shim: &ShimName, mark: &Mark) -> Verdict {
    let torn = cluster.torn_labels.contains(&(node.uid.clone(), shim.clone()));
    let label = node.labels.get(shim.node_label().as_str()).map(AsRef::as_ref);
    must(torn || label == mark.label(), Invariant::S3NoLies, || {
        format!("{} says {mark:?} of {shim}, and its label {label:?}", node.name)
    })
}

fn check_truth(cluster: &Cluster, node: &NodeView, shim: &ShimName, ready: &Ready) -> Verdict {
    let removal = |job: &&Job| job.task().node_uid == node.uid && job.task().ops.get(shim) == Some(&Op::Remove);
    let removal = cluster.jobs.values().filter(|job| !job.is_finished()).find(removal);
    must(removal.is_none(), Invariant::S3NoLies, || format!("{} is ready for {shim}, which a Job removes", node.name))?;
    // Until the kubelet has told that the machine is another one, the mark names the old machine.
    if ready.machine != *cluster.host(node) {
        return Ok(());
    }
    let Some(found) = cluster.disk(node).get(shim) else {
        return must(false, Invariant::S3NoLies, || format!("{} is ready for {shim}, which is not there", node.name));
    };
    let settled = !cluster.is_open(node, shim) && ready.build != Build::unknown();
    let true_build = found.build.as_ref() == Some(&ready.build) && found.state != DiskState::Touched;
    must(!settled || true_build, Invariant::S3NoLies, || {
        format!("{} is ready for {shim} with {}, and has {:?} {:?}", node.name, ready.build, found.build, found.state)
    })
}

fn check_no_orphan(cluster: &Cluster, node: &NodeView, marks: &Marks) -> Verdict {
    // What was touched for an earlier Node object of the same machine is not known any more.
    let touched = cluster.disk(node).iter().filter(|(_, found)| found.by == node.uid).map(|(shim, _)| shim);
    let running = cluster.running().filter(|job| job.task().node_uid == node.uid).flat_map(|job| job.task().ops.keys());
    let orphan = touched.chain(running).find(|shim| !marks.contains_key(*shim));
    must(orphan.is_none(), Invariant::S7NoOrphan, || format!("{} has no mark of {}", node.name, orphan.unwrap()))
}

/// What has to be true once nothing changes any more.
pub fn check_rest(cluster: &Cluster) -> Verdict {
    let job = cluster.jobs.values().next();
    must(job.is_none(), Invariant::L1Converges, || format!("{} is left", job.unwrap().view.name))?;
    let world = cluster.world();
    for shim in &world.shims {
        check_object(shim)?;
        for node in &world.nodes {
            check_reached(cluster, &world, shim, node)?;
        }
    }
    check_classes(&world)
}

fn check_object(shim: &ShimView) -> Verdict {
    let name = &shim.name;
    must(shim.life == Life::Active, Invariant::L1Converges, || format!("{name} is still there"))?;
    must(shim.finalizer, Invariant::L1Converges, || format!("{name} has no finalizer"))
}

fn check_reached(cluster: &Cluster, world: &World, shim: &ShimView, node: &NodeView) -> Verdict {
    let mark = node.marks.as_ref().and_then(|marks| marks.get(&shim.name));
    let found = cluster.disk(node).get(&shim.name);
    let name = (&shim.name, &node.name);
    match oracle::wanted(world, shim, node) {
        Wanted::AsIs => Ok(()),
        Wanted::Nothing => {
            must(mark.is_none(), Invariant::L1Converges, || format!("{name:?}: mark {mark:?} is left"))?;
            let known = found.is_some_and(|found| found.by == node.uid);
            must(!known, Invariant::L1Converges, || format!("{name:?}: {found:?} is left"))
        }
        Wanted::Build(build) => {
            let marked = has(node, &shim.name, &build);
            must(marked, Invariant::L1Converges, || format!("{name:?}: mark {mark:?}"))?;
            let label = node.labels.get(shim.name.node_label().as_str());
            must(label.is_some_and(|label| label == "ready"), Invariant::L1Converges, || {
                format!("{name:?}: label {label:?}")
            })?;
            let untold = cluster.untold.contains(&(node.uid.clone(), shim.name.clone()));
            // No kubelet of containerd 1.x tells that a handler is lost.
            let silent = node.handlers.is_empty() && found.is_some_and(|found| found.state == DiskState::Drifted);
            let there =
                found.is_some_and(|found| found.build.as_ref() == Some(&build) && found.state == DiskState::Verified);
            must(there || untold || silent, Invariant::L1Converges, || format!("{name:?}: on disk {found:?}"))
        }
    }
}

fn check_classes(world: &World) -> Verdict {
    use shim_core::runtime_class::{Owner, owner};
    let classes: BTreeMap<_, _> =
        world.runtime_classes.iter().map(|class| (class.metadata.name.clone(), owner(class))).collect();
    for shim in world.shims.iter().filter(|shim| !oracle::in_conflict(world, shim)) {
        let found = classes.get(&Some(shim.spec.as_ref().unwrap().runtime_class.name.clone()));
        let ours = found == Some(&Owner::Shim(shim.name.to_string()));
        must(ours, Invariant::L1Converges, || format!("{} has no RuntimeClass", shim.name))?;
    }
    Ok(())
}

/// RuntimeClasses of ours whose Shim is gone and did not leave them behind on purpose.
pub fn check_no_class_left(cluster: &Cluster, orphaned: &[ShimName]) -> Verdict {
    use shim_core::runtime_class::{Owner, owner};
    for class in cluster.classes.iter() {
        let Owner::Shim(shim) = owner(class) else { continue };
        let there = cluster.shims.iter().any(|other| other.view.name.as_str() == shim);
        let left = orphaned.iter().any(|name| name.as_str() == shim);
        must(there || left, Invariant::L1Converges, || format!("the RuntimeClass of {shim} is left behind"))?;
    }
    Ok(())
}
