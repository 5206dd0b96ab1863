//! Requests of one login, and a new login when the server no longer takes the old one.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header::AUTHORIZATION};
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::Incoming;
use jiff::Timestamp;
use kube::{
    Client,
    client::{Body, ClientBuilder, ConfigExt as _, middleware::BaseUriLayer, retry::RetryPolicy},
    config::AuthInfo,
};
use tokio::sync::Mutex;
use tower::{
    BoxError, Layer as _, Service, ServiceBuilder, ServiceExt as _,
    retry::{Policy, RetryLayer},
    util::BoxCloneSyncService,
};
use tower_http::decompression::DecompressionLayer;

use super::{
    ConnectError,
    headers::headers,
    login::{Identity, Login},
    target::Target,
    tls::client_config,
    transport::{Transport, transport},
};

const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(5);
const RETRIES: u32 = 3;

type Answer = Response<Either<Full<Bytes>, Incoming>>;

/// Logs in and gives the client. The first request opens the first connection.
pub(super) async fn open(target: Target) -> Result<Client, ConnectError> {
    let url = target.url.clone();
    let namespace = target.namespace.clone();
    let gzip = target.cluster.entry.disable_compression != Some(true);
    let session = Session::log_in(target).await?;
    let retry = RetryPolicy::new(FIRST_RETRY, LAST_RETRY, RETRIES, true);
    let retry = retry.map_err(|e| ConnectError::Refused(e.to_string()))?;
    let stack = ServiceBuilder::new()
        .layer(BaseUriLayer::new(url))
        .layer(DecompressionLayer::new().gzip(gzip))
        .layer(RetryLayer::new(ReadsOnly(retry)))
        .service(session);
    Ok(ClientBuilder::new(stack, namespace).build())
}

/// kube repeats any request the server was too busy for; here a write is never sent twice.
#[derive(Clone)]
struct ReadsOnly(RetryPolicy);

impl<B> Policy<Request<Body>, Response<B>, BoxError> for ReadsOnly {
    type Future = tokio::time::Sleep;

    fn retry(
        &mut self,
        request: &mut Request<Body>,
        result: &mut Result<Response<B>, BoxError>,
    ) -> Option<Self::Future> {
        self.0.retry(request, result)
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        copy_of_read(request)
    }
}

/// A second copy of a request that changes nothing; none of a write.
fn copy_of_read(request: &Request<Body>) -> Option<Request<Body>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return None;
    }
    let mut copy = Request::new(Body::empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(copy)
}

/// A tower service that adds who we are to each request.
#[derive(Clone)]
struct Session(Arc<Shared>);

struct Shared {
    target: Target,
    headers: HeaderMap,
    wire: Mutex<Wire>,
}

/// Connections that belong to one login: a client certificate is part of a connection.
#[derive(Clone)]
struct Wire {
    transport: Transport,
    /// Distinguishes this login from the next.
    number: u64,
    expires: Option<Timestamp>,
    headers: HeaderMap,
}

impl Session {
    async fn log_in(target: Target) -> Result<Self, ConnectError> {
        let wire = Wire::log_in(&target, 0).await?;
        let headers = headers(&target.user.entry)?;
        Ok(Self(Arc::new(Shared { target, headers, wire: Mutex::new(wire) })))
    }
}

impl Wire {
    async fn log_in(target: &Target, number: u64) -> Result<Self, ConnectError> {
        let identity = target.login.identify(target.env.terminal).await?;
        let tls = client_config(target, identity.pair.as_ref())?;
        let transport = with_oidc(transport(target, tls)?, &target.login)?;
        let Identity { authorization, expires, .. } = identity;
        Ok(Self {
            transport,
            number,
            expires,
            headers: authorization.map(|value| (AUTHORIZATION, value)).into_iter().collect(),
        })
    }

    fn is_over(&self) -> bool {
        self.expires.is_some_and(|end| end <= Timestamp::now())
    }
}

/// kube keeps OpenID Connect tokens fresh.
fn with_oidc(transport: Transport, login: &Login) -> Result<Transport, ConnectError> {
    let Login::Oidc(provider) = login else { return Ok(transport) };
    let mut config = kube::Config::new(http::Uri::default());
    config.auth_info = AuthInfo { auth_provider: Some(provider.clone()), ..AuthInfo::default() };
    let layer = config.auth_layer().map_err(|e| ConnectError::Refused(super::explain::chain(&e)))?;
    Ok(match layer {
        Some(layer) => BoxCloneSyncService::new(layer.layer(transport)),
        None => transport,
    })
}

impl Shared {
    /// The wire to use now; after its expiry a new one.
    async fn current(&self) -> Result<Wire, ConnectError> {
        let mut wire = self.wire.lock().await;
        if wire.is_over() {
            *wire = Wire::log_in(&self.target, wire.number + 1).await?;
        }
        Ok(wire.clone())
    }

    /// A wire that is newer than the refused one; requests that fail together log in once.
    async fn newer_than(&self, refused: u64) -> Result<Wire, ConnectError> {
        let mut wire = self.wire.lock().await;
        if wire.number == refused {
            *wire = Wire::log_in(&self.target, refused + 1).await?;
        }
        Ok(wire.clone())
    }

    async fn send(&self, request: Request<Body>) -> Result<Answer, BoxError> {
        let wire = self.current().await?;
        let copy = copy_of_read(&request);
        let answer = self.send_once(&wire, request).await?;
        if answer.status() != StatusCode::UNAUTHORIZED || !self.target.login.renewable() {
            return Ok(answer);
        }
        // Renewed for a write too, so that the next request has a valid login.
        let wire = self.newer_than(wire.number).await?;
        match copy {
            Some(copy) => self.send_once(&wire, copy).await,
            None => Ok(answer),
        }
    }

    async fn send_once(&self, wire: &Wire, mut request: Request<Body>) -> Result<Answer, BoxError> {
        append(request.headers_mut(), &self.headers);
        append(request.headers_mut(), &wire.headers);
        let limit = self.target.request_timeout.filter(|_| !is_stream(&request));
        let answer = wire.transport.clone().oneshot(request);
        match limit {
            None => Ok(answer.await?.map(Either::Right)),
            Some(limit) => match tokio::time::timeout(limit, whole(answer)).await {
                Ok(answer) => answer,
                Err(_) => Err(ConnectError::Timeout(limit).into()),
            },
        }
    }
}

/// Names may repeat (one header per impersonated group), so values are added, not replaced.
fn append(to: &mut HeaderMap, from: &HeaderMap) {
    for (name, value) in from {
        to.append(name, value.clone());
    }
}

/// Watches and followed logs last as long as the user wants.
fn is_stream(request: &Request<Body>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    query.split('&').any(|p| matches!(p, "watch=true" | "watch=1" | "follow=true" | "follow=1"))
}

/// Reads the body too, so that the limit covers a server that stops in the middle of it.
///
/// kube collects every answer that is no stream anyway.
async fn whole(answer: impl Future<Output = Result<Response<Incoming>, BoxError>>) -> Result<Answer, BoxError> {
    let (parts, body) = answer.await?.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(Response::from_parts(parts, Either::Left(Full::new(body))))
}

impl Service<Request<Body>> for Session {
    type Response = Answer;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let shared = self.0.clone();
        Box::pin(async move { shared.send(request).await })
    }
}
