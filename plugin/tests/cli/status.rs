//! `status`
use serde_json::Value;

use crate::{
    rig::{ask, run},
    scene::REVISIONS,
    stub::{SHIMS, Stub, shim},
};

fn cluster() -> Stub {
    let stub = Stub::with_nodes(&[("a", "amd64"), ("b", "amd64")]);
    stub.put(&format!("{SHIMS}/spin"), shim("spin", "v1", "True", "False"));
    stub
}

#[test]
fn nothing_to_show_is_no_error() {
    let ran = ask(&Stub::with_nodes(&[]), &["status"]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (Some(0), "", "No resources found\n"));
}

#[test]
fn tables_and_documents() {
    let stub = cluster();
    let ran = ask(&stub, &["status"]);
    assert_eq!(ran.code, Some(0));
    assert!(
        ran.out.starts_with(
            "NAME   VERSION   STATE      READY   UPDATED   FAILED   AGE\nspin   v1        Updating   0/2 "
        ),
        "{}",
        ran.out
    );
    assert!(ask(&stub, &["status", "spin"]).out.starts_with("Name:          spin\n"));
    assert!(ask(&stub, &["status", "spin", "-o", "wide"]).out.contains("ATTEMPTS"));
    assert!(ask(&stub, &["status", "--node", "a"]).out.starts_with("Node:          a\n"));
    assert_eq!(ask(&stub, &["status", "-o", "name"]).out, "shim.shim.dev/spin\n");
    let json: Value = serde_json::from_str(&ask(&stub, &["status", "-o", "json"]).out).unwrap();
    assert_eq!(json["items"][0]["nodes"][0]["state"], "Waiting");
    assert!(ask(&stub, &["status", "-o", "yaml"]).out.contains("kind: ShimStatusList"));
    assert!(stub.writes().is_empty());
}

#[test]
fn colour_only_where_asked() {
    let stub = cluster();
    assert!(!ask(&stub, &["status"]).out.contains('\x1b'));
    assert!(ask(&stub, &["status", "--color=always"]).out.contains("\x1b[36mUpdating\x1b[0m"));
}

#[test]
fn what_is_not_there_is_said_beside_what_is() {
    let stub = cluster();
    let ran = ask(&stub, &["status", "spin", "nope"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.contains("spin"));
    assert!(ran.err.ends_with("Error from server (NotFound): shims.shim.dev \"nope\" not found\n"), "{}", ran.err);
    for format in ["table", "wide", "json", "yaml", "name"] {
        let ran = ask(&stub, &["status", "--node", "nope", "-o", format]);
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{format}");
        let text = "Error from server (NotFound): nodes \"nope\" not found\nNext: kubectl get nodes";
        assert!(ran.err.starts_with(text), "{format}: {}", ran.err);
    }
}

#[test]
fn without_rights_on_nodes_the_status_speaks() {
    let stub = cluster();
    stub.forbid("/api/v1/nodes");
    let ran = ask(&stub, &["status"]);
    assert_eq!(ran.code, Some(0));
    assert!(ran.out.contains("2/2"), "{}", ran.out);
    assert!(ran.err.starts_with("Warning: nodes may not be listed; what follows is what the controller has written to .status\nNext: kubectl auth can-i list nodes"), "{}", ran.err);
    for format in ["table", "json"] {
        assert_eq!(ask(&stub, &["status", "--node", "a", "-o", format]).code, Some(1), "{format}");
    }
}

#[test]
fn a_right_in_the_namespace_is_asked_for_there() {
    let stub = cluster();
    stub.forbid(REVISIONS);
    let asked = "Next: kubectl auth can-i list controllerrevisions --namespace shim-system";
    let ran = ask(&stub, &["status"]);
    assert!(ran.err.contains(asked), "{}", ran.err);
}

#[test]
fn a_bad_answer_is_an_exit_code_on_request() {
    let stub = cluster();
    stub.forbid("/api/v1/nodes");
    stub.put(&format!("{SHIMS}/spin"), shim("spin", "v1", "False", "True"));
    assert_eq!(ask(&stub, &["status"]).code, Some(0));
    let ran = ask(&stub, &["status", "--exit-status"]);
    assert_eq!(ran.code, Some(4));
    assert!(ran.err.contains("spin: Written: 2 of 2 nodes ready\nNext: kubectl shim status spin"), "{}", ran.err);
}

#[test]
fn without_the_resource_type_init_is_next() {
    let stub = Stub::start();
    stub.without("/apis/shim.dev");
    let ran = ask(&stub, &["status"]);
    let next = format!(
        "error: the server doesn't have a resource type \"shims\"\nNext: kubectl shim init --server {}\n",
        stub.url()
    );
    assert_eq!((ran.code, ran.err), (Some(1), next));
}

#[test]
fn a_server_that_is_away_is_told_in_the_words_of_kubectl() {
    let ran = run(&["status", "--server", "http://127.0.0.1:1"]);
    assert_eq!(ran.code, Some(1));
    assert_eq!(
        ran.err,
        "The connection to the server 127.0.0.1:1 was refused - did you specify the right host or port?\n"
    );
}
