//! Failures on record: which is the last word on an operation, and when it may be tried again.
use std::time::Duration;

use jiff::Timestamp;

use super::{Board, Side, after, served};
use crate::{
    job::Finished,
    limits,
    mark::Mark,
    names::ShimName,
    report::{Outcome, Reason},
    task::{Op, Tries},
    world::{JobView, NodeView},
};

/// The failure that is the last word on an operation on a node.
#[derive(Debug, Clone, Copy)]
pub struct Word<'w> {
    /// The Job that says it.
    pub job: &'w JobView,
    /// When it ended, and all that it said.
    pub finished: &'w Finished,
    /// What it said of this Shim; never a success.
    pub outcome: &'w Outcome,
    /// All tries so far.
    pub tries: Tries,
    /// How much of a failure it is.
    pub weight: Weight,
    /// Earliest time of the next try.
    pub next: Timestamp,
}

/// How much of a failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// None: a removal waits for pods.
    Waits,
    /// The node is tried again soon, and keeps its place in the budget until then.
    Trial,
    /// The node counts as failed.
    Failed,
}

impl Tries {
    fn new(at: Timestamp) -> Self {
        Self { failed: 0, waited: 0, since: at.as_second(), counted: false }
    }

    /// With one more.
    fn and(mut self, outcome: &Outcome) -> Self {
        match outcome {
            Outcome::InUse { .. } => self.waited += 1,
            Outcome::Failed(_) | Outcome::Done { .. } => self.failed += 1,
        }
        self
    }

    /// When the node counts as failed although tries are left.
    pub(super) fn trial_ends(&self) -> Timestamp {
        after(Timestamp::from_second(self.since).unwrap_or(Timestamp::UNIX_EPOCH), limits::TRIAL)
    }
}

/// `first`, doubled `times` times, at most `most`.
fn backoff(first: Duration, most: Duration, times: u32) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(times)).min(most)
}

fn pause(outcome: &Outcome, tries: &Tries, weight: Weight) -> Duration {
    match (weight, outcome) {
        (Weight::Waits, _) => backoff(limits::IN_USE_FIRST, limits::IN_USE_MOST, tries.waited.saturating_sub(1)),
        (Weight::Trial, _) => limits::RETRY_SOON,
        (Weight::Failed, Outcome::Failed(failure)) if failure.reason.is_certain() => {
            backoff(limits::RETRY_FIRST, limits::RETRY_MOST, tries.failed.saturating_sub(1))
        }
        (Weight::Failed, _) => {
            backoff(limits::RETRY_FIRST, limits::RETRY_MOST, tries.failed.saturating_sub(limits::TRIES))
        }
    }
}

impl<'w> Board<'w> {
    /// The failure that is the last word on this very operation on this node.
    pub fn word(&self, side: &Side<'w>, node: &NodeView, op: &Op) -> Option<Word<'w>> {
        let jobs = self.jobs_on(&node.name);
        if jobs.is_empty() {
            return None;
        }
        let shim = &side.shim.name;
        let of_this = |job: &&&'w JobView| job.task.node_uid == node.uid && job.task.ops.get(shim) == Some(op);
        let job = *jobs.iter().filter(of_this).max_by_key(|job| job.task.serial)?;
        let finished = job.finished().filter(|_| !self.is_superseded(job, shim))?;
        let outcome = job.failure(shim)?;
        // A Job that succeeded since may be gone while this one is kept for another Shim.
        let history = match node.marks.as_ref()?.get(shim)? {
            Mark::Ready(ready) => ready.since > finished.at,
            Mark::Claimed | Mark::Removing => false,
        };
        (!history).then(|| self.weigh(side, node, job, finished, outcome))
    }

    fn weigh(
        &self,
        side: &Side<'w>,
        node: &NodeView,
        job: &'w JobView,
        finished: &'w Finished,
        outcome: &'w Outcome,
    ) -> Word<'w> {
        let before = job.task.tries.get(&side.shim.name).copied();
        let mut tries = before.unwrap_or_else(|| Tries::new(finished.at)).and(outcome);
        let weight = match outcome {
            Outcome::InUse { .. } => Weight::Waits,
            Outcome::Failed(failure) if self.is_counted(&tries, failure.reason) => Weight::Failed,
            Outcome::Failed(_) | Outcome::Done { .. } => Weight::Trial,
        };
        tries.counted = weight == Weight::Failed;
        let next = side.next_try(node, finished.at, pause(outcome, &tries, weight));
        Word { job, finished, outcome, tries, weight, next }
    }

    fn is_counted(&self, tries: &Tries, reason: Reason) -> bool {
        tries.counted || reason.is_certain() || tries.failed >= limits::TRIES || tries.trial_ends() <= self.world.now
    }

    /// Whether a later Job on the same node has to do with the Shim: then this one's word on it is history.
    pub fn is_superseded(&self, job: &JobView, shim: &ShimName) -> bool {
        self.jobs_on(&job.task.node)
            .iter()
            .any(|other| other.task.serial > job.task.serial && other.task.ops.contains_key(shim))
    }
}

impl Side<'_> {
    /// Earliest time at which what is verified on a node is installed on it again: a kubelet that does not report the
    /// handler although containerd serves it would be answered with Jobs for ever.
    pub fn repair_at(&self, node: &NodeView, op: &Op) -> Option<Timestamp> {
        let ready = served(&self.shim.name, node).filter(|ready| op.build() == Some(&ready.build))?;
        Some(self.next_try(node, ready.since, backoff(limits::HANDLER_GRACE, limits::RETRY_MOST, ready.repairs)))
    }

    /// After a pause since the last try, or at once if somebody has asked for another since.
    fn next_try(&self, node: &NodeView, last: Timestamp, pause: Duration) -> Timestamp {
        after(last, if self.asks_again(node, last) { Duration::ZERO } else { pause })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Failure, Step};

    fn failed(reason: Reason) -> Outcome {
        Outcome::Failed(Failure::new(Step::Fetch, reason, ""))
    }

    fn pauses(outcome: &Outcome, weight: Weight, counts: impl Iterator<Item = u32>) -> Vec<u64> {
        let tries = |count| Tries { failed: count, waited: count, since: 0, counted: false };
        counts.map(|count| pause(outcome, &tries(count), weight).as_secs()).collect()
    }

    #[test]
    fn a_failed_node_is_tried_again_from_a_minute_to_half_an_hour() {
        let wanted = [60, 120, 240, 480, 960, 1800, 1800];
        assert_eq!(pauses(&failed(Reason::DownloadFailed), Weight::Failed, 3..10), wanted);
        assert_eq!(pauses(&failed(Reason::ArtifactNotFound), Weight::Failed, 1..8), wanted);
        assert_eq!(pauses(&failed(Reason::ArtifactNotFound), Weight::Failed, [u32::MAX].into_iter()), [1800]);
    }

    #[test]
    fn a_removal_in_use_is_asked_again_from_half_a_minute_to_five() {
        assert_eq!(pauses(&Outcome::InUse { pods: 1 }, Weight::Waits, 1..6), [30, 60, 120, 240, 300]);
    }
}
