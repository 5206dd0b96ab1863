//! The dashboard: sound, and asking for what there is.
use std::{collections::BTreeSet, fs};

use serde_json::Value;

use crate::{
    metrics::settled,
    promtool::{file, promtool},
};

/// Columns of a dashboard.
const WIDTH: u64 = 24;

fn dashboard() -> Value {
    serde_json::from_str(&fs::read_to_string(file("deploy/monitoring/dashboard.json")).unwrap()).unwrap()
}

fn panels(dashboard: &Value) -> &Vec<Value> {
    dashboard["panels"].as_array().unwrap()
}

fn queries(dashboard: &Value) -> Vec<String> {
    let targets = panels(dashboard).iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
}

/// Names of metrics in a query.
pub fn names(query: &str) -> Vec<String> {
    let words = query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words
        .filter(|word| word.starts_with("shim_controller_") || word.starts_with("process_"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn it_asks_for_metrics_that_there_are_and_for_all_of_the_rollout() {
    let metrics = settled();
    let asked: BTreeSet<_> = queries(&dashboard()).iter().flat_map(|query| names(query)).collect();
    let unknown: Vec<_> = asked.iter().filter(|name| !metrics.has(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let of_shims = metrics.types().into_keys().filter(|name| name.starts_with("shim_controller_shim_"));
    let missing: Vec<_> = of_shims.filter(|name| !asked.contains(*name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn its_queries_are_promql() {
    let plain = |query: &str| {
        let query = query.replace("$__rate_interval", "5m").replace("$__range", "1h");
        query.replace("$shim", ".*").replace("$phase", "act")
    };
    let rules = queries(&dashboard()).iter().enumerate().fold(String::new(), |text, (number, query)| {
        let expr = Value::from(plain(query));
        text + &format!("  - record: query:{number}\n    expr: {expr}\n")
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.yaml");
    fs::write(&path, format!("groups:\n- name: dashboard\n  rules:\n{rules}")).unwrap();
    promtool(&["check", "rules", path.to_str().unwrap()], "");
}

#[test]
fn panels_have_ids_of_their_own_and_do_not_overlap() {
    let dashboard = dashboard();
    let ids: BTreeSet<_> = panels(&dashboard).iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels(&dashboard).len());
    let mut taken = BTreeSet::new();
    for panel in panels(&dashboard) {
        let place = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(place("x") + place("w") <= WIDTH, "{panel}");
        for cell in (place("x")..place("x") + place("w")).flat_map(|x| (0..place("h")).map(move |y| (x, y))) {
            assert!(taken.insert((cell.0, place("y") + cell.1)), "{} lies on another panel", panel["title"]);
        }
    }
}

#[test]
fn every_query_goes_to_the_chosen_source_and_uses_variables_that_there_are() {
    let dashboard = dashboard();
    let variables: BTreeSet<_> =
        dashboard["templating"]["list"].as_array().unwrap().iter().map(|v| v["name"].as_str().unwrap()).collect();
    assert!(variables.contains("datasource"));
    for target in panels(&dashboard).iter().filter_map(|panel| panel["targets"].as_array()).flatten() {
        assert_eq!(target["datasource"]["uid"], "${datasource}");
        let after_dollar = target["expr"].as_str().unwrap().split('$').skip(1);
        for used in after_dollar.filter_map(|text| text.split(|c: char| !(c.is_alphanumeric() || c == '_')).next()) {
            assert!(used.starts_with("__") || variables.contains(used), "${used} in {target}");
        }
    }
}
