//! One entry for people: `cargo xtask demo|test|cluster|sim|bench|dist|generate`. A thin program over ordinary tools.
mod bench;
mod cluster;
mod demo;
mod dist;
mod generate;
mod sim;
mod suites;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use shim_e2e::Reporter;

/// Builds, tests and shows kubectl-shim
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Show the main job: a Wasm pod on every node of a cluster, a demo cluster if none is given
    Demo(demo::Options),
    /// Run the tests: all of them, or some
    Test {
        /// What to test; nothing means all
        #[arg(value_enum)]
        what: Vec<suites::Suite>,
    },
    /// The test cluster
    #[command(subcommand)]
    Cluster(cluster::Task),
    /// Run the planner's simulator
    Sim(sim::Options),
    /// Measure what docs/benchmarks.md says
    Bench(bench::Options),
    /// Make the release archives, the krew manifest and the image's folder under target/dist
    Dist(dist::Options),
    /// Write the generated files in deploy/
    Generate {
        /// Change nothing; fail where something would change
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    let report = Reporter::stderr();
    let result = match Cli::parse().command {
        Task::Demo(options) => demo::run(&options, &report),
        Task::Test { what } => suites::run(&what, &report),
        Task::Cluster(task) => cluster::run(&task, &report),
        Task::Sim(options) => sim::run(&options),
        Task::Bench(options) => bench::run(&options, &report),
        Task::Dist(options) => dist::run(&options, &report),
        Task::Generate { check } => generate::run(check),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn no_two_arguments_are_in_each_others_way() {
        Cli::command().debug_assert();
    }
}
