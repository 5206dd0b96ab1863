//! How spans reach the collector.
use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use opentelemetry_http::{Bytes, HttpClient, HttpError};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs::default_provider};
use tokio::{runtime::Handle, time::timeout};

use super::settings::Settings;

/// Longest answer of a collector that is read, in bytes.
const ANSWER_LIMIT: usize = 64 << 10;

type Connections = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// The exporter has a thread of its own, where no connection lives; requests are made on the runtime of the controller.
#[derive(Debug)]
pub(super) struct OnRuntime {
    connections: Connections,
    deadline: Duration,
    runtime: Handle,
}

impl OnRuntime {
    /// Must be called on the runtime.
    pub(super) fn new(settings: &Settings) -> std::io::Result<Self> {
        let connector = connector(&settings.endpoint)?;
        let connections = Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { connections, deadline: settings.timeout, runtime: Handle::current() })
    }
}

/// The system's CA certificates are only read for an endpoint that needs them.
fn connector(endpoint: &str) -> std::io::Result<HttpsConnector<HttpConnector>> {
    let provider = default_provider();
    let builder = HttpsConnectorBuilder::new();
    let builder = if endpoint.starts_with("https:") {
        builder.with_provider_and_native_roots(provider)?
    } else {
        let config = ClientConfig::builder_with_provider(Arc::new(provider)).with_safe_default_protocol_versions();
        let config = config.map_err(std::io::Error::other)?.with_root_certificates(RootCertStore::empty());
        builder.with_tls_config(config.with_no_client_auth())
    };
    Ok(builder.https_or_http().enable_http1().build())
}

#[async_trait]
impl HttpClient for OnRuntime {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (connections, deadline) = (self.connections.clone(), self.deadline);
        self.runtime.spawn(async move { timeout(deadline, exchange(connections, request)).await? }).await?
    }
}

async fn exchange(connections: Connections, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let (head, body) = connections.request(request.map(Full::new)).await?.into_parts();
    let body = Limited::new(body, ANSWER_LIMIT).collect().await?.to_bytes();
    Ok(Response::from_parts(head, body))
}
