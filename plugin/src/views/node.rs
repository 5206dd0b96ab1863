//! One node: what it is, every Shim on it, and what the last failure said.
use shim_core::world::NodeView;

use super::{
    Cell, Picture, RowPicture, Screen, ShimPicture, Table, clean,
    detail::{message_cell, state_cells},
    one_line,
};

/// The screen; `None`: there is no such node. `shims`: those that may be shown.
pub fn node(picture: &Picture, shims: &[&ShimPicture], name: &str, screen: &Screen) -> Option<String> {
    let node = picture.nodes.iter().find(|node| node.name.as_str() == name)?;
    let rows: Vec<_> = shims.iter().filter_map(|shim| Some((*shim, row(shim, name)?))).collect();
    let text = header(node) + "\n";
    if rows.is_empty() {
        return Some(text + "No shim selects this node or has touched it.\n");
    }
    let mut table = Table::new(&["SHIM", "STATE", "STEP", "VERSION", "SINCE", "MESSAGE"]);
    for (shim, row) in &rows {
        let mut cells = vec![Cell::new(&shim.name)];
        cells.extend(state_cells(row, screen));
        cells.push(message_cell(row));
        table.row(cells);
    }
    let text = text + &table.render(screen);
    Some(rows.iter().fold(text, |text, (shim, row)| text + &log(shim, row)))
}

/// The row of a Shim on a node.
fn row<'p>(shim: &'p ShimPicture, node: &str) -> Option<&'p RowPicture> {
    shim.rows.iter().flatten().find(|row| row.row.node.as_str() == node)
}

fn header(node: &NodeView) -> String {
    let kubelet = match (node.ready, node.cordoned) {
        (true, false) => "Ready",
        (true, true) => "Ready, cordoned",
        (false, false) => "not Ready",
        (false, true) => "not Ready, cordoned",
    };
    let handlers: Vec<_> = node.handlers.iter().filter(|name| !name.is_empty()).map(AsRef::as_ref).collect();
    let handlers = if handlers.is_empty() { "<unknown>".to_owned() } else { handlers.join(", ") };
    let fields = [
        ("Node", node.name.to_string()),
        ("Kubelet", kubelet.to_owned()),
        ("Platform", format!("{}/{}", node.os, node.arch)),
        ("Runtime", node.runtime.to_string()),
        ("Handlers", handlers),
    ];
    fields
        .iter()
        .fold(String::new(), |text, (name, value)| text + &format!("{:<15}{}\n", format!("{name}:"), one_line(value)))
}

fn log(shim: &ShimPicture, row: &RowPicture) -> String {
    if row.row.log.is_empty() {
        return String::new();
    }
    let job = row.row.job.as_deref().unwrap_or_default();
    let title = format!("\nLog of {} (Job {}, attempt {}):\n", shim.name, one_line(job), row.row.attempts);
    clean(&row.row.log).lines().fold(title, |text, line| text + "  " + line + "\n")
}
