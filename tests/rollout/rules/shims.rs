//! A Shim's own life: finalizer, RuntimeClass, conflicts, and the nodes that it leaves alone.
use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Taint;
use shim_core::{
    mark::Mark,
    world::{Artifacts, Life, NodeView, Phase},
};

use super::fixture::*;

#[test]
fn a_shim_without_our_finalizer_is_held_before_anything_else() {
    let mut new = shim("a");
    new.finalizer = false;
    let mut world = world(vec![new], nodes(1));
    world.runtime_classes.clear();
    assert_eq!(deeds(&world), ["hold a"]);
    world.shims[0].finalizer = true;
    assert_eq!(deeds(&world), ["apply class a", "n0 marks a claimed", "n0 job a+1"]);
}

#[test]
fn a_foreign_runtime_class_is_left_alone_and_nothing_is_installed() {
    let mut world = one(node("n1"));
    world.runtime_classes[0].metadata.labels = None;
    assert_eq!(deeds(&world), NOTHING);
    world.shims[0].life = Life::Deleting;
    assert_eq!(deeds(&world), ["release a"]);
}

#[test]
fn of_two_shims_with_one_handler_or_runtime_class_the_older_is_installed() {
    let same_handler = with(shim("a"), |spec| spec.handler = "b".parse().unwrap());
    let same_class = with(shim("a"), |spec| spec.runtime_class.name = "b".to_owned());
    for mut young in [same_handler, same_class] {
        young.created = seconds_ago(60);
        let mut world = world(vec![young, shim("b")], nodes(1));
        world.runtime_classes.remove(0);
        assert_eq!(deeds(&world), ["n0 marks b claimed", "n0 job b+1"]);
    }
}

#[test]
fn a_runtime_class_that_was_changed_is_put_right() {
    let mut world = one(ready(node("n1"), "a", 1));
    world.runtime_classes[0].scheduling = None;
    assert_eq!(deeds(&world), ["apply class a"]);
}

#[test]
fn a_deleted_shim_goes_when_its_last_mark_and_job_have_gone_and_its_runtime_class_first() {
    let mut leaving = shim("a");
    leaving.life = Life::Deleting;
    let mut world = world(vec![leaving], vec![marked(node("n1"), "a", Mark::Removing)]);
    Arc::make_mut(&mut world.nodes[0]).ready = false;
    assert_eq!(deeds(&world), NOTHING, "a node that does not answer still has it");
    world.nodes = vec![Arc::new(node("n1"))];
    world.jobs = vec![job(&node("n2"), &[removal("a")], Phase::Running)];
    assert_eq!(deeds(&world), NOTHING, "a Job may still touch a node");
    world.jobs.clear();
    assert_eq!(deeds(&world), ["delete class a of a", "release a"]);
    world.runtime_classes.clear();
    assert_eq!(deeds(&world), ["delete class a of a", "release a"], "the cache may not show it yet");
}

#[test]
fn a_deleted_shim_that_somebody_elses_class_blocked_does_not_delete_that_class() {
    let mut leaving = with(shim("a"), |spec| spec.runtime_class.name = "b".to_owned());
    leaving.life = Life::Deleting;
    let mut world = world(vec![leaving, shim("b")], vec![ready(node("n1"), "b", 1)]);
    world.runtime_classes.remove(0);
    assert_eq!(deeds(&world), ["release a"]);
}

#[test]
fn an_orphaned_shim_is_let_go_and_its_nodes_stay_as_they_are() {
    let mut orphan = shim("a");
    orphan.life = Life::Orphaned;
    assert_eq!(deeds(&world(vec![orphan], vec![ready(node("n1"), "a", 1)])), ["release a"]);
}

#[test]
fn an_illegible_spec_leaves_its_nodes_as_they_are_and_can_still_be_removed() {
    let mut odd = shim("a");
    odd.spec = Err("null is not allowed".to_owned());
    let nodes = vec![ready(node("n1"), "a", 1), node("n2")];
    assert_eq!(deeds(&world(vec![odd.clone()], nodes.clone())), NOTHING);
    odd.life = Life::Deleting;
    assert_eq!(deeds(&world(vec![odd], nodes)), ["n1 marks a removing", "n1 job a-"]);
}

#[test]
fn an_illegible_spec_keeps_its_handler() {
    let mut odd = shim("a");
    odd.spec = Err("null is not allowed".to_owned());
    odd.status.handler = Some("h".to_owned());
    odd.created = seconds_ago(7200);
    let rival = with(shim("b"), |spec| spec.handler = "h".parse().unwrap());
    assert_eq!(deeds(&world(vec![odd, rival], vec![ready(node("n1"), "a", 1)])), NOTHING);
}

#[test]
fn a_node_whose_annotation_is_newer_than_us_is_left_alone_and_holds_the_shim() {
    let mut newer = node("n1");
    (newer.annotation, newer.marks) = (Some("v2,whatever".to_owned()), None);
    let mut world = one(newer);
    assert_eq!(deeds(&world), NOTHING);
    world.shims[0].life = Life::Deleting;
    assert_eq!(deeds(&world), NOTHING);
}

#[test]
fn a_node_that_can_not_be_served_is_skipped_and_keeps_what_it_has() {
    let platforms = Artifacts::ByArch(BTreeMap::from([("amd64".to_owned(), artifact("a", 2))]));
    let picky = with(shim("a"), |spec| spec.source.artifacts = platforms);
    let taint = Taint { key: "gpu".to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
    let changes: [fn(&mut NodeView, Taint); 5] = [
        |node, _| node.os = "windows".into(),
        |node, _| node.runtime = "cri-o://1.31".into(),
        |node, taint| node.taints = vec![taint],
        |node, _| node.arch = "arm64".into(),
        |node, _| node.machine = None,
    ];
    for change in changes {
        for mut node in [node("n1"), ready(node("n1"), "a", 1)] {
            change(&mut node, taint.clone());
            assert_eq!(deeds(&world(vec![picky.clone()], vec![node.clone()])), NOTHING, "{node:?}");
        }
    }
}

#[test]
fn taints_of_kubernetes_itself_and_mere_preferences_do_not_matter() {
    for (key, effect) in [("node.kubernetes.io/unschedulable", "NoSchedule"), ("gpu", "PreferNoSchedule")] {
        let mut node = node("n1");
        node.taints = vec![Taint { key: key.to_owned(), effect: effect.to_owned(), ..Taint::default() }];
        assert_eq!(deeds(&one(node)).len(), 2);
    }
}
