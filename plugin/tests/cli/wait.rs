//! `-w` and `--wait`: how they end.
use std::process::{Child, Command};

use serde_json::{Value, json};

use crate::{
    rig::{Ran, SHA, ask, end, start},
    stub::{CONTROLLER, SHIMS, Stub, deployment, shim},
};

fn path() -> String {
    format!("{SHIMS}/spin")
}

fn cluster(ready: &str, stalled: &str) -> Stub {
    let stub = Stub::with_nodes(&[("a", "amd64")]);
    stub.put(&path(), shim("spin", "v1", ready, stalled));
    stub
}

/// Starts a watch and waits until it has spoken.
fn watching(stub: &Stub, words: &[&str]) -> Child {
    use std::io::{BufRead as _, BufReader};
    let mut child = start(stub, words);
    let mut first = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut first).unwrap();
    assert!(first.contains("spin v1 Updating"), "{first}");
    // The rest goes on being read, so that the pipe stays open.
    std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
    child
}

#[test]
fn a_settled_shim_ends_it_at_once() {
    assert_eq!(ask(&cluster("True", "False"), &["status", "spin", "-w"]).code, Some(0));
    assert_eq!(ask(&cluster("False", "True"), &["status", "spin", "-w"]).code, Some(4));
    let ran = ask(&Stub::with_nodes(&[]), &["status", "nope", "-w"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("not found"), "{}", ran.err);
}

#[test]
fn a_change_ends_it() {
    let stub = cluster("False", "False");
    let child = watching(&stub, &["status", "spin", "-w"]);
    stub.put(&path(), shim("spin", "v1", "True", "False"));
    assert_eq!(end(child).code, Some(0));
}

#[test]
fn a_deletion_by_others_ends_it() {
    let stub = cluster("False", "False");
    let child = watching(&stub, &["status", "spin", "-w"]);
    stub.remove(&path());
    stub.put(&format!("{SHIMS}/other"), shim("other", "v1", "True", "False"));
    let ran = end(child);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("error: shim \"spin\" was deleted meanwhile"), "{}", ran.err);
}

#[test]
fn a_time_out_has_its_own_code() {
    let ran = ask(&cluster("False", "False"), &["status", "spin", "-w", "--timeout", "1s"]);
    assert_eq!(ran.code, Some(124));
    assert!(
        ran.err.contains("error: not done after 1s: spin: 0 of 1 node updated; canary: 0 of 1 node done\nNext: kubectl shim status spin -w"),
        "{}",
        ran.err
    );
}

#[test]
fn an_interrupt_leaves_the_rollout_alone() {
    let stub = cluster("False", "False");
    let child = watching(&stub, &["status", "spin", "-w"]);
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let ran: Ran = end(child);
    assert_eq!(ran.code, Some(130));
    assert!(
        ran.err.starts_with("Stopped watching; the rollout continues.\nNext: kubectl shim status spin -w"),
        "{}",
        ran.err
    );
    assert!(stub.writes().is_empty());
}

#[test]
fn install_waits_for_what_it_has_sent() {
    let stub = Stub::with_nodes(&[("a", "amd64")]);
    let child = start(
        &stub,
        &["install", "spin", "--version", "v1", "--url", "https://example.com/v1", "--sha256", SHA, "--wait"],
    );
    stub.await_write(&format!("PATCH {SHIMS}/spin"));
    stub.put(&path(), shim("spin", "v1", "True", "False"));
    let ran = end(child);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "shim.shim.dev/spin created\n"), "{}", ran.err);
}

#[test]
fn a_wait_ends_where_there_is_no_controller_and_goes_on_while_one_starts() {
    let (none, starting) = (cluster("False", "False"), cluster("False", "False"));
    none.remove(CONTROLLER);
    let mut deployment = deployment();
    deployment["status"] = json!({"observedGeneration": 1, "replicas": 1});
    starting.put(CONTROLLER, deployment);
    let in_vain = start(&none, &["wait", "spin", "--timeout", "30s"]);
    let watch = start(&none, &["status", "spin", "-w", "--timeout", "7s"]);
    let ran = ask(&starting, &["wait", "spin", "--timeout", "7s"]);
    assert_eq!(ran.code, Some(124), "{}", ran.err);
    assert!(ran.err.contains("Warning: the controller in namespace shim-system is not running"), "{}", ran.err);
    let ran = end(in_vain);
    assert_eq!((ran.code, ran.out.as_str()), (Some(4), ""), "{}", ran.err);
    assert!(ran.err.contains("Warning: there is no controller in namespace shim-system"), "{}", ran.err);
    assert!(ran.err.contains("Next: kubectl shim init"), "{}", ran.err);
    assert_eq!(end(watch).code, Some(124), "a watch goes on");
}

#[test]
fn a_watch_for_programs_prints_one_document_a_line() {
    let ran = ask(&cluster("True", "False"), &["status", "-w", "-o", "json"]);
    assert_eq!(ran.out.lines().count(), 1);
    let value: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(value["kind"], "ShimStatusList");
}

#[test]
fn a_watch_that_nobody_reads_ends() {
    let stub = cluster("False", "False");
    let mut child = start(&stub, &["status", "spin", "-w"]);
    drop(child.stdout.take());
    let ran = end(child);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
}

fn with_revision(number: i64, ready: &str, stalled: &str) -> Value {
    let mut shim = shim("spin", "v1", ready, stalled);
    shim["status"]["revision"] = json!({"number": number, "version": "v1"});
    shim
}

#[test]
fn a_state_that_is_there_is_met_at_once() {
    let stub = cluster("True", "False");
    stub.put(&path(), with_revision(3, "True", "False"));
    for goal in ["ready", "updated", "condition=Ready", "condition=stalled=false", "revision=3"] {
        let ran = ask(&stub, &["wait", "shim/spin", "--for", goal]);
        assert_eq!(
            (ran.code, ran.out.as_str()),
            (Some(0), "shim.shim.dev/spin condition met\n"),
            "{goal}: {}",
            ran.err
        );
    }
    assert_eq!(ask(&stub, &["wait", "gone", "--for=deleted"]).out, "shim.shim.dev/gone condition met\n");
    assert!(stub.writes().is_empty());
}

#[test]
fn a_state_that_comes_is_waited_for() {
    let stub = cluster("False", "False");
    let child = start(&stub, &["wait", "spin", "--for=revision=2", "--timeout", "30s"]);
    stub.put(&path(), with_revision(2, "True", "False"));
    let ran = end(child);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "shim.shim.dev/spin condition met\n"), "{}", ran.err);
    let child = start(&stub, &["wait", "spin", "--for=deleted", "--timeout", "30s"]);
    stub.remove(&path());
    assert_eq!(end(child).code, Some(0));
}

#[test]
fn what_can_not_be_reached_any_more_ends_a_wait_at_once() {
    let stub = cluster("False", "True");
    let mut stopped = with_revision(3, "False", "True");
    stopped["status"]["nodesUpdated"] = json!(1);
    stub.put(&path(), stopped);
    stub.put(&format!("{SHIMS}/other"), shim("other", "v1", "False", "False"));
    for words in [&["spin"][..], &["spin", "--for=updated"], &["spin", "--for=revision=3"], &["other", "spin"]] {
        let ran = ask(&stub, &[&["wait"][..], words].concat());
        assert_eq!((ran.code, ran.out.as_str()), (Some(4), ""), "{words:?}: {}", ran.err);
    }
    let ran = ask(&stub, &["wait", "spin", "--for=revision=2"]);
    assert_eq!(ran.code, Some(4));
    assert!(ran.err.contains("error: spin: revision 2 was replaced by revision 3\n"), "{}", ran.err);
}

#[test]
fn a_wait_has_an_end() {
    let stub = cluster("True", "False");
    for goal in ["paused", "deleted", "condition=Stalled", "revision=9"] {
        let ran = ask(&stub, &["wait", "spin", "--for", goal, "--timeout", "1s"]);
        assert_eq!((ran.code, ran.out.as_str()), (Some(124), ""), "{goal}");
        assert!(ran.err.contains("error: not done after 1s: spin: "), "{}", ran.err);
    }
    let ran = ask(&stub, &["wait", "nope"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("\"nope\" not found"), "{}", ran.err);
}
