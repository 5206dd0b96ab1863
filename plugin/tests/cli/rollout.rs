//! `pause`, `resume`, `retry`, and the flags of a rollout
use serde_json::json;

use crate::{
    rig::{SHA, ask, end, run, start},
    scene::{denied, failed, failed_upgrade, running, spin},
    stub::{Stub, shim},
};

#[test]
fn a_pause_tells_what_goes_on_and_a_resume_ends_it() {
    let stub = failed_upgrade();
    running(&stub, "a");
    let ran = ask(&stub, &["pause", "shim/spin"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "shim.shim.dev/spin paused\n"), "{}", ran.err);
    assert!(
        ran.err.starts_with("spin paused; 1 node in progress will finish (a)\nNext: kubectl shim resume spin"),
        "{}",
        ran.err
    );
    assert_eq!(stub.writes()[0].1["spec"], json!({"rolloutStrategy": {"paused": true}}));
    assert_eq!(stub.writes()[0].1["metadata"]["annotations"], json!({"shim.dev/changed-by": "alice"}));
    let ran = ask(&stub, &["pause", "spin"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "shim.shim.dev/spin unchanged\n"), "{}", ran.err);
    assert_eq!(ask(&stub, &["pause", "spin", "--error-unchanged"]).code, Some(3));
    let ran = ask(&stub, &["resume", "spin"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "shim.shim.dev/spin resumed\n"), "{}", ran.err);
    assert_eq!(stub.get(&spin()).unwrap()["spec"]["rolloutStrategy"]["paused"], false);
    assert_eq!(ask(&stub, &["resume", "spin"]).out, "shim.shim.dev/spin unchanged\n");
    assert_eq!(stub.writes().len(), 2);
}

#[test]
fn what_was_never_paused_is_not_resumed() {
    let stub = failed_upgrade();
    assert_eq!(ask(&stub, &["resume", "spin"]).out, "shim.shim.dev/spin unchanged\n");
    let ran = ask(&stub, &["pause", "spin", "nope"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.starts_with("Error from server (NotFound): shims.shim.dev \"nope\" not found"), "{}", ran.err);
    assert!(stub.writes().is_empty(), "the first was paused although the second is not there");
}

#[test]
fn a_pause_waits_for_the_nodes_in_progress() {
    let stub = failed_upgrade();
    running(&stub, "a");
    let child = start(&stub, &["pause", "spin", "--wait", "--timeout", "20s"]);
    stub.await_write(&format!("PATCH {}", spin()));
    let mut shim = stub.get(&spin()).unwrap();
    shim["status"]["conditions"] = json!([{"type": "Paused", "status": "True", "reason": "Paused", "message": "",
        "lastTransitionTime": "2026-11-30T08:00:00Z"}]);
    stub.put(&spin(), shim);
    let ran = end(child);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "shim.shim.dev/spin paused\n"), "{}", ran.err);
}

#[test]
fn a_retry_asks_for_all_that_failed() {
    let stub = failed_upgrade();
    failed(&stub, "a", "2026-11-30T09:00:00Z");
    failed(&stub, "b", "2026-11-30T09:30:00Z");
    let ran = ask(&stub, &["retry", "spin"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "shim.shim.dev/spin retried\n"), "{}", ran.err);
    assert!(ran.err.starts_with("spin: another try on a, b\nNext: kubectl shim status spin -w"), "{}", ran.err);
    let (line, body) = &stub.writes()[0];
    assert!(line.starts_with(&format!("PATCH {}?", spin())) && line.contains("fieldManager=kubectl-shim"), "{line}");
    // By the clock of the cluster: just after the last failure.
    assert_eq!(body, &json!({"metadata": {"uid": "spin", "annotations": {"shim.dev/retry": "2026-11-30T09:30:01Z"}}}));
}

#[test]
fn a_retry_of_some_nodes_names_them() {
    let stub = failed_upgrade();
    failed(&stub, "a", "2026-11-30T09:00:00Z");
    failed(&stub, "b", "2026-11-30T09:30:00Z");
    let ran = ask(&stub, &["retry", "spin", "--node", "a", "--node", "a"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert_eq!(stub.writes()[0].1["metadata"]["annotations"], json!({"shim.dev/retry": "2026-11-30T09:00:01Z=a"}));
    for (node, text) in [
        (
            "c",
            "error: node \"c\" has nothing to try again: shim \"spin\" is Waiting there; nothing was changed\nNext: kubectl shim status spin",
        ),
        ("d", "error: node \"d\" is not one of shim \"spin\"; nothing was changed\n"),
    ] {
        let ran = ask(&stub, &["retry", "spin", "--node", "a", "--node", node]);
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{node}");
        assert!(ran.err.starts_with(text), "{}", ran.err);
    }
    assert_eq!(stub.writes().len(), 1);
}

#[test]
fn a_retry_of_nothing_is_unchanged() {
    let stub = failed_upgrade();
    running(&stub, "a");
    let ran = ask(&stub, &["retry", "spin"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "shim.shim.dev/spin unchanged\n"), "{}", ran.err);
    assert_eq!(ask(&stub, &["retry", "spin", "--error-unchanged"]).code, Some(3));
    assert!(stub.writes().is_empty());
}

#[test]
fn a_retry_asks_for_a_repair_that_waits() {
    let stub = failed_upgrade();
    denied(&stub, "a", "2026-11-30T09:00:00Z");
    let wish = json!({"shim.dev/retry": "2026-11-30T09:00:01Z=a"});
    let ran = ask(&stub, &["retry", "spin", "--node", "a"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "shim.shim.dev/spin retried\n"), "{}", ran.err);
    assert_eq!(stub.writes()[0].1["metadata"]["annotations"], wish);

    stub.forbid("/api/v1/nodes");
    let mut shim = stub.get(&spin()).unwrap();
    shim["status"]["problems"] = json!([{"node": "a", "state": "Waiting", "reason": "HandlerNotReported",
        "message": "no", "attempts": 0, "since": "2026-11-30T09:00:00Z"}]);
    stub.put(&spin(), shim);
    assert_eq!(ask(&stub, &["retry", "spin", "--node", "a"]).code, Some(0));
    assert_eq!(stub.writes()[1].1["metadata"]["annotations"], wish);
}

#[test]
fn a_retry_without_rights_on_nodes_goes_by_the_problems() {
    let stub = failed_upgrade();
    stub.forbid("/api/v1/nodes");
    let mut shim = stub.get(&spin()).unwrap();
    shim["status"]["problems"] = json!([{"node": "a", "state": "Failed", "step": "Fetch", "reason": "ChecksumMismatch",
        "message": "no", "attempts": 3, "since": "2026-11-30T09:00:00Z"}]);
    stub.put(&spin(), shim);
    assert_eq!(ask(&stub, &["retry", "spin", "--node", "a"]).code, Some(0));
    assert_eq!(stub.writes()[0].1["metadata"]["annotations"], json!({"shim.dev/retry": "2026-11-30T09:00:01Z=a"}));
    let ran = ask(&stub, &["retry", "spin", "--node", "b"]);
    assert!(
        ran.err.starts_with("error: node \"b\" is not among the problems that shim \"spin\" tells of"),
        "{}",
        ran.err
    );
}

#[test]
fn a_retry_waits_for_the_try_and_not_for_the_failure_before() {
    let stub = failed_upgrade();
    failed(&stub, "a", "2026-11-30T09:00:00Z");
    let child = start(&stub, &["retry", "spin", "--wait", "--timeout", "30s"]);
    stub.await_write(&format!("PATCH {}", spin()));
    // The Shim still says Stalled, of the failure before; then the try fails too.
    failed(&stub, "a", "2026-11-30T09:10:00Z");
    stub.put(&spin(), stub.get(&spin()).unwrap());
    let ran = end(child);
    assert_eq!((ran.code, ran.out.as_str()), (Some(4), "shim.shim.dev/spin retried\n"), "{}", ran.err);
    let told = "spin stopped: 1 of 3 nodes failed\n  a  Fetch  ChecksumMismatch: expected eec8, got 9b9d (attempt 3, ";
    assert!(ran.err.contains(told), "{}", ran.err);
}

#[test]
fn a_rollout_that_stopped_names_node_step_reason_and_ways_out() {
    let stub = failed_upgrade();
    failed(&stub, "a", "2026-11-30T09:00:00Z");
    let ran = ask(&stub, &["status", "spin", "--exit-status"]);
    assert_eq!(ran.code, Some(4));
    assert!(
        ran.out.contains(
            "State:         Failed  (revision 4; 1 of 3 nodes failed; the rollout stopped; a: ChecksumMismatch: "
        ),
        "{}",
        ran.out
    );
    let server = stub.url();
    let next = format!(
        "  log: digest is 9b9d\nNext: kubectl shim retry spin --node a --server {server}\n      \
        kubectl shim rollback spin --server {server}\n      kubectl shim status --node a --server {server}\n"
    );
    assert!(ran.err.contains("spin stopped: 1 of 3 nodes failed\n  a  Fetch  ChecksumMismatch: "), "{}", ran.err);
    assert!(ran.err.contains(&next), "{}", ran.err);
}

const INSTALL: [&str; 9] =
    ["install", "spin", "--version", "v1", "--url", "https://example.com/a", "--sha256", SHA, "--dry-run=client"];

#[test]
fn the_flags_of_a_rollout_are_its_fields() {
    let ran = run(&[&INSTALL[..], &["--canary", "2", "--max-failures", "10%", "-o", "json"]].concat());
    let object: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(object["spec"]["rolloutStrategy"], json!({"canary": 2, "maxFailures": "10%"}));
    let ran = run(&[&INSTALL[..], &["--strategy", "recreate", "-o", "json"]].concat());
    let object: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(object["spec"]["rolloutStrategy"], json!({"type": "recreate"}));
    let stub = Stub::with_nodes(&[("a", "amd64")]);
    stub.put(&spin(), shim("spin", "v1", "True", "False"));
    let ran = ask(&stub, &["upgrade", "spin", "--canary", "0", "--max-failures", "3", "--strategy", "rolling"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert_eq!(
        stub.writes()[0].1["spec"]["rolloutStrategy"],
        json!({"type": "rolling", "canary": 0, "maxFailures": 3})
    );
}

#[test]
fn flags_that_make_no_sense_are_refused_before_anything_is_sent() {
    let stub = Stub::with_nodes(&[("a", "amd64")]);
    stub.put(&spin(), shim("spin", "v1", "True", "False"));
    for (flags, error) in [
        (
            &["--canary", "101%"][..],
            "error: invalid argument \"101%\" for \"--canary\" flag: canary must be a number or a percentage from 0% to 100%, not \"101%\"\n",
        ),
        (&["--canary", "-1"], "error: "),
        (
            &["--max-failures", "0"],
            "error: invalid argument \"0\" for \"--max-failures\" flag: maxFailures must be a number of at least 1 or a percentage from 1% to 100%, not \"0\"\n",
        ),
        (&["--max-update", "0"], "error: invalid argument \"0\" for \"--max-update\" flag: maxUpdate must be "),
        (
            &["--strategy", "all"],
            "error: invalid argument \"all\" for \"--strategy\" flag: use one of rolling, recreate\n",
        ),
    ] {
        for words in [&INSTALL[..], &["upgrade", "spin"]] {
            let ran = ask(&stub, &[words, flags].concat());
            assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{words:?} {flags:?}");
            assert!(ran.err.starts_with(error), "{flags:?}: {}", ran.err);
        }
    }
    for words in [&INSTALL[..], &["upgrade", "spin"]] {
        let ran = ask(&stub, &[words, &["--strategy", "recreate", "--canary", "1"]].concat());
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{words:?}");
        let text = "The Shim \"spin\" is invalid: \n* spec.rolloutStrategy: type recreate takes all nodes at once: rolling and canary must not be set with it\n";
        assert_eq!(ran.err, text);
    }
    assert!(stub.writes().is_empty());
}
