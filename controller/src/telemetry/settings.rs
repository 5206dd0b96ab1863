//! The standard variables of OpenTelemetry that decide whether spans are sent, and where. Headers, batches and sampling
//! are read by its SDK.
use std::time::Duration;

/// What is configured, and can't be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum SettingsError {
    #[error(
        "OTEL_EXPORTER_OTLP_PROTOCOL is {0:?}, and only http/protobuf is spoken: set it so, and the endpoint to the \
         collector's HTTP port, which is 4318 by default"
    )]
    Protocol(String),
    #[error("OTEL_TRACES_EXPORTER is {0:?}, and there is only otlp: set it so, or to none")]
    Exporter(String),
}

/// The address and the deadline of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) endpoint: String,
    pub(super) timeout: Duration,
}

impl Settings {
    /// `variable` reads the environment. `None`: nobody asked for spans.
    pub(super) fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, SettingsError> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let otlp = |name: &str| {
            set(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}")).or_else(|| set(&format!("OTEL_EXPORTER_OTLP_{name}")))
        };
        let disabled = set("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let exporter = set("OTEL_TRACES_EXPORTER").unwrap_or_else(|| "otlp".to_owned());
        let Some(endpoint) = otlp("ENDPOINT").filter(|_| !disabled && exporter != "none") else { return Ok(None) };
        if exporter != "otlp" {
            return Err(SettingsError::Exporter(exporter));
        }
        if let Some(other) = otlp("PROTOCOL").filter(|protocol| protocol != "http/protobuf") {
            return Err(SettingsError::Protocol(other));
        }
        let milliseconds = otlp("TIMEOUT").and_then(|text| text.parse().ok()).unwrap_or(10_000);
        Ok(Some(Self { endpoint, timeout: Duration::from_millis(milliseconds) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(set: &[(&str, &str)]) -> Result<Option<Settings>, SettingsError> {
        Settings::read(|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    fn endpoint(set: &[(&str, &str)]) -> Option<String> {
        read(set).unwrap().map(|settings| settings.endpoint)
    }

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");

    #[test]
    fn without_an_endpoint_nothing_is_sent() {
        assert_eq!(endpoint(&[]), None);
        assert_eq!(endpoint(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]), None);
        assert_eq!(endpoint(&[ENDPOINT, ("OTEL_SDK_DISABLED", "TRUE")]), None);
        assert_eq!(endpoint(&[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none")]), None);
    }

    #[test]
    fn the_variable_for_traces_wins() {
        let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://other/v1/traces");
        assert_eq!(endpoint(&[ENDPOINT, traces]).unwrap(), "http://other/v1/traces");
    }

    #[test]
    fn the_deadline_is_in_milliseconds() {
        let timeout = |set: &[_]| read(set).unwrap().unwrap().timeout;
        assert_eq!(timeout(&[ENDPOINT]), Duration::from_secs(10));
        assert_eq!(timeout(&[ENDPOINT, ("OTEL_EXPORTER_OTLP_TIMEOUT", "250")]), Duration::from_millis(250));
    }

    #[test]
    fn what_is_not_spoken_is_refused_with_what_to_do() {
        let error = read(&[ENDPOINT, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]).unwrap_err();
        assert!(error.to_string().contains("4318"), "{error}");
        let error = read(&[ENDPOINT, ("OTEL_TRACES_EXPORTER", "zipkin")]).unwrap_err();
        assert_eq!(error, SettingsError::Exporter("zipkin".to_owned()));
    }
}
