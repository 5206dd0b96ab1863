//! The log, and spans to a collector.
mod http_client;
mod otlp;
mod settings;
pub(crate) mod spans;

use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::task::spawn_blocking;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::{
    EnvFilter, Layer,
    filter::{FilterExt, Targets, filter_fn},
    layer::SubscriberExt as _,
    registry::LookupSpan,
    util::SubscriberInitExt as _,
};

use crate::args::{Args, LogFormat};

/// A process that has lost its Lease must not stay for a collector that does not answer.
const FLUSH_DEADLINE: Duration = Duration::from_secs(2);

/// What has been started, and has to be ended.
pub(crate) struct Telemetry(Option<SdkTracerProvider>);

impl Telemetry {
    /// Starts the log on standard error, and the export of spans if a collector is configured.
    pub(crate) fn start(args: &Args) -> Self {
        let provider = otlp::provider(&args.identity);
        let tracer =
            provider.as_ref().ok().and_then(|provider| Some(provider.as_ref()?.tracer(env!("CARGO_PKG_NAME"))));
        let spans = tracer.map(|tracer| {
            let layer = tracing_opentelemetry::layer().with_tracer(tracer).with_location(false).with_threads(false);
            layer.with_filter(Targets::new().with_target(env!("CARGO_CRATE_NAME"), tracing::Level::INFO))
        });
        tracing_subscriber::registry().with(log(args)).with(spans).init();
        Self(provider.unwrap_or_else(|error| {
            tracing::warn!("no spans are sent: {error}");
            None
        }))
    }

    /// Sends what has not been sent yet.
    pub(crate) async fn end(self) {
        let Some(provider) = self.0 else { return };
        // The exporter needs this thread's runtime for its requests.
        let ended = spawn_blocking(move || provider.shutdown_with_timeout(FLUSH_DEADLINE)).await;
        if let Ok(Err(error)) = ended {
            tracing::warn!("the last spans were not sent: {error}");
        }
    }
}

/// Events only: without a collector nobody wants a span, and none is made.
fn log<S>(args: &Args) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    let filter = EnvFilter::try_new(&args.log).unwrap_or_else(|_| EnvFilter::new("info"));
    let format = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let layer: Box<dyn Layer<S> + Send + Sync> = match args.log_format {
        LogFormat::Text => format.with_ansi(false).boxed(),
        LogFormat::Json => format.json().flatten_event(true).boxed(),
    };
    layer.with_filter(filter.and(filter_fn(is_event)))
}

fn is_event(metadata: &Metadata<'_>) -> bool {
    metadata.is_event()
}
