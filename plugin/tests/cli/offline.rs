//! What needs no cluster.
use std::fs;

use crate::rig::{SHA, run, run_with};

fn install<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [
        &["install", "spin", "--version", "v1", "--url", "https://example.com/a", "--sha256", SHA, "--dry-run=client"]
            [..],
        more,
    ]
    .concat()
}

#[test]
fn a_client_dry_run_sends_nothing_and_shows_the_object() {
    let ran = run(&install(&[]));
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (Some(0), "shim.shim.dev/spin created (dry run)\n", ""));
    assert_eq!(run(&install(&["-o", "name"])).out, "shim.shim.dev/spin\n");
    let ran = run(&install(&[
        "-o",
        "yaml",
        "--node-selector",
        "a=b",
        "--option",
        "SystemdCgroup=true",
        "--max-update",
        "20%",
        "--paused",
        "--toleration",
        "gpu=yes:NoSchedule",
        "--handler",
        "spin-v2",
        "--runtime-class",
        "wasm",
    ]));
    for line in [
        "    a: b\n",
        "    SystemdCgroup: true\n",
        "maxUpdate: 20%",
        "paused: true",
        "key: gpu",
        "handler: spin-v2",
        "name: wasm",
    ] {
        assert!(ran.out.contains(line), "{line}: {}", ran.out);
    }
    // What it prints can be installed.
    let again = run_with(&["install", "-f", "-", "--dry-run=client"], &ran.out);
    assert_eq!((again.code, again.out.as_str()), (Some(0), "shim.shim.dev/spin created (dry run)\n"), "{}", again.err);
}

#[test]
fn a_bad_object_gets_the_sentence_of_kubectl() {
    for (words, line) in [
        (
            &["install", "spin", "--version", "v1", "--url", "https://example.com/a", "--sha256", "AB"][..],
            "* spec.fetchStrategy.anonHttp.sha256: sha256 must be",
        ),
        (
            &["install", "Spin", "--version", "v1", "--url", "https://example.com/a", "--sha256", SHA],
            "* metadata.name must be a DNS label",
        ),
        (
            &["install", "runc", "--version", "v1", "--url", "https://example.com/a", "--sha256", SHA],
            "* the names runc and shim-N are reserved",
        ),
        (
            &["install", "spin", "--version", "v1", "--url", "ftp://example.com/a", "--sha256", SHA],
            "* spec.fetchStrategy.anonHttp.location: location must be",
        ),
        (
            &["install", "spin", "--version", "", "--url", "https://example.com/a", "--sha256", SHA],
            "* spec.version: version must not be empty",
        ),
    ] {
        let ran = run(&[words, &["--dry-run=client"]].concat());
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{words:?}");
        assert!(ran.err.starts_with(&format!("The Shim {:?} is invalid: \n", words[1])), "{}", ran.err);
        assert!(ran.err.contains(line), "{line}: {}", ran.err);
    }
}

#[test]
fn files_are_checked_as_a_whole_before_anything_is_printed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shims.yaml");
    let path = path.to_str().unwrap();
    let good = run(&install(&["-o", "yaml"])).out;
    fs::write(path, format!("{good}---\n{}", good.replace("name: spin", "name: other"))).unwrap();
    let ran = run(&["install", "-f", path, "--dry-run=client"]);
    assert_eq!(ran.out, "shim.shim.dev/spin created (dry run)\nshim.shim.dev/other created (dry run)\n");
    fs::write(path, format!("{good}---\n{}", good.replace(SHA, "x"))).unwrap();
    let ran = run(&["install", "-f", path, "--dry-run=client"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""));
    let ran = run(&["install", "-f", "/nonexistent.yaml", "--dry-run=client"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.starts_with("error: /nonexistent.yaml can't be read: "), "{}", ran.err);
}

#[test]
fn the_manifests_of_init_come_without_a_cluster() {
    let ran = run(&[
        "init",
        "--image",
        "example.com/shim:v1",
        "--dry-run=client",
        "-o",
        "yaml",
        "-n",
        "tools",
        "--image-pull-secret",
        "pull",
    ]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    let first = ran.out.split("---\n").next().unwrap();
    assert!(first.contains("kind: CustomResourceDefinition"), "{first}");
    assert_eq!(ran.out.matches("\n---\n").count(), 10, "{}", ran.out);
    for line in ["image: example.com/shim:v1", "namespace: tools", "--pull-secret=pull"] {
        assert!(ran.out.contains(line), "{line}");
    }
    let ran = run(&["init", "--image", "x", "-n", "kube-system", "--dry-run=client"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("namespace kube-system belongs to Kubernetes"), "{}", ran.err);
}

#[test]
fn the_version_of_the_plugin() {
    let ran = run(&["version", "--client"]);
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!((ran.code, ran.out), (Some(0), format!("Client Version: v{version}\nAPI Version: shim.dev/v1alpha1\n")));
    let json: serde_json::Value = serde_json::from_str(&run(&["version", "--client", "-o", "json"]).out).unwrap();
    assert_eq!(json["clientVersion"], format!("v{version}"));
    // The plugin's own comes first, also where nothing answers.
    let ran = run(&["version", "--server", "http://127.0.0.1:1"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.starts_with("Client Version: "), "{ran:?}");
    assert!(ran.err.contains("was refused"), "{ran:?}");
}
