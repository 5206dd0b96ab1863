//! What the controller is started with.
use clap::{Parser, ValueEnum};
use shim_core::{
    job::Settings,
    manifests::{CONTROLLER, HTTP_PORT},
    names::DEFAULT_NAMESPACE,
};

/// Carries out Shim resources with installer Jobs, node by node.
#[derive(Debug, Clone, Parser)]
#[command(name = "shim-controller", version)]
pub(crate) struct Args {
    /// Namespace of the installer Jobs and of the Lease
    #[arg(long, env = "POD_NAMESPACE", default_value = DEFAULT_NAMESPACE)]
    pub(crate) namespace: String,
    /// Image of the installer: the controller's own
    #[arg(long, env = "SHIM_IMAGE")]
    image: String,
    /// Secret to pull the image with, in the same namespace; repeatable
    #[arg(long = "pull-secret")]
    pull_secrets: Vec<String>,
    /// Name of this process among those that ask for the Lease
    #[arg(long, env = "POD_NAME", default_value = CONTROLLER)]
    pub(crate) identity: String,
    /// Address of /healthz, /readyz and /metrics
    #[arg(long, default_value_t = format!("0.0.0.0:{HTTP_PORT}"))]
    pub(crate) listen: String,
    /// Form of the log
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
    /// What is logged: a level, or directives as tracing reads them
    #[arg(long, env = "SHIM_LOG", default_value = "info")]
    pub(crate) log: String,
}

/// Form of the log.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

impl Args {
    /// What the Jobs are made with.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            namespace: self.namespace.clone(),
            image: self.image.clone(),
            pull_secrets: self.pull_secrets.clone(),
        }
    }
}
