//! `uninstall`
use serde_json::json;

use crate::{
    rig::{ask, end, start},
    stub::{CONTROLLER, SHIMS, Stub, shim},
};

fn cluster() -> Stub {
    let stub = Stub::with_nodes(&[("a", "amd64")]);
    stub.put(&format!("{SHIMS}/spin"), shim("spin", "v1", "True", "False"));
    stub
}

fn with_pod() -> Stub {
    let stub = cluster();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hello", "namespace": "shop"},
        "spec": {"containers": [], "runtimeClassName": "spin", "nodeName": "a"}, "status": {"phase": "Running"}});
    stub.put("/api/v1/namespaces/shop/pods/hello", pod);
    stub
}

#[test]
fn without_pods_there_is_no_question() {
    let stub = cluster();
    let ran = ask(&stub, &["uninstall", "spin"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "shim.shim.dev/spin deleted\n"), "{}", ran.err);
    assert!(ran.err.contains("spin: 2 nodes to clean\n"), "{}", ran.err);
    assert_eq!(stub.writes()[0].1["preconditions"]["uid"], "spin");
    assert!(stub.get(&format!("{SHIMS}/spin")).unwrap()["metadata"]["deletionTimestamp"].is_string());
}

#[test]
fn pods_are_shown_and_need_a_yes() {
    let stub = with_pod();
    let ran = ask(&stub, &["uninstall", "spin"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""));
    assert!(ran.err.contains("shop        hello   a      spin\n"), "{}", ran.err);
    assert!(
        ran.err.contains(
            "error: refusing to uninstall without confirmation; pass --yes\nNext: kubectl shim uninstall spin --yes"
        ),
        "{}",
        ran.err
    );
    assert!(stub.writes().is_empty());
    let ran = ask(&stub, &["uninstall", "shim/spin", "--yes"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "shim.shim.dev/spin deleted\n"), "{}", ran.err);
}

#[test]
fn all_or_none() {
    let stub = Stub::with_nodes(&[]);
    let ran = ask(&stub, &["uninstall", "--all"]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (Some(0), "", "No resources found\n"));
    let stub = cluster();
    let ran = ask(&stub, &["uninstall", "spin", "nope"]);
    assert_eq!(ran.code, Some(1));
    assert!(stub.writes().is_empty(), "the first was removed although the second is not there");
}

#[test]
fn all_at_once_needs_a_yes() {
    for (words, next) in [
        (&["uninstall", "--all"][..], "uninstall --all --yes"),
        (&["uninstall", "--all", "--orphan"], "uninstall --all --orphan --yes"),
    ] {
        let stub = cluster();
        let ran = ask(&stub, words);
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{words:?}");
        let text = format!("error: refusing to uninstall without confirmation; pass --yes\nNext: kubectl shim {next}");
        assert!(ran.err.starts_with(&text), "{}", ran.err);
        assert!(stub.writes().is_empty());
        assert_eq!(ask(&stub, &[words, &["--dry-run=server"]].concat()).code, Some(0));
        assert_eq!(ask(&stub, &[words, &["--yes"]].concat()).code, Some(0));
    }
}

#[test]
fn pods_that_may_not_be_seen_need_a_yes() {
    let stub = cluster();
    stub.forbid("/api/v1/pods");
    let ran = ask(&stub, &["uninstall", "spin"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""));
    let text = "Warning: pods may not be listed; whether some use the runtime was not checked\nerror: refusing to";
    assert!(ran.err.starts_with(text), "{}", ran.err);
    assert!(stub.writes().is_empty());
    assert_eq!(ask(&stub, &["uninstall", "spin", "--yes"]).code, Some(0));
}

#[test]
fn an_orphan_is_let_go_in_one_write() {
    let stub = with_pod();
    stub.remove(CONTROLLER);
    let ran = ask(&stub, &["uninstall", "spin", "--orphan"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "shim.shim.dev/spin orphaned\n"), "{}", ran.err);
    assert!(ran.err.contains("its nodes and RuntimeClass spin were left as they are"), "{}", ran.err);
    let writes = stub.writes();
    let metadata = &writes[0].1["metadata"];
    assert_eq!((&metadata["annotations"], &metadata["finalizers"]), (&json!({"shim.dev/orphan": "true"}), &json!([])));
    assert!(metadata["resourceVersion"].is_string());
    assert!(writes[1].0.starts_with("DELETE"));
    assert!(stub.get(&format!("{SHIMS}/spin")).is_none());
}

#[test]
fn a_dry_run_deletes_nothing() {
    for (flag, text) in [("--dry-run=client", "deleted (dry run)"), ("--dry-run=server", "deleted (server dry run)")] {
        let stub = with_pod();
        let ran = ask(&stub, &["uninstall", "spin", flag]);
        assert_eq!((ran.code, ran.out), (Some(0), format!("shim.shim.dev/spin {text}\n")), "{}", ran.err);
        assert!(stub.get(&format!("{SHIMS}/spin")).unwrap()["metadata"]["deletionTimestamp"].is_null());
    }
}

#[test]
fn a_wait_ends_when_the_shim_is_gone() {
    let stub = cluster();
    let child = start(&stub, &["uninstall", "spin", "--wait"]);
    stub.await_write(&format!("DELETE {SHIMS}/spin"));
    stub.remove(&format!("{SHIMS}/spin"));
    let ran = end(child);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "shim.shim.dev/spin deleted\n"), "{}", ran.err);
}

#[test]
fn a_wait_without_a_controller_says_so_and_ends() {
    let stub = cluster();
    stub.remove(CONTROLLER);
    let ran = ask(&stub, &["uninstall", "spin", "--wait", "--timeout", "30s"]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(ran.err.contains("Warning: there is no controller in namespace shim-system"), "{}", ran.err);
    assert!(ran.err.contains("kubectl shim uninstall spin --orphan"), "{}", ran.err);
}
