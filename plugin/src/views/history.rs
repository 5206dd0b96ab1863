//! The screens of `history`: all revisions, newest first, or one of them.
use jiff::Timestamp;
use serde::Serialize;
use shim_core::revision::{Fate, Inputs};

use super::{Cell, Columns, Entry, Screen, Table, age, clean, one_line, tone_of};

const FULL: [&str; 8] = ["REVISION", "VERSION", "RESULT", "NODES", "STARTED", "TOOK", "BY", "CHANGE"];
/// Where the terminal has no room for all.
const SHORT: [&str; 6] = ["REVISION", "VERSION", "RESULT", "NODES", "AGE", "CHANGE"];
/// Below that many columns.
const NARROW: usize = 110;
/// Columns before the value of a field.
const LABEL: usize = 15;

/// The table.
pub fn history(entries: &[Entry<'_>], columns: Columns, screen: &Screen) -> String {
    let is_short = columns == Columns::Narrow && screen.width.is_some_and(|width| width < NARROW);
    let mut table = Table::new(if is_short { &SHORT } else { &FULL });
    for entry in entries {
        let (revision, result) = (entry.revision, result(entry.fate));
        let mut cells = vec![
            Cell::new(revision.number.to_string()),
            Cell::new(&revision.inputs.version),
            Cell::toned(result, tone_of(result)),
            Cell::or(entry.nodes.map(|(updated, nodes)| format!("{updated}/{nodes}")), "-"),
        ];
        if is_short {
            cells.push(Cell::new(age(revision.created, screen.now)));
        } else {
            cells.push(Cell::new(moment(revision.created, "%Y-%m-%d %H:%MZ")));
            cells.push(Cell::or(took(entry), "-"));
            cells.push(Cell::or(Some(&revision.author), "<unknown>"));
        }
        cells.push(Cell::or(Some(change(entry)), "-"));
        table.row(cells);
    }
    table.render(screen)
}

/// One revision; `inputs`: what it was made of, as YAML.
pub fn revision(entry: &Entry<'_>, inputs: &str, screen: &Screen) -> String {
    let (revision, result) = (entry.revision, result(entry.fate));
    let nodes = entry.nodes.map(|(updated, nodes)| format!("{updated} of {nodes} nodes"));
    let took = took(entry).map(|took| format!("after {took}"));
    let more: Vec<_> = nodes.into_iter().chain(took).collect();
    let more = if more.is_empty() { String::new() } else { format!("  ({})", more.join(", ")) };
    let change = change(entry);
    let fields = [
        ("Shim", revision.shim.to_string()),
        ("Revision", revision.number.to_string()),
        ("Result", screen.palette.paint(tone_of(result), result) + &more),
        (
            "Started",
            format!("{}  ({} ago)", moment(revision.created, "%Y-%m-%d %H:%M:%SZ"), age(revision.created, screen.now)),
        ),
        ("By", or(one_line(&revision.author), "<unknown>")),
        ("Change", or(one_line(&change), "-")),
    ];
    let text = fields
        .iter()
        .fold(String::new(), |text, (name, value)| text + &format!("{:<LABEL$}{value}\n", format!("{name}:")));
    clean(inputs).lines().fold(text + "\nMade of:\n", |text, line| text + "  " + line + "\n")
}

fn or(text: String, missing: &str) -> String {
    if text.is_empty() { missing.to_owned() } else { text }
}

fn result(fate: Fate) -> &'static str {
    match fate {
        Fate::Progressing => "Progressing",
        Fate::Complete => "Complete",
        Fate::Failed => "Failed",
        Fate::Superseded => "Superseded",
    }
}

/// The first one changed nothing: it was the installation.
fn change(entry: &Entry<'_>) -> String {
    if entry.changes.is_empty() && entry.revision.number == 1 {
        "installed".to_owned()
    } else {
        entry.changes.join(", ")
    }
}

/// UTC: a history is read by people in several places.
fn moment(time: Timestamp, format: &str) -> String {
    time.strftime(format).to_string()
}

fn took(entry: &Entry<'_>) -> Option<String> {
    entry.ended.map(|ended| age(entry.revision.created, ended))
}

/// `ShimRevisionList` of `cli.shim.dev/v1alpha1`: fields are only ever added.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RevisionList<'e> {
    api_version: &'static str,
    kind: &'static str,
    items: Vec<Item<'e>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Item<'e> {
    revision: i64,
    version: &'e str,
    result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes_updated: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<u32>,
    started: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<String>,
    by: &'e str,
    changes: &'e [String],
    /// What it was made of: fields of a Shim's spec.
    spec: &'e Inputs,
}

/// All revisions, for programs.
pub fn revision_list<'e>(entries: &'e [Entry<'_>]) -> RevisionList<'e> {
    let item = |entry: &'e Entry<'_>| Item {
        revision: entry.revision.number,
        version: &entry.revision.inputs.version,
        result: result(entry.fate),
        nodes_updated: entry.nodes.map(|(updated, _)| updated),
        nodes: entry.nodes.map(|(_, nodes)| nodes),
        started: entry.revision.created.to_string(),
        ended: entry.ended.map(|time| time.to_string()),
        by: &entry.revision.author,
        changes: &entry.changes,
        spec: &entry.revision.inputs,
    };
    RevisionList {
        api_version: "cli.shim.dev/v1alpha1",
        kind: "ShimRevisionList",
        items: entries.iter().map(item).collect(),
    }
}
