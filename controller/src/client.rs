//! How the controller talks to the API server.
use anyhow::Context;
use http::{Method, Request, Uri};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder},
};
use shim_core::limits::WRITE_DEADLINE;
use tower::util::MapRequestLayer;

use crate::metrics::Metrics;

/// A client that never repeats a write by itself, and tells the API server to give up on one in time: a write that
/// lands after the Lease is lost would be the write of a second leader.
pub(crate) async fn connect(metrics: &Metrics) -> anyhow::Result<Client> {
    // Two providers could be linked; the choice must not depend on which.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut config = Config::infer().await.context("no cluster to talk to: run in a Pod, or set KUBECONFIG")?;
    config.default_retry = false;
    config.headers.push((
        http::header::USER_AGENT,
        http::HeaderValue::from_static(concat!("shim-controller/v", env!("CARGO_PKG_VERSION"))),
    ));
    let builder = ClientBuilder::try_from(config).context("the cluster's configuration can't be used")?;
    Ok(builder.with_layer(&MapRequestLayer::new(limit_writes)).with_layer(&metrics.writes).build())
}

fn limit_writes(mut request: Request<Body>) -> Request<Body> {
    if !matches!(*request.method(), Method::GET | Method::HEAD)
        && let Ok(uri) = with_timeout(request.uri())
    {
        *request.uri_mut() = uri;
    }
    request
}

fn with_timeout(uri: &Uri) -> Result<Uri, http::Error> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let joint = if path.contains('?') { '&' } else { '?' };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(format!("{path}{joint}timeout={}s", WRITE_DEADLINE.as_secs()).parse()?);
    Ok(Uri::from_parts(parts)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_carries_its_deadline_to_the_server_and_a_read_does_not() {
        let uri = |method: Method, uri: &str| {
            let request = Request::builder().method(method).uri(uri).body(Body::empty()).unwrap();
            limit_writes(request).uri().to_string()
        };
        assert_eq!(uri(Method::PATCH, "/api/v1/nodes/n?fieldManager=x"), "/api/v1/nodes/n?fieldManager=x&timeout=5s");
        assert_eq!(uri(Method::POST, "/apis/batch/v1/jobs"), "/apis/batch/v1/jobs?timeout=5s");
        assert_eq!(uri(Method::GET, "/api/v1/nodes?watch=true"), "/api/v1/nodes?watch=true");
    }
}
