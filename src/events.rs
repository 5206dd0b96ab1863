//! What is worth an Event: it accompanies a write that was accepted.
use crate::{
    names::{NodeName, ShimName},
    plan::{Action, JobRef},
    report::{Failure, Outcome},
    revision::{Fate, Record, RevisionView},
    status::nodes,
    task::Task,
    world::{JobView, World},
};

/// What an Event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// A Shim.
    Shim(ShimName),
    /// A Node, by name and uid.
    Node(NodeName, String),
    /// A revision, by the name of its object.
    Revision(String),
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// As intended.
    Normal,
    /// Somebody should know.
    Warning,
}

/// An Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The object that it is about.
    pub about: About,
    /// The other object that has to do with it: Events about one object with one reason are told as one unless this differs.
    pub with: Option<About>,
    /// How bad it is.
    pub tone: Tone,
    /// A word for programs, in CamelCase.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
}

/// What there is to say of a write, once it is accepted.
pub fn notices(world: &World, action: &Action) -> Vec<Notice> {
    match action {
        Action::Record(job, _) => find(world, job).map_or_else(Vec::new, of_report),
        Action::Delete(job) => find(world, job).map_or_else(Vec::new, |job| of_end(world, job)),
        Action::Note(job, why) => find(world, job)
            .map_or_else(Vec::new, |job| of_failures(&job.task, job.task.ops.keys().map(|shim| (shim, why)))),
        Action::Revise(revision) => {
            let by = if revision.author.is_empty() { String::new() } else { format!(", by {}", revision.author) };
            let message = format!("revision {}: {}{by}", revision.number, revision.inputs.version);
            vec![of_revision(&revision.shim, revision.number, Tone::Normal, "RevisionCreated", message)]
        }
        Action::Stamp(shim, number, record) => of_fate(shim, *number, record).into_iter().collect(),
        _ => Vec::new(),
    }
}

fn find<'w>(world: &'w World, job: &JobRef) -> Option<&'w JobView> {
    world.jobs.iter().find(|found| found.uid == job.uid)
}

/// The failures of a Job that has not told them yet: with its report, or when it goes.
fn of_report(job: &JobView) -> Vec<Notice> {
    let untold = job.finished().filter(|finished| !finished.recorded);
    let outcomes = untold.into_iter().flat_map(|finished| &finished.report.outcomes);
    let failures = outcomes.filter_map(|(shim, outcome)| match outcome {
        Outcome::Failed(failure) => Some((shim, failure)),
        Outcome::Done { .. } | Outcome::InUse { .. } => None,
    });
    of_failures(&job.task, failures)
}

fn of_end(world: &World, job: &JobView) -> Vec<Notice> {
    let is_there = world.nodes.iter().any(|node| node.name == job.task.node && job.is_for(node));
    if is_there {
        return of_report(job);
    }
    let message = format!("{} is gone; its Job {} is not needed any more", job.task.node, job.name);
    job.task.ops.keys().map(|shim| of_shim(shim, Tone::Normal, "NodeGone", message.clone())).collect()
}

fn of_shim(shim: &ShimName, tone: Tone, reason: &str, message: String) -> Notice {
    Notice { about: About::Shim(shim.clone()), with: None, tone, reason: reason.to_owned(), message }
}

fn of_revision(shim: &ShimName, number: i64, tone: Tone, reason: &str, message: String) -> Notice {
    let with = Some(About::Revision(RevisionView::object_name(shim, number)));
    Notice { with, ..of_shim(shim, tone, reason, message) }
}

/// Each failure is told where people look: on the Shim and on the Node.
fn of_failures<'a>(task: &Task, failures: impl Iterator<Item = (&'a ShimName, &'a Failure)>) -> Vec<Notice> {
    let both = failures.flat_map(|(shim, failure)| {
        let attempt = match task.attempt(shim) {
            1 => String::new(),
            attempt => format!(" (attempt {attempt})"),
        };
        let text = format!("{failure}{attempt}");
        let (reason, node) = (failure.reason.as_str(), &task.node);
        let about = About::Node(node.clone(), task.node_uid.clone());
        let on_shim = of_shim(shim, Tone::Warning, reason, format!("{node}: {text}"));
        let on_shim = Notice { with: Some(about.clone()), ..on_shim };
        let on_node = Notice {
            about,
            with: Some(About::Shim(shim.clone())),
            tone: Tone::Warning,
            reason: reason.to_owned(),
            message: format!("shim {shim}: {text}"),
        };
        [on_shim, on_node]
    });
    both.collect()
}

fn of_fate(shim: &ShimName, number: i64, record: &Record) -> Option<Notice> {
    let of_this = |tone, reason, message| Some(of_revision(shim, number, tone, reason, message));
    let on = format!("revision {number} is on {} of {}", record.updated, nodes(record.nodes as usize));
    match record.fate {
        Fate::Progressing => None,
        Fate::Complete => of_this(Tone::Normal, "RolloutComplete", on),
        Fate::Superseded => of_this(Tone::Normal, "RolloutSuperseded", on),
        Fate::Failed => {
            let message = format!("{on}; too many nodes failed: kubectl shim status {shim}");
            of_this(Tone::Warning, "RolloutStopped", message)
        }
    }
}
