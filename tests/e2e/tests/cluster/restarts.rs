//! How often containerd is restarted, whom that hurts, and what it costs the API server.
use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use shim_e2e::{Packing, ShimManifest};

use crate::{
    requests::Requests,
    support::{Session, session},
};

fn restarts(before: &BTreeMap<String, usize>, session: &Session) -> Result<Vec<usize>> {
    let now = session.starts()?;
    Ok(before.iter().map(|(node, starts)| now[node] - starts).collect())
}

#[test]
fn two_shims_in_one_file_cost_one_restart_a_later_one_another_and_upgrades_none() -> Result<()> {
    let session = session();
    let artifacts = session.artifacts()?;
    let (one, two) = (artifacts.build(1, Packing::TarGz)?, artifacts.build(2, Packing::TarGz)?);
    let shim = |name: &str, artifact| ShimManifest::new(name, "v1", artifact);
    let start = session.starts()?;
    session.apply(&format!("{}\n---\n{}", shim("wasmi-a", &one).text(), shim("wasmi-b", &one).text()))?;
    session.wait_ready("wasmi-a")?;
    session.wait_ready("wasmi-b")?;
    ensure!(restarts(&start, &session)? == [1; 4], "two Shims: {:?}", restarts(&start, &session)?);
    session.hello_everywhere("wasmi-a")?;
    session.hello_everywhere("wasmi-b")?;

    session.roll_out(&shim("wasmi-c", &one))?;
    ensure!(restarts(&start, &session)? == [2; 4], "a later Shim: {:?}", restarts(&start, &session)?);
    session.roll_out(&shim("wasmi-a", &two))?;
    ensure!(restarts(&start, &session)? == [2; 4], "an upgrade: {:?}", restarts(&start, &session)?);
    session.remove_and_compare(&["wasmi-a", "wasmi-b", "wasmi-c"])
}

#[test]
fn pods_of_another_shim_that_a_restart_ends_are_counted_and_the_install_holds() -> Result<()> {
    let session = session();
    let artifact = session.artifacts()?.build(1, Packing::TarGz)?;
    session.roll_out(&ShimManifest::new("wasmi-a", "v1", &artifact))?;
    session.tick_everywhere("wasmi-a")?;
    session.roll_out(&ShimManifest::new("wasmi-b", "v1", &artifact))?;
    let ended = session
        .cluster
        .nodes()
        .iter()
        .filter(|node| {
            let pod = session.get("pod", &crate::support::tick(node)).ok().flatten().unwrap_or_default();
            pod["status"]["phase"] != "Running"
        })
        .count();
    let shim = session.get("shim", "wasmi-b")?.context("no Shim")?;
    let counted = shim["status"]["podsDisrupted"].as_u64().unwrap_or_default();
    // containerd 1.6 lets Wasm pods live, most of the time; 1.7 and later never do.
    ensure!((3..=4).contains(&counted), "{counted} pods counted, {ended} ended: {}", shim["status"]);
    session.status_says("wasmi-b", &["the restart ended 1 pod of other Shims"], crate::support::ROLLOUT)?;
    session.hello_everywhere("wasmi-b")?;
    session.cluster.kubectl(&["delete", "pods", "-l", "app=wasm"])?;
    session.remove_and_compare(&["wasmi-a", "wasmi-b"])
}

#[test]
fn the_budget_holds_and_a_rollout_costs_at_most_four_writes_a_node() -> Result<()> {
    let session = session();
    let artifacts = session.artifacts()?;
    let audit = session.cluster.audit();
    let shim = |version: &str, number| {
        Ok::<_, anyhow::Error>(
            ShimManifest::new("wasmi", version, &artifacts.build(number, Packing::TarGz)?).at_a_time(2),
        )
    };
    for (version, number, most) in [("v1", 1, 4), ("v2", 2, 3)] {
        let start = audit.end()?;
        session.roll_out(&shim(version, number)?)?;
        let requests = Requests::since(&session, start)?;
        let writes = requests.writes().filter(|event| matches!(event.resource.as_str(), "nodes" | "jobs")).count();
        ensure!(writes <= 4 * most, "{version}: {writes} writes on 4 nodes");
        println!("{version}: {} writes a node", f64::from(u32::try_from(writes)?) / 4.0);
        ensure!(requests.most_jobs_at_once() == 2, "{version}: {} nodes at once", requests.most_jobs_at_once());
    }
    session.remove_and_compare(&["wasmi"])
}
