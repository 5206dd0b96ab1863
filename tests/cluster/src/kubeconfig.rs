//! Kubeconfig files for people and parts.

use std::fs;

use anyhow::Result;

use crate::paths::Paths;

/// Writes a kubeconfig at `file` for the server at `address`, with the certificate `identity` of the cluster's folder by path.
pub(crate) fn write(paths: &Paths, file: &std::path::Path, address: &str, identity: &str) -> Result<()> {
    let path = |name: &str| paths.pki(name).display().to_string();
    let crt = path(&format!("{identity}.crt"));
    let key = path(&format!("{identity}.key"));
    Ok(fs::write(file, text(address, &path("ca.crt"), &crt, &key))?)
}

/// A kubeconfig whose certificates are files. JSON, which is YAML, so that paths need no care.
pub(crate) fn text(address: &str, ca: &str, certificate: &str, key: &str) -> String {
    for_user(address, ca, &serde_json::json!({"client-certificate": certificate, "client-key": key}))
}

/// A kubeconfig for the owner of a bearer token.
pub(crate) fn with_token(address: &str, ca: &str, token: &str) -> String {
    for_user(address, ca, &serde_json::json!({"token": token}))
}

fn for_user(address: &str, ca: &str, user: &serde_json::Value) -> String {
    let config = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "shim-test",
        "contexts": [{"name": "shim-test", "context": {"cluster": "shim-test", "user": "shim-test"}}],
        "clusters": [{"name": "shim-test", "cluster": {"server": format!("https://{address}"), "certificate-authority": ca}}],
        "users": [{"name": "shim-test", "user": user}],
    });
    format!("{config:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_names_server_and_identity() {
        let config: serde_json::Value = serde_json::from_str(&text("10.0.0.1:6443", "/ca", "/crt", "/key")).unwrap();
        assert_eq!(config["clusters"][0]["cluster"]["server"], "https://10.0.0.1:6443");
        assert_eq!(config["users"][0]["user"]["client-key"], "/key");
        assert_eq!(config["current-context"], config["contexts"][0]["name"]);
    }
}
