//! Nodes that change their labels, go, and come back.
use anyhow::{Context, Result, ensure};
use shim_e2e::{Packing, ShimManifest, wasm_pod};

use crate::support::{ROLLOUT, hello, session};

#[test]
fn a_node_that_is_labelled_out_is_cleaned_and_served_again_when_labelled_in() -> Result<()> {
    let session = session();
    let artifact = session.artifacts()?.build(1, Packing::TarGz)?;
    let label = |value: &str, nodes: &str| {
        session.cluster.kubectl(&["label", "node", nodes, &format!("pool{value}"), "--overwrite"]).map(drop)
    };
    for node in session.cluster.nodes() {
        label("=wasm", node.name())?;
    }
    session.roll_out(&ShimManifest::new("wasmi", "v1", &artifact).on("pool", "wasm"))?;
    let node = session.cluster.node("node-2")?;
    label("-", node.name())?;
    session.wait("node-2 to be clean", ROLLOUT, || {
        let marked = session.get("node", "node-2")?.context("no node-2")?["metadata"]["annotations"]["shim.dev/state"]
            .is_string();
        Ok((!marked && session.label("node-2", "wasmi")?.is_none()).then_some(()))
    })?;
    ensure!(!node.root().join("opt/shim").exists(), "node-2 still has files");
    ensure!(!node.read("/etc/containerd/config.toml")?.contains("wasmi"), "node-2 still has the handler");
    label("=wasm", node.name())?;
    session.wait("node-2 to be served", ROLLOUT, || {
        Ok((session.label("node-2", "wasmi")?.as_deref() == Some("ready")).then_some(()))
    })?;
    session.hello_everywhere("wasmi")?;
    for node in session.cluster.nodes() {
        label("-", node.name())?;
    }
    session.remove_and_compare(&["wasmi"])
}

#[test]
fn a_node_that_is_wiped_and_comes_back_under_its_name_is_served_again() -> Result<()> {
    let mut session = session();
    let artifact = session.artifacts()?.build(1, Packing::TarGz)?;
    session.roll_out(&ShimManifest::new("wasmi", "v1", &artifact))?;
    let node = session.cluster.node("node-3")?;
    session.cluster.kubectl(&["delete", "node", "node-3", "--wait=true"])?;
    node.wipe()?;
    session.cluster.wait_ready(&["node-3"])?;
    session.replaced(&node)?;
    session.wait("node-3 to be served", ROLLOUT, || {
        Ok((session.label("node-3", "wasmi")?.as_deref() == Some("ready")).then_some(()))
    })?;
    session.apply(&wasm_pod(&hello(&node), node.name(), "wasmi", &session.wasm_image, "/hello.wat"))?;
    session.wait_for_pod(&hello(&node), "Succeeded")?;
    session.cluster.kubectl(&["delete", "pods", "-l", "app=wasm"])?;
    session.cluster.kubectl(&["delete", "shim", "wasmi", "--wait=true", "--timeout=120s"])?;
    let left = node.root().join("opt/shim").exists();
    ensure!(!left, "node-3 still has files");
    Ok(())
}
