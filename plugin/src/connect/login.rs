//! How requests prove who sends them.

use std::path::PathBuf;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderValue, Uri};
use jiff::Timestamp;
use kube::config::{AuthInfo, AuthProviderConfig, ExecAuthCluster, ExecConfig};
use secrecy::{ExposeSecret as _, SecretString};

use super::{ConnectError, exec, target::Chosen};

const AZURE_GONE: &str = "The azure auth plugin has been removed.\n\
    Please use the https://github.com/Azure/kubelogin kubectl/client-go credential plugin instead.\n\
    See https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins for further details";
const GCP_GONE: &str = "The gcp auth plugin has been removed.\n\
    Please use the \"gke-gcloud-auth-plugin\" kubectl/client-go credential plugin instead.\n\
    See https://cloud.google.com/blog/products/containers-kubernetes/kubectl-auth-changes-in-gke for further details";

/// The one method that applies to a user.
#[derive(Clone, Debug)]
pub(super) enum Login {
    /// No header; perhaps a client certificate.
    None,
    /// A header that never changes.
    Header(HeaderValue),
    /// A file that is written anew now and then, and what to send if it cannot be read.
    TokenFile(PathBuf, Option<HeaderValue>),
    /// A credential plugin.
    Exec(Box<ExecConfig>),
    /// OpenID Connect; kube refreshes it.
    Oidc(AuthProviderConfig),
}

/// A login's result.
#[derive(Default)]
pub(super) struct Identity {
    pub(super) authorization: Option<HeaderValue>,
    /// Certificate and key from a plugin, PEM.
    pub(super) pair: Option<(Vec<u8>, Vec<u8>)>,
    /// From when on a new login is due.
    pub(super) expires: Option<Timestamp>,
}

impl Login {
    pub(super) fn of(chosen: &Chosen, server: &Uri) -> Result<Self, ConnectError> {
        let user = &chosen.user.entry;
        // client-go sends no credential in clear text.
        if server.scheme_str() != Some("https") {
            return Ok(Self::None);
        }
        if let Some(provider) = &user.auth_provider {
            return auth_provider(provider);
        }
        if let Some(login) = token(user)? {
            return Ok(login);
        }
        match &user.exec {
            Some(exec) if user.username.is_none() => plugin(exec, chosen),
            _ => basic(user),
        }
    }

    /// Whether another attempt may bring another result.
    pub(super) fn renewable(&self) -> bool {
        matches!(self, Self::TokenFile(..) | Self::Exec(_))
    }

    /// Reads the token file or runs the plugin.
    pub(super) async fn identify(&self, terminal: bool) -> Result<Identity, ConnectError> {
        match self {
            Self::None | Self::Oidc(_) => Ok(Identity::default()),
            Self::Header(header) => Ok(Identity::with(Some(header.clone()))),
            Self::TokenFile(path, fallback) => token_file(path, fallback.as_ref()),
            Self::Exec(exec) => {
                let status = exec::run(exec, terminal).await?;
                let authorization = status.token.map(|t| bearer(&t)).transpose()?;
                Ok(Identity { authorization, pair: status.pair, expires: status.expires })
            }
        }
    }
}

impl Identity {
    fn with(authorization: Option<HeaderValue>) -> Self {
        Self { authorization, ..Self::default() }
    }
}

/// A token file wins over a token.
fn token(user: &AuthInfo) -> Result<Option<Login>, ConnectError> {
    let inline = user.token.as_ref().map(bearer).transpose()?;
    Ok(match (&user.token_file, inline) {
        (Some(file), inline) => Some(Login::TokenFile(file.into(), inline)),
        (None, Some(header)) => Some(Login::Header(header)),
        (None, None) => None,
    })
}

fn basic(user: &AuthInfo) -> Result<Login, ConnectError> {
    if user.username.is_none() && user.password.is_none() {
        return Ok(Login::None);
    }
    let name = user.username.as_deref().unwrap_or_default();
    let password = user.password.as_ref().map_or("", SecretString::expose_secret);
    let text = STANDARD.encode(format!("{name}:{password}"));
    secret_header(&format!("Basic {text}")).map(Login::Header)
}

fn plugin(exec: &ExecConfig, chosen: &Chosen) -> Result<Login, ConnectError> {
    let mut exec = exec.clone();
    let version = exec.api_version.as_deref().unwrap_or_default();
    if !exec::VERSIONS.contains(&version) {
        return Err(ConnectError::Refused(format!("exec plugin: invalid apiVersion {version:?}")));
    }
    if exec.provide_cluster_info {
        let cluster = ExecAuthCluster::try_from(&chosen.cluster.entry);
        exec.cluster = Some(cluster.map_err(|e| ConnectError::Refused(e.to_string()))?);
    }
    Ok(Login::Exec(Box::new(exec)))
}

fn auth_provider(provider: &AuthProviderConfig) -> Result<Login, ConnectError> {
    let refused = |text: String| Err(ConnectError::Refused(text));
    match provider.name.as_str() {
        "oidc" => Ok(Login::Oidc(provider.clone())),
        "azure" => refused(AZURE_GONE.to_owned()),
        "gcp" => refused(GCP_GONE.to_owned()),
        name => refused(format!("no Auth Provider found for name {name:?}")),
    }
}

/// The last newline of a token file is none of the token's.
fn token_file(path: &PathBuf, fallback: Option<&HeaderValue>) -> Result<Identity, ConnectError> {
    let refused = |cause: &str| ConnectError::Refused(format!("open {}: {cause}", path.display()));
    let read = match std::fs::read_to_string(path) {
        Ok(text) if text.trim().is_empty() => Err(refused("the token file is empty")),
        Ok(text) => bearer(&text.trim().into()),
        Err(e) => Err(refused(&super::explain::plain(&e))),
    };
    match (read, fallback) {
        (Err(_), Some(inline)) => Ok(Identity::with(Some(inline.clone()))),
        (read, _) => read.map(|header| Identity::with(Some(header))),
    }
}

fn bearer(token: &SecretString) -> Result<HeaderValue, ConnectError> {
    secret_header(&format!("Bearer {}", token.expose_secret()))
}

fn secret_header(text: &str) -> Result<HeaderValue, ConnectError> {
    // The text itself must not appear in the error.
    let mut header = HeaderValue::from_str(text)
        .map_err(|_| ConnectError::Refused("the user's token or password holds control characters".to_owned()))?;
    header.set_sensitive(true);
    Ok(header)
}
