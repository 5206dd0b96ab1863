//! The exporter of spans.
use opentelemetry::KeyValue;
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithHttpConfig as _};
use opentelemetry_sdk::{
    Resource,
    resource::{EnvResourceDetector, TelemetryResourceDetector},
    trace::SdkTracerProvider,
};
use shim_core::manifests::CONTROLLER;

use super::{
    http_client::OnRuntime,
    settings::{Settings, SettingsError},
};

/// Why no spans are sent although somebody asked for them.
#[derive(Debug, thiserror::Error)]
pub(super) enum OtlpError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("the exporter can't be made: {0}")]
    Exporter(#[from] ExporterBuildError),
    #[error("no CA certificates to trust the collector with; set SSL_CERT_FILE: {0}")]
    Certificates(#[from] std::io::Error),
}

/// `None`: nobody asked for spans.
pub(super) fn provider(instance: &str) -> Result<Option<SdkTracerProvider>, OtlpError> {
    let Some(settings) = Settings::read(|name| std::env::var(name).ok())? else { return Ok(None) };
    let exporter = SpanExporter::builder().with_http().with_http_client(OnRuntime::new(&settings)?).build()?;
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource(instance));
    Ok(Some(provider.build()))
}

/// Who sends: as the variables say, else by the names of this program.
fn resource(instance: &str) -> Resource {
    let own = Resource::builder_empty().with_service_name(CONTROLLER).with_attributes([
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("service.instance.id", instance.to_owned()),
    ]);
    let all = own.with_detectors(&[Box::new(TelemetryResourceDetector), Box::new(EnvResourceDetector::new())]);
    match std::env::var("OTEL_SERVICE_NAME").ok().filter(|name| !name.is_empty()) {
        Some(name) => all.with_service_name(name).build(),
        None => all.build(),
    }
}
