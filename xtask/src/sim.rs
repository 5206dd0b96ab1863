//! `cargo xtask sim`: the planner's simulator with any number of seeds.
use std::process::Command;

use anyhow::{Result, bail};
use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of seeds
    #[arg(long, default_value_t = 20_000)]
    seeds: u64,
    /// First seed
    #[arg(long, default_value_t = 1)]
    first: u64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let status = Command::new("cargo")
        .args([
            "test",
            "--quiet",
            "--workspace",
            "--test",
            "rollout",
            "--",
            "--nocapture",
            "the_invariants_hold_in_every_run",
        ])
        .env("SHIM_SIM_SEEDS", options.seeds.to_string())
        .env("SHIM_SIM_FIRST", options.first.to_string())
        .status()?;
    if !status.success() {
        bail!("the simulator found something, see above");
    }
    Ok(())
}
