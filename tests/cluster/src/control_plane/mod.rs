//! etcd, API server, controller manager, scheduler, the image registry, the door for people, and kwok.

mod parts;

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::command::Cmd;
use crate::kubeconfig;
use crate::paths::Paths;
use crate::plan::{API_PORT, ClusterPlan, DOOR_PORT, GATEWAY, NETNS, REGISTRY_PORT};
use crate::process::{Life, Processes, started_by};
use crate::record::Record;
use crate::text::fill;
use crate::wait::until;
pub use parts::Part;

/// How long the API server may take to answer on a busy machine.
const API_LIMIT: Duration = Duration::from_secs(120);

/// Writes what the parts read at their start.
pub(crate) fn configure(paths: &Paths, plan: &ClusterPlan) -> Result<()> {
    let inside = format!("{GATEWAY}:{API_PORT}");
    kubeconfig::write(paths, &paths.kubeconfig(), &inside, "admin")?;
    kubeconfig::write(paths, &paths.loopback_kubeconfig(), &format!("127.0.0.1:{DOOR_PORT}"), "admin")?;
    for part in ["controller-manager", "scheduler"] {
        kubeconfig::write(paths, &paths.run().join(format!("{part}.kubeconfig")), &inside, part)?;
    }
    let policy = match &plan.fake {
        Some(fake) => {
            fs::write(paths.run().join("stages.yaml"), &fake.stages)?;
            include_str!("audit-policy-fake.yaml")
        }
        None => include_str!("audit-policy.yaml"),
    };
    fs::write(paths.run().join("audit-policy.yaml"), policy)?;
    let run = paths.run().display().to_string();
    let registry =
        fill(include_str!("registry.yaml"), &[("RUN", &run), ("ADDRESS", &format!("{GATEWAY}:{REGISTRY_PORT}"))]);
    Ok(fs::write(paths.run().join("registry.yaml"), registry)?)
}

/// Starts a part; it is up some time later.
pub(crate) fn start(paths: &Paths, part: Part, plan: &ClusterPlan) -> Result<()> {
    let words = parts::command(part, paths, plan);
    let (program, args) = words.split_first().context("a part without a command")?;
    // The door stands outside and leads in; everything else lives inside.
    let cmd = if part == Part::Door { Cmd::new(program) } else { Cmd::inside(NETNS, program) };
    let pid = cmd.args(args).dir(&paths.run()).start(&paths.log(part.name()))?;
    processes().record(part.name(), pid)
}

/// Ends a part at once, as a crash would.
pub(crate) fn kill(part: Part) -> Result<()> {
    if let Some(identity) = processes().get(part.name()) {
        identity.kill()?;
    }
    processes().forget(part.name());
    Ok(())
}

/// Every door on this machine: the one part that is in no namespace of ours to be found in. Its words name no checkout.
pub(crate) fn doors() -> Vec<u32> {
    started_by(&parts::door())
}

/// Whether a part's process runs.
pub(crate) fn life(part: Part) -> Life {
    processes().get(part.name()).map_or(Life::Ended, crate::process::Identity::life)
}

/// The parts that a cluster has.
pub(crate) fn parts(plan: &ClusterPlan) -> &'static [Part] {
    if plan.fake.is_some() { &Part::FAKE } else { &Part::REAL }
}

/// Waits until the API server says that it is ready.
pub(crate) fn wait_for_api(paths: &Paths) -> Result<()> {
    let ready = until("the API server to be ready", API_LIMIT, || {
        if life(Part::ApiServer) == Life::Ended {
            anyhow::bail!("the API server ended");
        }
        Ok(kubectl(paths).words("get --raw /readyz").run().ok())
    });
    ready.map(drop).with_context(|| format!("its log: {}", paths.log(Part::ApiServer.name()).display()))
}

/// kubectl as administrator, inside the namespace.
pub(crate) fn kubectl(paths: &Paths) -> Cmd {
    let cmd = Cmd::inside(NETNS, paths.kube()).arg("kubectl").arg("--kubeconfig").arg(paths.kubeconfig());
    // Its discovery cache would else grow in the home folder of whoever runs the tests.
    cmd.arg("--cache-dir").arg(paths.run().join("kubectl-cache"))
}

fn processes() -> Processes {
    Record::well_known().processes()
}
