//! What goes wrong is said where people look, at once, and the node stays as it was.
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use shim_e2e::{Artifact, Packing, ShimManifest};

use crate::support::{Session, session};

/// From the end of the installer to the words on the screen.
const SOON: Duration = Duration::from_secs(10);

fn fails(session: &Session, artifact: &Artifact, reason: &str) -> Result<()> {
    let starts = session.starts()?;
    session.apply(&ShimManifest::new("bad", "v1", artifact).text())?;
    session.status_says("bad", &["Failed", reason], Duration::from_secs(60))?;
    let seen = SystemTime::now();
    let ended = end_of_first_installer(session)?;
    let took = seen.duration_since(ended).unwrap_or_default();
    ensure!(took <= SOON, "{reason} was shown {} s after the failure", took.as_secs());
    ensure!(session.starts()? == starts, "containerd was restarted for nothing");
    for node in session.cluster.nodes() {
        ensure!(session.label(node.name(), "bad")?.is_none(), "{} says it is ready", node.name());
    }
    session.compare().context("a failed install left something")?;
    // The Pods go; the reason stays.
    session.cluster.kubectl(&[
        "-n",
        "shim-system",
        "delete",
        "pods",
        "-l",
        "app.kubernetes.io/managed-by=shim-controller",
    ])?;
    session.status_says("bad", &["Failed", reason], SOON)?;
    session.remove_and_compare(&["bad"])
}

/// When the first of the installer's containers ended, to the second.
fn end_of_first_installer(session: &Session) -> Result<SystemTime> {
    let pods = session.list(&["pods", "-n", "shim-system", "-l", "app.kubernetes.io/managed-by=shim-controller"])?;
    let ends = pods.iter().filter_map(|pod| {
        let time = pod["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"].as_str()?;
        time.parse::<jiff::Timestamp>().ok()
    });
    Ok(ends.min().context("no installer has ended")?.into())
}

#[test]
fn a_wrong_digest_is_named() -> Result<()> {
    let session = session();
    let mut artifact = session.artifacts()?.build(1, Packing::TarGz)?;
    artifact.sha256 = "0".repeat(64);
    fails(&session, &artifact, "ChecksumMismatch")
}

#[test]
fn a_missing_artifact_is_named() -> Result<()> {
    let session = session();
    let mut artifact = session.artifacts()?.build(1, Packing::TarGz)?;
    artifact.url = artifact.url.replace("wasmi-1", "no-such-file");
    fails(&session, &artifact, "ArtifactNotFound")
}

#[test]
fn an_archive_without_the_binary_is_named() -> Result<()> {
    let session = session();
    let artifact = session.artifacts()?.without_binary()?;
    fails(&session, &artifact, "BinaryNotFound")
}

#[test]
fn a_failed_upgrade_leaves_the_build_that_was_there() -> Result<()> {
    let session = session();
    let mut artifact = session.artifacts()?.build(1, Packing::TarGz)?;
    session.roll_out(&ShimManifest::new("wasmi", "v1", &artifact))?;
    artifact.sha256 = "0".repeat(64);
    session.apply(&ShimManifest::new("wasmi", "v2", &artifact).text())?;
    session.status_says("wasmi", &["Failed", "ChecksumMismatch"], Duration::from_secs(60))?;
    session.hello_everywhere("wasmi")?;
    let status = session.get("shim", "wasmi")?.unwrap_or_default();
    ensure!(status["status"]["nodesReady"] == 4 && status["status"]["nodesUpdated"] == 0, "{}", status["status"]);
    session.remove_and_compare(&["wasmi"])
}

#[test]
fn a_runtime_class_of_somebody_else_is_not_taken() -> Result<()> {
    let session = session();
    let artifact = session.artifacts()?.build(1, Packing::TarGz)?;
    let class =
        r#"{"apiVersion":"node.k8s.io/v1","kind":"RuntimeClass","metadata":{"name":"foreign"},"handler":"runc"}"#;
    session.apply(class)?;
    session.apply(&ShimManifest::new("foreign", "v1", &artifact).text())?;
    session.status_says(
        "foreign",
        &["Conflict", "RuntimeClass foreign exists and was not made by kubectl-shim"],
        SOON,
    )?;
    session.cluster.kubectl(&["delete", "shim", "foreign", "--wait=true", "--timeout=60s"])?;
    let kept = session.get("runtimeclass", "foreign")?.context("the RuntimeClass is gone")?;
    ensure!(kept["handler"] == "runc", "the RuntimeClass was changed");
    session.cluster.kubectl(&["delete", "runtimeclass", "foreign"])?;
    session.compare()
}
