//! How a Shim and a node stand to each other: the only comparison of what is wanted with what is known to be there.
use std::cmp::Ordering;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Taint, Toleration};

use super::{Side, after};
use crate::{
    limits,
    mark::{Mark, Marks, Ready},
    task::{Check, Install, Op},
    world::{Artifact, Life, NodeView, ShimView, Source, SpecView},
};

/// How a Shim and a node stand to each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stand<'w> {
    /// They have nothing to do with each other.
    Apart,
    /// The node has what is wanted, verified.
    Kept(&'w Ready),
    /// The same, and it is time to look whether that is still so.
    Stale(&'w Ready),
    /// Nothing may be done here, and what is there stays.
    Held,
    /// The node is to get this artifact.
    Wanted(&'w Artifact),
    /// The node is to lose what it has.
    Leaving,
    /// The node is selected and can't be served.
    Skipped(Skip<'w>),
}

/// Why a selected node can't be served.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Skip<'w> {
    /// Another operating system.
    NotLinux(&'w str),
    /// Another container runtime.
    NotContainerd(&'w str),
    /// A taint that the Shim does not tolerate.
    Taint(&'w Taint),
    /// The Shim has no artifact for this architecture.
    NoArtifact(&'w str),
    /// The kubelet has not said which machine it is.
    NoMachineId,
    /// A newer version of us has written its annotation, or somebody by hand.
    StateUnreadable,
}

impl Skip<'_> {
    /// The word for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotLinux(_) => "NotLinux",
            Self::NotContainerd(_) => "NotContainerd",
            Self::Taint(_) => "UntoleratedTaint",
            Self::NoArtifact(_) => "NoArtifact",
            Self::NoMachineId => "NoMachineId",
            Self::StateUnreadable => "StateUnreadable",
        }
    }

    /// The sentence for people.
    pub fn message(&self) -> String {
        match self {
            Self::NotLinux(os) => format!("os is {os}"),
            Self::NotContainerd(runtime) => format!("container runtime is {runtime}, not containerd"),
            Self::Taint(taint) => format!("taint {}:{} is not in spec.tolerations", taint.key, taint.effect),
            Self::NoArtifact(arch) => format!("spec.fetchStrategy.platforms has no entry for linux/{arch}"),
            Self::NoMachineId => "the kubelet has not reported a machine id".to_owned(),
            Self::StateUnreadable => "annotation shim.dev/state was written by a newer version or by hand".to_owned(),
        }
    }
}

impl<'w> Stand<'w> {
    /// Compares. `mark`: what the node remembers of the Shim.
    pub(super) fn of(side: &Side<'w>, node: &'w NodeView, mark: Option<&'w Mark>) -> Self {
        let shim = side.shim;
        let left = |stand: Self| if mark.is_some() { stand } else { Self::Apart };
        match (shim.life, &shim.spec) {
            (Life::Active, Ok(spec)) if is_selected(spec, node) => Self::of_selected(side, spec, node, mark),
            (Life::Active, Ok(_)) | (Life::Deleting, _) => left(Self::Leaving),
            // What can't be read says nothing about which nodes it wants: they keep what they have.
            (Life::Active, Err(_)) | (Life::Orphaned, _) => left(Self::Held),
        }
    }

    fn of_selected(side: &Side<'w>, spec: &'w SpecView, node: &'w NodeView, mark: Option<&'w Mark>) -> Self {
        if let Some(skip) = skip(spec, node) {
            return Self::Skipped(skip);
        }
        let Some(artifact) = spec.source.artifact(&node.arch) else {
            return Self::Skipped(Skip::NoArtifact(&node.arch));
        };
        match mark {
            _ if side.conflict.is_some() => Self::Held,
            Some(Mark::Ready(ready)) if ready.build == artifact.build && side.is_true(ready, node) => {
                if is_old(ready, side, node) { Self::Stale(ready) } else { Self::Kept(ready) }
            }
            _ => Self::Wanted(artifact),
        }
    }

    /// Whether there is nothing to do.
    pub fn is_quiet(&self) -> bool {
        matches!(self, Self::Apart | Self::Kept(_) | Self::Held | Self::Skipped(_))
    }

    /// What is verified and wanted.
    pub fn kept(&self) -> Option<&'w Ready> {
        match self {
            Self::Kept(ready) | Self::Stale(ready) => Some(ready),
            _ => None,
        }
    }

    /// What brings them closer.
    pub fn op(&self, shim: &ShimView) -> Option<Op> {
        let spec = || shim.spec.as_ref().ok();
        match self {
            Self::Wanted(artifact) => spec().map(|spec| install(spec, &spec.source, artifact)),
            Self::Stale(ready) => {
                spec().map(|spec| Op::Check(Check { build: ready.build.clone(), handler: spec.handler.clone() }))
            }
            Self::Leaving => Some(Op::Remove),
            Self::Apart | Self::Kept(_) | Self::Held | Self::Skipped(_) => None,
        }
    }
}

/// The operation that puts an artifact of `source` on a node.
pub(super) fn install(spec: &SpecView, source: &Source, artifact: &Artifact) -> Op {
    Op::Install(Install {
        build: artifact.build.clone(),
        location: artifact.location.clone(),
        sha256: artifact.sha256.clone(),
        binary: source.binary.clone(),
        handler: spec.handler.clone(),
        options: source.options.clone(),
    })
}

/// Whether the Shim wants to be on the node.
pub(super) fn is_selected(spec: &SpecView, node: &NodeView) -> bool {
    spec.selector.iter().all(|(key, value)| node.labels.get(key.as_str()).is_some_and(|found| found == value))
}

impl Side<'_> {
    /// Whether the node still is what was verified: the same machine, and its kubelet does not deny the handler.
    pub fn is_true(&self, ready: &Ready, node: &NodeView) -> bool {
        let is_settled = ready.since <= self.times.settled;
        Some(&ready.machine) == node.machine.as_ref() && !(is_settled && denies(node, self.shim))
    }
}

/// Whether it is long ago that somebody has looked: a kubelet that reports handlers looks all the time.
fn is_old(ready: &Ready, side: &Side<'_>, node: &NodeView) -> bool {
    node.handlers.is_empty() && ready.since <= side.times.old
}

/// Whether the kubelet reports handlers, and the Shim's is not among them.
fn denies(node: &NodeView, shim: &ShimView) -> bool {
    let listed = |spec: &SpecView| node.handlers.contains(spec.handler.as_str());
    !node.handlers.is_empty() && !shim.spec.as_ref().is_ok_and(listed)
}

/// When time alone turns what is kept into something to do.
pub(super) fn expiry(stand: &Stand<'_>, side: &Side<'_>, node: &NodeView) -> Option<Timestamp> {
    let Stand::Kept(ready) = stand else { return None };
    if node.handlers.is_empty() {
        return Some(after(ready.since, limits::CHECK_EVERY));
    }
    let is_new = ready.since > side.times.settled;
    (is_new && denies(node, side.shim)).then(|| after(ready.since, limits::HANDLER_GRACE))
}

/// Why a node can't be served, whatever it has.
fn skip<'w>(spec: &SpecView, node: &'w NodeView) -> Option<Skip<'w>> {
    if node.marks.is_none() {
        return Some(Skip::StateUnreadable);
    }
    if node.os != "linux" {
        return Some(Skip::NotLinux(&node.os));
    }
    if !node.runtime.starts_with("containerd://") {
        return Some(Skip::NotContainerd(node.runtime.split("://").next().unwrap_or_default()));
    }
    if let Some(taint) = node.taints.iter().find(|taint| !is_tolerated(taint, &spec.tolerations)) {
        return Some(Skip::Taint(taint));
    }
    node.machine.is_none().then_some(Skip::NoMachineId)
}

fn is_tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    let matters =
        matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute") && !taint.key.starts_with("node.kubernetes.io/");
    !matters || tolerations.iter().any(|toleration| tolerates(toleration, taint))
}

/// As the scheduler reads it: an absent effect or, with Exists, an absent key matches all.
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let filled = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let effect = filled(&toleration.effect).is_none_or(|effect| effect == taint.effect);
    let key = filled(&toleration.key);
    let exists = toleration.operator.as_deref() == Some("Exists");
    let same_key = key.as_ref().map_or(exists, |key| *key == taint.key);
    let value = exists || toleration.value.clone().unwrap_or_default() == taint.value.clone().unwrap_or_default();
    effect && same_key && value
}

/// What the node remembers, as pairs with the Shims: both are in the order of their names.
pub(super) fn marks_by_side<'b, 'w>(
    sides: &'b [Side<'w>],
    marks: Option<&'w Marks>,
) -> impl Iterator<Item = (&'b Side<'w>, Option<&'w Mark>)> {
    let mut marks = marks.into_iter().flatten().peekable();
    sides.iter().map(move |side| {
        while let Some((name, mark)) = marks.peek().copied() {
            let order = name.cmp(&side.shim.name);
            if order == Ordering::Greater {
                break;
            }
            marks.next();
            if order == Ordering::Equal {
                return (side, Some(mark));
            }
        }
        (side, None)
    })
}
