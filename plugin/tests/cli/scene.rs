//! Clusters with a past: revisions on record, nodes where a try failed or runs.
use serde_json::{Value, json};
use shim_core::{
    report::{FORMAT, Failure, Outcome, Reason, Report, Step},
    world::{Artifact, ShimView},
};

use crate::{
    rig::SHA,
    stub::{SHIMS, Stub, shim},
};

/// Where the revisions are.
pub const REVISIONS: &str = "/apis/apps/v1/namespaces/shim-system/controllerrevisions";

/// Path of the Shim.
pub fn spin() -> String {
    format!("{SHIMS}/spin")
}

/// A Shim at revision 4, which failed; 3 was replaced on its way, 2 and 1 completed.
pub fn failed_upgrade() -> Stub {
    let stub = Stub::with_nodes(&[("a", "amd64"), ("b", "amd64"), ("c", "amd64")]);
    let mut shim = shim("spin", "v4", "False", "True");
    shim["status"]["revision"] = json!({"number": 4, "version": "v4"});
    stub.put(&spin(), shim);
    record(&stub, 1, "v1", Some("Complete"));
    record(&stub, 2, "v2", Some("Complete"));
    record(&stub, 3, "v3", Some("Superseded"));
    record(&stub, 4, "v4", Some("Failed"));
    stub
}

/// Puts a revision on record.
pub fn record(stub: &Stub, number: i64, version: &str, fate: Option<&str>) {
    let location = format!("https://example.com/{version}");
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": number,
        "metadata": {"name": format!("shim-spin-{number}"), "namespace": "shim-system",
            "creationTimestamp": format!("2026-11-30T0{number}:00:00Z"),
            "labels": {"shim.dev/shim": "spin"},
            "annotations": {"shim.dev/author": "kubectl-shim (alice)"},
            "ownerReferences": [{"apiVersion": "shim.dev/v1alpha1", "kind": "Shim", "name": "spin", "uid": "spin"}]},
        "data": {"version": version, "fetchStrategy": {"anonHttp": {"location": location, "sha256": SHA}}},
    });
    if let Some(fate) = fate {
        let at = format!("2026-11-30T0{number}:01:29Z");
        let record = json!({"fate": fate, "updated": 2, "nodes": 3, "at": at});
        object["metadata"]["annotations"]["shim.dev/rollout"] = record.to_string().into();
    }
    stub.put(&format!("{REVISIONS}/shim-spin-{number}"), object);
}

/// The Shim's Job on a node: the installer runs.
pub fn running(stub: &Stub, node: &str) {
    put_job(stub, node, &json!({}));
}

/// The node has the current build, verified at this time, and its kubelet does not report the handler.
pub fn denied(stub: &Stub, name: &str, since: &str) {
    let path = format!("/api/v1/nodes/{name}");
    let mut node = stub.get(&path).unwrap();
    let build = artifact(stub).build;
    node["metadata"]["annotations"] = json!({"shim.dev/state": format!("v1,spin={build}@{name}@{since}")});
    node["status"]["runtimeHandlers"] = json!([{"name": "runc"}]);
    stub.put(&path, node);
}

/// The third try on a node failed at this time.
pub fn failed(stub: &Stub, node: &str, at: &str) {
    let failure = Failure::new(Step::Fetch, Reason::ChecksumMismatch, "expected eec8, got 9b9d");
    let outcomes = [("spin".parse().unwrap(), Outcome::Failed(failure))].into();
    let report = Report { format: FORMAT, outcomes, restarted: false, log: "digest is 9b9d\n".to_owned() };
    let status = json!({"conditions": [{"type": "Failed", "status": "True", "lastTransitionTime": at}]});
    put_job(stub, node, &json!({"report": serde_json::to_string(&report).unwrap(), "status": status}));
}

fn artifact(stub: &Stub) -> Artifact {
    let shim = serde_json::from_value(stub.get(&spin()).unwrap()).unwrap();
    let spec = ShimView::read(&shim).unwrap().spec.unwrap();
    spec.source.artifact("amd64").unwrap().clone()
}

fn put_job(stub: &Stub, name: &str, end: &Value) {
    let path = format!("/api/v1/nodes/{name}");
    let mut node = stub.get(&path).unwrap();
    node["metadata"]["annotations"] = json!({"shim.dev/state": "v1,spin=claimed"});
    stub.put(&path, node);
    let artifact = artifact(stub);
    let op = json!({"op": "install", "build": artifact.build, "location": artifact.location,
        "sha256": artifact.sha256, "handler": "spin"});
    let task = json!({"format": 1, "node": name, "nodeUid": name, "machineId": name, "serial": 3, "ops": {"spin": op},
        "tries": {"spin": {"failed": 2, "waited": 0, "since": 0, "counted": false}}});
    let mut job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": format!("shim-{name}"),
        "namespace": "shim-system", "uid": format!("job-{name}"), "annotations": {"shim.dev/task": task.to_string()}}});
    if let Some(report) = end["report"].as_str() {
        job["metadata"]["annotations"]["shim.dev/result"] = report.into();
        job["status"] = end["status"].clone();
    }
    stub.put(&format!("/apis/batch/v1/namespaces/shim-system/jobs/shim-{name}"), job);
}
