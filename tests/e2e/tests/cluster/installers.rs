//! Installers that do not start, or do not get to their end.
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use shim_e2e::{Packing, ShimManifest};

use crate::support::{ROLLOUT, Session, session};

/// From the Shim to the words on the screen.
const TOLD: Duration = Duration::from_secs(15);

const QUOTA: &str = r#"{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"no-pods","namespace":"shim-system"},
    "spec":{"hard":{"pods":"0"}}}"#;

/// A Shim for one node.
fn shim(session: &Session) -> Result<ShimManifest> {
    let artifact = session.artifacts()?.build(1, Packing::TarGz)?;
    Ok(ShimManifest::new("wasmi", "v1", &artifact).on("kubernetes.io/hostname", "node-1"))
}

#[test]
fn a_quota_that_forbids_the_installers_pod_is_named_and_without_it_the_rollout_goes_on() -> Result<()> {
    let session = session();
    session.apply(QUOTA)?;
    session.wait("the quota to be in force", ROLLOUT, || {
        let quota = session.list(&["resourcequotas", "-n", "shim-system"])?;
        Ok(quota.first().is_some_and(|quota| quota["status"]["used"]["pods"].is_string()).then_some(()))
    })?;
    session.apply(&shim(&session)?.text())?;
    let told = session.status_says("wasmi", &["PodNotStarted", "exceeded quota: no-pods"], TOLD);
    session.cluster.kubectl(&["-n", "shim-system", "delete", "resourcequota", "no-pods"])?;
    told?;
    session.wait_ready("wasmi")?;
    session.remove_and_compare(&["wasmi"])
}

#[test]
fn an_image_that_is_not_there_is_named_and_another_try_has_the_right_one() -> Result<()> {
    let session = session();
    let missing = format!("SHIM_IMAGE={}-missing", session.image);
    session.cluster.kubectl(&["-n", "shim-system", "set", "env", "deployment/shim-controller", &missing])?;
    session.cluster.kubectl(&["-n", "shim-system", "rollout", "status", "deployment/shim-controller"])?;
    session.apply(&shim(&session)?.text())?;
    let told = session.status_says("wasmi", &["PodNotStarted", "-missing"], ROLLOUT.min(TOLD * 2));
    session.shim_ok(&["init", "--image", &session.image, "--force-conflicts", "--wait", "--timeout", "60s"])?;
    told?;
    session.shim_ok(&["retry", "wasmi", "--wait", "--timeout", "60s"])?;
    session.remove_and_compare(&["wasmi"])
}

#[test]
fn a_job_that_is_deleted_by_hand_is_made_again() -> Result<()> {
    let session = session();
    session.apply(&shim(&session)?.text())?;
    let first = session.wait("the first Job", ROLLOUT, || Ok(session.jobs()?.pop()))?;
    let (name, uid) = (&first["metadata"]["name"], &first["metadata"]["uid"]);
    session.cluster.kubectl(&[
        "-n",
        "shim-system",
        "delete",
        "job",
        name.as_str().context("a name")?,
        "--wait=false",
    ])?;
    session.wait("another Job", ROLLOUT, || {
        Ok(session.jobs()?.iter().any(|job| job["metadata"]["uid"] != *uid).then_some(()))
    })?;
    session.wait_ready("wasmi")?;
    session.remove_and_compare(&["wasmi"])
}

#[test]
fn a_shim_that_is_deleted_in_mid_rollout_leaves_nothing() -> Result<()> {
    let session = session();
    let artifact = session.artifacts()?.build(1, Packing::TarGz)?;
    session.apply(&ShimManifest::new("wasmi", "v1", &artifact).at_a_time(1).text())?;
    session.wait("a node that is ready, and one that is not", ROLLOUT, || {
        let ready = session.list(&["nodes", "-l", "shim.dev/wasmi=ready"])?.len();
        Ok((ready > 0 && !session.jobs()?.is_empty()).then_some(ready))
    })?;
    session.remove_and_compare(&["wasmi"])?;
    let marked = session.cluster.kubectl(&[
        "get",
        "nodes",
        "-o",
        "jsonpath={.items[*].metadata.annotations.shim\\.dev/state}",
    ])?;
    ensure!(marked.trim().is_empty(), "nodes still have marks: {marked}");
    ensure!(session.jobs()?.is_empty(), "Jobs are left");
    Ok(())
}
