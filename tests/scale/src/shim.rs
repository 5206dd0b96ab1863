//! The Shims that are rolled out.
use serde_json::{Value, json};

/// A Shim for every node, that many at a time. Versions are different artifacts, which nobody downloads.
pub fn shim(name: &str, version: u8, at_a_time: usize) -> Value {
    let digest = format!("{version:02x}").repeat(32);
    json!({
        "apiVersion": "shim.dev/v1alpha1", "kind": "Shim",
        "metadata": {"name": name},
        "spec": {
            "version": format!("v{version}"),
            "fetchStrategy": {"anonHttp": {"location": format!("http://artifacts.example/{name}-{version}.tar.gz"), "sha256": digest}},
            "runtimeClass": {"name": name},
            "rolloutStrategy": strategy(at_a_time),
        }
    })
}

/// The one place that says how a measured roll-out goes: at full width from its first node on.
fn strategy(at_a_time: usize) -> Value {
    json!({"rolling": {"maxUpdate": at_a_time}, "canary": 0, "maxFailures": "100%"})
}
