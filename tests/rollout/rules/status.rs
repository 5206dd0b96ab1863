//! What people are told, one by one.
use std::collections::BTreeMap;
use std::sync::Arc;

use shim_core::{
    api::ShimStatus,
    board::Board,
    mark::{Mark, Ready},
    plan::{Action, plan},
    report::{Outcome, Reason},
    status::{NodeState, rows, summarize},
    task::Tries,
    world::{Artifacts, Life, NodeView, Phase, Share, ShimView, World},
};

use super::fixture::*;

fn status(world: &World) -> ShimStatus {
    let board = Board::new(world);
    summarize(&board, board.side(&world.shims[0].name).unwrap()).status
}

fn condition<'s>(status: &'s ShimStatus, kind: &str) -> (&'s str, &'s str) {
    let found = status.conditions.iter().find(|condition| condition.type_ == kind).unwrap();
    (found.status.as_str(), found.reason.as_str())
}

/// Ready, Reconciling, Stalled, Paused and Ready's reason.
fn verdict(world: &World) -> (String, String) {
    let status = status(world);
    let flags = ["Ready", "Reconciling", "Stalled", "Paused"].map(|kind| condition(&status, kind).0.to_owned());
    (flags.join(" "), condition(&status, "Ready").1.to_owned())
}

fn failing(node: &NodeView) -> Vec<shim_core::world::JobView> {
    vec![recorded(ended(node, &[install("a", 1)], &failed(Reason::ChecksumMismatch), 10))]
}

fn leaving() -> ShimView {
    ShimView { life: Life::Deleting, ..shim("a") }
}

#[test]
fn the_conditions_tell_kstatus_where_a_shim_stands() {
    let paused = with(shim("a"), |spec| spec.rollout.paused = true);
    let illegible = ShimView { spec: Err("odd".to_owned()), ..shim("a") };
    let claimed = marked(node("n1"), "a", Mark::Claimed);
    let mut foreign = world(vec![shim("a")], nodes(1));
    foreign.runtime_classes[0].metadata.labels = None;
    let mut broken = world(vec![shim("a")], vec![claimed.clone()]);
    broken.jobs = failing(&claimed);
    let half_broken = World { nodes: vec![Arc::new(claimed.clone()), Arc::new(node("n2"))], ..broken.clone() };
    let cases = [
        (world(vec![shim("a")], vec![ready(node("n1"), "a", 1)]), "True False False False", "Ready"),
        (world(vec![shim("a")], vec![]), "True False False False", "NoNodes"),
        (world(vec![shim("a")], nodes(1)), "False True False False", "Updating"),
        (world(vec![asking_for("a", 2)], vec![ready(node("n1"), "a", 1)]), "False True False False", "Updating"),
        (world(vec![paused.clone()], nodes(1)), "False False False True", "Paused"),
        (world(vec![paused], vec![ready(node("n1"), "a", 1)]), "True False False True", "Ready"),
        (world(vec![leaving()], vec![ready(node("n1"), "a", 1)]), "False True False False", "Removing"),
        (world(vec![illegible], nodes(1)), "False False True False", "InvalidSpec"),
        (foreign, "False False True False", "Conflict"),
        (broken, "False False True False", "Failed"),
        (half_broken, "False True False False", "Failed"),
    ];
    for (world, flags, reason) in cases {
        assert_eq!(verdict(&world), (flags.to_owned(), reason.to_owned()));
    }
}

fn states(world: &World) -> Vec<(String, NodeState, String)> {
    let board = Board::new(world);
    let rows = rows(&board, board.side(&world.shims[0].name).unwrap());
    rows.into_iter().map(|row| (row.node.to_string(), row.state, row.reason)).collect()
}

#[test]
fn a_node_has_one_state_and_the_worst_come_first() {
    let failing_node = marked(node("n6"), "a", Mark::Claimed);
    let busy = marked(node("n3"), "a", Mark::Claimed);
    let gone = NodeView { ready: false, ..node("n5") };
    let tainted = NodeView { os: "windows".into(), ..node("n2") };
    let mut world = world(
        vec![shim("a")],
        vec![ready(node("n1"), "a", 1), tainted, busy.clone(), node("n4"), gone, failing_node.clone()],
    );
    world.jobs = failing(&failing_node);
    world.jobs.push(job(&busy, &[install("a", 1)], Phase::Running));
    let found = states(&world);
    let found: Vec<_> = found.iter().map(|(node, state, reason)| (node.as_str(), *state, reason.as_str())).collect();
    let wanted = [
        ("n6", NodeState::Failed, "ChecksumMismatch"),
        ("n5", NodeState::Unknown, "NodeNotReady"),
        ("n3", NodeState::Updating, "Updating"),
        ("n4", NodeState::Waiting, "Pending"),
        ("n2", NodeState::Skipped, "NotLinux"),
        ("n1", NodeState::Ready, ""),
    ];
    assert_eq!(found, wanted);
}

#[test]
fn the_counts_are_those_of_the_rows() {
    let failing_node = marked(node("n6"), "a", Mark::Claimed);
    let busy = ready(node("n3"), "a", 2);
    let skipped = NodeView { os: "windows".into(), ..node("n2") };
    let mut world =
        world(vec![shim("a")], vec![ready(node("n1"), "a", 1), skipped, busy.clone(), failing_node.clone()]);
    world.jobs = failing(&failing_node);
    world.jobs.push(job(&busy, &[install("a", 1)], Phase::Running));
    let found = status(&world);
    let counts = [
        found.nodes,
        found.nodes_ready,
        found.nodes_updated,
        found.nodes_updating,
        found.nodes_failed,
        found.nodes_skipped,
    ];
    assert_eq!(counts, [4, 2, 1, 1, 1, 1]);
    assert_eq!(found.handler.as_deref(), Some("a"));
    assert_eq!(found.observed_generation, Some(1));
}

#[test]
fn a_failure_is_a_problem_with_its_step_reason_message_attempts_and_log() {
    let node = marked(node("n1"), "a", Mark::Claimed);
    let mut world = world(vec![shim("a")], vec![node.clone()]);
    world.jobs = failing(&node);
    let tries = Tries { failed: 2, waited: 0, since: 0, counted: true };
    world.jobs[0].task.tries.insert(name("a"), tries);
    let problems = status(&world).problems;
    let [problem] = problems.as_slice() else { panic!("{problems:?}") };
    assert_eq!((problem.node.as_str(), problem.state.as_str()), ("n1", "Failed"));
    assert_eq!((problem.step.as_deref(), problem.reason.as_str()), (Some("Fetch"), "ChecksumMismatch"));
    assert_eq!((problem.message.as_str(), problem.attempts), ("expected this, got that", 3));
    assert_eq!(problem.since.as_deref(), Some("2026-11-30T07:59:50Z"));
    assert_eq!(problem.log, "last words");
}

#[test]
fn ten_problems_are_shown_and_all_are_counted() {
    let windows = nodes(14).into_iter().map(|node| NodeView { os: "windows".into(), ..node }).collect();
    let found = status(&world(vec![shim("a")], windows));
    assert_eq!((found.problems.len(), found.nodes_skipped), (10, 14));
}

#[test]
fn a_removal_that_waits_for_pods_says_how_many_and_when_it_asks_again() {
    let node = marked(node("n1"), "a", Mark::Removing);
    let mut world = world(vec![leaving()], vec![node.clone()]);
    world.jobs = vec![recorded(ended(&node, &[removal("a")], &Outcome::InUse { pods: 2 }, 10))];
    let found = status(&world);
    assert_eq!(found.nodes_failed, 0);
    assert_eq!((found.problems[0].state.as_str(), found.problems[0].reason.as_str()), ("Waiting", "InUse"));
    let message = &found.problems[0].message;
    assert!(message.contains("2 pods") && message.contains("08:00:20"), "{message}");
}

#[test]
fn a_skipped_node_says_why() {
    let picky = with(shim("a"), |spec| {
        spec.source.artifacts = Artifacts::ByArch(BTreeMap::from([("amd64".to_owned(), artifact("a", 1))]));
    });
    let cases = [
        (NodeView { os: "windows".into(), ..node("n1") }, "NotLinux"),
        (NodeView { runtime: "cri-o://1.31".into(), ..node("n1") }, "NotContainerd"),
        (NodeView { arch: "arm64".into(), ..node("n1") }, "NoArtifact"),
        (NodeView { machine: None, ..node("n1") }, "NoMachineId"),
        (NodeView { marks: None, ..node("n1") }, "StateUnreadable"),
    ];
    for (node, reason) in cases {
        let world = world(vec![picky.clone()], vec![node]);
        assert_eq!(states(&world), [("n1".to_owned(), NodeState::Skipped, reason.to_owned())]);
        assert_eq!(verdict(&world).1, "Ready", "a node that can't be served does not hold up the others");
    }
}

#[test]
fn pods_that_a_restart_ended_are_told() {
    let told =
        Ready { build: build("a", 1), machine: "machine-n1".parse().unwrap(), since: now(), disrupted: 2, repairs: 0 };
    let world = world(vec![shim("a")], vec![marked(node("n1"), "a", Mark::Ready(told))]);
    assert_eq!(status(&world).pods_disrupted, 2);
}

#[test]
fn a_status_that_was_written_is_not_written_again() {
    let node = marked(node("n1"), "a", Mark::Claimed);
    let mut world = world(
        vec![shim("a"), ShimView { life: Life::Deleting, ..shim("b") }],
        vec![node.clone(), super::fixture::node("n2")],
    );
    world.jobs = failing(&node);
    for action in plan(&world).actions {
        if let Action::Status(name, status) = action {
            // The way through the API server.
            let text = serde_json::to_string(&status).unwrap();
            let shim = world.shims.iter_mut().find(|shim| shim.name == name).unwrap();
            shim.status = serde_json::from_str(&text).unwrap();
        }
    }
    world.now += jiff::SignedDuration::from_secs(7);
    let again = plan(&world)
        .actions
        .into_iter()
        .filter(|action| matches!(action, Action::Status(name, _) if name.as_str() == "a"));
    assert_eq!(again.count(), 0);
}

#[test]
fn a_condition_keeps_the_time_of_its_last_change() {
    let mut world = world(vec![shim("a")], vec![node("n1")]);
    world.shims[0].status = status(&world);
    world.now += jiff::SignedDuration::from_secs(100);
    world.nodes = vec![Arc::new(ready(node("n1"), "a", 1))];
    let after = status(&world);
    let changed =
        |kind: &str| after.conditions.iter().find(|condition| condition.type_ == kind).unwrap().last_transition_time.0;
    assert_eq!(changed("Ready"), world.now);
    assert_eq!(changed("Stalled"), now());
}

#[test]
fn a_node_whose_kubelet_denies_the_handler_says_when_it_is_repaired() {
    let told = |age, repairs, paused| {
        let shim = with(shim("a"), |spec| spec.rollout.paused = paused);
        let status = status(&world(vec![shim], vec![denied("n1", age, repairs)]));
        let problem = status.problems.first().unwrap();
        assert_eq!((problem.state.as_str(), problem.reason.as_str()), ("Waiting", "HandlerNotReported"));
        problem.message.clone()
    };
    let denial = "the kubelet does not report handler a";
    assert_eq!(told(60, 0, false), format!("{denial}; to be installed again"));
    assert_eq!(told(60, 1, false), format!("{denial}; installed again at 08:01:00 UTC"));
    assert_eq!(told(60, 1, true), format!("{denial}; the rollout is paused"));
}

#[test]
fn a_failed_node_counts_as_failed_while_it_is_tried_again() {
    let node = marked(node("n1"), "a", Mark::Claimed);
    let mut again = job(&node, &[install("a", 1)], Phase::Running);
    let tries = Tries { failed: 3, waited: 0, since: seconds_ago(600).as_second(), counted: true };
    again.task.tries.insert(name("a"), tries);
    let mut world = world(vec![with(shim("a"), |spec| spec.rollout.max_failures = Share::Percent(100))], vec![node]);
    world.nodes.push(Arc::new(ready(super::fixture::node("n2"), "a", 1)));
    world.jobs = vec![again];
    let status = status(&world);
    assert_eq!((status.nodes_failed, status.nodes_updating, status.nodes_unavailable), (1, 1, 1));
    let text = "1 of 2 nodes failed; n1: Updating: the installer runs, attempt 4";
    assert_eq!(status.conditions[0].message, text);
}

#[test]
fn a_node_is_unavailable_where_pods_should_run_and_can_not() {
    let unavailable =
        |number, node: NodeView| status(&world(vec![asking_for("a", number)], vec![node])).nodes_unavailable;
    assert_eq!(unavailable(1, node("n1")), 1, "nothing is there yet");
    assert_eq!(unavailable(1, denied("n1", 60, 0)), 1, "the kubelet denies it");
    assert_eq!(unavailable(2, ready(node("n1"), "a", 1)), 0, "it waits for an upgrade, and serves");
    assert_eq!(unavailable(1, ready(node("n1"), "a", 1)), 0);
    let tainted = NodeView { os: "windows".into(), ..node("n1") };
    assert_eq!(unavailable(1, tainted), 0, "it can't be served");
    let left = marked(node("n1"), "a", Mark::Removing);
    assert_eq!(status(&world(vec![leaving()], vec![left])).nodes_unavailable, 0, "it should not");
}
