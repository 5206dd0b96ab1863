//! `install` against a cluster.
use serde_json::json;

use crate::{
    rig::{SHA, ask},
    stub::{CONTROLLER, SHIMS, Stub, shim},
};

const SPIN: [&str; 8] = ["install", "spin", "--version", "v1", "--url", "https://example.com/v1", "--sha256", SHA];

fn spin<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&SPIN[..], more].concat()
}

#[test]
fn a_new_shim_is_applied_and_the_facts_go_beside() {
    let stub = Stub::with_nodes(&[("a", "amd64"), ("b", "amd64"), ("c", "arm64")]);
    let ran = ask(&stub, &spin(&["--node-selector", "spin=true"]));
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "shim.shim.dev/spin created\n"), "{}", ran.err);
    assert!(ran.err.contains("3 nodes with spin=true: 2 linux/amd64, 1 linux/arm64\n"), "{}", ran.err);
    assert!(ran.err.ends_with(&format!("Next: kubectl shim status spin -w --server {}\n", stub.url())), "{}", ran.err);
    let (line, body) = &stub.writes()[0];
    assert!(line.starts_with(&format!("PATCH {SHIMS}/spin?")), "{line}");
    assert!(
        line.contains("fieldManager=kubectl-shim")
            && line.contains("fieldValidation=Strict")
            && !line.contains("force"),
        "{line}"
    );
    assert_eq!(body["spec"]["nodeSelector"], json!({"spin": "true"}));
}

#[test]
fn the_same_shim_again_is_unchanged_and_another_one_needs_upgrade() {
    let stub = Stub::with_nodes(&[("a", "amd64")]);
    stub.put(&format!("{SHIMS}/spin"), shim("spin", "v1", "True", "False"));
    let ran = ask(&stub, &SPIN);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "shim.shim.dev/spin unchanged\n"), "{}", ran.err);
    let ran = ask(&stub, &spin(&["--binary", "x"]));
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""));
    let text = "error: shim \"spin\" exists at v1 and is not the same: spec.binary: absent there, x given\n";
    assert!(ran.err.starts_with(text), "{}", ran.err);
    assert!(
        ran.err.contains("Next: kubectl shim upgrade spin --version v1 --url https://example.com/v1"),
        "{}",
        ran.err
    );
    assert!(stub.writes().is_empty());
}

#[test]
fn the_same_shim_after_a_pause_and_a_resume_is_unchanged() {
    let stub = Stub::with_nodes(&[("a", "amd64")]);
    ask(&stub, &SPIN);
    ask(&stub, &["pause", "spin"]);
    let ran = ask(&stub, &SPIN);
    assert_eq!(ran.code, Some(1), "{}", ran.out);
    let text = "spec.rolloutStrategy.paused: true there, false given\nNext: kubectl shim resume spin";
    assert!(ran.err.contains(text), "{}", ran.err);
    ask(&stub, &["resume", "spin"]);
    let ran = ask(&stub, &SPIN);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "shim.shim.dev/spin unchanged\n"), "{}", ran.err);
}

#[test]
fn the_hint_makes_the_change() {
    let stub = Stub::with_nodes(&[("a", "amd64")]);
    let mut live = shim("spin", "v1", "True", "False");
    live["spec"]["rolloutStrategy"] = json!({"canary": 2, "paused": true});
    stub.put(&format!("{SHIMS}/spin"), live);
    for (flags, told, next) in [
        (
            &["--max-update", "1", "--canary", "2"][..],
            "spec.rolloutStrategy.paused: true there, false given; \
            spec.rolloutStrategy.rolling.maxUpdate: 10% there, 1 given",
            "--max-update 1 --canary 2 --paused=false",
        ),
        (&["--paused"], "spec.rolloutStrategy.canary: 2 there, 1 given", "kubectl edit shims.shim.dev spin"),
        (
            &["--handler", "other", "--canary", "2", "--paused"],
            "spec.runtimeClass.handler: spin there, other given",
            "kubectl shim uninstall spin",
        ),
    ] {
        let ran = ask(&stub, &spin(flags));
        assert_eq!(ran.code, Some(1));
        assert!(ran.err.contains(&format!("is not the same: {told}\nNext: ")), "{}", ran.err);
        assert!(ran.err.contains(next), "{}", ran.err);
    }
    assert!(stub.writes().is_empty());
}

#[test]
fn nothing_is_sent_where_something_stands_in_the_way() {
    let stub = Stub::with_nodes(&[("a", "amd64"), ("b", "arm64")]);
    let class = |labels| json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "spin", "labels": labels}, "handler": "spin"});
    let path = "/apis/node.k8s.io/v1/runtimeclasses/spin";
    stub.put(path, class(json!({})));
    let ran = ask(&stub, &SPIN);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.starts_with("error: RuntimeClass spin exists and was not made by kubectl-shim"), "{}", ran.err);
    stub.remove(path);

    let only = format!("linux/amd64=https://example.com/a,sha256={SHA}");
    let ran = ask(&stub, &["install", "spin", "--version", "v1", "--platform", &only]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.starts_with("error: there is no artifact for linux/arm64, which 1 node needs (b)"), "{}", ran.err);

    stub.put(&format!("{SHIMS}/other"), shim("other", "v1", "True", "False"));
    let ran = ask(&stub, &spin(&["--handler", "other"]));
    assert!(ran.err.starts_with("error: handler other belongs to Shim other, which is older"), "{}", ran.err);

    stub.without("/apis/shim.dev");
    let ran = ask(&stub, &SPIN);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.err.starts_with("error: the server doesn't have a resource type \"shims\"\nNext: kubectl shim init"),
        "{}",
        ran.err
    );
    assert!(stub.writes().is_empty());
}

#[test]
fn what_may_be_a_mistake_is_only_a_warning() {
    let stub = Stub::with_nodes(&[("a", "amd64")]);
    let ran = ask(&stub, &spin(&["--node-selector", "spin=false"]));
    assert_eq!(ran.code, Some(0));
    assert!(ran.err.contains("Warning: there is no node with spin=false now"), "{}", ran.err);

    let stub = Stub::with_nodes(&[("a", "amd64")]);
    stub.forbid("/api/v1/nodes");
    stub.remove(CONTROLLER);
    let ran = ask(&stub, &SPIN);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "shim.shim.dev/spin created\n"));
    assert!(ran.err.contains("Warning: the nodes may not be listed"), "{}", ran.err);
    assert!(ran.err.contains("Warning: there is no controller in namespace shim-system"), "{}", ran.err);
}

#[test]
fn a_server_dry_run_keeps_nothing() {
    let stub = Stub::with_nodes(&[("a", "amd64")]);
    let ran = ask(&stub, &spin(&["--dry-run=server"]));
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "shim.shim.dev/spin created (server dry run)\n"), "{}", ran.err);
    assert!(stub.writes()[0].0.contains("dryRun=All"));
    assert!(stub.get(&format!("{SHIMS}/spin")).is_none());
}

#[test]
fn an_answer_of_the_server_that_refuses_is_told_in_its_words() {
    let stub = Stub::with_nodes(&[("a", "amd64")]);
    stub.forbid(SHIMS);
    let ran = ask(&stub, &SPIN);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.starts_with("Error from server (Forbidden): "), "{}", ran.err);
}
