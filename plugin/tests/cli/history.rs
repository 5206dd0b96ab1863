//! `history` and `rollback`
use serde_json::{Value, json};

use crate::{
    rig::{SHA, ask, run_with},
    scene::{REVISIONS, failed_upgrade, record, spin},
    stub::{SHIMS, Stub, WHOAMI, shim},
};

#[test]
fn all_revisions_newest_first() {
    let stub = failed_upgrade();
    let ran = ask(&stub, &["history", "shim/spin"]);
    let lines: Vec<_> = ran.out.lines().collect();
    assert_eq!((ran.code, lines.len(), ran.err.as_str()), (Some(0), 5, ""), "{ran:?}");
    let header = "REVISION   VERSION   RESULT       NODES   STARTED             TOOK   BY                     CHANGE";
    let first =
        "4          v4        Failed       2/3     2026-11-30 04:00Z   89s    kubectl-shim (alice)   version v3 -> v4";
    assert!(lines[0] == header && lines[1].starts_with(first), "{}", ran.out);
    let list: Value = serde_json::from_str(&ask(&stub, &["history", "spin", "-o", "json"]).out).unwrap();
    assert_eq!((&list["items"][1]["revision"], &list["items"][1]["result"]), (&json!(3), &json!("Superseded")));
    assert!(ask(&stub, &["history", "spin", "-o", "yaml"]).out.contains("kind: ShimRevisionList\n"));
    let names = ask(&stub, &["history", "spin", "-o", "name"]).out;
    assert!(names.starts_with("controllerrevision.apps/shim-spin-4\n"), "{names}");
    assert!(stub.writes().is_empty());
}

#[test]
fn one_revision_is_shown_whole_and_its_document_can_be_sent() {
    let stub = failed_upgrade();
    let ran = ask(&stub, &["history", "spin", "--revision", "2"]);
    for line in [
        "Result:        Complete  (2 of 3 nodes, after 89s)\n",
        "  version: v2\n",
        "      location: https://example.com/v2\n",
    ] {
        assert!(ran.out.contains(line), "{line}: {}", ran.out);
    }
    let yaml = ask(&stub, &["history", "spin", "--revision", "2", "-o", "yaml"]).out;
    let server = stub.url();
    let ran = run_with(&["upgrade", "-f", "-", "--server", &server], &yaml);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "shim.shim.dev/spin configured\n"), "{}", ran.err);
    let spec = &stub.get(&spin()).unwrap()["spec"];
    assert_eq!(
        (&spec["version"], &spec["fetchStrategy"]["anonHttp"]["location"]),
        (&json!("v2"), &json!("https://example.com/v2"))
    );
}

#[test]
fn what_is_not_on_record_is_said() {
    let stub = failed_upgrade();
    let ran = ask(&stub, &["history", "spin", "--revision", "9"]);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.err.starts_with("error: shim \"spin\" has no revision 9 on record\nNext: kubectl shim history spin"),
        "{}",
        ran.err
    );
    let ran = ask(&stub, &["history", "nope"]);
    assert!(ran.err.starts_with("Error from server (NotFound): shims.shim.dev \"nope\" not found"), "{}", ran.err);
    stub.put(&format!("{SHIMS}/new"), shim("new", "v1", "False", "False"));
    let ran = ask(&stub, &["history", "new"]);
    assert_eq!(
        (ran.code, ran.out.as_str(), ran.err.as_str()),
        (Some(0), "", "No revision of shim \"new\" is on record yet\n")
    );
    stub.forbid(REVISIONS);
    let ran = ask(&stub, &["history", "spin"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.starts_with("Error from server (Forbidden): "), "{}", ran.err);
    assert!(
        ran.err.contains("Next: kubectl auth can-i list controllerrevisions --namespace shim-system"),
        "{}",
        ran.err
    );
}

#[test]
fn a_rollback_goes_to_the_last_that_completed() {
    for command in ["rollback", "undo"] {
        let stub = failed_upgrade();
        let ran = ask(&stub, &[command, "spin"]);
        assert_eq!(
            (ran.code, ran.out.as_str()),
            (Some(0), "shim.shim.dev/spin rolled back to revision 2 (v2)\n"),
            "{}",
            ran.err
        );
        assert!(ran.err.contains("spin v4 -> v2 on 3 nodes, 1 at a time\n"), "{}", ran.err);
        assert!(ran.err.contains("spin: revision 2 (v2) comes back as revision 5\n"), "{}", ran.err);
        assert!(ran.err.contains("Next: kubectl shim status spin -w"), "{}", ran.err);
        let (line, body) = &stub.writes()[0];
        assert!(
            line.starts_with(&format!("PATCH {}?", spin())) && line.contains("fieldManager=kubectl-shim"),
            "{line}"
        );
        let fetch = json!({"anonHttp": {"location": "https://example.com/v2", "sha256": SHA}});
        assert_eq!(body["spec"], json!({"version": "v2", "fetchStrategy": fetch}));
        assert_eq!(body["metadata"]["annotations"], json!({"shim.dev/changed-by": "alice"}));
    }
}

#[test]
fn a_rollback_names_its_target() {
    for (words, out) in [
        (&["--to-revision", "3"], "rolled back to revision 3 (v3)"),
        (&["--to-version", "v1"], "rolled back to revision 1 (v1)"),
    ] {
        let ran = ask(&failed_upgrade(), &[&["rollback", "spin"][..], words].concat());
        assert_eq!((ran.code, ran.out), (Some(0), format!("shim.shim.dev/spin {out}\n")), "{}", ran.err);
    }
    let stub = failed_upgrade();
    let ran = ask(&stub, &["rollback", "spin", "--dry-run=server"]);
    assert_eq!(ran.out, "shim.shim.dev/spin rolled back to revision 2 (v2) (server dry run)\n");
    assert_eq!(stub.get(&spin()).unwrap()["spec"]["version"], "v4");
    let ran = ask(&stub, &["rollback", "spin", "--dry-run=client", "-o", "json"]);
    let object: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(object["spec"]["version"], "v2");
}

#[test]
fn a_rollback_to_nowhere_sends_nothing() {
    let stub = failed_upgrade();
    for (words, error) in [
        (
            &["--to-revision", "9"],
            "error: shim \"spin\" has no revision 9 on record, only 4, 3, 2, 1\nNext: kubectl shim history spin",
        ),
        (
            &["--to-version", "v9"],
            "error: shim \"spin\" has no revision of \"v9\" on record, only v4, v3, v2, v1\nNext: ",
        ),
        (&["--to-revision", "4"], "error: revision 4 is the current one of shim \"spin\"; nothing was changed\nNext: "),
    ] {
        let ran = ask(&stub, &[&["rollback", "spin"][..], words].concat());
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{words:?}");
        assert!(ran.err.starts_with(error), "{}", ran.err);
    }
    stub.remove(&format!("{REVISIONS}/shim-spin-2"));
    stub.remove(&format!("{REVISIONS}/shim-spin-1"));
    let ran = ask(&stub, &["rollback", "spin"]);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.err.starts_with(
            "error: shim \"spin\" has no earlier revision that completed\nNext: kubectl shim history spin"
        ),
        "{}",
        ran.err
    );
    assert!(stub.writes().is_empty());
}

#[test]
fn a_rollback_to_what_is_asked_for_already_is_unchanged() {
    let stub = failed_upgrade();
    assert_eq!(ask(&stub, &["rollback", "spin"]).code, Some(0));
    record(&stub, 5, "v2", None);
    let writes = stub.writes().len();
    let ran = ask(&stub, &["rollback", "spin"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "shim.shim.dev/spin unchanged\n"), "{}", ran.err);
    assert!(ran.err.starts_with("spin asks for what revision 2 (v2) was made of already\n"), "{}", ran.err);
    assert_eq!(ask(&stub, &["rollback", "spin", "--to-revision", "2", "--error-unchanged"]).code, Some(3));
    assert_eq!(stub.writes().len(), writes);
}

#[test]
fn a_rollback_meets_other_managers_and_pauses() {
    let stub = failed_upgrade();
    stub.conflict(&spin(), "kustomize-controller");
    let ran = ask(&stub, &["rollback", "spin"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""));
    assert!(
        ran.err.contains("error: shim.shim.dev/spin is managed by \"kustomize-controller\" (.spec.version)"),
        "{}",
        ran.err
    );
    let mut shim = stub.get(&spin()).unwrap();
    shim["spec"]["rolloutStrategy"] = json!({"paused": true});
    stub.put(&spin(), shim);
    let ran = ask(&stub, &["rollback", "spin", "--force-conflicts"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.err.contains("Warning: spin is paused: no node starts before it is resumed\n"), "{}", ran.err);
}

#[test]
fn who_asks_is_left_out_where_the_server_does_not_say() {
    let stub = failed_upgrade();
    stub.forbid(WHOAMI);
    assert_eq!(ask(&stub, &["rollback", "spin"]).code, Some(0));
    assert!(stub.writes()[0].1["metadata"].get("annotations").is_none());
    let stub = Stub::with_nodes(&[("a", "amd64")]);
    let install = ["install", "spin", "--version", "v1", "--url", "https://example.com/v1", "--sha256", SHA];
    assert_eq!(ask(&stub, &install).code, Some(0));
    assert_eq!(stub.writes()[0].1["metadata"]["annotations"], json!({"shim.dev/changed-by": "alice"}));
}
