//! One Shim: what it is, then its nodes, worst first.
use std::collections::BTreeMap;

use shim_core::{
    names::Build,
    status::{NodeState, nodes, pods},
    world::{Life, Share},
};

use unicode_width::UnicodeWidthStr as _;

use super::{Cell, Columns, Nodes, RowPicture, Screen, ShimPicture, Table, age, one_line, table::cut, tone_of};

const NARROW: [&str; 6] = ["NODE", "STATE", "STEP", "VERSION", "SINCE", "MESSAGE"];
const WIDE: [&str; 11] =
    ["NODE", "STATE", "STEP", "VERSION", "SINCE", "BUILD", "ATTEMPTS", "JOB", "ARCH", "RUNTIME", "MESSAGE"];
/// Columns before the value of a field.
const LABEL: usize = 15;
/// Rows that are shown without `--details=nodes`.
const ROWS: usize = 10;

/// The screen.
pub fn detail(shim: &ShimPicture, columns: Columns, which: Nodes, screen: &Screen) -> String {
    let table = match &shim.rows {
        Some(rows) if rows.is_empty() => String::new(),
        Some(rows) => table(rows, columns, which, screen),
        None if shim.status.problems.is_empty() => String::new(),
        None => problems(shim, screen),
    };
    let between = if table.is_empty() { "" } else { "\n" };
    header(shim, screen) + between + &table
}

fn header(shim: &ShimPicture, screen: &Screen) -> String {
    let handler = shim.status.handler.as_deref().unwrap_or("<none>");
    let mut fields = vec![
        ("Name", one_line(&shim.name)),
        ("State", state(shim, screen)),
        ("Version", one_line(&shim.version)),
        ("RuntimeClass", one_line(&format!("{} (handler {handler})", shim.runtime_class))),
        ("Selector", selector(&shim.selector)),
        ("Strategy", strategy(shim)),
        ("Nodes", counts(shim)),
    ];
    if shim.status.pods_disrupted > 0 {
        let ended = pods(shim.status.pods_disrupted);
        fields.push(("Disrupted", format!("a restart of containerd ended {ended} of others")));
    }
    fields.iter().fold(String::new(), |text, (name, value)| text + &format!("{:<LABEL$}{value}\n", format!("{name}:")))
}

/// The word painted, the sentence cut where the terminal ends.
fn state(shim: &ShimPicture, screen: &Screen) -> String {
    let (state, message) = (one_line(shim.state()), one_line(shim.message()));
    let revision = shim.status.revision.as_ref().map(|revision| format!("revision {}", revision.number));
    let told: Vec<_> = revision.into_iter().chain((!message.is_empty()).then_some(message)).collect();
    let word = screen.palette.paint(tone_of(&state), &state);
    let used = LABEL + state.width() + "  ()".len();
    let room = screen.width.map(|width| width.saturating_sub(used).max(LABEL));
    if told.is_empty() { word } else { format!("{word}  ({})", cut(&told.join("; "), room)) }
}

fn selector(labels: &BTreeMap<String, String>) -> String {
    if labels.is_empty() {
        return "every Linux node that runs containerd".to_owned();
    }
    let label = |(key, value): (&String, &String)| format!("{key}={value}");
    one_line(&labels.iter().map(label).collect::<Vec<_>>().join(","))
}

/// How fast, and what holds it back.
fn strategy(shim: &ShimPicture) -> String {
    let rollout = shim.rollout;
    if shim.life == Life::Deleting {
        return format!("removal, {}", pace(shim));
    }
    let canary = match rollout.canary {
        Share::Count(0) | Share::Percent(0) => String::new(),
        share => format!(", canary {share}"),
    };
    let paused = if rollout.paused { ", paused" } else { "" };
    let stops = match rollout.max_failures {
        Share::Percent(100) => "nothing stops it".to_owned(),
        share => format!("stops at {share} failed"),
    };
    one_line(&format!("{}, {}{canary}, {stops}{paused}", shim.strategy, pace(shim)))
}

fn pace(shim: &ShimPicture) -> String {
    let at_a_time = |count: usize| format!("{} at a time", nodes(count));
    match (shim.budget, shim.rollout.max_update) {
        (_, Share::Percent(100)) => "all nodes at once".to_owned(),
        (Some(budget), Share::Percent(percent)) => format!("{} ({percent}%)", at_a_time(budget)),
        (Some(budget), Share::Count(_)) => at_a_time(budget),
        (None, Share::Count(count)) => at_a_time(count as usize),
        (None, Share::Percent(percent)) => format!("{percent}% of the nodes at a time"),
    }
}

fn counts(shim: &ShimPicture) -> String {
    let status = &shim.status;
    format!(
        "{} ready, {} updated, {} updating, {} failed, {} skipped  ({} selected)",
        status.nodes_ready,
        status.nodes_updated,
        status.nodes_updating,
        status.nodes_failed,
        status.nodes_skipped,
        status.nodes
    )
}

fn table(rows: &[RowPicture], columns: Columns, which: Nodes, screen: &Screen) -> String {
    let mut table = Table::new(if columns == Columns::Wide { &WIDE } else { &NARROW });
    let shown = if which == Nodes::All { rows.len() } else { ROWS };
    for row in rows.iter().take(shown) {
        let mut cells = vec![Cell::new(row.row.node.as_str())];
        cells.extend(state_cells(row, screen));
        if columns == Columns::Wide {
            cells.extend(wide_cells(row));
        }
        cells.push(message_cell(row));
        table.row(cells);
    }
    table.render(screen) + &rest(rows.get(shown..).unwrap_or_default())
}

/// STATE, STEP, VERSION, SINCE: also of the screen of one node.
pub(super) fn state_cells(row: &RowPicture, screen: &Screen) -> [Cell; 4] {
    let state = row.row.state.to_string();
    [
        Cell::toned(&state, tone_of(&state)),
        Cell::or(row.row.step.map(|step| step.to_string()), "-"),
        Cell::or(row.version.as_ref(), "<none>"),
        Cell::or(since(row).map(|since| age(since, screen.now)), "-"),
    ]
}

/// MESSAGE; of a failure with its code.
pub(super) fn message_cell(row: &RowPicture) -> Cell {
    match row.row.state {
        NodeState::Failed | NodeState::Retrying => Cell::new(format!("{}: {}", row.row.reason, row.row.message)),
        _ => Cell::or(Some(&row.row.message), "-"),
    }
}

/// While something is due or under way, the row's time still is that of the build before.
fn since(row: &RowPicture) -> Option<jiff::Timestamp> {
    let told = match row.row.state {
        NodeState::Failed | NodeState::Retrying | NodeState::Ready => true,
        NodeState::Waiting => row.row.job.is_some(),
        NodeState::Unknown | NodeState::Removing | NodeState::Updating | NodeState::Skipped => false,
    };
    row.row.since.filter(|_| told)
}

fn wide_cells(row: &RowPicture) -> [Cell; 5] {
    [
        Cell::or(row.row.build.as_ref().map(Build::as_str), "<none>"),
        Cell::new(row.row.attempts.to_string()),
        Cell::or(row.row.job.as_ref(), "<none>"),
        Cell::or(Some(&row.arch), "<unknown>"),
        Cell::or(Some(&row.runtime), "<unknown>"),
    ]
}

fn rest(rows: &[RowPicture]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut counts: BTreeMap<NodeState, usize> = BTreeMap::new();
    for row in rows {
        *counts.entry(row.row.state).or_default() += 1;
    }
    let counts: Vec<_> =
        counts.iter().map(|(state, count)| format!("{count} {}", state.to_string().to_lowercase())).collect();
    format!("… {} more: {}. Use --details=nodes for all.\n", rows.len(), counts.join(", "))
}

/// Without the right to read Nodes: what the controller wrote.
fn problems(shim: &ShimPicture, screen: &Screen) -> String {
    let mut table = Table::new(&["NODE", "STATE", "STEP", "REASON", "MESSAGE"]);
    for problem in &shim.status.problems {
        table.row(vec![
            Cell::new(&problem.node),
            Cell::toned(&problem.state, tone_of(&problem.state)),
            Cell::or(problem.step.as_ref(), "-"),
            Cell::new(&problem.reason),
            Cell::new(&problem.message),
        ]);
    }
    table.render(screen)
}
