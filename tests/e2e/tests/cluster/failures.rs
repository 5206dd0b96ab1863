//! What goes wrong is said where people look, at once, and the node stays as it was.
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde_json::Value;
use shim_e2e::{Artifact, Packing, ShimManifest};

use crate::support::{Session, session};

/// From the end of the installer to the words on the screen.
pub(crate) const SOON: Duration = Duration::from_secs(10);

fn fails(session: &Session, artifact: &Artifact, reason: &str) -> Result<()> {
    let starts = session.starts()?;
    session.apply(&ShimManifest::new("bad", "v1", artifact).text())?;
    session.status_says("bad", &["Failed", reason], Duration::from_secs(60))?;
    let seen = Timestamp::now();
    let ended = ends_of_installers(session)?.into_iter().min().context("no installer has ended")?;
    let took = Duration::try_from(seen.duration_since(ended)).unwrap_or_default();
    ensure!(took <= SOON, "{reason} was shown {} s after the failure", took.as_secs());
    is_told_as_event(session, reason)?;
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

/// When the installers whose pods are still there ended, to the second.
pub(crate) fn ends_of_installers(session: &Session) -> Result<Vec<Timestamp>> {
    let end = |pod: &Value| {
        let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
        ended["finishedAt"].as_str().and_then(|time| time.parse().ok())
    };
    Ok(session.installers()?.iter().filter_map(end).collect())
}

/// Both the Shim and a node tell of the failure to whoever describes them.
fn is_told_as_event(session: &Session, reason: &str) -> Result<()> {
    let shim = session.get("shim", "bad")?.unwrap_or_default();
    for (kind, words) in [("Shim", "node-"), ("Node", "shim bad: ")] {
        let fields = format!("involvedObject.kind={kind},reason={reason},type=Warning");
        session.wait(&format!("an Event about the {kind}"), SOON, || {
            let events = session.list(&["events", "-n", "default", "--field-selector", &fields])?;
            let of_this = |event: &&Value| kind == "Node" || event["involvedObject"]["uid"] == shim["metadata"]["uid"];
            let said = |event: &Value| event["message"].as_str().is_some_and(|message| message.contains(words));
            Ok(events.iter().filter(of_this).any(said).then_some(()))
        })?;
    }
    Ok(())
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
