//! What the connection layer may know of its process, as a value, so that tests need no global state.

use std::{
    collections::BTreeMap,
    io::IsTerminal as _,
    path::{Path, PathBuf},
};

/// Where Kubernetes mounts a Pod's own credentials.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Environment variables, home directory and terminal of the process.
#[derive(Clone, Debug)]
pub struct Env {
    /// Environment variables.
    pub variables: BTreeMap<String, String>,
    /// The user's home directory, if there is one.
    pub home: Option<PathBuf>,
    /// Whether standard input is a terminal, so that a credential plugin may ask questions.
    pub terminal: bool,
    /// Directory of the Pod's service account.
    pub service_account: PathBuf,
}

impl Env {
    /// The real environment of this process.
    pub fn of_process() -> Self {
        Self {
            variables: std::env::vars_os()
                .map(|(k, v)| (k.to_string_lossy().into_owned(), v.to_string_lossy().into_owned()))
                .collect(),
            // Containers often have none, or an empty one: both mean that there is no default kubeconfig.
            home: std::env::home_dir().filter(|h| !h.as_os_str().is_empty()),
            terminal: std::io::stdin().is_terminal(),
            service_account: PathBuf::from(SERVICE_ACCOUNT),
        }
    }

    /// A variable's value; an empty one counts as not set, as in client-go.
    pub fn var(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|v| !v.is_empty())
    }

    /// The first of several variables that is set.
    pub fn first_var(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.var(name))
    }

    /// `~/.kube/config`.
    pub fn default_kubeconfig(&self) -> Option<PathBuf> {
        self.home.as_deref().map(|home: &Path| home.join(".kube").join("config"))
    }
}
