//! The figures of scale in docs/benchmarks.md, as the rows of its tables: what `cargo xtask bench scale` runs.
mod plot;
mod tables;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use k8s_openapi::api::batch::v1::Job;
use shim_cluster::{Controllers, Reporter};
use shim_e2e::Profile;
use shim_scale::{Bare, Controller, Fleet, Idle, Memory, Rollout, bare_jobs, idle, roll_out, shim, with_fleet};

/// Bare Jobs that the pace of the controller manager is taken from.
const PACE_JOBS: usize = 300;
/// Bare Jobs before that: a controller manager that has just been started fills its caches first.
const WARM_UP: usize = 20;

/// Measures the controller among fake nodes
#[derive(Debug, Parser)]
struct Options {
    /// Number of fake nodes
    #[arg(long)]
    nodes: usize,
    /// Nodes at a time, one or more settings
    #[arg(long, value_delimiter = ',', required = true)]
    max_update: Vec<usize>,
    /// Seconds to be idle for
    #[arg(long)]
    idle: u64,
    /// Neither upgrade nor measure the controller manager alone
    #[arg(long)]
    short: bool,
    /// Leave the controller manager at its defaults: 20 requests a second
    #[arg(long)]
    default_controllers: bool,
    /// SVG file to draw the roll-outs into
    #[arg(long)]
    plot: Option<PathBuf>,
}

/// All that one run has measured.
struct Measured {
    nodes: usize,
    /// Memory once the nodes are known and nothing has been done.
    fresh: Memory,
    rounds: Vec<Round>,
    idle: Idle,
    paces: Vec<Pace>,
}

/// One setting of `maxUpdate`.
struct Round {
    at_a_time: usize,
    install: Rollout,
    bare: Bare,
    upgrade: Option<Rollout>,
}

impl Round {
    /// What the controller did, by its name.
    fn rollouts(&self) -> impl Iterator<Item = (&'static str, &Rollout)> {
        std::iter::once(("install", &self.install)).chain(self.upgrade.as_ref().map(|upgrade| ("upgrade", upgrade)))
    }
}

/// What Kubernetes' own Job controller makes of bare Jobs.
struct Pace {
    controllers: Controllers,
    at_a_time: usize,
    jobs: usize,
    bare: Bare,
}

fn main() -> ExitCode {
    match run(&Options::parse(), &Reporter::stderr()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options, report: &Reporter) -> Result<()> {
    ensure!(
        options.nodes > 0 && options.max_update.iter().all(|&count| count > 0),
        "--nodes and --max-update start at 1"
    );
    let controllers = if options.default_controllers { Controllers::Default } else { Controllers::Raised };
    let fleet = shim_scale::Options { nodes: options.nodes, profile: Profile::Release, controllers };
    let measured = with_fleet(&fleet, report, async |fleet| Box::pin(measure(fleet, options, report)).await)?;
    tables::print(&measured);
    options.plot.as_ref().map_or(Ok(()), |file| plot::draw(&measured, file))
}

async fn measure(fleet: &mut Fleet, options: &Options, report: &Reporter) -> Result<Measured> {
    let controller = fleet.controller()?;
    let fresh = controller.memory()?;
    let (mut rounds, mut example) = (Vec::new(), None);
    for &at_a_time in &options.max_update {
        let (round, job) = round(fleet, &controller, at_a_time, options, report).await?;
        rounds.push(round);
        example = Some(job);
    }
    report.say(&format!("idle for {} s", options.idle));
    let idle = idle(fleet, &controller, Duration::from_secs(options.idle)).await?;
    let example = example.context("--max-update names no setting")?;
    let paces = if options.short { Vec::new() } else { paces(fleet, &controller, &example, report).await? };
    controller.stop()?;
    Ok(Measured { nodes: fleet.size(), fresh, rounds, idle, paces })
}

/// The bare Jobs come between install and upgrade: what grows with every run burdens them too.
async fn round(
    fleet: &Fleet,
    controller: &Controller,
    at_a_time: usize,
    options: &Options,
    report: &Reporter,
) -> Result<(Round, Job)> {
    let name = format!("scale-{at_a_time}");
    let took = |what: &str, time: Duration| {
        report.say(&format!("{} nodes, {at_a_time} at a time: {what} in {:.1} s", fleet.size(), time.as_secs_f64()));
    };
    let install = roll_out(fleet, controller, &shim(&name, 1, at_a_time)).await?;
    took("install", install.time);
    let job = install.example.clone().context("no Job of the roll-out was seen")?;
    let bare = bare_jobs(fleet, controller, &job, fleet.size(), at_a_time).await?;
    took("bare Jobs", bare.time);
    took("their deletion", bare.cleared);
    let mut upgrade = None;
    if !options.short {
        let rollout = roll_out(fleet, controller, &shim(&name, 2, at_a_time)).await?;
        took("upgrade", rollout.time);
        upgrade = Some(rollout);
    }
    Ok((Round { at_a_time, install, bare, upgrade }, job))
}

/// The controller manager alone, as it comes and raised.
async fn paces(fleet: &mut Fleet, controller: &Controller, example: &Job, report: &Reporter) -> Result<Vec<Pace>> {
    let jobs = PACE_JOBS.min(fleet.size());
    let mut paces = Vec::new();
    for controllers in [Controllers::Default, Controllers::Raised] {
        report.say(&format!("{jobs} bare Jobs, controller manager: {controllers:?}"));
        fleet.cluster.set_controllers(controllers)?;
        bare_jobs(fleet, controller, example, WARM_UP.min(jobs), WARM_UP).await?;
        for at_a_time in [20, 100] {
            let bare = bare_jobs(fleet, controller, example, jobs, at_a_time).await?;
            paces.push(Pace { controllers, at_a_time, jobs, bare });
        }
    }
    Ok(paces)
}
