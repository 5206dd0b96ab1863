//! A node that loses what was verified on it is repaired without anybody asking.
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use shim_cluster::Node;
use shim_e2e::{Packing, ShimManifest, wasm_pod};

use crate::{
    failures::SOON,
    requests::Requests,
    support::{Files, ROLLOUT, Session, files_of, hello, session},
};

/// A fresh mark is believed for a minute, whatever the kubelet says.
const REPAIRED: Duration = Duration::from_secs(120);

fn install(session: &Session, node: &str) -> Result<Node> {
    let artifact = session.artifacts()?.build(1, Packing::TarGz)?;
    session.roll_out(&ShimManifest::new("wasmi", "v1", &artifact).on("kubernetes.io/hostname", node))?;
    session.cluster.node(node)
}

fn says_hello(session: &Session, node: &Node) -> Result<()> {
    session.apply(&wasm_pod(&hello(node), node.name(), "wasmi", &session.wasm_image, "/hello.wat"))?;
    session.wait_for_pod(&hello(node), "Succeeded")?;
    session.cluster.kubectl(&["delete", "pod", &hello(node)]).map(drop)
}

/// Waits until the node's files are as they were.
fn is_repaired(session: &Session, node: &Node, wanted: &Files) -> Result<()> {
    let without_state = |mut files: Files| {
        files.remove("opt/shim/state.json");
        files
    };
    let wanted = without_state(wanted.clone());
    session.wait(&format!("{} to be repaired", node.name()), REPAIRED, || {
        Ok((without_state(files_of(node)?) == wanted).then_some(()))
    })?;
    session.wait_ready("wasmi")
}

#[test]
fn a_drop_in_that_somebody_removes_comes_back() -> Result<()> {
    let session = session();
    let node = install(&session, "node-4")?;
    let files = files_of(&node)?;
    node.run(&["sh", "-ec", "rm /etc/containerd/conf.d/kubectl-shim*.toml; systemctl restart containerd"])?;
    is_repaired(&session, &node, &files)?;
    says_hello(&session, &node)?;
    session.remove_and_compare(&["wasmi"])
}

#[test]
fn a_node_whose_kubelet_reports_no_handlers_is_looked_at_and_repaired_if_it_must() -> Result<()> {
    let session = session();
    let node = install(&session, "node-1")?;
    let (files, starts) = (files_of(&node)?, node.containerd_starts()?);

    let fresh = grow_old(&session, &node)?;
    is_fresh(&session, &node, &fresh)?;
    ensure!(node.containerd_starts()? == starts, "a look at what is there has restarted containerd");

    let start = session.cluster.audit().end()?;
    let lines = "/kubectl-shim/,/kubectl-shim/d";
    node.run(&["sh", "-ec", &format!("sed -i '{lines}' /etc/containerd/config.toml; systemctl restart containerd")])?;
    ensure!(!node.read("/etc/containerd/config.toml")?.contains("wasmi"), "the test has not removed the handler");
    grow_old(&session, &node)?;
    is_repaired(&session, &node, &files)?;
    let again = Requests::since(&session, start)?.ready("node-1", "wasmi");
    ensure!(again.is_some(), "the label stayed on a node that did not serve");
    says_hello(&session, &node)?;
    session.remove_and_compare(&["wasmi"])
}

/// Makes the node's mark so old that it is looked at again; returns it as it is then.
fn grow_old(session: &Session, node: &Node) -> Result<String> {
    let mark = mark(session, node)?;
    let (before, _) = mark.rsplit_once('@').context("a mark without a time")?;
    let old = format!("{before}@2020-01-01T00:00:00Z");
    session.cluster.kubectl(&["annotate", "node", node.name(), "--overwrite", &format!("shim.dev/state={old}")])?;
    Ok(old)
}

fn mark(session: &Session, node: &Node) -> Result<String> {
    let node = session.get("node", node.name())?.unwrap_or_default();
    Ok(node["metadata"]["annotations"]["shim.dev/state"].as_str().unwrap_or_default().to_owned())
}

fn is_fresh(session: &Session, node: &Node, old: &str) -> Result<()> {
    session
        .wait(&format!("{} to be looked at", node.name()), ROLLOUT, || Ok((mark(session, node)? != old).then_some(())))
}

#[test]
fn a_label_that_somebody_takes_off_comes_back() -> Result<()> {
    let session = session();
    let node = install(&session, "node-3")?;
    let starts = node.containerd_starts()?;
    session.cluster.kubectl(&["label", "node", "node-3", "shim.dev/wasmi-"])?;
    session.wait("the label to be back", SOON, || {
        Ok((session.label("node-3", "wasmi")?.as_deref() == Some("ready")).then_some(()))
    })?;
    ensure!(node.containerd_starts()? == starts, "containerd was restarted for a label");
    session.remove_and_compare(&["wasmi"])
}
