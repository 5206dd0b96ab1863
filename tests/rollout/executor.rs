//! Carries out a plan as the controller does, against an API server that refuses what it has to refuse.
//!
//! What the real executor has to keep to, because the invariants need it:
//! - a patch of a Node tests uid and the old annotation; before a Job is created the Node is read again;
//! - a write to a Node that is refused or fails ends this pass for that node, and the Node is read before the next;
//!   others go on;
//! - a RuntimeClass is read before it is changed or deleted: only that of the named Shim is touched;
//! - a Shim is released only if the deletion of its RuntimeClass was no error; that it is not there is none.
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::node::v1::RuntimeClass;
use shim_core::{
    job::{Start, job_name},
    names::{NodeName, ShimName},
    plan::{Action, JobRef, MarkWrite},
    revision::RevisionView,
    runtime_class::{Owner, owner},
    task::{Op, Task},
    world::{JobView, Phase, World},
};

use crate::{
    cluster::{Cluster, Job, Revision},
    installers,
};

/// What one pass has learnt so far.
#[derive(Debug, Clone)]
pub struct Pass {
    annotations: BTreeMap<NodeName, Option<String>>,
    dropped: BTreeSet<String>,
}

impl Pass {
    pub fn new(view: &World) -> Self {
        let annotations = view.nodes.iter().map(|node| (node.name.clone(), node.annotation.clone())).collect();
        Self { annotations, dropped: BTreeSet::new() }
    }

    /// Whether an earlier write of this pass has failed without which this one must not be.
    pub fn skips(&self, action: &Action) -> bool {
        subject(action).is_some_and(|subject| self.dropped.contains(subject))
    }

    /// A write was refused, or nobody knows what became of it.
    pub fn drop(&mut self, action: &Action) {
        if let Some(subject) = subject(action) {
            self.dropped.insert(subject.to_owned());
        }
    }
}

/// What later actions of the pass hang on.
fn subject(action: &Action) -> Option<&str> {
    match action {
        Action::Mark(write) => Some(write.node.as_str()),
        Action::Create(task) => Some(task.node.as_str()),
        Action::DeleteRuntimeClass(_, shim) | Action::Release(shim) => Some(shim.as_str()),
        _ => None,
    }
}

/// Whether there is nothing to do, or nothing any more.
pub fn is_needless(cluster: &Cluster, action: &Action) -> bool {
    let shim = |name: &ShimName| cluster.shims.get(name).map(|shim| &shim.view);
    match action {
        Action::Hold(name) => shim(name).is_some_and(|shim| shim.finalizer),
        Action::Release(name) => shim(name).is_none_or(|shim| !shim.finalizer),
        Action::Status(name, status) => shim(name).is_none_or(|shim| shim.status == *status),
        Action::DeleteRuntimeClass(class, name) => owner_of(cluster, class) != Some(Owner::Shim(name.to_string())),
        _ => false,
    }
}

/// Whether executor and API server let the write through.
pub fn accepts(cluster: &Cluster, pass: &Pass, action: &Action) -> bool {
    match action {
        Action::Mark(write) => {
            cluster.nodes.get(&write.node).is_some_and(|node| node.uid == write.uid && node.annotation == write.old)
        }
        Action::Create(task) => {
            let as_claimed = |annotation: &Option<String>| pass.annotations.get(&task.node) == Some(annotation);
            let node = cluster.node_of(task).filter(|node| as_claimed(&node.annotation));
            node.is_some() && !cluster.jobs.contains_key(&job_name(task))
        }
        Action::Delete(job) | Action::Record(job, _) | Action::Note(job, _) => find(cluster, job).is_some(),
        Action::Withdraw(job, _) => find(cluster, job).is_some_and(|job| !job.is_finished()),
        Action::Revise(revision) => {
            let name = RevisionView::object_name(&revision.shim, revision.number);
            cluster.revisions.get(&name).is_none() && cluster.shims.get(&revision.shim).is_some()
        }
        Action::Stamp(shim, number, _) | Action::Forget(shim, number) => {
            cluster.revisions.get(&RevisionView::object_name(shim, *number)).is_some()
        }
        Action::Hold(shim) => cluster.shims.get(shim).is_some_and(|shim| !shim.deleted),
        Action::Apply(class) => owner_of(cluster, name_of(class)).is_none_or(|found| found == owner(class)),
        Action::Release(_) | Action::Status(..) | Action::DeleteRuntimeClass(..) => true,
    }
}

fn find<'c>(cluster: &'c Cluster, job: &JobRef) -> Option<&'c Job> {
    cluster.jobs.get(&job.name).filter(|found| found.view.uid == job.uid)
}

fn owner_of(cluster: &Cluster, class: &str) -> Option<Owner> {
    cluster.classes.get(&class.to_owned()).map(owner)
}

fn name_of(class: &RuntimeClass) -> &str {
    class.metadata.name.as_deref().unwrap()
}

/// Carries out a write that is accepted.
pub fn apply(cluster: &mut Cluster, pass: &mut Pass, action: &Action) {
    match action {
        Action::Mark(write) => apply_marks(cluster, pass, write),
        Action::Create(task) => create(cluster, task),
        Action::Delete(job) => drop(cluster.jobs.remove(&job.name)),
        Action::Withdraw(job, _) => withdraw(cluster, job),
        Action::Note(job, why) => {
            let start = Start::Hindered { why: why.clone(), noted: true };
            cluster.jobs.get_mut(&job.name).unwrap().view.start = start;
        }
        Action::Revise(revision) => {
            let name = RevisionView::object_name(&revision.shim, revision.number);
            let owner = cluster.shims.get(&revision.shim).unwrap().view.uid.clone();
            let view = RevisionView { created: cluster.now, ..revision.clone() };
            cluster.revisions.set(cluster.now, name, Some(Revision { view, owner }));
        }
        Action::Stamp(shim, number, record) => {
            let name = RevisionView::object_name(shim, *number);
            cluster.revisions.change(cluster.now, &name, |revision| revision.view.record = Some(*record));
        }
        Action::Forget(shim, number) => {
            cluster.revisions.set(cluster.now, RevisionView::object_name(shim, *number), None);
        }
        Action::Record(job, report) => {
            if let Phase::Finished(finished) = &mut cluster.jobs.get_mut(&job.name).unwrap().view.phase {
                (finished.report, finished.recorded) = (report.clone(), true);
            }
        }
        Action::Hold(shim) => change(cluster, shim, |view| view.finalizer = true),
        Action::Release(shim) => cluster.release(shim),
        Action::Status(shim, status) => change(cluster, shim, |view| view.status = status.clone()),
        Action::Apply(class) => cluster.classes.set(cluster.now, name_of(class).to_owned(), Some(class.clone())),
        Action::DeleteRuntimeClass(name, _) => cluster.classes.set(cluster.now, name.clone(), None),
    }
}

fn change(cluster: &mut Cluster, shim: &ShimName, change: impl FnOnce(&mut shim_core::world::ShimView)) {
    cluster.shims.change(cluster.now, shim, |shim| change(&mut shim.view));
}

fn apply_marks(cluster: &mut Cluster, pass: &mut Pass, write: &MarkWrite) {
    cluster.write_marks(&write.node, write.new.as_ref(), &write.labels);
    cluster.torn_labels.retain(|(uid, shim)| *uid != write.uid || !write.labels.contains_key(&shim.node_label()));
    pass.annotations.insert(write.node.clone(), write.new.clone());
}

/// The Pod of a Job that has not ended goes on for a while, and may just have begun.
fn withdraw(cluster: &mut Cluster, job: &JobRef) {
    let Some(mut job) = cluster.jobs.remove(&job.name) else { return };
    if job.view.uid.bytes().map(usize::from).sum::<usize>().is_multiple_of(2) {
        installers::touch(cluster, &job);
        job.view.start = Start::Begun;
    }
    cluster.strays.push(job);
}

fn create(cluster: &mut Cluster, task: &Task) {
    let (name, uid) = (job_name(task), cluster.id());
    let view = JobView {
        name: name.clone(),
        uid,
        version: String::new(),
        created: cluster.now,
        task: task.clone(),
        phase: Phase::Running,
        start: Start::Waiting,
    };
    cluster.jobs.insert(name, Job { view });
}

/// A write in one line.
pub fn story_of(action: &Action) -> String {
    match action {
        Action::Mark(MarkWrite { node, new, labels, .. }) => {
            format!("mark {node}: {}, labels {labels:?}", new.as_deref().unwrap_or("nothing"))
        }
        Action::Create(task) => {
            format!("create {} serial {} tries {:?}: {}", job_name(task), task.serial, task.tries, ops(task))
        }
        Action::Delete(job) => format!("delete {}", job.name),
        Action::Withdraw(job, _) => format!("withdraw {}", job.name),
        Action::Record(job, report) => format!("record {}: {}", job.name, crate::installers::story_of(report)),
        Action::Apply(class) => format!("apply RuntimeClass {}", name_of(class)),
        Action::Status(shim, status) => {
            format!("status {shim}: {}", status.conditions.first().map_or("", |condition| condition.reason.as_str()))
        }
        Action::Revise(revision) => {
            format!("revision {} of {}: {}", revision.number, revision.shim, revision.inputs.version)
        }
        other => format!("{other:?}"),
    }
}

fn ops(task: &Task) -> String {
    let op = |(shim, op): (&ShimName, &Op)| match op {
        Op::Install(install) => format!("{shim} install {}", install.build),
        Op::Check(check) => format!("{shim} check {}", check.build),
        Op::Remove => format!("{shim} remove"),
    };
    task.ops.iter().map(op).collect::<Vec<_>>().join(", ")
}
