//! What is known before something is sent: which nodes are meant, and what stands in the way. The controller's own
//! code answers, with the Shim as it would be; pure.
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use shim_core::{
    api::Shim,
    board::{Board, Pair, Side, Skip, Stand},
    status::nodes,
    world::{Objects, World},
};

use crate::{
    exit::Failure,
    views::{Facts, Snapshot},
};

/// What a Shim would meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preflight {
    selector: String,
    platforms: BTreeMap<String, usize>,
    skipped: BTreeMap<String, usize>,
    without_artifact: BTreeMap<String, Vec<String>>,
    /// Nodes that would be served.
    pub served: usize,
    /// Nodes at a time.
    pub budget: usize,
    conflict: Option<String>,
}

/// One answer for each candidate; `None`: the nodes may not be read.
pub fn preflight(snapshot: &Snapshot, candidates: &[Shim]) -> Option<Vec<Preflight>> {
    let Facts::All { revisions, nodes, jobs, pods, runtime_classes } = &snapshot.facts else { return None };
    let replaced = |shim: &&Shim| candidates.iter().any(|candidate| candidate.name_any() == shim.name_any());
    let others = snapshot.shims.iter().filter(|shim| !replaced(shim)).cloned();
    let new = candidates.iter().cloned().map(|mut shim| {
        // Without a time it would count as older than all others, which keeps a contested name.
        shim.metadata.creation_timestamp.get_or_insert(Time(snapshot.now));
        shim
    });
    let shims: Vec<_> = others.chain(new).collect();
    let refusals = BTreeMap::new();
    let objects = Objects { shims: &shims, revisions, nodes, jobs, pods, refusals: &refusals, runtime_classes };
    let world = World::read(snapshot.now, &objects);
    let board = Board::new(&world);
    let views = candidates.iter().map(|candidate| {
        let side = board.sides().iter().find(|side| side.shim.name.as_str() == candidate.name_any());
        side.map(|side| Preflight::of(&board, side))
    });
    views.collect()
}

impl Preflight {
    fn of(board: &Board<'_>, side: &Side<'_>) -> Self {
        let shim = side.shim;
        let selector = shim.spec.as_ref().map(|spec| spec.selector.clone()).unwrap_or_default();
        let labels: Vec<_> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let conflict = side.conflict.as_ref().map(|conflict| conflict.0.clone());
        let mut found = Self {
            selector: labels.join(","),
            platforms: BTreeMap::new(),
            skipped: BTreeMap::new(),
            without_artifact: BTreeMap::new(),
            served: 0,
            budget: side.budget(),
            conflict: shim.spec.as_ref().err().cloned().or(conflict),
        };
        for Pair { node, stand, .. } in board.pairs(&shim.name) {
            match stand {
                Stand::Apart | Stand::Leaving => continue,
                Stand::Kept(_) | Stand::Stale(_) | Stand::Wanted(_) | Stand::Held => found.served += 1,
                Stand::Skipped(Skip::NoArtifact(arch)) => {
                    found.without_artifact.entry(arch.to_owned()).or_default().push(node.name.to_string());
                }
                Stand::Skipped(skip) => *found.skipped.entry(skip.message()).or_default() += 1,
            }
            *found.platforms.entry(format!("{}/{}", node.os, node.arch)).or_default() += 1;
        }
        found
    }

    /// What makes sending it pointless.
    pub fn obstacle(&self) -> Result<(), Failure> {
        if let Some(conflict) = &self.conflict {
            return Err(Failure::error(conflict));
        }
        let Some((arch, names)) = self.without_artifact.first_key_value() else { return Ok(()) };
        let some = names.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
        let more = if names.len() > 3 { ", …" } else { "" };
        Err(Failure::error(format!(
            "there is no artifact for linux/{arch}, which {} {} ({some}{more}); \
            add --platform linux/{arch}=URL,sha256=HEX, or leave them out with --node-selector",
            nodes(names.len()),
            if names.len() == 1 { "needs" } else { "need" },
        )))
    }

    /// Facts for people, one per line.
    pub fn facts(&self) -> Vec<String> {
        let total: usize = self.platforms.values().sum();
        let which = if self.selector.is_empty() { "selected".to_owned() } else { format!("with {}", self.selector) };
        let platforms: Vec<_> = self.platforms.iter().map(|(platform, count)| format!("{count} {platform}")).collect();
        let first = (total > 0).then(|| format!("{} {which}: {}", nodes(total), platforms.join(", ")));
        let skipped = self.skipped.iter().map(|(why, count)| format!("{} can't be served: {why}", nodes(*count)));
        first.into_iter().chain(skipped).collect()
    }

    /// What may be a mistake.
    pub fn warning(&self) -> Option<String> {
        let which = if self.selector.is_empty() { String::new() } else { format!(" with {}", self.selector) };
        self.platforms.is_empty().then(|| format!("there is no node{which} now; nothing happens until one comes"))
    }
}
