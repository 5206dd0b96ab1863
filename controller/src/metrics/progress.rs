//! Shims, nodes and Jobs as the last pass saw them. Taken together, so that a scrape never meets half a pass and what is
//! gone leaves no series behind.
use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet},
    metrics::MetricType,
};
use shim_core::{
    api::ShimStatus,
    world::{Phase, World},
};

/// A figure of a status, with the name and the description of its metric.
type Figure = (&'static str, &'static str, fn(&ShimStatus) -> u32);

const FIGURES: [Figure; 8] = [
    ("shim_nodes", "Nodes that a Shim selects or has touched", |status| status.nodes),
    ("shim_nodes_ready", "Nodes that serve the handler of a Shim, verified, whatever the build", |status| {
        status.nodes_ready
    }),
    ("shim_nodes_updated", "Nodes that have the current build of a Shim", |status| status.nodes_updated),
    ("shim_nodes_updating", "Nodes with a Job of a Shim under way", |status| status.nodes_updating),
    ("shim_nodes_failed", "Nodes that count as failed, also while they are tried again", |status| status.nodes_failed),
    ("shim_nodes_unavailable", "Nodes that should serve the handler of a Shim, can be served, and do not", |status| {
        status.nodes_unavailable
    }),
    ("shim_nodes_skipped", "Nodes that a Shim selects and can't be served", |status| status.nodes_skipped),
    ("shim_pods_disrupted", "Pods of others that restarts for a Shim have ended", |status| status.pods_disrupted),
];

const NO_LABELS: [(&str, &str); 0] = [];

/// The last World, in figures.
#[derive(Debug, Default)]
pub(super) struct Progress(Mutex<Option<Seen>>);

#[derive(Debug)]
struct Seen {
    shims: Vec<(String, ShimStatus)>,
    nodes: usize,
    running: usize,
    stuck: usize,
    finished: usize,
}

impl Progress {
    pub(super) fn saw(&self, world: &World) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Seen::of(world));
    }
}

impl Seen {
    fn of(world: &World) -> Self {
        let jobs = |wanted: fn(&Phase) -> bool| world.jobs.iter().filter(|job| wanted(&job.phase)).count();
        Self {
            shims: world.shims.iter().map(|shim| (shim.name.to_string(), shim.status.clone())).collect(),
            nodes: world.nodes.len(),
            running: jobs(|phase| matches!(phase, Phase::Running)),
            stuck: jobs(|phase| matches!(phase, Phase::Stuck)),
            finished: jobs(|phase| matches!(phase, Phase::Finished(_))),
        }
    }

    fn objects(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        gauges(encoder, "nodes", "Nodes of the cluster", [(NO_LABELS, self.nodes)])?;
        let phases = [("running", self.running), ("stuck", self.stuck), ("finished", self.finished)];
        let jobs = phases.map(|(phase, count)| ([("phase", phase)], count));
        gauges(encoder, "jobs", "Jobs of the controller by phase", jobs)
    }

    fn conditions(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let all = self.shims.iter().flat_map(|(name, status)| {
            let of_shim = status.conditions.iter();
            of_shim.map(move |condition| {
                let labels = [("shim", name.as_str()), ("condition", condition.type_.as_str())];
                (labels, usize::from(condition.status == "True"))
            })
        });
        gauges(encoder, "shim_condition", "1 where a condition of a Shim is True, else 0", all)
    }
}

impl Collector for Progress {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(seen) = &*seen else { return Ok(()) };
        seen.objects(&mut encoder)?;
        for (metric, help, figure) in FIGURES {
            let shims = seen.shims.iter().map(|(name, status)| ([("shim", name.as_str())], figure(status) as usize));
            gauges(&mut encoder, metric, help, shims)?;
        }
        seen.conditions(&mut encoder)
    }
}

fn gauges<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    series: impl IntoIterator<Item = (L, usize)>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    series.into_iter().try_for_each(|(labels, value)| metric.encode_family(&labels)?.encode_gauge(&value))
}
