//! Connections: straight, or through a proxy.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderValue, Request, Response, Uri};
use hyper::{
    body::Incoming,
    rt::{Read, Write},
};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{
        Client,
        connect::{
            Connection, HttpConnector,
            proxy::{SocksV5, Tunnel},
        },
    },
    rt::TokioExecutor,
};
use kube::client::Body;
use percent_encoding::percent_decode_str;
use rustls::{ClientConfig, pki_types::ServerName};
use tower::{BoxError, Service, ServiceExt as _, util::BoxCloneSyncService};

use super::{ConnectError, target::Target};

/// As Go's dialer. It covers the proxy's and the TLS handshake too: a load balancer without a server behind it often
/// takes the connection and says nothing.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Sends one request as it is.
pub(super) type Transport = BoxCloneSyncService<Request<Body>, Response<Incoming>, BoxError>;

/// A pool of connections with this TLS set-up.
pub(super) fn transport(target: &Target, tls: ClientConfig) -> Result<Transport, ConnectError> {
    let tls = Tls { config: tls, name: server_name(target)? };
    let tcp = tcp();
    let Some(proxy) = target.proxy.clone() else { return Ok(pool(tls.over(tcp))) };
    let account = Account::of(&proxy);
    Ok(match proxy.scheme_str() {
        Some("socks5" | "socks5h") => {
            let socks = SocksV5::new(proxy, tcp);
            let socks = match account {
                Some(Account { name, password }) => socks.with_auth(name, password),
                None => socks,
            };
            pool(tls.over(socks))
        }
        Some("https") => pool(tls.over(tunnel(proxy, tls.over(tcp), account.as_ref())?)),
        _ => pool(tls.over(tunnel(proxy, tcp, account.as_ref())?)),
    })
}

fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp
}

fn server_name(target: &Target) -> Result<Option<ServerName<'static>>, ConnectError> {
    let Some(name) = &target.cluster.entry.tls_server_name else { return Ok(None) };
    let parsed = ServerName::try_from(name.clone());
    parsed.map(Some).map_err(|e| ConnectError::Refused(format!("tls-server-name {name:?}: {e}")))
}

struct Tls {
    config: ClientConfig,
    name: Option<ServerName<'static>>,
}

impl Tls {
    fn over<C>(&self, connector: C) -> HttpsConnector<C>
    where
        C: Service<Uri>,
    {
        let builder = HttpsConnectorBuilder::new().with_tls_config(self.config.clone()).https_or_http();
        match &self.name {
            Some(name) => builder
                .with_server_name_resolver(FixedServerNameResolver::new(name.clone()))
                .enable_http1()
                .wrap_connector(connector),
            None => builder.enable_http1().wrap_connector(connector),
        }
    }
}

fn pool<C>(connector: HttpsConnector<C>) -> Transport
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    let mut connector = TimeoutConnector::new(connector);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let client: Client<_, Body> = Client::builder(TokioExecutor::new()).build(connector);
    BoxCloneSyncService::new(client.map_err(BoxError::from))
}

fn tunnel<C>(proxy: Uri, connector: C, account: Option<&Account>) -> Result<Tunnel<C>, ConnectError> {
    let tunnel = Tunnel::new(proxy, connector);
    match account {
        Some(account) => Ok(tunnel.with_auth(account.header()?)),
        None => Ok(tunnel),
    }
}

/// Name and password in a proxy's URL.
struct Account {
    name: String,
    password: String,
}

impl Account {
    fn of(proxy: &Uri) -> Option<Self> {
        let (account, _) = proxy.authority()?.as_str().rsplit_once('@')?;
        let (name, password) = account.split_once(':').unwrap_or((account, ""));
        // A URL cannot hold `@` or `:` as they are.
        let decode = |text| percent_decode_str(text).decode_utf8_lossy().into_owned();
        Some(Self { name: decode(name), password: decode(password) })
    }

    fn header(&self) -> Result<HeaderValue, ConnectError> {
        let Self { name, password } = self;
        let text = format!("Basic {}", STANDARD.encode(format!("{name}:{password}")));
        HeaderValue::try_from(text).map_err(|e| ConnectError::Refused(e.to_string()))
    }
}
