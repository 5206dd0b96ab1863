//! `status`, with and without the right to see nodes, in two widths.
use insta::assert_snapshot;
use k8s_openapi::api::core::v1::Taint;
use kubectl_shim::{
    next::Next,
    palette::Palette,
    views::{self, Columns, Nodes, Picture, Screen, ShimPicture},
};
use shim_core::board::Skip;

use crate::fixture::{Cluster, rollout, screen, zoo};

fn all(picture: &Picture) -> Vec<&ShimPicture> {
    picture.shims.iter().collect()
}

fn troubles(picture: &Picture) -> String {
    let troubles = views::troubles(&all(picture), &screen(None));
    let texts: Vec<_> = troubles.iter().map(|trouble| format!("{}{:?}\n", trouble.text, trouble.next)).collect();
    texts.concat()
}

#[test]
fn overview() {
    let picture = zoo().picture();
    assert_snapshot!("overview", views::overview(&all(&picture), Columns::Narrow, &screen(Some(80))));
    assert_snapshot!("overview-wide-120", views::overview(&all(&picture), Columns::Wide, &screen(Some(120))));
    assert_snapshot!("overview-troubles", troubles(&picture));
}

#[test]
fn detail() {
    let picture = zoo().picture();
    let shim = picture.shim("spin-v2").unwrap();
    assert_snapshot!("detail-80", views::detail(shim, Columns::Narrow, Nodes::Worst, &screen(Some(80))));
    assert_snapshot!("detail-120", views::detail(shim, Columns::Narrow, Nodes::Worst, &screen(Some(120))));
    assert_snapshot!("detail-wide", views::detail(shim, Columns::Wide, Nodes::Worst, &screen(None)));
    let shim = picture.shim("gvisor").unwrap();
    assert_snapshot!("detail-disrupted", views::detail(shim, Columns::Narrow, Nodes::Worst, &screen(Some(120))));
}

#[test]
fn more_than_ten_nodes_are_counted() {
    let mut cluster = rollout();
    for n in 10..30 {
        let name = format!("node-{n}");
        cluster.node(&name);
        if n > 15 {
            cluster.ready(&name, "spin-v2", 60);
        }
    }
    let picture = cluster.picture();
    let text = |nodes| views::detail(&picture.shims[0], Columns::Narrow, nodes, &screen(Some(80)));
    assert_snapshot!("detail-many", text(Nodes::Worst));
    assert_eq!(text(Nodes::All).matches("node-").count(), 24 + text(Nodes::All).matches("; node-").count());
}

#[test]
fn one_node() {
    let picture = zoo().picture();
    let text = |name| views::node(&picture, &all(&picture), name, &screen(Some(80)));
    assert_snapshot!("node-failed", text("node-02").unwrap());
    assert_snapshot!("node-windows", text("windows-01").unwrap());
    assert_eq!(text("nowhere"), None);
}

#[test]
fn without_the_right_to_see_nodes_the_status_speaks() {
    let picture = zoo().without_rights();
    assert!(picture.shims.iter().all(|shim| shim.rows.is_none()));
    let wide = zoo().picture();
    let screens = |picture: &Picture| views::overview(&all(picture), Columns::Wide, &screen(None));
    assert_eq!(screens(&picture), screens(&wide));
    // All but the screen of the node, which can't be shown.
    let node_screen = format!("{:?}, ", Next::node("node-02"));
    assert!(troubles(&wide).contains(&node_screen));
    assert_eq!(troubles(&picture), troubles(&wide).replace(&node_screen, ""));
    let shim = picture.shim("spin-v2").unwrap();
    assert_snapshot!("detail-denied", views::detail(shim, Columns::Narrow, Nodes::Worst, &screen(Some(80))));
}

#[test]
fn a_removal_names_the_pods_that_it_waits_for() {
    let mut cluster = Cluster::default();
    let shim = cluster.shim("spin-v2", "v1", 600);
    shim.metadata.deletion_timestamp = shim.metadata.creation_timestamp.clone();
    for name in ["node-01", "node-02", "node-03"] {
        cluster.node(name);
        cluster.marked(name, "spin-v2", "removing");
    }
    cluster.in_use("node-01", "spin-v2", 2, 10);
    cluster.removing("node-02", "spin-v2", 1);
    let picture = cluster.picture();
    assert_snapshot!(
        "detail-removal",
        views::detail(&picture.shims[0], Columns::Narrow, Nodes::Worst, &screen(Some(80)))
    );
    assert_snapshot!("removal-troubles", troubles(&picture));
}

#[test]
fn a_conflict_and_an_unreadable_spec_are_told() {
    let mut cluster = Cluster::default();
    cluster.shim("older", "v1", 600);
    cluster.shim("younger", "v1", 60).spec.runtime_class.name = "older".into();
    cluster.shim("broken", "v1", 60).spec.fetch_strategy.anon_http = None;
    cluster.node("node-01");
    let picture = cluster.picture();
    assert_snapshot!(
        "conflict",
        views::overview(&all(&picture), Columns::Narrow, &screen(Some(80))) + &troubles(&picture)
    );
}

#[test]
fn a_paused_rollout_says_how_to_go_on() {
    let mut cluster = Cluster::default();
    let shim = cluster.shim("spin-v2", "v1", 600);
    shim.spec.rollout_strategy = Some(serde_json::from_value(serde_json::json!({"paused": true})).unwrap());
    cluster.node("node-01");
    assert_snapshot!("paused-troubles", troubles(&cluster.picture()));
}

#[test]
fn a_shim_that_no_controller_has_seen() {
    let mut cluster = Cluster::default();
    cluster.shim("spin-v2", "v1", 5);
    cluster.node("node-01");
    let mut picture = cluster.without_rights();
    picture.shims[0].status = shim_core::api::ShimStatus::default();
    assert_snapshot!("unseen", views::detail(&picture.shims[0], Columns::Narrow, Nodes::Worst, &screen(Some(80))));
}

#[test]
fn the_cluster_can_not_steer_the_terminal() {
    let mut cluster = rollout();
    let evil = "v1\x1b]0;owned\x07\r\n\x1b[2J";
    cluster.shims[0].spec.version = evil.to_owned();
    let node = cluster.node("evil");
    node.status.node_info.container_runtime_version = evil.to_owned();
    node.status.node_info.operating_system = evil.to_owned();
    cluster.ready("evil", "spin-v2", 1);
    let readable = cluster.picture();
    cluster.shims[0].spec.runtime_class.name = evil.to_owned();
    let unreadable = cluster.picture();
    let coloured = Screen { palette: Palette::Colour, ..screen(Some(100)) };
    let pairs = [&readable, &unreadable].into_iter().flat_map(|picture| [(picture, screen(None)), (picture, coloured)]);
    for (picture, screen) in pairs {
        let texts = [
            views::overview(&all(picture), Columns::Wide, &screen),
            views::detail(&picture.shims[0], Columns::Wide, Nodes::All, &screen),
            views::node(picture, &all(picture), "evil", &screen).unwrap(),
        ];
        for text in texts {
            let rest =
                text.replace("\x1b[0m", "").replace("\x1b[31m", "").replace("\x1b[32m", "").replace("\x1b[36m", "");
            assert!(!rest.chars().any(|c| c.is_control() && c != '\n'), "{rest:?}");
        }
    }
}

#[test]
fn every_line_fits_the_terminal() {
    let picture = zoo().picture();
    for width in [80, 100, 120, 200] {
        let screen = screen(Some(width));
        for shim in &picture.shims {
            let text = views::detail(shim, Columns::Narrow, Nodes::All, &screen);
            let table = text.split_once("\n\n").map(|(_, table)| table.to_owned()).unwrap_or_default();
            let long = table.lines().find(|line| line.chars().count() > width);
            assert_eq!(long, None, "{width}");
        }
    }
}

#[test]
fn for_programs() {
    let picture = zoo().picture();
    let list = |node| kubectl_shim::output::json(&views::list(&all(&picture), node)).unwrap();
    assert_snapshot!("json-node", list(Some("node-02")));
    let value: serde_json::Value = serde_json::from_str(&list(None)).unwrap();
    assert_eq!(value["items"][1]["nodes"].as_array().unwrap().len(), 6);
    let denied = zoo().without_rights();
    let value = serde_json::to_value(views::list(&all(&denied), None)).unwrap();
    assert!(value["items"][0].get("nodes").is_none());
    assert_eq!(value["items"][0]["status"]["nodes"], 6);
}

#[test]
fn a_rollout_that_stopped_says_how_to_go_on_and_how_to_go_back() {
    let mut cluster = rollout();
    cluster.number = 7;
    assert_snapshot!("stopped-troubles", troubles(&cluster.picture()));
    let picture = cluster.picture();
    let text = |width| views::detail(&picture.shims[0], Columns::Narrow, Nodes::Worst, &screen(Some(width)));
    assert!(text(80).contains("State:         Failed  (revision 7; 1 of 4 nodes failed; the rollout stopped; "));
}

#[test]
fn a_node_that_is_tried_again_soon_has_not_failed_yet() {
    let mut cluster = Cluster::default();
    cluster.shim("spin-v2", "v1", 600);
    for name in ["node-01", "node-02", "node-03"] {
        cluster.node(name);
    }
    cluster.ready("node-01", "spin-v2", 60);
    cluster.marked("node-02", "spin-v2", "claimed");
    cluster.tripped("node-02", "spin-v2", 3);
    let picture = cluster.picture();
    let text = |width| views::detail(&picture.shims[0], Columns::Narrow, Nodes::Worst, &screen(Some(width)));
    assert_snapshot!("detail-retrying", text(120));
    assert_snapshot!("retrying-troubles", troubles(&picture));
}

#[test]
fn every_word_of_a_row_or_condition_is_documented() {
    let documented = include_str!("../../../docs/reasons.md");
    let source = include_str!("../../../src/status.rs");
    let callers = ["say(\"", "Verdict::new(\"", "Verdict::ready(\"", "Verdict::stalled(\""];
    let calls = callers.iter().flat_map(|caller| source.split(caller).skip(1));
    let taint = Taint::default();
    let skips = [
        Skip::NotLinux(""),
        Skip::NotContainerd(""),
        Skip::Taint(&taint),
        Skip::NoArtifact(""),
        Skip::NoMachineId,
        Skip::StateUnreadable,
    ];
    let words: Vec<_> = calls.filter_map(|call| call.split('"').next()).chain(skips.map(|s| s.reason())).collect();
    assert!(words.len() > 24, "{words:?}");
    for word in words {
        assert!(documented.contains(&format!("| `{word}` |")), "{word} is missing in docs/reasons.md");
    }
}

#[test]
fn the_strategy_is_told_as_it_is() {
    let strategy = |fields: serde_json::Value| {
        let mut cluster = Cluster::default();
        cluster.shim("spin-v2", "v1", 600).spec.rollout_strategy = Some(serde_json::from_value(fields).unwrap());
        for name in ["node-01", "node-02", "node-03"] {
            cluster.node(name);
        }
        let text = views::detail(&cluster.picture().shims[0], Columns::Narrow, Nodes::Worst, &screen(None));
        text.lines().find_map(|line| line.strip_prefix("Strategy:")).unwrap().trim().to_owned()
    };
    for (fields, text) in [
        (serde_json::json!({}), "rolling, 1 node at a time (10%), canary 1, stops at 1 failed"),
        (serde_json::json!({"type": "recreate"}), "recreate, all nodes at once, stops at 1 failed"),
        (
            serde_json::json!({"rolling": {"maxUpdate": 2}, "canary": "50%", "maxFailures": "20%", "paused": true}),
            "rolling, 2 nodes at a time, canary 50%, stops at 20% failed, paused",
        ),
        (serde_json::json!({"canary": 0, "maxFailures": "100%"}), "rolling, 1 node at a time (10%), nothing stops it"),
    ] {
        assert_eq!(strategy(fields.clone()), text, "{fields}");
    }
}
