//! A Shim is applied, and rolled out to every node.
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use k8s_openapi::api::batch::v1::Job;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
};
use serde_json::Value;
use shim_core::names::{DEFAULT_NAMESPACE, GROUP};
use tokio::time::sleep;

use crate::{Controller, Fleet, Usage, usage::Meter};

/// How often the Shim is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A roll-out that makes no progress for this long is stuck: a pass over hundreds of nodes tells of them at its end.
const STUCK: Duration = Duration::from_secs(600);

/// How many nodes were done when.
pub type Progress = Vec<(Duration, usize)>;

/// A finished roll-out.
#[derive(Debug, Clone)]
pub struct Rollout {
    /// From the Shim's creation or change to its being Ready.
    pub time: Duration,
    /// Nodes done over time, by the Shim's status.
    pub progress: Progress,
    /// What the controller took until it had cleared its Jobs away.
    pub usage: Usage,
    /// One of its Jobs.
    pub example: Option<Job>,
}

/// Applies a Shim and waits until it is Ready everywhere, and nothing of its Jobs is left.
pub async fn roll_out(fleet: &Fleet, controller: &Controller, shim: &Value) -> Result<Rollout> {
    let meter = Meter::start(fleet, controller)?;
    let shims = Api::<DynamicObject>::all_with(fleet.client.clone(), &resource());
    let jobs: Api<Job> = Api::namespaced(fleet.client.clone(), DEFAULT_NAMESPACE);
    let name = shim["metadata"]["name"].as_str().unwrap_or_default();
    shims.patch(name, &PatchParams::apply("scale").force(), &Patch::Apply(shim)).await?;
    let start = Instant::now();
    let (mut watch, mut example) = (Watch::new(start), None);
    loop {
        if example.is_none() {
            example = jobs.list(&ListParams::default().limit(1)).await?.items.pop();
        }
        let shim = shims.get(name).await?;
        watch.saw(updated(&shim))?;
        if is_ready(&shim) {
            break;
        }
        sleep(LOOK_EVERY).await;
    }
    let time = start.elapsed();
    fleet.empty(DEFAULT_NAMESPACE).await?;
    Ok(Rollout { time, progress: watch.progress, usage: meter.read(fleet, controller)?, example })
}

/// Takes down progress, and tells when there is none any more.
pub(crate) struct Watch {
    start: Instant,
    moved: Instant,
    pub(crate) progress: Progress,
}

impl Watch {
    pub(crate) fn new(start: Instant) -> Self {
        Self { start, moved: start, progress: vec![(Duration::ZERO, 0)] }
    }

    /// That many nodes are done.
    pub(crate) fn saw(&mut self, done: usize) -> Result<()> {
        if self.progress.last().is_none_or(|last| last.1 != done) {
            self.progress.push((self.start.elapsed(), done));
            self.moved = Instant::now();
        }
        if self.moved.elapsed() > STUCK {
            bail!("{done} nodes are done, and none more for {} s", STUCK.as_secs());
        }
        Ok(())
    }
}

fn resource() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1alpha1", "Shim"))
}

/// Whether the status speaks of what was applied last.
fn is_current(shim: &DynamicObject) -> bool {
    shim.data["status"]["observedGeneration"].as_i64() == shim.metadata.generation
}

fn updated(shim: &DynamicObject) -> usize {
    let count = shim.data["status"]["nodesUpdated"].as_u64().filter(|_| is_current(shim));
    count.and_then(|count| usize::try_from(count).ok()).unwrap_or_default()
}

fn is_ready(shim: &DynamicObject) -> bool {
    let conditions = shim.data["status"]["conditions"].as_array();
    let ready = |condition: &Value| condition["type"] == "Ready" && condition["reason"] == "Ready";
    is_current(shim) && conditions.is_some_and(|conditions| conditions.iter().any(ready))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shim(observed: i64) -> DynamicObject {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "shim.dev/v1alpha1", "kind": "Shim", "metadata": {"name": "a", "generation": 2},
            "status": {"observedGeneration": observed, "nodesUpdated": 7, "conditions": [{"type": "Ready", "reason": "Ready"}]},
        }))
        .unwrap()
    }

    #[test]
    fn what_the_status_said_of_an_older_generation_does_not_count() {
        assert_eq!((is_ready(&shim(2)), updated(&shim(2))), (true, 7));
        assert_eq!((is_ready(&shim(1)), updated(&shim(1))), (false, 0));
    }

    #[test]
    fn progress_is_noted_once_for_each_step() {
        let mut watch = Watch::new(Instant::now());
        for done in [0, 3, 3, 5] {
            watch.saw(done).unwrap();
        }
        assert_eq!(watch.progress.iter().map(|point| point.1).collect::<Vec<_>>(), [0, 3, 5]);
    }
}
