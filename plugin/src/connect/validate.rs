//! What client-go refuses before it opens a connection, in its words.

use kube::config::{AuthInfo, Cluster, ExecConfig, ExecInteractiveMode};

use super::{ConnectError, proxy, target::Named};

/// Checks the chosen entries only: a broken entry of another context does no harm.
pub(super) fn validate(cluster: &Named<Cluster>, user: &Named<AuthInfo>) -> Result<(), ConnectError> {
    let mut problems = auth_problems(user);
    problems.extend(cluster_problems(cluster));
    if !problems.is_empty() {
        return Err(ConnectError::Invalid(problems));
    }
    both_ca_and_insecure(&cluster.entry)
}

fn both_ca_and_insecure(cluster: &Cluster) -> Result<(), ConnectError> {
    let has_ca = cluster.certificate_authority.is_some() || cluster.certificate_authority_data.is_some();
    if has_ca && cluster.insecure_skip_tls_verify == Some(true) {
        let text = "specifying a root certificates file with the insecure flag is not allowed";
        return Err(ConnectError::Refused(text.to_owned()));
    }
    Ok(())
}

fn cluster_problems(Named { name, entry: cluster }: &Named<Cluster>) -> Vec<String> {
    let mut problems = Vec::new();
    if let Some(Err(e)) = cluster.proxy_url.as_deref().map(proxy::of_cluster) {
        let url = cluster.proxy_url.as_deref().unwrap_or_default();
        problems.push(format!("invalid 'proxy-url' {url:?} for cluster {name:?}: {e}"));
    }
    if cluster.certificate_authority.is_some() && cluster.certificate_authority_data.is_some() {
        problems.push(format!(
            "certificate-authority-data and certificate-authority are both specified for {name}. certificate-authority-data will override."
        ));
    }
    problems
}

fn auth_problems(Named { name, entry: user }: &Named<AuthInfo>) -> Vec<String> {
    let mut problems = certificate_problems(name, user);
    if let Some(exec) = &user.exec {
        if user.auth_provider.is_some() {
            problems.push(format!("authProvider cannot be provided in combination with an exec plugin for {name}"));
        }
        problems.extend(exec_problems(name, exec));
    }
    if user.token.is_some() && (user.username.is_some() || user.password.is_some()) {
        problems.push(format!(
            "more than one authentication method found for {name}; found [token basicAuth], only one is allowed"
        ));
    }
    if user.impersonate.is_none() && impersonates_details(user) {
        problems.push(format!("requesting uid, groups or user-extra for {name} without impersonating a user"));
    }
    problems
}

fn impersonates_details(user: &AuthInfo) -> bool {
    user.impersonate_uid.is_some()
        || user.impersonate_groups.as_ref().is_some_and(|g| !g.is_empty())
        || user.impersonate_user_extra.as_ref().is_some_and(|e| !e.is_empty())
}

/// A key without a certificate is no problem: client-go does not look at it.
fn certificate_problems(name: &str, user: &AuthInfo) -> Vec<String> {
    let (cert_file, cert_data) = (user.client_certificate.is_some(), user.client_certificate_data.is_some());
    let (key_file, key_data) = (user.client_key.is_some(), user.client_key_data.is_some());
    let mut problems = Vec::new();
    if !cert_file && !cert_data {
        return problems;
    }
    if cert_file && cert_data {
        problems.push(format!(
            "client-cert-data and client-cert are both specified for {name}. client-cert-data will override."
        ));
    }
    if key_file && key_data {
        problems.push(format!(
            "client-key-data and client-key are both specified for {name}; client-key-data will override"
        ));
    }
    if !key_file && !key_data {
        problems.push(format!(
            "client-key-data or client-key must be specified for {name} to use the clientCert authentication method."
        ));
    }
    problems
}

fn exec_problems(name: &str, exec: &ExecConfig) -> Vec<String> {
    let mut problems = Vec::new();
    let mut must = |missing: bool, what: &str| {
        if missing {
            problems.push(format!("{what} must be specified for {name} to use exec authentication plugin"));
        }
    };
    let unnamed =
        |variable: &std::collections::HashMap<String, String>| variable.get("name").is_none_or(String::is_empty);
    must(exec.command.is_none(), "command");
    must(exec.api_version.is_none(), "apiVersion");
    must(exec.env.iter().flatten().any(unnamed), "env variable name");
    must(mode(exec).is_none(), "interactiveMode");
    problems
}

/// `interactiveMode`; only v1beta1 has a default.
pub(super) fn mode(exec: &ExecConfig) -> Option<ExecInteractiveMode> {
    match (&exec.interactive_mode, exec.api_version.as_deref()) {
        (Some(mode), _) => Some(mode.clone()),
        (None, None | Some("client.authentication.k8s.io/v1")) => None,
        (None, Some(_)) => Some(ExecInteractiveMode::IfAvailable),
    }
}
