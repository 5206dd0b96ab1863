//! Credential plugins: one run, client-go's rules.

use std::process::Stdio;

use jiff::Timestamp;
use kube::config::{ExecConfig, ExecInteractiveMode};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use tokio::process::Command;

use super::{ExecError, validate::mode};

/// The versions client-go still speaks.
pub(super) const VERSIONS: [&str; 2] = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];

/// What a plugin gave.
pub(super) struct Credential {
    pub(super) token: Option<SecretString>,
    /// Certificate and key, PEM.
    pub(super) pair: Option<(Vec<u8>, Vec<u8>)>,
    pub(super) expires: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    api_version: String,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    token: Option<SecretString>,
    client_certificate_data: Option<String>,
    client_key_data: Option<SecretString>,
    expiration_timestamp: Option<Timestamp>,
}

/// Runs the program. It may talk to the user: its standard error is ours, and its standard input too if allowed.
pub(super) async fn run(exec: &ExecConfig, terminal: bool) -> Result<Credential, ExecError> {
    let interactive = match mode(exec) {
        Some(ExecInteractiveMode::Never) => false,
        Some(ExecInteractiveMode::Always) if !terminal => return Err(ExecError::NoTerminal),
        _ => terminal,
    };
    // Not `output()`: tokio would capture standard error too, and the user would never see the plugin's question.
    let child = command(exec, interactive).spawn().map_err(|e| start_error(exec, &e))?;
    let output = child.wait_with_output().await.map_err(|e| start_error(exec, &e))?;
    if !output.status.success() {
        return Err(ExecError::Failed {
            command: exec.command.clone().unwrap_or_default(),
            code: output.status.code().unwrap_or(-1),
        });
    }
    decode(&output.stdout, exec.api_version.as_deref().unwrap_or_default())
}

fn command(exec: &ExecConfig, interactive: bool) -> Command {
    let mut command = Command::new(exec.command.as_deref().unwrap_or_default());
    command.args(exec.args.iter().flatten());
    for variable in exec.env.iter().flatten() {
        if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) {
            command.env(name, value);
        }
    }
    command.env("KUBERNETES_EXEC_INFO", exec_info(exec, interactive).to_string());
    command.stdin(if interactive { Stdio::inherit() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::inherit());
    command
}

fn exec_info(exec: &ExecConfig, interactive: bool) -> serde_json::Value {
    let mut spec = serde_json::json!({ "interactive": interactive });
    if let Some(cluster) = &exec.cluster {
        spec["cluster"] = serde_json::json!(cluster);
    }
    serde_json::json!({ "kind": "ExecCredential", "apiVersion": exec.api_version, "spec": spec })
}

fn start_error(exec: &ExecConfig, error: &std::io::Error) -> ExecError {
    let command = exec.command.clone().unwrap_or_default();
    match error.kind() {
        std::io::ErrorKind::NotFound => ExecError::NotFound { command, install_hint: exec.install_hint.clone() },
        _ => ExecError::Start { command, cause: super::explain::plain(error) },
    }
}

fn decode(stdout: &[u8], wanted: &str) -> Result<Credential, ExecError> {
    let answer: ExecCredential = serde_json::from_slice(stdout).map_err(|e| ExecError::Decode(place(&e)))?;
    if answer.api_version != wanted {
        return Err(ExecError::Version { wanted: wanted.to_owned(), got: answer.api_version });
    }
    credential(answer.status.ok_or(ExecError::NoStatus)?)
}

/// Only where the error is: serde_json's own text may quote the secret.
fn place(error: &serde_json::Error) -> String {
    format!("no ExecCredential document (line {}, column {})", error.line(), error.column())
}

fn credential(status: Status) -> Result<Credential, ExecError> {
    let token = status.token.filter(|t| !t.expose_secret().is_empty());
    let certificate = status.client_certificate_data.filter(|c| !c.is_empty());
    let key = status.client_key_data.filter(|k| !k.expose_secret().is_empty());
    let pair = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate.into_bytes(), key.expose_secret().as_bytes().to_vec())),
        (None, None) if token.is_none() => return Err(ExecError::NoCredential),
        (None, None) => None,
        _ => return Err(ExecError::HalfPair),
    };
    Ok(Credential { token, pair, expires: status.expiration_timestamp })
}
