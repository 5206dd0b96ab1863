//! kubectl's connection flags.
//!
//! kubectl passes none of its own flags on to a plugin, so each has to exist here, under the same name.

use std::{path::PathBuf, time::Duration};

use clap::{ArgAction, Args};

use super::duration::{InvalidTimeout, parse_timeout};

/// Flags that say which cluster is meant and how to log in to it.
///
/// A flag given twice counts as given last, as in kubectl.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Connection")]
pub struct ConnectionFlags {
    /// Path to the kubeconfig file to use for CLI requests
    #[arg(long, value_name = "FILE", global = true, overrides_with = "kubeconfig")]
    pub kubeconfig: Option<PathBuf>,

    /// The name of the kubeconfig context to use
    #[arg(long, value_name = "NAME", global = true, overrides_with = "context")]
    pub context: Option<String>,

    /// The name of the kubeconfig cluster to use
    #[arg(long, value_name = "NAME", global = true, overrides_with = "cluster")]
    pub cluster: Option<String>,

    /// The name of the kubeconfig user to use
    #[arg(long, value_name = "NAME", global = true, overrides_with = "user")]
    pub user: Option<String>,

    /// The namespace of the controller and the installer Jobs; Shims have none
    #[arg(short, long, value_name = "NAME", global = true, overrides_with = "namespace")]
    pub namespace: Option<String>,

    /// The address and port of the Kubernetes API server
    #[arg(short, long, value_name = "URL", global = true, overrides_with = "server")]
    pub server: Option<String>,

    /// Bearer token for authentication to the API server
    #[arg(long, value_name = "TOKEN", global = true, overrides_with = "token")]
    pub token: Option<String>,

    /// Username for basic authentication to the API server
    #[arg(long, value_name = "NAME", global = true, overrides_with = "username")]
    pub username: Option<String>,

    /// Password for basic authentication to the API server
    #[arg(long, value_name = "PASSWORD", global = true, overrides_with = "password")]
    pub password: Option<String>,

    /// Path to a cert file for the certificate authority
    #[arg(long, value_name = "FILE", global = true, overrides_with = "certificate_authority")]
    pub certificate_authority: Option<String>,

    /// Path to a client certificate file for TLS
    #[arg(long, value_name = "FILE", global = true, overrides_with = "client_certificate")]
    pub client_certificate: Option<String>,

    /// Path to a client key file for TLS
    #[arg(long, value_name = "FILE", global = true, overrides_with = "client_key")]
    pub client_key: Option<String>,

    /// Server name to use for server certificate validation. If it is not provided, the hostname used to contact the server is used
    #[arg(long, value_name = "NAME", global = true, overrides_with = "tls_server_name")]
    pub tls_server_name: Option<String>,

    /// If true, the server's certificate will not be checked for validity. This will make your HTTPS connections insecure
    #[arg(long, value_name = "BOOL", global = true, overrides_with = "insecure_skip_tls_verify",
        num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = go_bool)]
    pub insecure_skip_tls_verify: Option<bool>,

    /// If true, opt-out of response compression for all requests to the server
    #[arg(long, value_name = "BOOL", global = true, overrides_with = "disable_compression",
        num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = go_bool)]
    pub disable_compression: Option<bool>,

    /// Username to impersonate for the operation. User could be a regular user or a service account in a namespace
    #[arg(long = "as", value_name = "USER", global = true, overrides_with = "impersonate")]
    pub impersonate: Option<String>,

    /// Group to impersonate for the operation, this flag can be repeated to specify multiple groups
    #[arg(long = "as-group", value_name = "GROUP", global = true, action = ArgAction::Append)]
    pub impersonate_groups: Vec<String>,

    /// UID to impersonate for the operation
    #[arg(long = "as-uid", value_name = "UID", global = true, overrides_with = "impersonate_uid")]
    pub impersonate_uid: Option<String>,

    /// User extras to impersonate for the operation, this flag can be repeated to specify multiple values for the same key
    #[arg(long = "as-user-extra", value_name = "KEY=VALUE", global = true, action = ArgAction::Append, value_parser = key_value)]
    pub impersonate_user_extra: Vec<(String, String)>,

    /// The length of time to wait before giving up on a single server request, such as 5, 5s or 1m30s. Zero means no time-out; watches have none
    #[arg(long, value_name = "DURATION", global = true, overrides_with = "request_timeout", value_parser = timeout)]
    pub request_timeout: Option<Duration>,
}

fn timeout(text: &str) -> Result<Duration, InvalidTimeout> {
    parse_timeout(text)
}

/// The spellings Go's `strconv.ParseBool` takes, which is what pflag uses.
fn go_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(format!("parsing {text:?}: use true or false")),
    }
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("must have the form KEY=VALUE".to_owned()),
    }
}
