//! Nothing is to be done, and the nodes report.
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::time::sleep;

use crate::{Controller, Fleet, Usage, metrics::sum, usage::Meter};

/// How often it is looked whether there is still nothing to be done.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What kubelets have written.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Heartbeats {
    /// Reports of a node's status: the controller's watch gets each.
    pub reports: f64,
    /// Renewals of nodes' leases.
    pub renewals: f64,
}

/// An idle while.
#[derive(Debug, Clone)]
pub struct Idle {
    /// What the controller took.
    pub usage: Usage,
    /// What the nodes did meanwhile.
    pub heartbeats: Heartbeats,
}

/// Watches the controller for that long; ends as soon as it writes something.
pub async fn idle(fleet: &Fleet, controller: &Controller, time: Duration) -> Result<Idle> {
    let before = heartbeats(fleet).await?;
    let meter = Meter::start(fleet, controller)?;
    let end = Instant::now() + time;
    while Instant::now() < end && meter.requests(fleet)?.writes() == 0 {
        sleep(LOOK_EVERY).await;
    }
    let usage = meter.read(fleet, controller)?;
    let after = heartbeats(fleet).await?;
    let heartbeats = Heartbeats { reports: after.reports - before.reports, renewals: after.renewals - before.renewals };
    Ok(Idle { usage, heartbeats })
}

async fn heartbeats(fleet: &Fleet) -> Result<Heartbeats> {
    let text = fleet.metrics().await?;
    let of = |labels: &[(&str, &str)]| sum(&text, "apiserver_request_total", labels);
    Ok(Heartbeats {
        reports: of(&[("resource", "nodes"), ("subresource", "status"), ("verb", "PATCH")]),
        renewals: of(&[("resource", "leases"), ("verb", "PUT")]),
    })
}
