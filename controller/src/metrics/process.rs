//! This process, by the names that all clients of Prometheus use.
use std::fmt;

use procfs::{
    ProcResult, boot_time_secs, page_size,
    process::{LimitValue, Process as Proc},
    ticks_per_second,
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Unit,
};

/// Reads /proc/self at each scrape.
#[derive(Debug)]
pub(super) struct Process;

#[expect(clippy::cast_precision_loss, reason = "Prometheus has no other numbers")]
impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        // Without /proc nothing is said, rather than something wrong.
        let Ok(usage) = Usage::read() else { return Ok(()) };
        let mut gauge = |name: &str, help: &str, unit: Option<&Unit>, value: f64| {
            let metric = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
            ConstGauge::new(value).encode(metric)
        };
        let (bytes, seconds) = (Some(&Unit::Bytes), Some(&Unit::Seconds));
        gauge("process_resident_memory", "Resident memory.", bytes, usage.resident as f64)?;
        gauge("process_virtual_memory", "Virtual memory.", bytes, usage.virtual_memory as f64)?;
        gauge("process_start_time", "When the process started, since the epoch.", seconds, usage.started)?;
        gauge("process_open_fds", "Open file descriptors.", None, usage.open_fds as f64)?;
        gauge("process_max_fds", "Most file descriptors that may be open.", None, usage.max_fds)?;
        let cpu: MetricEncoder<'_> =
            encoder.encode_descriptor("process_cpu", "CPU time, user and system.", seconds, MetricType::Counter)?;
        ConstCounter::new(usage.cpu).encode(cpu)
    }
}

struct Usage {
    /// Bytes.
    resident: u64,
    /// Bytes.
    virtual_memory: u64,
    /// Seconds.
    cpu: f64,
    /// Seconds since the epoch.
    started: f64,
    open_fds: usize,
    max_fds: f64,
}

impl Usage {
    #[expect(clippy::cast_precision_loss, reason = "Prometheus has no other numbers")]
    fn read() -> ProcResult<Self> {
        let process = Proc::myself()?;
        let stat = process.stat()?;
        let seconds = |ticks: u64| ticks as f64 / ticks_per_second() as f64;
        Ok(Self {
            resident: stat.rss * page_size(),
            virtual_memory: stat.vsize,
            cpu: seconds(stat.utime + stat.stime),
            started: boot_time_secs()? as f64 + seconds(stat.starttime),
            open_fds: process.fd_count()?,
            max_fds: match process.limits()?.max_open_files.soft_limit {
                LimitValue::Value(limit) => limit as f64,
                LimitValue::Unlimited => f64::INFINITY,
            },
        })
    }
}
