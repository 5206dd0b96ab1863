//! What is read from and written to the API server.

mod apply;
mod read;

use kube::{Api, Client, core::Status};
use shim_core::{api::Shim, names::DEFAULT_NAMESPACE};

pub use apply::{Applied, Force, Outcome, reference};
pub use read::{Controller, PodUse};

use crate::{
    connect::{self, Connection, ConnectionFlags, Env},
    exit::Failure,
    next::Next,
};

/// A cluster and the namespace of its controller.
pub struct Cluster {
    connection: Connection,
    /// Namespace of the controller and its Jobs.
    pub namespace: String,
}

impl Cluster {
    /// Finds the cluster that is meant; asks it nothing yet.
    pub async fn open(flags: &ConnectionFlags, env: &Env) -> Result<Self, Failure> {
        let connection = connect::connect(flags, env).await.map_err(|error| Failure::worded(error.to_string()))?;
        // Shims have no namespace, so that of the context says nothing about the controller.
        Ok(Self { connection, namespace: namespace(flags) })
    }

    /// Sends requests.
    pub fn client(&self) -> Client {
        self.connection.client.clone()
    }

    /// The Shims.
    pub fn shims(&self) -> Api<Shim> {
        Api::all(self.client())
    }

    /// kubectl's words for a failed request, and what to do about it.
    pub fn failure(&self, error: &kube::Error) -> Failure {
        let failure = Failure::worded(self.connection.explain(error));
        match error {
            kube::Error::Api(status) if is_missing_type(status) => {
                Failure::error("the server doesn't have a resource type \"shims\"").then(Next::init())
            }
            _ => failure,
        }
    }
}

/// Namespace of the controller.
pub fn namespace(flags: &ConnectionFlags) -> String {
    flags.namespace.clone().unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned())
}

/// The object does not exist, while its type does.
pub fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.reason == "NotFound")
}

/// The server answers in plain text where it does not serve a group.
fn is_missing_type(status: &Status) -> bool {
    let plain = status.message.starts_with("404 page not found");
    let words = "the server could not find the requested resource";
    status.code == 404 && (plain || status.message.starts_with(words))
}

/// `None` instead of an error where the object does not exist.
pub fn found<T>(result: kube::Result<T>) -> kube::Result<Option<T>> {
    match result {
        Ok(object) => Ok(Some(object)),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// `None` instead of an error where we may not look.
pub fn allowed<T>(result: kube::Result<T>) -> kube::Result<Option<T>> {
    match result {
        Ok(object) => Ok(Some(object)),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(None),
        Err(error) => Err(error),
    }
}
