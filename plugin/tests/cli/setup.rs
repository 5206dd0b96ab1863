//! `init`, `teardown`, `version`
use serde_json::{Value, json};

use crate::{
    rig::{ask, end, start},
    stub::{CONTROLLER, SHIMS, Stub, deployment, shim},
};

const CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/shims.shim.dev";
const NAMESPACE: &str = "/api/v1/namespaces/shim-system";
const INIT: [&str; 3] = ["init", "--image", "example.com/shim:v1"];

/// The API server establishes a CRD by itself; here it is there from the start.
fn established(version: Option<&str>) -> Value {
    let labels = version
        .map(|version| json!({"app.kubernetes.io/version": version, "app.kubernetes.io/part-of": "kubectl-shim"}));
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "shims.shim.dev", "labels": labels},
        "spec": {"group": "shim.dev", "scope": "Cluster", "names": {"kind": "Shim", "plural": "shims"}, "versions": []},
        "status": {"conditions": [{"type": "Established", "status": "True"}]}})
}

fn cluster() -> Stub {
    let stub = Stub::start();
    stub.put(CRD, established(Some("v0.0.1")));
    stub
}

#[test]
fn init_applies_the_crd_first_and_says_what_it_did() {
    let stub = cluster();
    let ran = ask(&stub, &INIT);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let lines: Vec<_> = ran.out.lines().collect();
    assert_eq!(lines[0], "customresourcedefinition.apiextensions.k8s.io/shims.shim.dev configured");
    assert_eq!(lines[1], "namespace/shim-system created");
    assert_eq!(lines.last(), Some(&"deployment.apps/shim-controller created"));
    assert!(
        stub.writes().iter().all(|(line, _)| line.contains("fieldManager=kubectl-shim") && !line.contains("force"))
    );
    let again = ask(&stub, &INIT);
    assert!(again.out.lines().all(|line| line.ends_with(" unchanged")), "{}", again.out);
    assert_eq!(again.out.lines().count(), lines.len());
}

#[test]
fn init_waits_for_the_controller() {
    let stub = cluster();
    let child = start(&stub, &[&INIT[..], &["--wait"]].concat());
    stub.await_write(&format!("PATCH {CONTROLLER}"));
    stub.put(CONTROLLER, deployment());
    let ran = end(child);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.err.contains("the controller is available\n"), "{}", ran.err);
    let ran = ask(&cluster(), &[&INIT[..], &["--wait", "--timeout", "1s"]].concat());
    assert_eq!(ran.code, Some(124));
    assert!(ran.err.contains("error: the controller is not available after 1s"), "{}", ran.err);
}

/// Of the controller: its image, that of the installer, the pull secrets, and those of the installer.
fn images(stub: &Stub) -> Value {
    let deployment = stub.get(CONTROLLER).unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let installer = container["env"].as_array().unwrap().iter().find(|entry| entry["name"] == "SHIM_IMAGE").unwrap();
    json!([container["image"], installer["value"], pod["imagePullSecrets"], container["args"]])
}

#[test]
fn init_without_flags_keeps_image_and_secrets_of_the_controller() {
    let stub = cluster();
    let ran = ask(&stub, &[&INIT[..], &["--image-pull-secret", "pull"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let first = images(&stub);
    let args = json!(["--log-format=json", "--pull-secret=pull"]);
    assert_eq!(first, json!(["example.com/shim:v1", "example.com/shim:v1", [{"name": "pull"}], args]));
    let ran = ask(&stub, &["init"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.ends_with("deployment.apps/shim-controller unchanged\n"), "{}", ran.out);
    assert_eq!(images(&stub), first);
    ask(&stub, &["init", "--image", "example.com/shim:v2", "--image-pull-secret", "other"]);
    let args = json!(["--log-format=json", "--pull-secret=other"]);
    assert_eq!(images(&stub), json!(["example.com/shim:v2", "example.com/shim:v2", [{"name": "other"}], args]));
    ask(&stub, &["init", "--image-pull-secret", ""]);
    assert_eq!(stub.writes().last().unwrap().1["spec"]["template"]["spec"]["imagePullSecrets"], Value::Null);
}

#[test]
fn init_without_an_image_is_refused_where_it_can_not_be_known() {
    let stub = cluster();
    let mut old = deployment();
    old["metadata"]["labels"]["app.kubernetes.io/version"] = "v0.0.1".into();
    old["spec"]["template"] =
        json!({"spec": {"containers": [{"name": "controller", "image": "mirror.example/shim:v0.0.1"}]}});
    stub.put(CONTROLLER, old);
    let ran = ask(&stub, &["init"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{}", ran.err);
    let text = format!(
        "error: required flag(s) \"image\" not set: the controller is v0.0.1 with mirror.example/shim:v0.0.1; \
        say which image is v{}\n",
        env!("CARGO_PKG_VERSION")
    );
    assert!(ran.err.starts_with(&text), "{}", ran.err);
    assert!(stub.writes().is_empty());
}

#[test]
fn init_changes_nothing_where_it_must_not() {
    for (crd, text) in [
        (established(Some("v99.0.0")), "error: the cluster has kubectl-shim v99.0.0, which is newer than this plugin"),
        (established(None), "error: CustomResourceDefinition shims.shim.dev exists and was not made by kubectl-shim"),
    ] {
        let stub = Stub::start();
        stub.put(CRD, crd);
        let ran = ask(&stub, &INIT);
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""));
        assert!(ran.err.starts_with(text), "{}", ran.err);
        assert!(stub.writes().is_empty());
    }
}

#[test]
fn init_warns_about_servers_that_are_not_tested() {
    for (minor, warned) in [("32", true), ("33", false), ("37+", false), ("38", true)] {
        let stub = cluster();
        stub.minor(minor);
        let ran = ask(&stub, &INIT);
        assert_eq!(
            (ran.code, ran.err.contains("kubectl-shim is tested with Kubernetes 1.33 to 1.37")),
            (Some(0), warned),
            "{minor}"
        );
    }
}

#[test]
fn a_namespace_of_somebody_else_is_used_and_kept() {
    let stub = cluster();
    stub.put(NAMESPACE, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shim-system"}}));
    let ran = ask(&stub, &INIT);
    assert!(ran.out.contains("namespace/shim-system configured\n"), "{}", ran.out);
    let labels = &stub.get(NAMESPACE).unwrap()["metadata"]["labels"];
    assert_eq!(labels["pod-security.kubernetes.io/enforce"], "privileged");
    assert!(labels.get("app.kubernetes.io/part-of").is_none(), "{labels}");
    let ran = ask(&stub, &["teardown", "--yes"]);
    assert_eq!(ran.code, Some(0));
    assert!(ran.err.contains("namespace/shim-system was not made by kubectl-shim and stays"), "{}", ran.err);
    assert!(stub.get(NAMESPACE).is_some());
}

#[test]
fn teardown_takes_away_what_init_brought() {
    let stub = cluster();
    ask(&stub, &INIT);
    let ran = ask(&stub, &["teardown"]);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.err.starts_with("error: refusing to remove the controller without confirmation; pass --yes\n"),
        "{}",
        ran.err
    );
    let ran = ask(&stub, &["teardown", "--yes"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert_eq!(ran.out.lines().next(), Some("deployment.apps/shim-controller deleted"));
    assert_eq!(ran.out.lines().last(), Some("namespace/shim-system deleted"));
    assert!(stub.get(CRD).is_some());
    let ran = ask(&stub, &["teardown", "--yes", "--crds"]);
    assert_eq!(ran.out, "customresourcedefinition.apiextensions.k8s.io/shims.shim.dev deleted\n");
}

#[test]
fn teardown_refuses_while_there_are_shims() {
    let stub = cluster();
    ask(&stub, &INIT);
    stub.put(&format!("{SHIMS}/spin"), shim("spin", "v1", "True", "False"));
    let ran = ask(&stub, &["teardown", "--yes"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""));
    assert!(ran.err.starts_with("error: a shim is still there: spin; uninstall first"), "{}", ran.err);
    assert!(ran.err.contains("Next: kubectl shim uninstall --all"), "{}", ran.err);
    let ran = ask(&stub, &["teardown", "--yes", "--force"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(
        ran.out.starts_with("shim.shim.dev/spin orphaned\ndeployment.apps/shim-controller deleted\n"),
        "{}",
        ran.out
    );
    assert!(stub.get(&format!("{SHIMS}/spin")).is_none());
}

#[test]
fn versions_of_all_three() {
    let stub = cluster();
    stub.put(CONTROLLER, deployment());
    let ran = ask(&stub, &["version"]);
    let version = env!("CARGO_PKG_VERSION");
    let wanted = format!(
        "Client Version: v{version}\nAPI Version: shim.dev/v1alpha1\nController Version: v{version}\nServer Version: v1.34.0\n"
    );
    assert_eq!((ran.code, ran.out, ran.err.as_str()), (Some(0), wanted, ""));
    for (label, text) in [("v0.0.1", "controller v0.0.1 is older than this plugin"), ("v99.0.0", "upgrade the plugin")]
    {
        let mut old = deployment();
        old["metadata"]["labels"]["app.kubernetes.io/version"] = label.into();
        stub.put(CONTROLLER, old);
        assert!(ask(&stub, &["version"]).err.contains(text));
    }
    stub.remove(CONTROLLER);
    let ran = ask(&stub, &["version", "-o", "json"]);
    let json: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(json["serverVersion"], "v1.34.0");
    assert!(
        ran.err.contains("Warning: there is no controller in namespace shim-system\nNext: kubectl shim init"),
        "{}",
        ran.err
    );
}
