//! 300 fake nodes: everybody gets what is due, nobody writes more than the budget says, and whoever is idle is still.
use std::time::Duration;

use anyhow::{Result, ensure};
use shim_cluster::{Controllers, Reporter};
use shim_e2e::Profile;
use shim_scale::{Fleet, Options, Rollout, idle, roll_out, shim, with_fleet};

const NODES: u16 = 300;
/// Claim, Job, mark, the Job's deletion.
const WRITES_OF_AN_INSTALL: f64 = 4.0;
/// An upgrade needs no claim.
const WRITES_OF_AN_UPGRADE: f64 = 3.0;

fn within_budget(what: &str, rollout: &Rollout, budget: f64) -> Result<()> {
    let done = rollout.progress.last().map_or(0, |last| last.1);
    ensure!(done == usize::from(NODES), "{what}: {done} of {NODES} nodes were done when the Shim was Ready");
    let requests = &rollout.usage.requests;
    let writes = u32::try_from(requests.writes_on(&["nodes", "jobs"])).map(f64::from)? / f64::from(NODES);
    ensure!(writes <= budget, "{what}: {writes} writes for each node, {budget} are allowed: {:?}", requests.by_verb());
    Ok(())
}

async fn check(fleet: &mut Fleet) -> Result<()> {
    let controller = fleet.controller()?;
    let install = roll_out(fleet, &controller, &shim("scale", 1, 100)).await?;
    within_budget("install", &install, WRITES_OF_AN_INSTALL)?;
    let upgrade = roll_out(fleet, &controller, &shim("scale", 2, 100)).await?;
    within_budget("upgrade", &upgrade, WRITES_OF_AN_UPGRADE)?;
    let idle = idle(fleet, &controller, Duration::from_secs(20)).await?;
    let requests = &idle.usage.requests;
    ensure!(requests.writes() == 0, "the idle controller wrote: {requests:?}");
    ensure!(requests.lease_writes() > 0, "the audit log has none of the controller's requests");
    ensure!(idle.heartbeats.reports > 0.0, "no node has reported: nothing was there to be idle about");
    Ok(())
}

#[test]
fn three_hundred_nodes_cost_what_the_budget_says() -> Result<()> {
    let options = Options { nodes: NODES.into(), profile: Profile::Dev, controllers: Controllers::Raised };
    with_fleet(&options, &Reporter::stderr(), async |fleet| check(fleet).await)
}
