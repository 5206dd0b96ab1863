//! Installer Pods: they start, touch the machine, and end in all the ways in which a Pod can end.
use std::collections::BTreeMap;

use shim_core::{
    job::{Finished, Start},
    names::{MachineId, ShimName},
    report::{FORMAT, Failure, Outcome, Reason, Report, Step},
    task::{Install, Op, Task},
    world::Phase,
};

use crate::{
    cluster::{Cluster, Disk, DiskState, Job, OnDisk},
    rng::Rng,
    story::Story,
};

/// How one operation ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// As it should.
    Done,
    /// Pods still run with it.
    InUse,
    /// Told by the installer: the node has what it had.
    Failed,
    /// The Pod ended without a word, anywhere.
    Killed,
}

/// The ends of all operations of a task.
pub type Fates = BTreeMap<ShimName, Fate>;

/// What may happen to installers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Luck {
    /// Everything.
    Mixed,
    /// They start at once and succeed.
    Good,
}

/// Some installer gets one step further.
pub fn advance_one(cluster: &mut Cluster, rng: &mut Rng, luck: Luck, story: &mut Story) {
    if !cluster.strays.is_empty() && rng.chance(30) {
        return end_stray(cluster, rng, story);
    }
    let unfinished: Vec<_> =
        cluster.jobs.values().filter(|job| !job.is_finished()).map(|job| job.view.name.clone()).collect();
    if let Some(name) = rng.pick(&unfinished) {
        advance(cluster, rng, luck, &name, story);
    }
}

/// Every installer runs to its end.
pub fn finish_all(cluster: &mut Cluster, rng: &mut Rng, story: &mut Story) {
    while !cluster.strays.is_empty() {
        end_stray(cluster, rng, story);
    }
    let unfinished: Vec<_> =
        cluster.jobs.values().filter(|job| !job.is_finished()).map(|job| job.view.name.clone()).collect();
    for name in unfinished {
        while cluster.jobs.get(&name).is_some_and(|job| !job.is_finished()) {
            advance(cluster, rng, Luck::Good, &name, story);
        }
    }
}

fn advance(cluster: &mut Cluster, rng: &mut Rng, luck: Luck, name: &str, story: &mut Story) {
    let job = cluster.jobs[name].clone();
    let orphaned = cluster.node_of(job.task()).is_none();
    let unreachable = cluster.nodes.get(&job.task().node).is_none_or(|node| !node.ready);
    if job.view.phase == Phase::Stuck || orphaned || (luck == Luck::Mixed && rng.chance(8)) {
        return end_silently(cluster, rng, &job, story);
    }
    if unreachable {
        cluster.jobs.get_mut(name).unwrap().view.phase = Phase::Stuck;
        return story.tell(|| format!("{name} can't end: its node does not answer"));
    }
    if job.has_begun() {
        end(cluster, rng, luck, &job, story);
    } else if luck == Luck::Mixed && rng.chance(10) {
        hinder(cluster, &job, story);
    } else {
        begin(cluster, &job, story);
    }
}

/// Its image can't be pulled, for now.
fn hinder(cluster: &mut Cluster, job: &Job, story: &mut Story) {
    story.tell(|| format!("{} does not start", job.view.name));
    let why = Failure::new(Step::Start, Reason::PodNotStarted, "ImagePullBackOff");
    let start = &mut cluster.jobs.get_mut(&job.view.name).unwrap().view.start;
    if *start == Start::Waiting {
        *start = Start::Hindered { why, noted: false };
    }
}

/// The machine on which the Pod of a task runs, if it is the planned one.
fn machine_of(cluster: &Cluster, task: &Task) -> Option<MachineId> {
    let host = cluster.nodes.get(&task.node).map(|node| cluster.host(node));
    host.filter(|host| **host == task.machine_id).cloned()
}

/// An installer starts to touch its machine.
pub fn begin(cluster: &mut Cluster, job: &Job, story: &mut Story) {
    let task = job.task();
    let Some(machine) = machine_of(cluster, task) else {
        let outcome = failed(Step::Preflight, Reason::MachineMismatch);
        return report(cluster, job, |_| outcome.clone(), story);
    };
    story.tell(|| format!("{} begins on {machine}", job.view.name));
    touch(cluster, job);
    cluster.jobs.get_mut(&job.view.name).unwrap().view.start = Start::Begun;
}

/// What is on a machine from the moment at which its installer has begun.
pub fn touch(cluster: &mut Cluster, job: &Job) {
    let task = job.task();
    let Some(machine) = machine_of(cluster, task) else { return };
    for (shim, op) in &task.ops {
        if let Op::Install(install) = op {
            let fresh = OnDisk {
                build: None,
                state: DiskState::Touched,
                handler: install.handler.clone(),
                by: task.node_uid.clone(),
            };
            let disk = cluster.machines.get_mut(&machine).unwrap();
            disk.entry(shim.clone()).or_insert(fresh).by.clone_from(&task.node_uid);
        }
    }
}

fn end(cluster: &mut Cluster, rng: &mut Rng, luck: Luck, job: &Job, story: &mut Story) {
    let fates: Fates = job.task().ops.iter().map(|(shim, op)| (shim.clone(), fate(rng, luck, op))).collect();
    conclude(cluster, rng, job, &fates, story);
}

/// An installer that has begun ends, each operation in its own way.
pub fn conclude(cluster: &mut Cluster, rng: &mut Rng, job: &Job, fates: &Fates, story: &mut Story) {
    let Some(machine) = machine_of(cluster, job.task()) else { return end_silently(cluster, rng, job, story) };
    let losses: BTreeMap<_, _> = job
        .task()
        .ops
        .iter()
        .filter_map(|(shim, op)| Some((shim.clone(), loss(&cluster.machines[&machine], shim, op)?)))
        .collect();
    for (shim, fate) in fates {
        apply(cluster, rng, &machine, job, shim, *fate);
    }
    // Some failures are of the kind that no second try can overcome.
    let reason = if rng.chance(50) { Reason::SandboxFailed } else { Reason::ChecksumMismatch };
    let outcome = |shim: &ShimName| match fates[shim] {
        Fate::Done if losses.contains_key(shim) => failed(Step::Verify, losses[shim]),
        Fate::Done => Outcome::Done { disrupted: 0 },
        Fate::InUse => Outcome::InUse { pods: 1 },
        Fate::Failed | Fate::Killed => failed(Step::Verify, reason),
    };
    report(cluster, job, outcome, story);
}

/// What a check finds out.
fn loss(disk: &Disk, shim: &ShimName, op: &Op) -> Option<Reason> {
    let Op::Check(check) = op else { return None };
    match disk.get(shim) {
        Some(found) if found.state == DiskState::Verified && found.build.as_ref() == Some(&check.build) => None,
        Some(found) if found.state == DiskState::Verified => Some(Reason::BuildMismatch),
        _ => Some(Reason::Drifted),
    }
}

fn fate(rng: &mut Rng, luck: Luck, op: &Op) -> Fate {
    match (luck, op) {
        (Luck::Mixed, Op::Remove) if rng.chance(25) => Fate::InUse,
        (Luck::Mixed, _) if rng.chance(20) => Fate::Failed,
        _ => Fate::Done,
    }
}

/// The Pod is gone: what it left on the machine depends on how far it was.
pub fn end_silently(cluster: &mut Cluster, rng: &mut Rng, job: &Job, story: &mut Story) {
    leave_anything(cluster, rng, job);
    report(cluster, job, |_| failed(Step::Start, Reason::NoResult), story);
}

fn leave_anything(cluster: &mut Cluster, rng: &mut Rng, job: &Job) {
    let machine = machine_of(cluster, job.task());
    if let Some(machine) = machine.filter(|_| job.has_begun()) {
        for shim in job.task().ops.keys() {
            apply(cluster, rng, &machine, job, shim, Fate::Killed);
        }
    }
}

pub fn end_stray(cluster: &mut Cluster, rng: &mut Rng, story: &mut Story) {
    let stray = cluster.strays.remove(rng.below(cluster.strays.len()));
    story.tell(|| format!("the Pod of {} ends, which was deleted", stray.view.name));
    leave_anything(cluster, rng, &stray);
}

fn failed(step: Step, reason: Reason) -> Outcome {
    Outcome::Failed(Failure::new(step, reason, "as it happens"))
}

fn report(cluster: &mut Cluster, job: &Job, outcome: impl Fn(&ShimName) -> Outcome, story: &mut Story) {
    let outcomes = job.task().ops.keys().map(|shim| (shim.clone(), outcome(shim))).collect();
    let report = Report { format: FORMAT, outcomes, restarted: false, log: String::new() };
    story.tell(|| format!("{} ends: {}", job.view.name, story_of(&report)));
    let phase = Phase::Finished(Finished { at: cluster.now, report, recorded: false });
    cluster.jobs.get_mut(&job.view.name).unwrap().view.phase = phase;
}

/// The outcomes in one line.
pub fn story_of(report: &Report) -> String {
    let word = |outcome: &Outcome| match outcome {
        Outcome::Done { .. } => "Done".to_owned(),
        Outcome::InUse { .. } => "InUse".to_owned(),
        Outcome::Failed(failure) => failure.reason.to_string(),
    };
    report.outcomes.iter().map(|(shim, outcome)| format!("{shim} {}", word(outcome))).collect::<Vec<_>>().join(", ")
}

fn apply(cluster: &mut Cluster, rng: &mut Rng, machine: &MachineId, job: &Job, shim: &ShimName, fate: Fate) {
    let (task, op) = (job.task(), &job.task().ops[shim]);
    if fate == Fate::Done && matches!(op, Op::Install(_) | Op::Remove) {
        cluster.untold.remove(&(task.node_uid.clone(), shim.clone()));
    }
    let disk = cluster.machines.get_mut(machine).unwrap();
    match op {
        Op::Install(install) => apply_install(disk, rng, &task.node_uid, shim, install, fate),
        Op::Check(_) => {}
        Op::Remove => apply_removal(disk, rng, shim, fate),
    }
}

fn apply_install(disk: &mut Disk, rng: &mut Rng, node_uid: &str, shim: &ShimName, install: &Install, fate: Fate) {
    let build = Some(install.build.clone());
    match fate {
        Fate::Done => {
            let (handler, by) = (install.handler.clone(), node_uid.to_owned());
            disk.insert(shim.clone(), OnDisk { build, state: DiskState::Verified, handler, by });
        }
        // A first installation may undo what it did, or not; an upgrade keeps the old build.
        Fate::Failed if rng.chance(50) => disk.retain(|name, found| name != shim || found.build.is_some()),
        Fate::Killed if rng.chance(50) => {
            disk.entry(shim.clone()).and_modify(|found| (found.build, found.state) = (build, DiskState::Touched));
        }
        Fate::Failed | Fate::Killed | Fate::InUse => {}
    }
}

fn apply_removal(disk: &mut Disk, rng: &mut Rng, shim: &ShimName, fate: Fate) {
    match fate {
        Fate::Failed | Fate::Killed if rng.chance(50) => {
            disk.entry(shim.clone()).and_modify(|found| found.state = DiskState::Touched);
        }
        Fate::Done | Fate::Killed => drop(disk.remove(shim)),
        Fate::Failed | Fate::InUse => {}
    }
}
