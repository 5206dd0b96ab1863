//! One line per change, for `-w` and `--wait`.
use std::collections::BTreeMap;

use shim_core::{
    status::{NodeRow, NodeState},
    world::Life,
};

use super::{RowPicture, ShimPicture, one_line};

/// What was said last, so that nothing is said twice.
#[derive(Debug, Default)]
pub struct Tracker {
    shims: BTreeMap<String, Told>,
}

#[derive(Debug, Default)]
struct Told {
    summary: String,
    nodes: BTreeMap<String, String>,
}

impl Tracker {
    /// The lines that are new.
    pub fn observe(&mut self, shims: &[&ShimPicture]) -> Vec<String> {
        let several = shims.len() > 1;
        let lines = shims.iter().flat_map(|shim| {
            let prefix = if several { format!("{} ", shim.name) } else { String::new() };
            let first = !self.shims.contains_key(&shim.name);
            let told = self.shims.entry(shim.name.clone()).or_default();
            told.observe(shim, first, &prefix)
        });
        lines.collect()
    }
}

impl Told {
    fn observe(&mut self, shim: &ShimPicture, first: bool, prefix: &str) -> Vec<String> {
        let mut lines = self.nodes_of(shim, first, prefix);
        // With rows, the change of a node says it; the summary only speaks when the whole turns to another state.
        let summary = match &shim.rows {
            Some(_) => shim.state().to_owned(),
            None => format!("{} {}", shim.state(), progress(shim)),
        };
        if self.summary != summary {
            let line = format!("{} {} {}: {}", shim.name, shim.version, shim.state(), shim.message());
            let at = if first { 0 } else { lines.len() };
            lines.insert(at, one_line(&line));
            self.summary = summary;
        }
        lines
    }

    fn nodes_of(&mut self, shim: &ShimPicture, first: bool, prefix: &str) -> Vec<String> {
        let rows = shim.rows.iter().flatten();
        let now: BTreeMap<_, _> = rows.map(|row| (row.row.node.to_string(), (key(row), row))).collect();
        let gone = self.nodes.keys().filter(|node| !now.contains_key(*node));
        let mut lines: Vec<_> = gone.map(|node| format!("{prefix}{node} Removed")).collect();
        for (node, (key, row)) in &now {
            let news = self.nodes.get(node) != Some(key) && (!first || row.row.state == NodeState::Failed);
            if news {
                lines.push(format!("{prefix}{}  {}", line(row), progress(shim)));
            }
        }
        self.nodes = now.into_iter().map(|(node, (key, _))| (node, key)).collect();
        lines
    }
}

/// What makes a row another one: a countdown in its message does not.
fn key(row: &RowPicture) -> String {
    let NodeRow { state, reason, attempts, .. } = &row.row;
    format!("{state} {reason} {attempts} {}", row.version.as_deref().unwrap_or_default())
}

fn line(row: &RowPicture) -> String {
    let NodeRow { node, state, step, reason, message, .. } = &row.row;
    let said = match state {
        NodeState::Ready => row.version.clone().unwrap_or_default(),
        NodeState::Failed | NodeState::Retrying => {
            let step = step.map(|step| format!("{step} ")).unwrap_or_default();
            format!("{step}{reason}: {message} (attempt {})", row.row.attempts)
        }
        _ => message.clone(),
    };
    one_line(&format!("{node} {state} {said}"))
}

/// `3/12`, of what the Shim is heading for.
fn progress(shim: &ShimPicture) -> String {
    match shim.life {
        Life::Active => format!("{}/{}", shim.status.nodes_updated, shim.wanted()),
        Life::Deleting | Life::Orphaned => format!("{} left", shim.status.nodes),
    }
}

/// What is said after a time without changes.
pub fn heartbeat(shims: &[&ShimPicture]) -> String {
    let busy = |shim: &ShimPicture| {
        let rows = shim.rows.iter().flatten();
        let names: Vec<_> =
            rows.filter(|row| row.row.job.is_some() && row.row.state != NodeState::Ready).map(line).take(3).collect();
        if names.is_empty() { one_line(shim.message()) } else { names.join(", ") }
    };
    let parts: Vec<_> = shims.iter().map(|shim| format!("{} {}: {}", shim.name, progress(shim), busy(shim))).collect();
    format!("still working: {}", parts.join("; "))
}
