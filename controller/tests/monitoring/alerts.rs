//! What the rules say beside what promtool checks: each helps, and asks for what there is.
use std::{collections::BTreeSet, fs};

use serde_json::Value;

use crate::{dashboard::names, metrics::settled, promtool::file};

const DOCUMENTATION: &str = include_str!("../../../docs/observability.md");
const TESTS: &str = include_str!("alerts.yaml");

fn alerts() -> Vec<Value> {
    let text = fs::read_to_string(file("deploy/monitoring/rules.yaml")).unwrap();
    let rules: Value = serde_yaml::from_str(&text).unwrap();
    let groups = rules["groups"].as_array().unwrap().iter();
    groups.flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

fn name(alert: &Value) -> &str {
    alert["alert"].as_str().unwrap()
}

#[test]
fn an_alert_says_what_to_do_next() {
    for alert in alerts() {
        let text =
            |key: &str| alert["annotations"][key].as_str().unwrap_or_else(|| panic!("{} has no {key}", name(&alert)));
        assert!(!text("summary").is_empty());
        assert!(text("description").contains("Next: kubectl "), "{}", text("description"));
        let anchor = name(&alert).to_lowercase();
        assert!(text("runbook_url").ends_with(&format!("docs/observability.md#{anchor}")), "{}", text("runbook_url"));
        assert!(DOCUMENTATION.contains(&format!("\n### {}\n", name(&alert))), "{} has no runbook", name(&alert));
    }
}

#[test]
fn an_alert_of_a_shim_names_it_and_its_command() {
    for alert in alerts().iter().filter(|alert| !name(alert).starts_with("ShimController")) {
        let description = alert["annotations"]["description"].as_str().unwrap();
        assert!(description.ends_with("Next: kubectl shim status {{ $labels.shim }}"), "{description}");
    }
}

#[test]
fn every_alert_is_tested_firing() {
    for alert in alerts() {
        let fired = format!("- labels: ALERTS{{alertname=\"{}\",alertstate=\"firing\"", name(&alert));
        assert!(TESTS.contains(&fired), "{} never fires in alerts.yaml", name(&alert));
    }
}

#[test]
fn rules_ask_for_metrics_that_there_are() {
    let metrics = settled();
    let asked: BTreeSet<_> = alerts().iter().flat_map(|alert| names(alert["expr"].as_str().unwrap())).collect();
    let unknown: Vec<_> = asked.iter().filter(|name| !metrics.has(name)).collect();
    assert!(!asked.is_empty() && unknown.is_empty(), "{unknown:?}");
}
