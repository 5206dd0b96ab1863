//! A rollout that proves itself on a few nodes first, and stops by itself.
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use shim_e2e::{Artifact, Packing, ShimManifest};

use crate::{
    failures::{SOON, ends_of_installers},
    requests::Requests,
    support::{ROLLOUT, Session, session, tick},
};

#[test]
fn no_second_node_starts_before_the_canary_is_verified() -> Result<()> {
    let session = session();
    let artifact = session.artifacts()?.build(1, Packing::TarGz)?;
    let start = session.cluster.audit().end()?;
    session.roll_out(&ShimManifest::new("wasmi", "v1", &artifact).canary(1))?;
    let requests = Requests::since(&session, start)?;
    let jobs = requests.jobs();
    ensure!(jobs.len() == 4, "{} Jobs", jobs.len());
    let proven = requests.ready(jobs[0].1, "wasmi").context("the first node was never marked")?;
    let early: Vec<_> = jobs[1..].iter().filter(|(job, _)| job.time < proven).map(|(_, node)| node).collect();
    ensure!(early.is_empty(), "{early:?} started before {} was verified", jobs[0].1);
    session.remove_and_compare(&["wasmi"])
}

#[test]
fn a_canary_larger_than_the_fleet_is_the_fleet() -> Result<()> {
    let session = session();
    let artifact = session.artifacts()?.build(1, Packing::TarGz)?;
    session.roll_out(&ShimManifest::new("wasmi", "v1", &artifact).at_a_time(2).canary(50))?;
    session.remove_and_compare(&["wasmi"])
}

#[test]
fn a_bad_build_stops_at_the_canary_and_a_good_one_goes_on() -> Result<()> {
    let session = session();
    let artifacts = session.artifacts()?;
    let shim =
        |version: &str, artifact: &Artifact| ShimManifest::new("wasmi", version, artifact).canary(1).max_failures(1);
    session.roll_out(&shim("v1", &artifacts.build(1, Packing::TarGz)?))?;
    session.tick_everywhere("wasmi")?;
    let marks = marks(&session)?;

    let mut bad = artifacts.build(2, Packing::TarGz)?;
    bad.sha256 = "0".repeat(64);
    let start = session.cluster.audit().end()?;
    session.apply(&shim("v2", &bad).text())?;
    let stalled = session.wait("the rollout to stop", ROLLOUT, || {
        Ok(condition(&session, "wasmi", "Stalled")?.filter(|stalled| stalled["status"] == "True"))
    })?;
    let seen = jiff::Timestamp::now();
    let failed = ends_of_installers(&session)?.into_iter().max().context("no installer has ended")?;
    let took = Duration::try_from(seen.duration_since(failed)).unwrap_or_default();
    ensure!(took <= SOON, "the rollout stopped {} s after the failure", took.as_secs());
    let message = stalled["message"].as_str().unwrap_or_default();
    ensure!(message.contains("ChecksumMismatch") && message.contains("the rollout stopped"), "{message}");
    session.status_says("wasmi", &["Failed", "ChecksumMismatch"], SOON)?;

    let jobs = Requests::since(&session, start)?.jobs().len();
    ensure!(jobs == 1, "{jobs} nodes were tried");
    ensure!(self::marks(&session)? == marks, "a node has other marks: {:?}, not {marks:?}", self::marks(&session)?);
    for node in session.cluster.nodes() {
        let pod = session.wait_for_pod(&tick(&node), "Running")?;
        ensure!(pod["status"]["containerStatuses"][0]["restartCount"] == 0, "{} was restarted", tick(&node));
    }
    session.hello_everywhere("wasmi")?;

    session.roll_out(&shim("v3", &artifacts.build(3, Packing::TarGz)?))?;
    has_fates(&session, &["Complete", "Failed", "Complete"])?;
    for (reason, words) in
        [("RolloutStopped", "revision 2 is on 0 of 4"), ("RolloutComplete", "revision 3 is on 4 of 4")]
    {
        is_told(&session, reason, words)?;
    }
    session.cluster.kubectl(&["delete", "pods", "-l", "app=wasm"])?;
    session.remove_and_compare(&["wasmi"])?;
    has_fates(&session, &[])
}

/// An Event about a Shim says it.
fn is_told(session: &Session, reason: &str, words: &str) -> Result<()> {
    let fields = format!("involvedObject.kind=Shim,reason={reason}");
    session.wait(&format!("an Event {reason}: {words}"), SOON, || {
        let events = session.list(&["events", "-n", "default", "--field-selector", &fields])?;
        let said = |event: &Value| event["message"].as_str().is_some_and(|message| message.contains(words));
        Ok(events.iter().any(said).then_some(()))
    })
}

/// What the nodes remember of our Shims.
fn marks(session: &Session) -> Result<Vec<Value>> {
    let nodes = session.list(&["nodes"])?;
    Ok(nodes.iter().map(|node| node["metadata"]["annotations"]["shim.dev/state"].clone()).collect())
}

pub(crate) fn condition(session: &Session, shim: &str, kind: &str) -> Result<Option<Value>> {
    let shim = session.get("shim", shim)?.unwrap_or_default();
    let conditions = shim["status"]["conditions"].as_array().cloned().unwrap_or_default();
    Ok(conditions.into_iter().find(|condition| condition["type"] == kind))
}

/// The revisions on record, from the first, have come to this.
fn has_fates(session: &Session, wanted: &[&str]) -> Result<()> {
    session.wait(&format!("revisions that are {wanted:?}"), SOON, || {
        let mut revisions = session.list(&["controllerrevisions", "-n", "shim-system", "-l", "shim.dev/shim=wasmi"])?;
        revisions.sort_by_key(|revision| revision["revision"].as_i64());
        Ok((revisions.iter().map(fate).collect::<Vec<_>>() == wanted).then_some(()))
    })
}

fn fate(revision: &Value) -> String {
    let record = revision["metadata"]["annotations"]["shim.dev/rollout"].as_str().unwrap_or_default();
    let record: Value = serde_json::from_str(record).unwrap_or_default();
    record["fate"].as_str().unwrap_or_default().to_owned()
}
