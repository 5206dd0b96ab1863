//! What the controller takes between two moments.
use std::time::{Duration, Instant};

use anyhow::Result;
use shim_cluster::audit::Offset;

use crate::{Controller, Fleet, Memory, Passes, Requests, Traffic, controller::ACCOUNT};

/// The account of the Job controller of Kubernetes.
const JOB_CONTROLLER: &str = ":kube-system:job-controller";

/// A moment.
pub(crate) struct Meter {
    at: Instant,
    audit: Offset,
    cpu: Duration,
    traffic: Traffic,
    passes: Passes,
}

/// What was taken since.
#[derive(Debug, Clone)]
pub struct Usage {
    /// Wall time.
    pub time: Duration,
    /// Memory at the end.
    pub memory: Memory,
    /// Processor time of the controller.
    pub cpu: Duration,
    /// Bytes of the controller.
    pub traffic: Traffic,
    /// Passes of the controller.
    pub passes: Passes,
    /// Requests of the controller.
    pub requests: Requests,
    /// Requests of the Job controller of Kubernetes.
    pub job_controller: Requests,
}

impl Meter {
    pub(crate) fn start(fleet: &Fleet, controller: &Controller) -> Result<Self> {
        Ok(Self {
            at: Instant::now(),
            audit: fleet.cluster.audit().end()?,
            cpu: controller.cpu()?,
            traffic: controller.traffic()?,
            passes: controller.passes()?,
        })
    }

    /// The controller's requests so far; this costs the controller nothing.
    pub(crate) fn requests(&self, fleet: &Fleet) -> Result<Requests> {
        Ok(Requests::of(&fleet.cluster.audit().since(self.audit)?.0, ACCOUNT))
    }

    pub(crate) fn read(&self, fleet: &Fleet, controller: &Controller) -> Result<Usage> {
        let (cpu, traffic, passes) = (controller.cpu()?, controller.traffic()?, controller.passes()?);
        let (events, _) = fleet.cluster.audit().since(self.audit)?;
        Ok(Usage {
            time: self.at.elapsed(),
            memory: controller.memory()?,
            cpu: cpu.saturating_sub(self.cpu),
            traffic: Traffic {
                received: traffic.received - self.traffic.received,
                sent: traffic.sent - self.traffic.sent,
            },
            passes: passes.since(&self.passes),
            requests: Requests::of(&events, ACCOUNT),
            job_controller: Requests::of(&events, JOB_CONTROLLER),
        })
    }
}

impl Usage {
    /// The share of one processor core that the controller kept busy.
    pub fn core(&self) -> f64 {
        self.cpu.as_secs_f64() / self.time.as_secs_f64()
    }
}
