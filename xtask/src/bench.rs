//! `cargo xtask bench`: the figures of docs/benchmarks.md.
use anyhow::Result;
use clap::ValueEnum;
use shim_e2e::Reporter;

/// A measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Bench {
    /// Restarts of containerd per node
    Restarts,
}

pub(crate) fn run(_what: &[Bench], _report: &Reporter) -> Result<()> {
    anyhow::bail!("todo")
}
