//! A rollout from the command line: held, stopped, tried again, taken back, and done everywhere at once.
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use shim_e2e::{Answer, Artifact, Packing};

use crate::{
    requests::Requests,
    support::{Session, session},
};

/// A controller that was to start something would have done so by then.
const QUIET: Duration = Duration::from_secs(4);
const REACHED_THE_OPPOSITE: i32 = 4;

fn change(session: &Session, verb: &str, version: &str, artifact: &Artifact, more: &[&str]) -> Result<Answer> {
    let what = ["--version", version, "--url", &artifact.url, "--sha256", &artifact.sha256];
    session.shim_ok(&[&[verb, "wasmi"], &what[..], more].concat())
}

/// What `history` says, from the newest revision on, without times.
fn history(session: &Session) -> Result<Vec<[String; 4]>> {
    let text = session.shim_ok(&["history", "wasmi"])?.stdout;
    let row = |line: &str| {
        let mut words = line.split_whitespace().map(str::to_owned);
        [(); 4].map(|()| words.next().unwrap_or_default())
    };
    Ok(text.lines().skip(1).map(row).collect())
}

fn failed_nodes(session: &Session) -> Result<u64> {
    Ok(session.get("shim", "wasmi")?.unwrap_or_default()["status"]["nodesFailed"].as_u64().unwrap_or_default())
}

#[test]
fn a_rollout_is_held_stopped_tried_again_and_taken_back_from_the_command_line() -> Result<()> {
    let session = session();
    let artifacts = session.artifacts()?;
    change(&session, "install", "v1", &artifacts.build(1, Packing::TarGz)?, &["--max-update", "2", "--wait"])?;
    let starts = session.starts()?;

    session.shim_ok(&["pause", "wasmi"])?;
    let mut missing = artifacts.build(2, Packing::TarGz)?;
    missing.url += ".missing";
    change(&session, "upgrade", "v2", &missing, &["--canary", "0", "--max-failures", "3"])?;
    session.shim_ok(&["wait", "wasmi", "--for", "paused", "--timeout", "20s"])?;
    std::thread::sleep(QUIET);
    ensure!(session.jobs()?.is_empty(), "a node has started while the rollout is paused");
    let status = session.shim_ok(&["status", "wasmi"])?.stdout;
    ensure!(status.contains("Paused") && status.contains("0 of 4 nodes updated"), "{status}");

    session.shim_ok(&["resume", "wasmi"])?;
    let answer = session.shim(&["wait", "wasmi", "--for", "ready", "--timeout", "60s"])?;
    ensure!(answer.code == REACHED_THE_OPPOSITE, "{}: {}{}", answer.code, answer.stdout, answer.stderr);
    ensure!(
        answer.stderr.contains("ArtifactNotFound") && answer.stderr.contains("rollback wasmi"),
        "{}",
        answer.stderr
    );
    let failed = failed_nodes(&session)?;
    ensure!(failed >= 3, "{failed} nodes had failed when the rollout stopped, and 3 are needed to stop it");
    session.hello_everywhere("wasmi")?;

    let status = session.shim_ok(&["status", "wasmi"])?.stdout;
    let words = |line: &'_ str| line.split_whitespace().take(2).map(str::to_owned).collect::<Vec<_>>();
    let failed =
        status.lines().map(words).find(|words| words.len() == 2 && words[1] == "Failed" && words[0] != "State:");
    let node = failed.context("no row of a failed node")?.swap_remove(0);
    session.shim_ok(&["retry", "wasmi", "--node", &node])?;
    session.wait("a second try on that node alone", QUIET * 5, || {
        let problems = session.get("shim", "wasmi")?.unwrap_or_default()["status"]["problems"].clone();
        let tried = |problem: &serde_json::Value| problem["attempts"].as_u64().unwrap_or_default();
        let again = |problem: &&serde_json::Value| problem["node"] == node.as_str() && tried(problem) == 2;
        let all = problems.as_array().cloned().unwrap_or_default();
        Ok((all.iter().filter(again).count() == 1 && all.iter().filter(|p| tried(p) > 1).count() == 1).then_some(()))
    })?;

    session.shim_ok(&["rollback", "wasmi", "--wait", "--timeout", "60s"])?;
    let told = history(&session)?;
    let wanted = [["3", "v1", "Complete", "4/4"], ["2", "v2", "Failed", "0/4"], ["1", "v1", "Complete", "4/4"]];
    ensure!(told == wanted, "{told:?}");
    session.hello_everywhere("wasmi")?;
    ensure!(session.starts()? == starts, "containerd was restarted");
    session.remove_and_compare(&["wasmi"])
}

#[test]
fn recreate_starts_on_all_nodes_before_one_has_ended() -> Result<()> {
    let session = session();
    let artifacts = session.artifacts()?;
    change(&session, "install", "v1", &artifacts.build(1, Packing::TarGz)?, &["--max-update", "2", "--wait"])?;
    let start = session.cluster.audit().end()?;
    let more = ["--strategy", "recreate", "--wait", "--timeout", "90s"];
    change(&session, "upgrade", "v2", &artifacts.build(2, Packing::TarGz)?, &more)?;
    let most = Requests::since(&session, start)?.most_jobs_at_once();
    ensure!(most == 4, "{most} Jobs at the same time");
    session.hello_everywhere("wasmi")?;
    session.remove_and_compare(&["wasmi"])
}
