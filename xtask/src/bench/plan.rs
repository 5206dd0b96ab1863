//! One pass of the planner over a large cluster. A program of its own, like `scale`.
use std::process::Command;

use anyhow::{Result, ensure};
use shim_e2e::{Reporter, cargo, target_dir};

pub(super) fn run(report: &Reporter) -> Result<()> {
    report.step("building the benchmark of the planner", || {
        cargo(".", &["build", "--quiet", "--release", "--workspace", "--bin", "shim-plan"])
    })?;
    let status = Command::new(target_dir().join("release/shim-plan")).status()?;
    ensure!(status.success(), "the benchmark of the planner failed, see above");
    Ok(())
}
