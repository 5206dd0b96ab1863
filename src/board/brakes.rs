//! How far each rollout is, and what holds it back.
use jiff::Timestamp;

use super::{Board, Side, Stand, Weight, served, stand};
use crate::{
    job::Start,
    names::{Build, ShimName},
    report::Outcome,
    task::Op,
    world::{JobView, Life, NodeView, Phase, Rollout},
};

/// The nodes of a Shim, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Selected and not skipped; of a Shim that goes: touched. Shares are shares of these.
    pub nodes: usize,
    /// Have what is wanted, verified.
    pub kept: usize,
    /// Serve another build, answer, and are to get the current one: candidates for a canary.
    pub older: usize,
    /// Have an unfinished Job.
    pub jobs: usize,
    /// Have failed, are tried again soon, and keep their places in the budget until then.
    pub trials: usize,
    /// Of `jobs`, those with the current build, and what has just succeeded with it.
    pub current_jobs: usize,
    /// Of `trials`, those with the current build.
    pub current_trials: usize,
    /// Count as failed with the current build.
    pub failed: usize,
}

/// Why a node that nothing has been tried on does not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// Somebody said so.
    Paused,
    /// Too many nodes have failed.
    Stopped,
    /// The revision has not proven itself yet.
    Canary,
    /// Only the budget, or the next pass.
    Open,
}

impl<'w> Board<'w> {
    /// Counts what the stands and Jobs say.
    pub(super) fn count(&mut self) {
        let calm = |side: &Side<'_>| Tally { nodes: side.calm.nodes, kept: side.calm.nodes, ..Tally::default() };
        let mut tallies: Vec<_> = self.sides.iter().map(calm).collect();
        for (tally, side) in tallies.iter_mut().zip(&self.sides) {
            for pair in self.restless_pairs(&side.shim.name) {
                tally.count_stand(side, pair.node, &pair.stand);
            }
        }
        for job in &self.world.jobs {
            for (name, op) in &job.task.ops {
                let Some(index) = self.index_of(name) else { continue };
                let news_at = self.count_job(&mut tallies[index], &self.sides[index], job, op);
                self.wake_at = [self.wake_at, news_at].into_iter().flatten().min();
            }
        }
        for (side, tally) in self.sides.iter_mut().zip(tallies) {
            side.tally = tally;
        }
    }

    /// Returns when time alone makes it count otherwise.
    fn count_job(&self, tally: &mut Tally, side: &Side<'w>, job: &JobView, op: &Op) -> Option<Timestamp> {
        let node = self.node(&job.task.node).filter(|node| node.uid == job.task.node_uid);
        let is_current = node.is_some_and(|node| side.is_current(node, op));
        match job.phase {
            Phase::Running => {
                tally.jobs += 1;
                tally.current_jobs += usize::from(is_current);
                let counted = job.task.tries.get(&side.shim.name).is_some_and(|tries| tries.counted);
                tally.failed += usize::from(is_current && counted);
            }
            // It can't be known what became of it.
            Phase::Stuck => tally.failed += usize::from(is_current),
            Phase::Finished(_) => {
                if is_current && self.is_news(side, node?, job) {
                    tally.current_jobs += 1;
                }
                let word = self.word(side, node?, op).filter(|word| word.job.uid == job.uid)?;
                let is_due = self.stand(&side.shim.name, &node?.name).op(side.shim).as_ref() == Some(op);
                if is_due {
                    let is_trial = word.weight == Weight::Trial && node?.ready;
                    tally.trials += usize::from(is_trial);
                    tally.current_trials += usize::from(is_trial && is_current);
                }
                if is_due || self.is_put_off(side, node?, op) {
                    tally.failed += usize::from(word.weight == Weight::Failed && is_current);
                }
                return (word.weight == Weight::Trial).then(|| word.tries.trial_ends());
            }
        }
        None
    }

    /// Whether a node would get this current build if it were not skipped. What has failed there is no better for a taint
    /// that comes: the brakes that it holds must not open, nor its pauses begin anew when the taint goes.
    pub fn is_put_off(&self, side: &Side<'w>, node: &NodeView, op: &Op) -> bool {
        matches!(self.stand(&side.shim.name, &node.name), Stand::Skipped(_)) && side.is_current(node, op)
    }

    /// Whether a Job has succeeded, and the node's marks do not say so yet.
    fn is_news(&self, side: &Side<'w>, node: &NodeView, job: &JobView) -> bool {
        let outcome = job.finished().and_then(|finished| finished.report.outcomes.get(&side.shim.name));
        let kept = self.stand(&side.shim.name, &node.name).kept().is_some();
        matches!(outcome, Some(Outcome::Done { .. })) && !kept
    }

    /// What a node gets that has nothing to serve while the current revision may not start on it: the last one that
    /// completed. Not where the current one has failed: that is tried again.
    pub fn fallback(&self, side: &Side<'w>, node: &NodeView, stand: Stand<'w>) -> Option<Op> {
        let (Stand::Wanted(artifact), Some(fallback), Ok(spec)) = (stand, &side.fallback, &side.shim.spec) else {
            return None;
        };
        let old = fallback.source.artifact(&node.arch).filter(|old| old.build != artifact.build)?;
        let held_back = side.is_stopped() || (side.is_canary_open() && side.tally.older > 0);
        let serves =
            served(&side.shim.name, node).is_some_and(|ready| ready.build != old.build || side.is_true(ready, node));
        let tried = || stand.op(side.shim).is_some_and(|op| self.word(side, node, &op).is_some());
        (held_back && !serves && !tried()).then(|| stand::install(spec, &fallback.source, old))
    }

    /// Whether a Job can go as if it had never been: no container of it has run, nobody relies on what it was to replace, and
    /// nothing that it was made for is wished any more, or it can't start and somebody has asked for another try since.
    pub fn is_obsolete(&self, node: &NodeView, job: &JobView) -> bool {
        let unbegun = job.phase == Phase::Running && job.start != Start::Begun && job.task.node_uid == node.uid;
        let serves = |shim: &ShimName| served(shim, node).is_some();
        let wished = |(shim, op): (&ShimName, &Op)| {
            self.side(shim).is_some_and(|side| self.wished(side, node).any(|wished| wished == *op))
        };
        let asked = |shim: &ShimName| self.side(shim).is_some_and(|side| side.asks_again(node, job.created));
        let is_hindered = matches!(job.start, Start::Hindered { .. });
        unbegun
            && !job.task.ops.keys().any(serves)
            && ((is_hindered && job.task.ops.keys().any(asked)) || !job.task.ops.iter().any(wished))
    }
}

impl Tally {
    fn count_stand(&mut self, side: &Side<'_>, node: &NodeView, stand: &Stand<'_>) {
        match stand {
            Stand::Apart | Stand::Skipped(_) => return,
            Stand::Kept(_) | Stand::Stale(_) => self.kept += 1,
            Stand::Leaving if side.shim.life != Life::Deleting => return,
            Stand::Wanted(_) => {
                self.older += usize::from(node.ready && served(&side.shim.name, node).is_some());
            }
            Stand::Held | Stand::Leaving => {}
        }
        self.nodes += 1;
    }
}

impl Side<'_> {
    fn rollout(&self) -> Rollout {
        self.shim.spec.as_ref().map_or_else(|_| Rollout::default(), |spec| spec.rollout)
    }

    /// Nodes that may be in progress at the same time.
    pub fn budget(&self) -> usize {
        self.rollout().max_update.at_least_one_of(self.tally.nodes)
    }

    /// Nodes that must succeed with the current revision before the rest start.
    pub fn canary(&self) -> usize {
        self.rollout().canary.of(self.tally.nodes).min(self.tally.nodes)
    }

    /// Failed nodes that stop the rollout.
    pub fn max_failures(&self) -> usize {
        self.rollout().max_failures.at_least_one_of(self.tally.nodes)
    }

    /// Whether the current revision has not proven itself yet.
    pub fn is_canary_open(&self) -> bool {
        self.tally.kept < self.canary()
    }

    /// Whether too many nodes have failed with the current revision.
    pub fn is_stopped(&self) -> bool {
        self.tally.failed >= self.max_failures()
    }

    /// What holds back a node that nothing has been tried on.
    pub fn gate(&self) -> Gate {
        match () {
            () if self.is_paused() => Gate::Paused,
            () if self.is_stopped() => Gate::Stopped,
            () if self.is_canary_open() => Gate::Canary,
            () => Gate::Open,
        }
    }

    /// The build of the current revision for a node.
    pub fn build(&self, node: &NodeView) -> Option<&Build> {
        self.shim.spec.as_ref().ok()?.source.build(&node.arch)
    }

    /// Whether somebody has asked to try again on a node what was tried before.
    pub fn asks_again(&self, node: &NodeView, before: Timestamp) -> bool {
        let retry = self.shim.retry.as_ref().filter(|retry| retry.at > before);
        retry.is_some_and(|retry| retry.nodes.as_ref().is_none_or(|nodes| nodes.contains(&node.name)))
    }

    /// Whether an operation installs the current revision.
    pub fn is_current(&self, node: &NodeView, op: &Op) -> bool {
        matches!(op, Op::Install(install) if self.build(node) == Some(&install.build))
    }
}
