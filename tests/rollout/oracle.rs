//! What has to be on a node, worked out a second time and apart from the planner's own board.
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use shim_core::{
    mark::Mark,
    names::Build,
    report::{Outcome, Reason},
    revision::{Fate, RevisionView},
    runtime_class::{self, Owner},
    task::Op,
    world::{JobView, Life, NodeView, Phase, Share, ShimView, Source, SpecView, World},
};

/// What a Shim wants of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// This build, verified.
    Build(Build),
    /// Whatever is there stays as it is.
    AsIs,
    /// Not a trace.
    Nothing,
}

pub fn wanted(world: &World, shim: &ShimView, node: &NodeView) -> Wanted {
    match (shim.life, &shim.spec) {
        (Life::Orphaned, _) | (Life::Active, Err(_)) => Wanted::AsIs,
        (Life::Deleting, _) => Wanted::Nothing,
        (Life::Active, Ok(spec)) if !selects(spec, node) => Wanted::Nothing,
        (Life::Active, Ok(spec)) => match spec.source.build(&node.arch) {
            Some(build) if can_serve(node) && !in_conflict(world, shim) => Wanted::Build(build.clone()),
            _ => Wanted::AsIs,
        },
    }
}

fn selects(spec: &SpecView, node: &NodeView) -> bool {
    spec.selector.iter().all(|(key, value)| node.labels.get(key.as_str()).is_some_and(|found| found == value))
}

fn can_serve(node: &NodeView) -> bool {
    node.taints.is_empty() && node.machine.is_some()
}

/// Whether a foreign RuntimeClass or an older Shim holds what this Shim needs.
pub fn in_conflict(world: &World, shim: &ShimView) -> bool {
    let Ok(spec) = &shim.spec else { return false };
    let class = |class: &&k8s_openapi::api::node::v1::RuntimeClass| {
        class.metadata.name.as_ref() == Some(&spec.runtime_class.name)
    };
    let taken = world.runtime_classes.iter().find(class).is_some_and(|class| {
        runtime_class::owner(class) != Owner::Shim(shim.name.to_string()) || class.handler != spec.handler.as_str()
    });
    taken || world.shims.iter().any(|other| is_older_rival(other, shim, spec))
}

fn is_older_rival(other: &ShimView, shim: &ShimView, spec: &SpecView) -> bool {
    let older = (other.created, &other.name) < (shim.created, &shim.name);
    let same =
        |theirs: &SpecView| theirs.handler == spec.handler || theirs.runtime_class.name == spec.runtime_class.name;
    let keeps = || other.spec.is_err() && other.status.handler.as_deref() == Some(spec.handler.as_str());
    older && other.life != Life::Orphaned && (other.spec.as_ref().is_ok_and(same) || keeps())
}

/// How many nodes the shares of a Shim are shares of.
fn base(world: &World, shim: &ShimView, spec: &SpecView) -> usize {
    let counts = |node: &&Arc<NodeView>| match shim.life {
        Life::Active => selects(spec, node) && can_serve(node) && spec.source.build(&node.arch).is_some(),
        _ => node.marks.as_ref().is_some_and(|marks| marks.contains_key(&shim.name)),
    };
    world.nodes.iter().filter(counts).count()
}

fn share(share: Share, nodes: usize) -> usize {
    match share {
        Share::Count(count) => count as usize,
        Share::Percent(percent) => (nodes * percent as usize).div_ceil(100),
    }
}

/// Nodes that may be in progress at the same time.
pub fn budget(world: &World, shim: &ShimView) -> usize {
    let Ok(spec) = &shim.spec else { return usize::MAX };
    share(spec.rollout.max_update, base(world, shim, spec)).max(1)
}

/// Nodes that have what the Shim asks for now, verified.
pub fn proven(world: &World, shim: &ShimView) -> usize {
    world.nodes.iter().filter(|node| has_it(world, shim, node)).count()
}

fn has_it(world: &World, shim: &ShimView, node: &NodeView) -> bool {
    let Ok(spec) = &shim.spec else { return false };
    let Some(Mark::Ready(ready)) = node.marks.as_ref().and_then(|marks| marks.get(&shim.name)) else { return false };
    let settled = ready.since <= world.now - SignedDuration::from_secs(60);
    let denied = settled && !node.handlers.is_empty() && !node.handlers.contains(spec.handler.as_str());
    let build = matches!(wanted(world, shim, node), Wanted::Build(build) if build == ready.build);
    build && Some(&ready.machine) == node.machine.as_ref() && !denied
}

/// Nodes that must have it before the rest may start; none once they have.
pub fn open_canary(world: &World, shim: &ShimView) -> Option<usize> {
    let Ok(spec) = &shim.spec else { return None };
    let nodes = base(world, shim, spec);
    let canary = share(spec.rollout.canary, nodes).min(nodes);
    (proven(world, shim) < canary).then_some(canary)
}

/// Whether so many nodes have failed with what the Shim asks for now that no other may start.
pub fn is_stopped(world: &World, shim: &ShimView) -> bool {
    let Ok(spec) = &shim.spec else { return false };
    let failed = world.nodes.iter().filter(|node| has_failed(world, shim, node)).count();
    failed >= share(spec.rollout.max_failures, base(world, shim, spec)).max(1)
}

/// The build that a node is to get, or would if it could be served.
pub fn asked_for(world: &World, shim: &ShimView, node: &NodeView) -> Option<Build> {
    let spec = shim.spec.as_ref().ok().filter(|spec| shim.life == Life::Active && selects(spec, node))?;
    let meant = !can_serve(node) || !in_conflict(world, shim);
    spec.source.build(&node.arch).filter(|_| meant).cloned()
}

fn has_failed(world: &World, shim: &ShimView, node: &NodeView) -> bool {
    let Some(build) = asked_for(world, shim, node) else { return false };
    let of_node =
        world.jobs.iter().filter(|job| job.task.node_uid == node.uid && job.task.ops.contains_key(&shim.name));
    let Some(last) = of_node.max_by_key(|job| job.task.serial) else { return false };
    let is_this = matches!(&last.task.ops[&shim.name], Op::Install(install) if install.build == build);
    is_this && !has_it(world, shim, node) && is_counted(world, shim, node, last)
}

fn is_counted(world: &World, shim: &ShimView, node: &NodeView, job: &JobView) -> bool {
    let tries = job.task.tries.get(&shim.name);
    let Phase::Finished(finished) = &job.phase else {
        return job.phase == Phase::Stuck || tries.is_some_and(|tries| tries.counted);
    };
    let Some(Outcome::Failed(failure)) = finished.report.outcomes.get(&shim.name) else { return false };
    if let Some(Mark::Ready(ready)) = node.marks.as_ref().and_then(|marks| marks.get(&shim.name))
        && ready.since > finished.at
    {
        return false;
    }
    let count = tries.map_or(0, |tries| tries.failed) + 1;
    let first = tries.map_or(finished.at, |tries| Timestamp::from_second(tries.since).unwrap());
    let late = world.now >= first + SignedDuration::from_secs(300);
    count >= 3 || late || tries.is_some_and(|tries| tries.counted) || failure.reason == Reason::ChecksumMismatch
}

/// What a node without anything to serve may get instead: what the last complete revision asks for.
pub fn stopgap(world: &World, shim: &ShimView, node: &NodeView) -> Option<Build> {
    let spec = shim.spec.as_ref().ok()?;
    if !is_stopped(world, shim) && open_canary(world, shim).is_none() {
        return None;
    }
    let complete = |revision: &&RevisionView| {
        let record = revision.record.as_ref();
        revision.shim == shim.name && record.is_some_and(|r| r.fate == Fate::Complete && r.updated > 0)
    };
    let revisions = world.revisions.iter().filter(|revision| revision.inputs != spec.inputs).filter(complete);
    let last = revisions.max_by_key(|revision| revision.number)?;
    Source::read(&last.inputs, &spec.handler).ok()?.build(&node.arch).cloned()
}
