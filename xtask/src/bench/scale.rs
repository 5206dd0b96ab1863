//! The controller among thousands of fake nodes. A program of its own, built when it is asked for: it links a Kubernetes client,
//! and nothing else here does.
use std::process::Command;

use anyhow::{Result, ensure};
use clap::Args;
use shim_e2e::{Reporter, cargo, target_dir, workspace};

/// Of `scale`
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of scale")]
pub(super) struct Setting {
    /// Number of fake nodes
    #[arg(long, default_value_t = 1000)]
    nodes: usize,
    /// Nodes at a time; several, with commas between them, are measured one after the other
    #[arg(long, default_value = "100,500")]
    max_update: String,
    /// Seconds to be idle for
    #[arg(long, default_value_t = 60)]
    idle: u64,
    /// Neither upgrade nor measure the controller manager alone
    #[arg(long)]
    short: bool,
    /// Leave the controller manager at its defaults: 20 requests a second
    #[arg(long)]
    default_controllers: bool,
    /// Draw docs/scale.svg
    #[arg(long)]
    plot: bool,
}

pub(super) fn run(setting: &Setting, report: &Reporter) -> Result<()> {
    report.step("building the benchmark of scale", || {
        cargo(".", &["build", "--quiet", "--workspace", "--bin", "shim-scale"])
    })?;
    let mut command = Command::new(target_dir().join("debug/shim-scale"));
    let (nodes, idle) = (setting.nodes.to_string(), setting.idle.to_string());
    command.args(["--nodes", &nodes, "--max-update", &setting.max_update, "--idle", &idle]);
    let flags = [("--short", setting.short), ("--default-controllers", setting.default_controllers)];
    command.args(flags.iter().filter(|(_, given)| *given).map(|(flag, _)| flag));
    if setting.plot {
        command.arg("--plot").arg(workspace().join("docs/scale.svg"));
    }
    ensure!(command.status()?.success(), "the benchmark of scale failed, see above");
    Ok(())
}
