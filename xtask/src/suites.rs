//! `cargo xtask test`: every suite, one line of totals at the end.
use std::{
    env,
    ffi::OsString,
    io::{BufRead, BufReader},
    ops::Add,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use shim_cluster::{Paths, Reporter, build, down, install_packages, unpack_package};
use shim_e2e::{cargo, target_dir};

/// A part of the tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Suite {
    /// Formatting, lints, licences, generated files
    Lint,
    /// Everything that needs neither root nor a cluster
    Unit,
    /// The planner against the simulator
    Sim,
    /// The installer against real containerd binaries
    Node,
    /// The product on a real cluster
    Cluster,
    /// The plugin against the real kubectl and kubeconfigs
    Cli,
    /// Metrics, alerts and dashboard against promtool, spans against a collector
    Monitoring,
    /// The controller among fake nodes
    Scale,
}

/// What runs where none is named.
const ALL: [Suite; 8] =
    [Suite::Lint, Suite::Unit, Suite::Sim, Suite::Cli, Suite::Monitoring, Suite::Node, Suite::Cluster, Suite::Scale];

/// Counts of tests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Totals {
    passed: u32,
    failed: u32,
}

impl Add for Totals {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { passed: self.passed + other.passed, failed: self.failed + other.failed }
    }
}

pub(crate) fn run(what: &[Suite], report: &Reporter) -> Result<()> {
    let suites = if what.is_empty() { &ALL[..] } else { what };
    let mut totals = Totals::default();
    for suite in suites {
        totals = totals + report.step(&format!("tests: {suite:?}"), || suite.run(report))?;
    }
    println!("{} passed, {} failed", totals.passed, totals.failed);
    if totals.failed > 0 {
        bail!("{} tests failed", totals.failed);
    }
    Ok(())
}

impl Suite {
    fn run(self, report: &Reporter) -> Result<Totals> {
        match self {
            Self::Lint => lint(report),
            Self::Unit => {
                let tests =
                    cargo_test(&["--lib", "--bins", "--test", "api", "--test", "golden", "--test", "fetch"], &[], &[])?;
                Ok(tests + cargo_test(&["--doc"], &[], &[])?)
            }
            Self::Sim => cargo_test(&["--test", "rollout"], &["--nocapture"], &[]),
            Self::Cli => cargo_test(&["--test", "cli", "--test", "connect", "--test", "views"], &[], &[]),
            Self::Monitoring => monitoring(report),
            Self::Node => node(report),
            Self::Cluster => cluster(report),
            Self::Scale => cargo_test(&["--test", "scale"], &["--nocapture"], &[]),
        }
    }
}

/// Each tool counts as one test.
fn lint(report: &Reporter) -> Result<Totals> {
    let path = path_with_cargo_deny(report)?;
    let checks: [&[&str]; 3] = [
        &["fmt", "--all", "--check"],
        &["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"],
        // Advisories come from a database that is not everywhere to be had.
        &["deny", "--log-level", "error", "check", "licenses", "bans", "sources"],
    ];
    let mut totals = Totals::default();
    for check in checks {
        let passed = Command::new("cargo").args(check).env("PATH", &path).status()?.success();
        println!("cargo {}: {}", check.join(" "), if passed { "ok" } else { "FAILED" });
        totals.passed += u32::from(passed);
        totals.failed += u32::from(!passed);
    }
    Ok(totals)
}

/// PATH with a folder of ours in front, where cargo-deny is installed if it is nowhere else.
fn path_with_cargo_deny(report: &Reporter) -> Result<OsString> {
    let tools = target_dir().join("tools");
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths(std::iter::once(tools.join("bin")).chain(env::split_paths(&path)))?;
    let there = Command::new("cargo-deny").arg("--version").env("PATH", &path).stdout(Stdio::null()).status();
    if !there.is_ok_and(|status| status.success()) {
        let root = tools.to_string_lossy();
        report.step("installing cargo-deny", || {
            cargo(".", &["install", "--quiet", "--locked", "--root", &root, "cargo-deny"])
        })?;
    }
    Ok(path)
}

fn monitoring(report: &Reporter) -> Result<Totals> {
    let package = target_dir().join("tools/prometheus");
    unpack_package("prometheus", &package, report)?;
    let promtool = package.join("usr/bin/promtool").to_string_lossy().into_owned();
    cargo_test(&["--test", "monitoring"], &[], &[("SHIM_TEST_PROMTOOL", &promtool)])
}

fn node(report: &Reporter) -> Result<Totals> {
    install_packages(report)?;
    let paths = Paths::of_this_workspace();
    build(&paths, report)?;
    let cache = paths.cache().to_string_lossy().into_owned();
    cargo_test(&["--test", "containerd"], &[], &[("SHIM_TEST_CONTAINERD_DIR", &cache)])
}

/// The tests share one cluster, so they run one after the other; each is named when it begins.
fn cluster(report: &Reporter) -> Result<Totals> {
    let totals = cargo_test(&["--test", "cluster"], &["--test-threads=1", "--nocapture", "--format=pretty"], &[]);
    down(&Paths::of_this_workspace(), report)?;
    totals
}

/// Always of the whole workspace: cargo would build every crate anew for other sets of features.
fn cargo_test(args: &[&str], harness: &[&str], env: &[(&str, &str)]) -> Result<Totals> {
    let mut command = Command::new("cargo");
    command.args(["test", "--quiet", "--workspace", "--no-fail-fast"]).args(args).arg("--").args(harness);
    let mut child =
        command.envs(env.iter().copied()).stdout(Stdio::piped()).spawn().context("cargo can't be started")?;
    let output = child.stdout.take().context("cargo has no output")?;
    let mut totals = Totals::default();
    for line in BufReader::new(output).lines() {
        let line = line?;
        println!("{line}");
        if let Some(counts) = parse_result(&line) {
            totals = totals + counts;
        }
    }
    let status = child.wait()?;
    if !status.success() && totals.failed == 0 {
        bail!("cargo test {} ended with {status} and no failed test: it was not built, or crashed", args.join(" "));
    }
    if totals.passed + totals.failed == 0 {
        bail!("cargo test {} ran no test", args.join(" "));
    }
    Ok(totals)
}

/// `test result: ok. 12 passed; 0 failed; …`
fn parse_result(line: &str) -> Option<Totals> {
    let counts = line.strip_prefix("test result: ")?;
    let number = |word: &str| {
        let before = counts.split(&format!(" {word}")).next()?;
        before.rsplit([' ', '.']).next()?.parse().ok()
    };
    Some(Totals { passed: number("passed")?, failed: number("failed")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_the_line_of_libtest() {
        let line = "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.5s";
        assert_eq!(parse_result(line), Some(Totals { passed: 12, failed: 3 }));
        assert_eq!(parse_result("running 3 tests"), None);
    }
}
