//! `cargo xtask bench`: the figures of docs/benchmarks.md, as the rows of its tables. One file for each measurement.
mod cli;
mod memory;
mod plan;
mod restarts;
mod rollout;
mod scale;
mod writes;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use shim_e2e::{Lab, Packing, Profile, Reporter, ShimManifest};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// What to measure; nothing means all
    #[arg(value_enum)]
    what: Vec<Bench>,
    #[command(flatten)]
    scale: scale::Setting,
}

/// A measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Bench {
    /// Restarts of containerd per node
    Restarts,
    /// Time to roll out, beside bare Jobs of the same shape
    Rollout,
    /// Writes of the controller per node
    Writes,
    /// Memory of the controller
    Memory,
    /// Start-up of the plugin, beside kubectl
    Cli,
    /// One pass of the planner over a large cluster
    Plan,
    /// The controller among thousands of fake nodes; takes down the test cluster
    Scale,
}

const ALL: [Bench; 7] =
    [Bench::Restarts, Bench::Rollout, Bench::Writes, Bench::Memory, Bench::Cli, Bench::Plan, Bench::Scale];

pub(crate) fn run(options: &Options, report: &Reporter) -> Result<()> {
    let what = if options.what.is_empty() { &ALL[..] } else { &options.what };
    let on_the_lab: Vec<_> = what.iter().filter(|bench| !matches!(bench, Bench::Plan | Bench::Scale)).collect();
    if !on_the_lab.is_empty() {
        let lab = Lab::start(Profile::Release, report)?;
        lab.init()?;
        on_the_lab.iter().try_for_each(|bench| bench.on(&lab).with_context(|| format!("{bench:?}")))?;
    }
    if what.contains(&Bench::Plan) {
        plan::run(report)?;
    }
    if what.contains(&Bench::Scale) { scale::run(&options.scale, report) } else { Ok(()) }
}

impl Bench {
    fn on(self, lab: &Lab) -> Result<()> {
        match self {
            Self::Restarts => restarts::run(lab),
            Self::Rollout => rollout::run(lab),
            Self::Writes => writes::run(lab),
            Self::Memory => memory::run(lab),
            Self::Cli => cli::run(lab),
            // They need none, or one of their own.
            Self::Plan | Self::Scale => Ok(()),
        }
    }
}

fn shim(lab: &Lab, name: &str, number: usize) -> Result<ShimManifest> {
    Ok(ShimManifest::new(name, &format!("v{number}"), &lab.artifacts()?.build(number, Packing::TarGz)?))
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
