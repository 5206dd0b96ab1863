//! `upgrade`
use serde_json::json;

use crate::{
    rig::{SHA, ask},
    stub::{SHIMS, Stub, shim},
};

const V2: [&str; 8] = ["upgrade", "spin", "--version", "v2", "--url", "https://example.com/v2", "--sha256", SHA];

fn cluster() -> Stub {
    let stub = Stub::with_nodes(&[("a", "amd64"), ("b", "amd64")]);
    let mut shim = shim("spin", "v1", "True", "False");
    shim["spec"]["nodeSelector"] = json!({"spin": "true"});
    stub.put(&format!("{SHIMS}/spin"), shim);
    stub
}

#[test]
fn only_what_changes_is_sent() {
    let stub = cluster();
    let ran = ask(&stub, &V2);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "shim.shim.dev/spin configured\n"), "{}", ran.err);
    assert!(ran.err.starts_with("spin v1 -> v2 on 2 nodes, 1 at a time\n"), "{}", ran.err);
    let (line, body) = &stub.writes()[0];
    assert!(line.starts_with(&format!("PATCH {SHIMS}/spin?")) && !line.contains("force"), "{line}");
    let spec =
        json!({"version": "v2", "fetchStrategy": {"anonHttp": {"location": "https://example.com/v2", "sha256": SHA}}});
    let metadata = json!({"name": "spin", "uid": "spin", "annotations": {"shim.dev/changed-by": "alice"}});
    assert_eq!((&body["spec"], &body["metadata"]), (&spec, &metadata));
    assert_eq!(stub.get(&format!("{SHIMS}/spin")).unwrap()["spec"]["nodeSelector"], json!({"spin": "true"}));
}

#[test]
fn the_same_again_is_unchanged() {
    let stub = cluster();
    let same = ["upgrade", "spin", "--version", "v1", "--url", "https://example.com/v1", "--sha256", SHA];
    let ran = ask(&stub, &same);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "shim.shim.dev/spin unchanged\n"), "{}", ran.err);
    assert_eq!(ask(&stub, &[&same[..], &["--error-unchanged"]].concat()).code, Some(3));
    assert!(stub.writes().is_empty());
}

#[test]
fn another_manager_is_named_and_can_be_overruled() {
    let stub = cluster();
    stub.conflict(&format!("{SHIMS}/spin"), "kustomize-controller");
    let ran = ask(&stub, &V2);
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""));
    let text = "error: shim.shim.dev/spin is managed by \"kustomize-controller\" (.spec.version); change it there, or pass --force-conflicts\n";
    assert!(ran.err.ends_with(text), "{}", ran.err);
    let ran = ask(&stub, &[&V2[..], &["--force-conflicts"]].concat());
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "shim.shim.dev/spin configured\n"), "{}", ran.err);
}

#[test]
fn what_can_not_be_upgraded_is_said() {
    let stub = cluster();
    let ran = ask(&stub, &["upgrade", "nope", "--paused"]);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.err
            .starts_with("Error from server (NotFound): shims.shim.dev \"nope\" not found\nNext: kubectl shim status"),
        "{}",
        ran.err
    );
    let ran = ask(&stub, &["upgrade", "spin"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.starts_with("error: nothing to change"), "{}", ran.err);
    let ran = ask(&stub, &["upgrade", "spin", "--version", "v3"]);
    assert_eq!(ran.code, Some(2));
    let mut bad = V2;
    bad[7] = "AB";
    let ran = ask(&stub, &bad);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.starts_with("The Shim \"spin\" is invalid: \n* spec.fetchStrategy.anonHttp.sha256"), "{}", ran.err);
    assert!(stub.writes().is_empty());
}

#[test]
fn pausing_and_the_pace_are_single_fields() {
    let stub = cluster();
    let ran = ask(&stub, &["upgrade", "spin", "--paused", "--max-update", "50%"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "shim.shim.dev/spin configured\n"), "{}", ran.err);
    assert_eq!(
        stub.writes()[0].1["spec"],
        json!({"rolloutStrategy": {"paused": true, "rolling": {"maxUpdate": "50%"}}})
    );
}

#[test]
fn a_client_dry_run_shows_the_result_and_sends_nothing() {
    let stub = cluster();
    let ran = ask(&stub, &[&V2[..], &["--dry-run=client", "-o", "json"]].concat());
    let object: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&object["spec"]["version"], &object["spec"]["nodeSelector"]), (&json!("v2"), &json!({"spin": "true"})));
    assert!(stub.writes().is_empty());
}
