//! From kubectl's connection flags and the user's kubeconfig to a [`kube::Client`] that behaves like kubectl.
//!
//! kube's own `Config::infer` differs from client-go in many small ways (proxies of local clusters, empty strings,
//! token files, exec plugins, odd certificates). A plugin has to reach every cluster kubectl reaches, so this module
//! follows client-go's rules, one file per step:
//!
//! | step | file |
//! |---|---|
//! | what the user typed | `flags`, `duration` |
//! | what the process sees | `env` |
//! | which files, merged how | `load` |
//! | which cluster, which user | `target`, `incluster`, `validate` |
//! | through which proxy | `proxy` |
//! | who we are | `login`, `exec`, `headers` |
//! | whom we trust | `tls`, `verify` |
//! | the wire, and a new login when the old one ends | `transport`, `session` |
//! | what to say when it fails | `error`, `explain` |

mod duration;
mod env;
mod error;
mod exec;
mod explain;
mod flags;
mod headers;
mod incluster;
mod load;
mod login;
mod proxy;
mod session;
mod target;
mod tls;
mod transport;
mod validate;
mod verify;

pub use duration::{InvalidTimeout, parse_timeout};
pub use env::Env;
pub use error::{ConnectError, ExecError};
pub use explain::explain;
pub use flags::ConnectionFlags;

use kube::Client;
use target::Target;

/// A cluster that can be asked.
///
/// Nothing was sent yet, except what the login needed.
#[derive(Clone)]
pub struct Connection {
    /// Sends requests with kubectl's headers, proxies, trust and time-outs.
    pub client: Client,
    /// `--namespace`, else the context's (or the Pod's) namespace, else `default`.
    pub default_namespace: String,
    /// The API server's URL as configured.
    pub server: http::Uri,
}

impl Connection {
    /// Host and port of the API server, as error texts show them.
    pub fn host(&self) -> &str {
        self.server.authority().map_or("", http::uri::Authority::as_str)
    }

    /// One sentence in kubectl's words for a failed request.
    pub fn explain(&self, error: &kube::Error) -> String {
        explain(error, self.host())
    }
}

/// Finds the cluster the flags and the environment mean and logs in to it.
///
/// Runs the user's exec credential plugin at most once.
pub async fn connect(flags: &ConnectionFlags, env: &Env) -> Result<Connection, ConnectError> {
    let target = Target::find(flags, env)?;
    let server = target.url.clone();
    let default_namespace = target.namespace.clone();
    let client = session::open(target).await?;
    Ok(Connection { client, default_namespace, server })
}
