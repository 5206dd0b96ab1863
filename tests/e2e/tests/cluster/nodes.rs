//! Nodes that change their labels, go, and come back.
use anyhow::{Context, Result, ensure};
use shim_cluster::Node;
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

#[test]
fn a_machine_that_comes_back_under_another_name_is_served_without_a_restart() -> Result<()> {
    let session = session();
    let artifact = session.artifacts()?.build(1, Packing::TarGz)?;
    session.roll_out(&ShimManifest::new("wasmi", "v1", &artifact))?;
    let node = session.cluster.node("node-3")?;
    let (unit, access) = ("/etc/systemd/system/kubelet.service", "/etc/kubernetes/kubeconfig");
    let (old_unit, old_access) = (node.read(unit)?, node.read(access)?);
    let starts = node.containerd_starts()?;
    // A kubelet may register only the node that it is named after; an administrator may register any.
    let admin = session.cluster.kubectl(&["config", "view", "--raw", "--flatten"])?;
    let other_unit = old_unit.replace("--hostname-override node-3", "--hostname-override other");
    register(&node, &[(unit, &other_unit), (access, &admin)])?;
    session.cluster.wait_ready(&["other"])?;
    session.cluster.kubectl(&["delete", "node", "node-3", "--wait=true"])?;
    session.wait("the machine to be served under its new name", ROLLOUT, || {
        Ok((session.label("other", "wasmi")?.as_deref() == Some("ready")).then_some(()))
    })?;
    session.status_says("wasmi", &["other", "4 ready"], ROLLOUT)?;
    session.apply(&wasm_pod("hello-other", "other", "wasmi", &session.wasm_image, "/hello.wat"))?;
    session.wait_for_pod("hello-other", "Succeeded")?;
    ensure!(node.containerd_starts()? == starts, "containerd was restarted, and nothing had changed");
    session.cluster.kubectl(&["delete", "pods", "-l", "app=wasm"])?;
    register(&node, &[(unit, &old_unit), (access, &old_access)])?;
    session.cluster.wait_ready(&["node-3"])?;
    session.cluster.kubectl(&["delete", "node", "other", "--wait=true"])?;
    session.remove_and_compare(&["wasmi"])
}

/// Starts the kubelet of a node again, with other files.
fn register(node: &Node, files: &[(&str, &str)]) -> Result<()> {
    node.run(&["systemctl", "stop", "kubelet"])?;
    for (path, text) in files {
        node.run_with(&["tee", path], *text)?;
    }
    node.run(&["systemctl", "daemon-reload"])?;
    node.run(&["systemctl", "start", "kubelet"]).map(drop)
}
