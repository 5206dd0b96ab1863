//! What /metrics says.
use std::sync::atomic::AtomicU64;

use prometheus_client::{
    encoding::text::encode,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

type Labels = Vec<(&'static str, &'static str)>;

/// All metrics.
pub(crate) struct Metrics {
    registry: Registry,
    writes: Family<Labels, Counter>,
    passes: Histogram,
    leading: Gauge,
    last_pass: Gauge<f64, AtomicU64>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("shim_controller");
        let writes = Family::default();
        registry.register("writes", "Writes to the API server by action and result", writes.clone());
        let passes = Histogram::new(exponential_buckets(0.001, 2.0, 14));
        registry.register_with_unit(
            "pass_duration",
            "Time of a pass: observe, plan, act",
            Unit::Seconds,
            passes.clone(),
        );
        let leading = Gauge::default();
        registry.register("leading", "1 while this process holds the Lease", leading.clone());
        let last_pass = Gauge::default();
        registry.register_with_unit(
            "last_pass_timestamp",
            "When the last pass ended",
            Unit::Seconds,
            last_pass.clone(),
        );
        Self { registry, writes, passes, leading, last_pass }
    }

    pub(crate) fn wrote(&self, action: &'static str, ok: bool) {
        let result = if ok { "ok" } else { "refused" };
        self.writes.get_or_create(&vec![("action", action), ("result", result)]).inc();
    }

    pub(crate) fn passed(&self, took: std::time::Duration) {
        self.passes.observe(took.as_secs_f64());
        self.last_pass.set(jiff::Timestamp::now().as_duration().as_secs_f64());
    }

    pub(crate) fn lead(&self) {
        self.leading.set(1);
    }

    /// The text that Prometheus reads.
    pub(crate) fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
