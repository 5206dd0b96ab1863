//! How operations on nodes ended. A Job's outcomes are counted when the API server has accepted the write that closes its
//! book: its report goes into its annotation, or an unrecorded Job is deleted. Each Job has exactly one of them.
use prometheus_client::metrics::{counter::Counter, family::Family};
use shim_core::{
    plan::Action,
    report::{Outcome, Reason},
    task::Op,
    world::{JobView, World},
};

use super::Labels;

/// The counter.
pub(super) struct Operations(Family<Labels<3>, Counter>);

impl Operations {
    /// With every series that there can be at 0: the first failure of a kind must show as an increase.
    pub(super) fn new() -> Self {
        let family = Family::default();
        for operation in ["install", "check", "remove"] {
            let failures = Reason::ALL.iter().map(|reason| ("failed", reason.as_str()));
            for (result, reason) in failures.chain([("done", "")]) {
                drop(family.get_or_create(&labels(operation, result, reason)));
            }
        }
        drop(family.get_or_create(&labels("remove", "in_use", "")));
        Self(family)
    }

    pub(super) fn family(&self) -> Family<Labels<3>, Counter> {
        self.0.clone()
    }

    /// Counts what an accepted action has closed.
    pub(super) fn count(&self, world: &World, action: &Action) {
        for labels in closed(world, action).into_iter().flat_map(outcomes) {
            self.0.get_or_create(&labels).inc();
        }
    }
}

/// The Job whose book an action closes.
fn closed<'w>(world: &'w World, action: &Action) -> Option<&'w JobView> {
    let (Action::Record(reference, _) | Action::Delete(reference)) = action else { return None };
    let job = world.jobs.iter().find(|job| job.uid == reference.uid)?;
    job.finished().is_some_and(|finished| !finished.recorded).then_some(job)
}

fn outcomes(job: &JobView) -> Vec<Labels<3>> {
    let Some(finished) = job.finished() else { return Vec::new() };
    let of_op = |(shim, op): (_, &Op)| {
        let operation = match op {
            Op::Install(_) => "install",
            Op::Check(_) => "check",
            Op::Remove => "remove",
        };
        Some(match finished.report.outcomes.get(shim)? {
            Outcome::Done { .. } => labels(operation, "done", ""),
            Outcome::InUse { .. } => labels(operation, "in_use", ""),
            Outcome::Failed(failure) => labels(operation, "failed", failure.reason.as_str()),
        })
    };
    job.task.ops.iter().filter_map(of_op).collect()
}

fn labels(operation: &'static str, result: &'static str, reason: &'static str) -> Labels<3> {
    [("operation", operation), ("result", result), ("reason", reason)]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::Timestamp;
    use shim_core::{
        job::{Finished, Start},
        names::ShimName,
        plan::JobRef,
        report::{FORMAT, Failure, Report, Step},
        task::Task,
        world::Phase,
    };

    use super::*;

    fn world(recorded: bool) -> World {
        let failure = Failure::new(Step::Fetch, Reason::ChecksumMismatch, "another one");
        let outcomes: BTreeMap<ShimName, Outcome> = BTreeMap::from([
            ("a".parse().unwrap(), Outcome::Done { disrupted: 0 }),
            ("b".parse().unwrap(), Outcome::Failed(failure)),
            ("c".parse().unwrap(), Outcome::InUse { pods: 1 }),
        ]);
        let task = Task {
            format: FORMAT,
            node: "n".parse().unwrap(),
            node_uid: "n".to_owned(),
            machine_id: "0123456789abcdef0123456789abcdef".parse().unwrap(),
            serial: 1,
            ops: outcomes.keys().map(|name| (name.clone(), Op::Remove)).collect(),
            tries: BTreeMap::new(),
        };
        let report = Report { format: FORMAT, outcomes, restarted: false, log: String::new() };
        let phase = Phase::Finished(Finished { at: Timestamp::UNIX_EPOCH, report, recorded });
        World {
            jobs: vec![JobView {
                name: "j".to_owned(),
                uid: "j".to_owned(),
                version: String::new(),
                created: Timestamp::UNIX_EPOCH,
                task,
                phase,
                start: Start::Begun,
            }],
            ..World::default()
        }
    }

    fn delete() -> Action {
        Action::Delete(JobRef { name: "j".to_owned(), uid: "j".to_owned() })
    }

    #[test]
    fn each_outcome_of_a_job_counts_once() {
        let operations = Operations::new();
        let counted = |result, reason| operations.0.get_or_create(&labels("remove", result, reason)).get();
        operations.count(&world(false), &delete());
        // It has been recorded since: that counted.
        operations.count(&world(true), &delete());
        assert_eq!([counted("done", ""), counted("in_use", ""), counted("failed", "ChecksumMismatch")], [1, 1, 1]);
    }
}
