//! What has to be on a node, worked out a second time and apart from the planner's own board.
use shim_core::{
    names::Build,
    runtime_class::{self, Owner},
    world::{Life, NodeView, ShimView, SpecView, World},
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
        (Life::Active, Ok(spec)) => match spec.artifact(&node.arch) {
            Some(artifact) if can_serve(node) && !in_conflict(world, shim) => Wanted::Build(artifact.build.clone()),
            _ => Wanted::AsIs,
        },
    }
}

fn selects(spec: &SpecView, node: &NodeView) -> bool {
    spec.selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
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

/// Nodes that may be in progress at the same time.
pub fn budget(world: &World, shim: &ShimView) -> usize {
    let Ok(spec) = &shim.spec else { return usize::MAX };
    let counts = |node: &&NodeView| match shim.life {
        Life::Active => selects(spec, node) && can_serve(node) && spec.artifact(&node.arch).is_some(),
        _ => node.marks.as_ref().is_some_and(|marks| marks.contains_key(&shim.name)),
    };
    spec.max_update.of(world.nodes.iter().filter(counts).count())
}
