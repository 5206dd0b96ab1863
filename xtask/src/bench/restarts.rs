//! Restarts of containerd per node.
use anyhow::Result;
use shim_e2e::Lab;

use super::shim;

pub(super) fn run(lab: &Lab) -> Result<()> {
    let mut last = lab.starts()?;
    let mut row = |what: &str| -> Result<()> {
        let now = lab.starts()?;
        let counts: Vec<_> = now.iter().map(|(node, starts)| starts - last[node]).collect();
        last = now;
        println!("| {what} | {counts:?} |");
        Ok(())
    };
    lab.apply(&format!("{}\n---\n{}", shim(lab, "bench-a", 1)?.text(), shim(lab, "bench-b", 1)?.text()))?;
    lab.wait_ready("bench-a")?;
    lab.wait_ready("bench-b")?;
    row("two Shims in one file on fresh nodes")?;
    lab.roll_out(&shim(lab, "bench-c", 1)?)?;
    row("a later Shim")?;
    lab.roll_out(&shim(lab, "bench-a", 2)?)?;
    row("an upgrade")?;
    lab.roll_out(&shim(lab, "bench-a", 2)?)?;
    row("no change")?;
    lab.remove(&["bench-a", "bench-b", "bench-c"])
}
