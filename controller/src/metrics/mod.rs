//! What /metrics says. Every metric has its row in docs/observability.md.
//!
//! | file | measures |
//! |---|---|
//! | progress | Shims, nodes and Jobs as the last pass saw them |
//! | outcomes | how operations on nodes ended |
//! | writes | writes to the API server |
//! | process | this process |
mod outcomes;
mod process;
mod progress;
mod writes;

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Instant,
};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use prometheus_client::{
    encoding::prometheus_text::encode,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
        info::Info,
    },
    registry::{Registry, Unit},
};
use shim_core::{manifests::VERSION, plan::Action, world::World};
use tracing::Instrument as _;

use self::{outcomes::Operations, process::Process, progress::Progress, writes::Writes};

type Labels<const N: usize> = [(&'static str, &'static str); N];
type Time = Gauge<f64, AtomicU64>;

/// All metrics.
pub(crate) struct Metrics {
    registry: Registry,
    progress: Arc<Progress>,
    operations: Operations,
    pub(crate) writes: Writes,
    actions: Family<Labels<2>, Counter>,
    passes: Family<Labels<1>, Counter>,
    phases: Family<Labels<1>, Histogram>,
    last_pass: Time,
    watch_errors: Family<Labels<1>, Counter>,
    leading: Gauge,
    renewals: Family<Labels<1>, Counter>,
    last_renewal: Time,
    transitions: Gauge,
}

/// What became of a pass.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pass {
    /// Every action was carried out.
    Complete,
    /// Some were not, and are decided anew.
    Incomplete,
    /// The cluster could not be observed.
    Failed,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Process));
        let mut metrics = Self {
            registry: Registry::default(),
            progress: Arc::default(),
            operations: Operations::new(),
            writes: Writes::default(),
            actions: Family::default(),
            passes: Family::default(),
            // 1 ms to 65 s: a plan of a few nodes, and the Jobs of 1,500 nodes created one after the other.
            phases: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 17))),
            last_pass: Time::default(),
            watch_errors: Family::default(),
            leading: Gauge::default(),
            renewals: Family::default(),
            last_renewal: Time::default(),
            transitions: Gauge::default(),
        };
        metrics.register(registry.sub_registry_with_prefix("shim_controller"));
        metrics.registry = registry;
        metrics
    }

    fn register(&self, to: &mut Registry) {
        let version = [("version", VERSION)];
        to.register("build", "Version of the controller", Info::new(version));
        to.register_collector(Box::new(self.progress.clone()));
        to.register("operations", "Operations on nodes that ended, as their Jobs tell", self.operations.family());
        to.register("writes", "Writes to the API server by their answer", self.writes.family());
        self.register_passes(to);
        self.register_lease(to);
    }

    fn register_passes(&self, to: &mut Registry) {
        to.register("actions", "Actions of plans by result", self.actions.clone());
        to.register("passes", "Passes by result", self.passes.clone());
        let (seconds, help) = (Unit::Seconds, "Time of a pass by phase");
        to.register_with_unit("pass_duration", help, seconds.clone(), self.phases.clone());
        let help = "When a pass last saw the cluster and carried out what it could";
        to.register_with_unit("last_pass_timestamp", help, seconds, self.last_pass.clone());
        to.register("watch_errors", "Watches broken off and taken up again", self.watch_errors.clone());
    }

    fn register_lease(&self, to: &mut Registry) {
        to.register("leading", "1 while this process holds the Lease", self.leading.clone());
        to.register("lease_renewals", "Requests for the Lease, or to keep it, by result", self.renewals.clone());
        let help = "When the Lease was last taken or renewed";
        to.register_with_unit("lease_last_renewal_timestamp", help, Unit::Seconds, self.last_renewal.clone());
        to.register("lease_transitions", "How often the Lease has changed hands, as it says", self.transitions.clone());
    }

    /// What a pass has observed.
    pub(crate) fn saw(&self, world: &World) {
        self.progress.saw(world);
    }

    /// Runs a phase of a pass, and takes its time.
    pub(crate) async fn phase<T>(&self, phase: &'static str, work: impl Future<Output = T>) -> T {
        let started = Instant::now();
        let result = work.instrument(tracing::info_span!("phase", otel.name = phase)).await;
        self.phases.get_or_create(&[("phase", phase)]).observe(started.elapsed().as_secs_f64());
        result
    }

    /// A pass ended.
    pub(crate) fn passed(&self, pass: Pass) {
        let result = match pass {
            Pass::Complete => "complete",
            Pass::Incomplete => "incomplete",
            Pass::Failed => "failed",
        };
        self.passes.get_or_create(&[("result", result)]).inc();
        if !matches!(pass, Pass::Failed) {
            self.last_pass.set(now());
        }
    }

    /// An action was carried out, or was not.
    pub(crate) fn acted<E>(&self, name: &'static str, world: &World, action: &Action, result: &Result<(), E>) {
        let done = if result.is_ok() { "done" } else { "refused" };
        self.actions.get_or_create(&[("action", name), ("result", done)]).inc();
        if result.is_ok() {
            self.operations.count(world, action);
        }
    }

    /// Counts the errors of the watch for a kind of objects.
    pub(crate) fn watch_errors(&self, kind: &'static str) -> Counter {
        self.watch_errors.get_or_create(&[("kind", kind)]).clone()
    }

    /// This process holds the Lease now.
    pub(crate) fn lead(&self) {
        self.leading.set(1);
    }

    /// The Lease was asked for, or a renewal of it.
    pub(crate) fn renewed<E>(&self, result: &Result<Lease, E>) {
        let ok = if result.is_ok() { "ok" } else { "failed" };
        self.renewals.get_or_create(&[("result", ok)]).inc();
        let Ok(lease) = result else { return };
        self.last_renewal.set(now());
        let transitions = lease.spec.as_ref().and_then(|spec| spec.lease_transitions);
        self.transitions.set(transitions.unwrap_or_default().into());
    }

    /// The text that Prometheus reads.
    pub(crate) fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

fn now() -> f64 {
    Timestamp::now().as_duration().as_secs_f64()
}
