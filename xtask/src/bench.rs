//! `cargo xtask bench`: the figures of docs/benchmarks.md, as the rows of its tables.
use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use serde_json::json;
use shim_cluster::audit::Access;
use shim_e2e::{Lab, Packing, Paths, Profile, Reporter, ShimManifest};

/// A measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Bench {
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
}

const ALL: [Bench; 5] = [Bench::Restarts, Bench::Rollout, Bench::Writes, Bench::Memory, Bench::Cli];
/// Rollouts are timed this often, by turns with what they are compared with.
const ROUNDS: usize = 5;
/// Commands are timed this often.
const STARTS: usize = 21;

pub(crate) fn run(what: &[Bench], report: &Reporter) -> Result<()> {
    let lab = Lab::start(Profile::Release, report)?;
    lab.init()?;
    for bench in if what.is_empty() { &ALL[..] } else { what } {
        match bench {
            Bench::Restarts => restarts(&lab),
            Bench::Rollout => rollout(&lab),
            Bench::Writes => writes(&lab),
            Bench::Memory => memory(&lab),
            Bench::Cli => cli(&lab),
        }
        .with_context(|| format!("{bench:?}"))?;
    }
    Ok(())
}

fn shim(lab: &Lab, name: &str, number: usize) -> Result<ShimManifest> {
    Ok(ShimManifest::new(name, &format!("v{number}"), &lab.artifacts()?.build(number, Packing::TarGz)?))
}

fn restarts(lab: &Lab) -> Result<()> {
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

fn rollout(lab: &Lab) -> Result<()> {
    let (mut installs, mut upgrades, mut jobs) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        installs.push(timed(|| lab.roll_out(&shim(lab, "bench", 1)?))?);
        upgrades.push(timed(|| lab.roll_out(&shim(lab, "bench", 2)?))?);
        lab.remove(&["bench"])?;
        jobs.push(timed(|| bare_jobs(lab, round))?);
        lab.cluster.kubectl(&["delete", "jobs", "-l", "app=bare", "--wait=true"])?;
    }
    let bare = median(&mut jobs);
    println!("| 4 bare Jobs, created to complete | {:.1} s | 1 |", bare.as_secs_f64());
    for (what, times) in [
        ("install on 4 nodes, applied to Ready", &mut installs),
        ("upgrade on 4 nodes, applied to Ready", &mut upgrades),
    ] {
        let time = median(times);
        println!("| {what} | {:.1} s | {:.2} |", time.as_secs_f64(), time.as_secs_f64() / bare.as_secs_f64());
    }
    Ok(())
}

/// One Job for each node, with the installer's image, an init container and a privileged container, which do nothing.
fn bare_jobs(lab: &Lab, round: usize) -> Result<()> {
    let container = |name: &str, privileged: bool| json!({"name": name, "image": lab.image, "command": ["/usr/bin/shim-installer", "--version"], "securityContext": {"privileged": privileged, "runAsUser": 0}});
    let nodes = lab.cluster.nodes();
    let jobs = nodes.iter().map(|node| {
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": format!("bare-{round}-{}", node.name()), "labels": {"app": "bare"}},
            "spec": {"backoffLimit": 0, "template": {"spec": {
                "nodeName": node.name(), "restartPolicy": "Never",
                "initContainers": [container("first", false)], "containers": [container("second", true)],
            }}},
        })
        .to_string()
    });
    lab.apply(&jobs.collect::<Vec<_>>().join("\n---\n"))?;
    lab.cluster.kubectl(&["wait", "jobs", "-l", "app=bare", "--for=condition=Complete", "--timeout=60s"]).map(drop)
}

fn writes(lab: &Lab) -> Result<()> {
    let audit = lab.cluster.audit();
    for (what, number) in [("install", 1), ("upgrade", 2)] {
        let start = audit.end()?;
        lab.roll_out(&shim(lab, "bench", number)?)?;
        let (events, _) = audit.since(start)?;
        let ours =
            events.iter().filter(|event| event.user.ends_with(":shim-controller") && event.access() == Access::Write);
        let on = |resources: &[&str]| ours.clone().filter(|event| resources.contains(&event.resource.as_str())).count();
        let of_nodes = f64::from(u32::try_from(on(&["nodes", "jobs"]))?) / 4.0;
        println!("| {what} | {of_nodes} | {} |", on(&["shims", "runtimeclasses"]));
    }
    lab.remove(&["bench"])
}

fn memory(lab: &Lab) -> Result<()> {
    let leader = lab.leader()?;
    let status = leader.node.run(&["cat", &format!("/proc/{}/status", leader.pid)])?;
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    println!("| RSS of the controller, 4 nodes | {} |", rss.trim());
    Ok(())
}

fn cli(lab: &Lab) -> Result<()> {
    let kube = Paths::of_this_workspace().kube();
    let command = |program: &std::path::Path, args: &[&str]| {
        let mut command = Command::new(program);
        command
            .args(args)
            .env("KUBECONFIG", lab.cluster.loopback_kubeconfig())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    };
    let pairs: [(&str, &[&str], &[&str]); 2] = [
        ("version --client", &["version", "--client"], &["kubectl", "version", "--client"]),
        ("status, and kubectl get shims", &["status"], &["kubectl", "get", "shims"]),
    ];
    for (what, ours, theirs) in pairs {
        let (mut us, mut them) = (Vec::new(), Vec::new());
        for _ in 0..STARTS {
            us.push(timed(|| succeed(command(&lab.product.plugin, ours)))?);
            them.push(timed(|| succeed(command(&kube, theirs)))?);
        }
        let (us, them) = (median(&mut us).as_secs_f64(), median(&mut them).as_secs_f64());
        println!("| {what} | {:.0} ms | {:.0} ms | {:.2} |", us * 1e3, them * 1e3, us / them);
    }
    Ok(())
}

fn succeed(mut command: Command) -> Result<()> {
    ensure!(command.status()?.success(), "{command:?} failed");
    Ok(())
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
