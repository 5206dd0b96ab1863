//! Memory of the controller.
use anyhow::{Context, Result};
use shim_e2e::Lab;

pub(super) fn run(lab: &Lab) -> Result<()> {
    let leader = lab.leader()?;
    let status = leader.node.run(&["cat", &format!("/proc/{}/status", leader.pid)])?;
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    println!("| RSS of the controller, 4 nodes | {} |", rss.trim());
    Ok(())
}
