//! All Shims, one row each.
use super::{Cell, Columns, Screen, ShimPicture, Table, age, tone_of};

const NARROW: [&str; 7] = ["NAME", "VERSION", "STATE", "READY", "UPDATED", "FAILED", "AGE"];
const WIDE: [&str; 10] =
    ["NAME", "VERSION", "STATE", "READY", "UPDATED", "FAILED", "AGE", "RUNTIMECLASS", "HANDLER", "MESSAGE"];

/// The table.
pub fn overview(shims: &[&ShimPicture], columns: Columns, screen: &Screen) -> String {
    let mut table = Table::new(if columns == Columns::Wide { &WIDE } else { &NARROW });
    for shim in shims {
        let mut cells = cells(shim, screen);
        if columns == Columns::Wide {
            cells.push(Cell::new(&shim.runtime_class));
            cells.push(Cell::or(shim.status.handler.as_ref(), "<none>"));
            cells.push(Cell::new(shim.message()));
        }
        table.row(cells);
    }
    table.render(screen)
}

fn cells(shim: &ShimPicture, screen: &Screen) -> Vec<Cell> {
    vec![
        Cell::new(&shim.name),
        Cell::new(&shim.version),
        Cell::toned(shim.state(), tone_of(shim.state())),
        Cell::new(format!("{}/{}", shim.status.nodes_ready, shim.wanted())),
        Cell::new(shim.status.nodes_updated.to_string()),
        Cell::new(shim.status.nodes_failed.to_string()),
        Cell::or(shim.created.map(|created| age(created, screen.now)), "<unknown>"),
    ]
}
