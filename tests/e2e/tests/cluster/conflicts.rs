//! Shims that can't have what they ask for.
use anyhow::{Context, Result, ensure};
use shim_e2e::{Packing, ShimManifest};

use crate::{
    brakes::condition,
    failures::SOON,
    support::{Session, session},
};

/// The Shim is Stalled as Conflict, with these words.
fn conflicts(session: &Session, shim: &str, words: &str) -> Result<()> {
    let stalled = session.wait(&format!("a conflict of {shim}"), SOON, || {
        Ok(condition(session, shim, "Stalled")?.filter(|stalled| stalled["reason"] == "Conflict"))
    })?;
    let message = stalled["message"].as_str().unwrap_or_default();
    ensure!(stalled["status"] == "True" && message.contains(words), "{stalled}");
    session.status_says(shim, &["Conflict", words], SOON).map(drop)
}

#[test]
fn a_runtime_class_of_somebody_else_is_not_taken() -> Result<()> {
    let session = session();
    let artifact = session.artifacts()?.build(1, Packing::TarGz)?;
    let class =
        r#"{"apiVersion":"node.k8s.io/v1","kind":"RuntimeClass","metadata":{"name":"foreign"},"handler":"runc"}"#;
    session.apply(class)?;
    session.apply(&ShimManifest::new("foreign", "v1", &artifact).text())?;
    conflicts(&session, "foreign", "RuntimeClass foreign exists and was not made by kubectl-shim")?;
    session.cluster.kubectl(&["delete", "shim", "foreign", "--wait=true", "--timeout=60s"])?;
    let kept = session.get("runtimeclass", "foreign")?.context("the RuntimeClass is gone")?;
    ensure!(kept["handler"] == "runc", "the RuntimeClass was changed");
    session.cluster.kubectl(&["delete", "runtimeclass", "foreign"])?;
    session.compare()
}

#[test]
fn the_older_of_two_shims_keeps_a_handler_and_the_younger_gets_nothing() -> Result<()> {
    let session = session();
    let artifact = session.artifacts()?.build(1, Packing::TarGz)?;
    let shim = |name| ShimManifest::new(name, "v1", &artifact).on("kubernetes.io/hostname", "node-4").handler("wasm");
    session.roll_out(&shim("older"))?;
    session.apply(&shim("younger").text())?;
    conflicts(&session, "younger", "handler wasm belongs to Shim older, which is older")?;
    ensure!(session.get("runtimeclass", "younger")?.is_none(), "the younger has a RuntimeClass");
    ensure!(session.label("node-4", "younger")?.is_none(), "the younger is on node-4");
    session.remove(&["younger"])?;
    ensure!(session.label("node-4", "older")?.as_deref() == Some("ready"), "the older has lost node-4");
    session.remove_and_compare(&["older"])
}

#[test]
fn a_selector_that_matches_nothing_is_no_failure() -> Result<()> {
    let session = session();
    let artifact = session.artifacts()?.build(1, Packing::TarGz)?;
    session.apply(&ShimManifest::new("wasmi", "v1", &artifact).on("no", "such-node").text())?;
    let ready = session.wait("a Shim without nodes to be Ready", SOON, || {
        Ok(condition(&session, "wasmi", "Ready")?.filter(|ready| ready["reason"] == "NoNodes"))
    })?;
    ensure!(ready["status"] == "True", "{ready}");
    session.remove_and_compare(&["wasmi"])
}
