//! Manifests of Shims and pods.
use serde_json::{Value, json};

use crate::Artifact;

/// A Shim, built up in a test.
#[derive(Debug, Clone)]
pub struct ShimManifest(Value);

impl ShimManifest {
    /// A Shim for every node, all at once, that nothing stops.
    pub fn new(name: &str, version: &str, artifact: &Artifact) -> Self {
        Self(json!({
            "apiVersion": "shim.dev/v1alpha1", "kind": "Shim",
            "metadata": {"name": name},
            "spec": {
                "version": version,
                "fetchStrategy": {"anonHttp": {"location": artifact.url, "sha256": artifact.sha256}},
                "runtimeClass": {"name": name},
                "rolloutStrategy": {"rolling": {"maxUpdate": "100%"}, "canary": 0, "maxFailures": "100%"},
            }
        }))
    }

    /// Only nodes with this label.
    #[must_use]
    pub fn on(mut self, label: &str, value: &str) -> Self {
        self.0["spec"]["nodeSelector"] = json!({label: value});
        self
    }

    /// That many nodes at a time.
    #[must_use]
    pub fn at_a_time(mut self, count: usize) -> Self {
        self.0["spec"]["rolloutStrategy"]["rolling"]["maxUpdate"] = json!(count);
        self
    }

    /// That many nodes must succeed before the others start.
    #[must_use]
    pub fn canary(mut self, count: usize) -> Self {
        self.0["spec"]["rolloutStrategy"]["canary"] = json!(count);
        self
    }

    /// That many failed nodes stop it.
    #[must_use]
    pub fn max_failures(mut self, count: usize) -> Self {
        self.0["spec"]["rolloutStrategy"]["maxFailures"] = json!(count);
        self
    }

    /// The handler in containerd's configuration has another name than the Shim.
    #[must_use]
    pub fn handler(mut self, handler: &str) -> Self {
        self.0["spec"]["runtimeClass"]["handler"] = json!(handler);
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.0["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// As JSON.
    pub fn text(&self) -> String {
        self.0.to_string()
    }
}

/// A pod pinned by its node's name label, which runs a module of the Wasm image with a RuntimeClass.
pub fn wasm_pod(name: &str, node: &str, class: &str, image: &str, module: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "wasm"}},
        "spec": {
            "runtimeClassName": class,
            "nodeSelector": {"kubernetes.io/hostname": node},
            "terminationGracePeriodSeconds": 1,
            "restartPolicy": "Never",
            "containers": [{"name": "wasm", "image": image, "command": [module]}],
        }
    })
    .to_string()
}
