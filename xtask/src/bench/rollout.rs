//! Time to roll out, beside bare Jobs of the same shape.
use anyhow::Result;
use serde_json::json;
use shim_e2e::Lab;

use super::{median, shim, timed};

/// Rollouts are timed this often, by turns with what they are compared with.
const ROUNDS: usize = 5;

pub(super) fn run(lab: &Lab) -> Result<()> {
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
