//! Install, upgrade under a running pod, uninstall.
use std::time::Duration;

use anyhow::{Result, ensure};
use shim_e2e::{Packing, ShimManifest};

use crate::support::{ROLLOUT, session, tick};

#[test]
fn a_user_installs_upgrades_and_uninstalls_with_the_plugin_and_no_pod_is_disturbed() -> Result<()> {
    let session = session();
    let artifacts = session.artifacts()?;
    let (one, two) = (artifacts.build(1, Packing::TarGz)?, artifacts.build(2, Packing::TarZst)?);

    let source = |version: &'static str, artifact: &shim_e2e::Artifact| {
        ["--version", version, "--url", &artifact.url, "--sha256", &artifact.sha256].map(str::to_owned).to_vec()
    };
    let run = |verb: &[&str], source: &[String]| {
        let args: Vec<_> = verb
            .iter()
            .copied()
            .chain(source.iter().map(String::as_str))
            .chain(["--wait", "--timeout", "120s"])
            .collect();
        session.shim_ok(&args)
    };
    let answer = run(&["install", "wasmi", "--max-update", "100%"], &source("v1", &one))?;
    ensure!(answer.stdout.contains("shim.shim.dev/wasmi created"), "{answer:?}");
    session.hello_everywhere("wasmi")?;
    session.tick_everywhere("wasmi")?;

    let nodes = session.cluster.nodes();
    let pids = || nodes.iter().map(shim_cluster::Node::containerd_pid).collect::<Result<Vec<_>>>();
    let before = pids()?;
    let answer = run(&["upgrade", "wasmi"], &source("v2", &two))?;
    ensure!(answer.stdout.contains("shim.shim.dev/wasmi configured"), "{answer:?}");
    ensure!(pids()? == before, "containerd was restarted by an upgrade");
    for node in &nodes {
        let pod = session.wait_for_pod(&tick(node), "Running")?;
        ensure!(pod["status"]["containerStatuses"][0]["restartCount"] == 0, "{} was restarted", tick(node));
    }
    session.hello_everywhere("wasmi")?;
    new_pods_run_the_new_build(&session)?;

    session.cluster.kubectl(&["delete", "pods", "-l", "app=wasm"])?;
    session.shim_ok(&["uninstall", "wasmi", "--yes", "--wait", "--timeout", "120s"])?;
    session.compare()
}

/// Every node's `current` leads to the build that new sandboxes run; the old pods keep their own.
fn new_pods_run_the_new_build(session: &crate::support::Session) -> Result<()> {
    for node in session.cluster.nodes() {
        let current = node.run(&["readlink", "/opt/shim/wasmi/current"])?;
        let programs =
            || node.run(&["sh", "-c", "ls -l /proc/[0-9]*/exe 2>/dev/null | grep -o '/opt/shim/.*' | sort -u"]);
        let old = programs()?;
        ensure!(!old.contains(current.trim()), "{}: the old pod runs the new build: {old}", node.name());
        let name = format!("new-{}", node.name());
        session.apply(&shim_e2e::wasm_pod(&name, node.name(), "wasmi", &session.wasm_image, "/tick.wat"))?;
        session.wait_for_pod(&name, "Running")?;
        let both = programs()?;
        ensure!(
            both.contains(current.trim()) && both.lines().count() == 2,
            "{}: the new pod runs {both}, not {current}",
            node.name()
        );
    }
    Ok(())
}

#[test]
fn a_deletion_waits_for_running_pods_says_so_and_goes_on_when_they_end() -> Result<()> {
    let session = session();
    let artifact = session.artifacts()?.build(1, Packing::Raw)?;
    session.roll_out(&ShimManifest::new("wasmi", "v1", &artifact))?;
    session.tick_everywhere("wasmi")?;
    session.cluster.kubectl(&["delete", "shim", "wasmi", "--wait=false"])?;
    session.status_says("wasmi", &["InUse", "1 pod"], ROLLOUT)?;
    for node in session.cluster.nodes() {
        let pod = session.wait_for_pod(&tick(&node), "Running")?;
        ensure!(pod["status"]["containerStatuses"][0]["restartCount"] == 0, "{} was touched", tick(&node));
        ensure!(
            session.label(node.name(), "wasmi")?.as_deref() == Some("removing"),
            "new pods may still come to {}",
            node.name()
        );
    }
    session.cluster.kubectl(&["delete", "pods", "-l", "app=wasm"])?;
    session.wait("the Shim to be gone", ROLLOUT, || Ok(session.get("shim", "wasmi")?.is_none().then_some(())))?;
    session.compare()
}

#[test]
fn an_orphaned_shim_goes_at_once_and_its_nodes_keep_what_they_have() -> Result<()> {
    let session = session();
    let artifact = session.artifacts()?.build(1, Packing::TarGz)?;
    let shim = ShimManifest::new("wasmi", "v1", &artifact);
    session.roll_out(&shim)?;
    session.shim_ok(&["uninstall", "wasmi", "--orphan", "--yes"])?;
    session.wait("the Shim to be gone", Duration::from_secs(10), || {
        Ok(session.get("shim", "wasmi")?.is_none().then_some(()))
    })?;
    session.hello_everywhere("wasmi")?;
    // Who wants it back applies it again: nothing is left that stands in the way.
    session.roll_out(&shim)?;
    session.remove_and_compare(&["wasmi"])
}
