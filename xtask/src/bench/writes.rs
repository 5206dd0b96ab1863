//! Writes of the controller per node.
use anyhow::Result;
use shim_cluster::audit::Access;
use shim_e2e::Lab;

use super::shim;

pub(super) fn run(lab: &Lab) -> Result<()> {
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
