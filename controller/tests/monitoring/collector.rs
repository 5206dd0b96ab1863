//! A collector of spans on 127.0.0.1.
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{Router, body::Bytes, extract::State, routing::post, serve::Listener};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value},
    resource::v1::Resource,
    trace::v1::Span,
};
use prost::Message as _;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::{ServerConfig, crypto::aws_lc_rs, pki_types::PrivatePkcs8KeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::cluster::serve;

type Requests = Arc<Mutex<Vec<ExportTraceServiceRequest>>>;

/// It keeps what it receives.
pub struct Collector {
    endpoint: String,
    requests: Requests,
}

impl Collector {
    /// Speaks http.
    pub fn start() -> Self {
        let requests = Requests::default();
        let address = serve(router(requests.clone()), |listener| listener);
        Self { endpoint: format!("http://{address}"), requests }
    }

    /// Speaks https; with the certificate to trust.
    pub fn start_tls() -> (Self, String) {
        let requests = Requests::default();
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
        let config = config.with_single_cert(vec![cert.der().clone()], key.into()).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let address = serve(router(requests.clone()), |listener| Tls { listener, acceptor });
        (Self { endpoint: format!("https://localhost:{}", address.port()), requests }, cert.pem())
    }

    /// Its address, for OTEL_EXPORTER_OTLP_ENDPOINT.
    pub fn endpoint(&self) -> String {
        self.endpoint.clone()
    }

    /// The spans so far.
    pub fn spans(&self) -> Vec<Span> {
        let requests = self.requests.lock().unwrap();
        let resources = requests.iter().flat_map(|request| &request.resource_spans);
        resources.flat_map(|of_resource| &of_resource.scope_spans).flat_map(|scope| scope.spans.clone()).collect()
    }

    /// Who sent them.
    pub fn resource(&self) -> Resource {
        let requests = self.requests.lock().unwrap();
        requests[0].resource_spans[0].resource.clone().unwrap()
    }
}

/// Connections under TLS.
struct Tls {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            let Ok((stream, address)) = self.listener.accept().await else { continue };
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

fn router(requests: Requests) -> Router {
    Router::new().route("/v1/traces", post(receive)).with_state(requests)
}

async fn receive(State(requests): State<Requests>, body: Bytes) {
    requests.lock().unwrap().push(ExportTraceServiceRequest::decode(body).unwrap());
}

/// An attribute, as text.
pub fn attribute(attributes: &[KeyValue], key: &str) -> Option<String> {
    let value = attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?.value.as_ref()?;
    Some(match value {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    })
}
