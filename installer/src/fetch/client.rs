//! One HTTP request: ureq, with rustls on aws-lc-rs and the system's CA certificates.
use std::{sync::Arc, time::Duration};

use rustls::crypto::aws_lc_rs;
use ureq::{
    Agent, Body, Error,
    http::Response,
    tls::{RootCerts, TlsConfig},
};

use super::location::{Location, Scheme};

const REDIRECTS: u32 = 5;

/// Honours `HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY` and `SSL_CERT_FILE`.
pub(super) struct Client(Agent);

impl Client {
    /// A client that gives up a server after `stall` without a byte.
    pub(super) fn new(stall: Duration) -> Self {
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(Arc::new(aws_lc_rs::default_provider()))
            .root_certs(RootCerts::PlatformVerifier)
            .build();
        let config = Agent::config_builder()
            .tls_config(tls)
            .timeout_resolve(Some(stall))
            .timeout_connect(Some(stall))
            .timeout_per_read(Some(stall))
            .timeout_per_write(Some(stall))
            .max_redirects(REDIRECTS)
            // Each status has its own meaning, see `answer`.
            .http_status_as_error(false)
            // The digest is that of the bytes on the wire.
            .accept_encoding("identity")
            .user_agent(concat!("kubectl-shim/", env!("CARGO_PKG_VERSION")))
            .build();
        Self(config.into())
    }

    /// Asks for `location`; `within` ends the transfer of the body too.
    pub(super) fn get(&self, location: &Location, within: Duration) -> Result<Response<Body>, Error> {
        self.0
            .get(location.uri())
            .config()
            .timeout_global(Some(within))
            // A redirect must not take an https download to http, where everybody on the way reads its URL.
            .https_only(location.scheme() == Scheme::Https)
            .build()
            .call()
    }
}
