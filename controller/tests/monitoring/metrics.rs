//! Metrics: that they are true, that their names are good, and that the documentation has them all.
use std::collections::BTreeSet;

use crate::{
    cluster::{CLASSES, Cluster, SHIMS},
    controller::{Controller, Metrics, eventually},
    promtool::promtool,
};

const DOCUMENTATION: &str = include_str!("../../../docs/observability.md");

/// Of a controller that has settled.
pub fn settled() -> Metrics {
    let cluster = Cluster::start();
    Controller::start(&cluster, &[]).settles()
}

#[test]
fn a_rollout_shows() {
    let metrics = settled();
    let value = |series: &str| metrics.value(&format!("shim_controller_{series}"));
    assert_eq!(value("shim_nodes{shim=\"wasmtime\"}"), Some(2.0));
    assert_eq!(value("shim_nodes_updated{shim=\"wasmtime\"}"), Some(1.0));
    assert_eq!(value("shim_condition{shim=\"wasmtime\",condition=\"Ready\"}"), Some(0.0));
    assert_eq!(value("nodes"), Some(2.0));
    assert_eq!(value("jobs{phase=\"running\"}"), Some(0.0));
    assert_eq!(value("leading"), Some(1.0));
}

#[test]
fn outcomes_count_once() {
    let cluster = Cluster::start();
    let controller = Controller::start(&cluster, &[]);
    let series = |operation: &str, result: &str, reason: &str| {
        let labels = format!("operation=\"{operation}\",result=\"{result}\",reason=\"{reason}\"");
        format!("shim_controller_operations_total{{{labels}}}")
    };
    controller.settles();
    controller.shows(&series("install", "done", ""), 1.0);
    let metrics = controller.shows(&series("install", "failed", "ChecksumMismatch"), 1.0);
    // A series that there can be is there before it counts, else its first increase would not show.
    assert_eq!(metrics.value(&series("remove", "in_use", "")), Some(0.0));
}

#[test]
fn writes_count_by_their_answer() {
    let cluster = Cluster::start();
    cluster.forbid(CLASSES);
    let metrics = Controller::start(&cluster, &[]).settles();
    let writes = |labels: &str| metrics.value(&format!("shim_controller_writes_total{{{labels}}}"));
    assert_eq!(writes("verb=\"create\",resource=\"jobs\",result=\"ok\""), Some(2.0));
    assert_eq!(writes("verb=\"create\",resource=\"leases\",result=\"ok\""), Some(1.0));
    assert!(writes("verb=\"create\",resource=\"runtimeclasses\",result=\"refused\"").unwrap() >= 1.0);
    assert!(writes("verb=\"patch\",resource=\"shims/status\",result=\"ok\"").unwrap() >= 1.0);
}

#[test]
fn watches_that_break_count_by_kind() {
    let cluster = Cluster::start();
    cluster.break_watch(CLASSES);
    let controller = Controller::start(&cluster, &[]);
    let errors = |kind: &str| {
        controller.metrics().value(&format!("shim_controller_watch_errors_total{{kind=\"{kind}\"}}")).unwrap()
    };
    eventually(|| if errors("RuntimeClass") > 0.0 { Ok(()) } else { Err("no error counts".to_owned()) });
    assert_eq!((errors("Shim"), errors("Node"), errors("Job")), (0.0, 0.0, 0.0));
}

#[test]
fn a_shim_that_is_gone_leaves_no_series() {
    let cluster = Cluster::start();
    let controller = Controller::start(&cluster, &[]);
    controller.settles();
    cluster.put(&format!("{SHIMS}/other"), crate::cluster::shim("other"));
    controller.shows("shim_controller_shim_nodes_ready{shim=\"other\"}", 1.0);
    cluster.remove(&format!("{SHIMS}/other"));
    eventually(|| {
        let text = controller.metrics().0;
        if text.contains("shim=\"other\"") { Err("it is still told of".to_owned()) } else { Ok(()) }
    });
}

#[test]
fn names_follow_the_conventions() {
    promtool(&["check", "metrics"], &settled().0);
}

#[test]
fn every_metric_is_documented_and_every_documented_one_exists() {
    let metrics = settled();
    let exposed: BTreeSet<_> = metrics.types().into_keys().collect();
    let rows = DOCUMENTATION.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let is_metric = |name: &&str| name.starts_with("shim_controller_") || name.starts_with("process_");
    let documented: BTreeSet<_> = rows.map(|(name, _)| name).filter(is_metric).collect();
    assert_eq!(documented, exposed);
}
