//! What is to be done for Shims as wholes: finalizer, revision, RuntimeClass, status, farewell.
use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::api::node::v1::RuntimeClass;

use super::{Action, Planner};
use crate::{
    board::{Side, served},
    revision::{Fate, Record, RevisionView},
    runtime_class::{self, Owner, runtime_class_for},
    status::{self, Summary},
    world::{Life, NodeView, Phase, ShimView, Source, SpecView},
};

impl Planner<'_, '_> {
    /// Finalizers before anything else: a node must never be touched for a Shim that could vanish meanwhile.
    pub(super) fn shims(&mut self) {
        for side in self.board.sides() {
            let (Life::Active, Ok(spec)) = (side.shim.life, &side.shim.spec) else { continue };
            // In spite of a conflict: one of its name may have been here before, and left marks that have to go.
            if !side.shim.finalizer {
                self.first.push(Action::Hold(side.shim.name.clone()));
            }
            // Without a finalizer it may be gone already, and nobody would delete its RuntimeClass.
            if !side.shim.finalizer || side.conflict.is_some() {
                continue;
            }
            self.first.extend(self.revise(side, spec));
            let wanted = runtime_class_for(&side.shim.name, &spec.handler, &spec.runtime_class);
            let found = self.board.runtime_class(&spec.runtime_class.name);
            if !found.is_some_and(|found| runtime_class::is_current(found, &wanted)) {
                self.first.push(Action::Apply(wanted));
            }
        }
    }

    /// A spec that differs from the newest revision is the next one.
    fn revise(&self, side: &Side<'_>, spec: &SpecView) -> Option<Action> {
        let newest = self.board.revisions_of(side.shim).max_by_key(|revision| revision.number);
        let generation = side.shim.generation.unwrap_or_default();
        // A view of the Shim that is older than its newest revision must not be numbered once more.
        let stale = newest.is_some_and(|newest| newest.generation > generation);
        (side.revision.is_none() && !stale).then(|| {
            Action::Revise(RevisionView {
                shim: side.shim.name.clone(),
                number: newest.map_or(0, |newest| newest.number) + 1,
                inputs: spec.inputs.clone(),
                created: self.board.world.now,
                generation,
                author: side.shim.author.clone(),
                record: None,
            })
        })
    }

    /// Jobs whose node is gone, then Shims that have nothing left on any node.
    pub(super) fn farewells(&mut self) {
        for job in &self.board.world.jobs {
            if self.board.node(&job.task.node).is_none() && matches!(job.phase, Phase::Finished(_)) {
                self.deletes.push(Action::Delete(job.reference()));
            }
        }
        for shim in self.board.world.shims.iter().filter(|shim| shim.finalizer) {
            match shim.life {
                Life::Active => {}
                Life::Orphaned => self.last.push(Action::Release(shim.name.clone())),
                Life::Deleting if self.board.is_anywhere(&shim.name) => {}
                Life::Deleting => self.farewell(shim),
            }
        }
    }

    fn farewell(&mut self, shim: &ShimView) {
        let ours = |class: &&RuntimeClass| runtime_class::owner(class) == Owner::Shim(shim.name.to_string());
        let seen = self.board.world.runtime_classes.iter().filter(ours).filter_map(|class| class.metadata.name.clone());
        // What we applied a moment ago may not be in the cache yet, and would be left behind.
        let asked_for = shim.spec.as_ref().ok().map(|spec| spec.runtime_class.name.clone());
        let unseen = asked_for.filter(|name| self.board.runtime_class(name).is_none());
        for name in seen.chain(unseen) {
            self.last.push(Action::DeleteRuntimeClass(name, shim.name.clone()));
        }
        self.last.push(Action::Release(shim.name.clone()));
    }

    pub(super) fn statuses(&mut self) {
        // A Shim that has just been released is gone: its status would be a write to nothing.
        let released: BTreeSet<_> =
            self.last.iter().filter_map(|a| if let Action::Release(n) = a { Some(n.clone()) } else { None }).collect();
        for side in self.board.sides().iter().filter(|side| side.shim.life != Life::Orphaned) {
            if released.contains(&side.shim.name) {
                continue;
            }
            let summary = status::summarize(self.board, side);
            self.history(side, &summary);
            if summary.status != side.shim.status {
                self.last.push(Action::Status(side.shim.name.clone(), summary.status));
            }
        }
    }

    /// What became of the revisions, and which are old enough to go.
    fn history(&mut self, side: &Side<'_>, summary: &Summary) {
        let (Life::Active, Some(current)) = (side.shim.life, side.revision) else { return };
        let mut old: Vec<_> =
            self.board.revisions_of(side.shim).filter(|revision| revision.number < current.number).collect();
        old.sort_by_key(|revision| std::cmp::Reverse(revision.number));
        let proven = side.fallback.as_ref().map(|fallback| fallback.revision.number);
        for (age, revision) in old.into_iter().enumerate() {
            if age >= side.shim.spec.as_ref().map_or(usize::MAX, |spec| spec.history) && Some(revision.number) != proven
            {
                self.last.push(Action::Forget(side.shim.name.clone(), revision.number));
            } else if revision.fate() == Fate::Progressing {
                self.stamp(revision, self.superseded(side, revision));
            }
        }
        let fate = next_fate(side, current, summary);
        self.last.extend(fate.map(|fate| {
            let record = record(fate, side.tally.kept, side.tally.nodes, self.board.world.now);
            Action::Stamp(side.shim.name.clone(), current.number, record)
        }));
    }

    fn stamp(&mut self, revision: &RevisionView, record: Record) {
        self.last.push(Action::Stamp(revision.shim.clone(), revision.number, record));
    }

    fn superseded(&self, side: &Side<'_>, revision: &RevisionView) -> Record {
        let source = side.shim.spec.as_ref().ok().and_then(|spec| Source::read(&revision.inputs, &spec.handler).ok());
        let has = |node: &&Arc<NodeView>| {
            let ready = served(&side.shim.name, node);
            ready.is_some_and(|ready| source.as_ref().and_then(|source| source.build(&node.arch)) == Some(&ready.build))
        };
        let updated = self.board.world.nodes.iter().filter(has).count();
        record(Fate::Superseded, updated, side.tally.nodes, self.board.world.now)
    }
}

fn record(fate: Fate, updated: usize, nodes: usize, at: Timestamp) -> Record {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Record { fate, updated: count(updated), nodes: count(nodes), at }
}

/// What becomes of the current revision now, if that is news.
fn next_fate(side: &Side<'_>, current: &RevisionView, summary: &Summary) -> Option<Fate> {
    let unproven = current.record.is_none_or(|record| record.updated == 0);
    match current.fate() {
        // It completed where there was no node; now it has proven itself.
        Fate::Complete => (unproven && summary.is_ready && side.tally.kept > 0).then_some(Fate::Complete),
        _ if summary.is_ready => Some(Fate::Complete),
        Fate::Progressing | Fate::Superseded => side.is_stopped().then_some(Fate::Failed),
        Fate::Failed => None,
    }
}
