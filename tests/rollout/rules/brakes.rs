//! Canary, failures that stop a rollout, retries, and what new nodes get meanwhile.
use std::sync::Arc;

use k8s_openapi::api::core::v1::Taint;
use shim_core::{
    events::notices,
    job::Start,
    mark::Mark,
    plan::{Action, plan},
    report::{Failure, Outcome, Reason, Step},
    revision::Fate,
    task::Tries,
    world::{JobView, Life, NodeView, Phase, Retry, Share, ShimView, World},
};

use super::fixture::*;

/// A Shim that asks for build 2 after build 1 has completed, with the brakes that a spec has by default.
fn upgrading(canary: u32, max_failures: u32) -> ShimView {
    with(asking_for("a", 2), |spec| {
        (spec.rollout.canary, spec.rollout.max_failures) = (Share::Count(canary), Share::Count(max_failures));
    })
}

/// Nodes that have build 1, in the order in which a rollout takes them.
fn served(count: usize) -> Vec<NodeView> {
    let mut nodes: Vec<_> = nodes(count).into_iter().map(|node| ready(node, "a", 1)).collect();
    nodes.sort_by_key(|node| node.place);
    nodes
}

/// The World of `shim`, with build 1 as its last complete revision.
fn upgrade(shim: ShimView, nodes: Vec<NodeView>) -> World {
    let mut world = world(vec![shim], nodes);
    let shim = &world.shims[0];
    let current = revision(shim, 2, shim.spec.as_ref().unwrap().inputs.clone(), None);
    world.revisions = vec![revision(shim, 1, inputs(1), Some(3)), current];
    world
}

fn started(world: &World) -> Vec<String> {
    let task = |action| if let Action::Create(task) = action { Some(task.node.to_string()) } else { None };
    plan(world).actions.into_iter().filter_map(task).collect()
}

fn failing(node: &NodeView, reason: Reason, seconds: i64, tries: Option<Tries>) -> JobView {
    let mut job = recorded(ended(node, &[install("a", 2)], &failed(reason), seconds));
    job.task.tries.extend(tries.map(|tries| (name("a"), tries)));
    job
}

fn names(nodes: &[NodeView]) -> Vec<String> {
    nodes.iter().map(|node| node.name.to_string()).collect()
}

#[test]
fn nothing_starts_before_the_revision_is_on_record() {
    let mut world = upgrade(upgrading(0, 1), served(2));
    world.revisions.pop();
    assert_eq!(deeds(&world), ["revise a 2"]);
    world.revisions.clear();
    assert_eq!(deeds(&world), ["revise a 1"]);
}

#[test]
fn a_view_of_a_shim_that_is_older_than_its_revision_is_not_numbered_again() {
    let mut world = upgrade(asking_for("a", 1), served(1));
    world.revisions[1].inputs = inputs(2);
    world.revisions[1].generation = 5;
    assert_eq!(deeds(&world), NOTHING);
}

#[test]
fn the_rest_waits_until_the_canary_has_succeeded() {
    let nodes = served(4);
    for (canary, first) in [(0, 4), (1, 1), (2, 2), (9, 4)] {
        assert_eq!(started(&upgrade(upgrading(canary, 1), nodes.clone())), names(&nodes[..first]), "canary {canary}");
    }
    let mut world = upgrade(upgrading(2, 1), nodes.clone());
    world.jobs = vec![job(&nodes[0], &[install("a", 2)], Phase::Running)];
    assert_eq!(started(&world), names(&nodes[1..2]));
    world.jobs.push(job(&nodes[1], &[install("a", 2)], Phase::Running));
    assert_eq!(started(&world), NOTHING);
    world.jobs.clear();
    world.nodes[0] = Arc::new(ready(node(nodes[0].name.as_str()), "a", 2));
    assert_eq!(started(&world), names(&nodes[1..2]), "one of two");
    world.nodes[1] = Arc::new(ready(node(nodes[1].name.as_str()), "a", 2));
    assert_eq!(started(&world), names(&nodes[2..]));
}

#[test]
fn a_success_that_is_not_in_the_marks_yet_counts_for_the_canary() {
    let nodes = served(3);
    let mut world = upgrade(upgrading(2, 1), nodes.clone());
    world.jobs = vec![ended(&nodes[0], &[install("a", 2)], &done(), 5)];
    assert_eq!(started(&world), names(&nodes[1..2]));
}

#[test]
fn too_many_failures_stop_what_has_not_been_tried() {
    let nodes = served(4);
    for (max_failures, rest) in [(1, 0), (2, 3)] {
        let mut world = upgrade(upgrading(0, max_failures), nodes.clone());
        world.jobs = vec![failing(&nodes[0], Reason::ChecksumMismatch, 5, None)];
        assert_eq!(started(&world).len(), rest, "maxFailures {max_failures}");
    }
    // A node that counts as failed still does while it is tried again, and when it does not answer any more.
    for phase in [Phase::Running, Phase::Stuck] {
        let mut world = upgrade(upgrading(0, 1), nodes.clone());
        let mut again = job(&nodes[0], &[install("a", 2)], phase.clone());
        again.task.tries.insert(name("a"), Tries { failed: 3, waited: 0, since: 0, counted: true });
        world.jobs = vec![again];
        assert_eq!(started(&world), NOTHING, "{phase:?}");
    }
}

#[test]
fn what_another_try_may_overcome_counts_after_three_tries_or_five_minutes() {
    let nodes = served(3);
    let since = |seconds: i64| seconds_ago(seconds).as_second();
    let cases = [
        (None, true),
        (Some(Tries { failed: 1, waited: 0, since: since(100), counted: false }), true),
        (Some(Tries { failed: 2, waited: 0, since: since(100), counted: false }), false),
        (Some(Tries { failed: 1, waited: 0, since: since(300), counted: false }), false),
    ];
    for (tries, goes_on) in cases {
        let mut world = upgrade(upgrading(0, 1), nodes.clone());
        world.jobs = vec![failing(&nodes[0], Reason::SandboxFailed, 5, tries)];
        assert_eq!(!started(&world).is_empty(), goes_on, "{tries:?}");
    }
}

#[test]
fn a_node_that_is_tried_again_soon_keeps_its_place_in_the_budget() {
    let nodes = served(3);
    let narrow = with(upgrading(0, 2), |spec| spec.rollout.max_update = Share::Count(1));
    let mut world = upgrade(narrow, nodes.clone());
    world.jobs = vec![failing(&nodes[0], Reason::SandboxFailed, 5, None)];
    assert_eq!(started(&world), NOTHING);
    world.jobs = vec![failing(&nodes[0], Reason::SandboxFailed, 20, None)];
    assert_eq!(started(&world), names(&nodes[..1]));
    Arc::make_mut(&mut world.nodes[0]).ready = false;
    assert_eq!(started(&world), names(&nodes[1..2]), "one that does not answer holds up nobody");
}

#[test]
fn a_retry_that_was_asked_for_starts_at_once_and_only_where_it_was_asked_for() {
    let nodes = served(3);
    for (text, expected) in [
        ("2026-11-30T07:59:58Z", vec![&nodes[0]]),
        ("2026-11-30T07:59:50Z", vec![]),
        ("2026-11-30T07:59:58Z=n0,n1,n2", vec![&nodes[0]]),
        ("2026-11-30T07:59:58Z=elsewhere", vec![]),
    ] {
        let mut shim = upgrading(0, 1);
        shim.retry = Some(text.parse().unwrap());
        assert_eq!(shim.retry.as_ref().unwrap().to_string(), text);
        let mut world = upgrade(shim, nodes.clone());
        world.jobs = vec![failing(&nodes[0], Reason::ChecksumMismatch, 5, None)];
        let expected: Vec<_> = expected.into_iter().map(|node| node.name.to_string()).collect();
        assert_eq!(started(&world), expected, "{text}: nothing else starts while the node counts as failed");
    }
}

#[test]
fn a_new_node_gets_the_last_complete_build_while_the_new_one_has_not_proven_itself() {
    let mut all = served(2);
    all.push(node("new"));
    let wanted = |world: &World| deeds(world).into_iter().filter(|deed| deed.starts_with("new")).collect::<Vec<_>>();
    let world = upgrade(upgrading(1, 1), all.clone());
    assert_eq!(wanted(&world), ["new marks a claimed", "new job a+1"], "the canary is open");
    let mut stopped = upgrade(upgrading(0, 1), all.clone());
    stopped.jobs = vec![failing(&all[0], Reason::ChecksumMismatch, 5, None)];
    assert_eq!(wanted(&stopped), ["new marks a claimed", "new job a+1"], "the rollout has stopped");
    let open = upgrade(upgrading(0, 1), all.clone());
    assert_eq!(wanted(&open), ["new marks a claimed", "new job a+2"]);
    let paused = with(upgrading(1, 1), |spec| spec.rollout.paused = true);
    assert_eq!(wanted(&upgrade(paused, all.clone())), NOTHING, "paused: it waits");
    let mut first = upgrade(upgrading(1, 1), all);
    first.revisions.remove(0);
    assert_eq!(wanted(&first), NOTHING, "nothing has completed yet");
}

#[test]
fn a_new_node_is_first_in_line() {
    let mut all = served(3);
    all.push(node("new"));
    let narrow = with(upgrading(0, 1), |spec| spec.rollout.max_update = Share::Count(1));
    assert_eq!(started(&upgrade(narrow, all)), ["new"]);
}

#[test]
fn where_every_node_is_new_the_canary_is_one_of_them() {
    // What completed before may not be there any more: nobody must wait for it for ever.
    let mut all = nodes(3);
    all.sort_by_key(|node| node.place);
    assert_eq!(deeds(&upgrade(upgrading(1, 1), all.clone()))[1], format!("{} job a+2", all[0].name));
}

#[test]
fn a_failed_stopgap_is_tried_again_with_the_same_pauses() {
    let mut all = served(1);
    let new = marked(node("new"), "a", Mark::Claimed);
    all.push(new.clone());
    for (seconds, wanted) in [(59, vec![]), (60, vec!["new job a+1"])] {
        let mut world = upgrade(upgrading(1, 1), all.clone());
        world.jobs = vec![
            recorded(ended(&new, &[install("a", 1)], &failed(Reason::ChecksumMismatch), seconds)),
            job(&all[0], &[install("a", 2)], Phase::Running),
        ];
        assert_eq!(deeds(&world), wanted);
    }
}

fn fates(world: &World) -> Vec<(i64, Fate, u32, u32)> {
    let stamp = |action| match action {
        Action::Stamp(_, number, record) => Some((number, record.fate, record.updated, record.nodes)),
        _ => None,
    };
    plan(world).actions.into_iter().filter_map(stamp).collect()
}

#[test]
fn what_became_of_a_revision_is_written_once() {
    let all = served(2);
    let done = vec![ready(node("n0"), "a", 2), ready(node("n1"), "a", 2)];
    assert_eq!(fates(&upgrade(upgrading(1, 1), all.clone())), []);
    assert_eq!(fates(&upgrade(upgrading(1, 1), done.clone())), [(2, Fate::Complete, 2, 2)]);
    let mut stopped = upgrade(upgrading(1, 1), all.clone());
    stopped.jobs = vec![failing(&all[0], Reason::ChecksumMismatch, 5, None)];
    assert_eq!(fates(&stopped), [(2, Fate::Failed, 0, 2)]);
    let mut next = upgrade(asking_for("a", 3), all);
    next.revisions[1].inputs = inputs(2);
    next.revisions.push(revision(&next.shims[0], 3, inputs(3), None));
    assert_eq!(fates(&next), [(2, Fate::Superseded, 0, 2)]);
    let mut complete = upgrade(upgrading(1, 1), done);
    complete.revisions[1] = revision(&complete.shims[0], 2, inputs(2), Some(2));
    assert_eq!(fates(&complete), []);
}

#[test]
fn old_revisions_go_but_not_the_last_complete_one() {
    let short = with(asking_for("a", 5), |spec| spec.history = 1);
    let mut world = upgrade(short, vec![ready(node("n0"), "a", 5)]);
    let shim = &world.shims[0];
    world.revisions =
        (1..=5).map(|n| revision(shim, n, inputs(u32::try_from(n).unwrap()), (n == 2).then_some(1))).collect();
    assert_eq!(deeds(&world), ["forget a 3", "forget a 1"]);
}

#[test]
fn a_job_that_does_not_start_is_noted_once_and_withdrawn_when_nobody_wants_it() {
    let claimed = marked(node("n0"), "a", Mark::Claimed);
    let mut world = one(claimed.clone());
    let why = Failure::new(Step::Start, Reason::PodNotStarted, "ImagePullBackOff");
    let mut waiting = job(&claimed, &[install("a", 1)], Phase::Running);
    waiting.start = Start::Hindered { why: why.clone(), noted: false };
    world.jobs = vec![waiting.clone()];
    assert_eq!(deeds(&world), ["note job-n0: PodNotStarted"]);
    world.jobs[0].start = Start::Hindered { why, noted: true };
    assert_eq!(deeds(&world), NOTHING);
    world.shims[0].life = Life::Deleting;
    assert_eq!(deeds(&world), ["withdraw job-n0"]);
    world.jobs[0].start = Start::Begun;
    assert_eq!(deeds(&world), NOTHING, "it may have touched the node");
}

#[test]
fn a_job_that_can_not_start_is_made_anew_when_another_try_is_asked_for() {
    let claimed = marked(node("n0"), "a", Mark::Claimed);
    let mut world = one(claimed.clone());
    let why = Failure::new(Step::Start, Reason::PodNotStarted, "ImagePullBackOff");
    world.jobs = vec![job(&claimed, &[install("a", 1)], Phase::Running)];
    world.jobs[0].start = Start::Hindered { why, noted: true };
    let asked = |world: &mut World, seconds| {
        world.shims[0].retry = Some(Retry { at: seconds_ago(seconds), nodes: None });
    };
    asked(&mut world, 61);
    assert_eq!(deeds(&world), NOTHING, "that was before it was made");
    asked(&mut world, 1);
    assert_eq!(deeds(&world), ["withdraw job-n0"]);
    world.jobs[0].start = Start::Waiting;
    assert_eq!(deeds(&world), NOTHING, "nothing hinders it");
    world.jobs.clear();
    assert_eq!(deeds(&world), ["n0 job a+1"], "when its Job is gone");
}

#[test]
fn an_upgrade_that_does_not_start_is_not_withdrawn_under_what_serves() {
    let mut world = one(ready(node("n0"), "a", 1));
    world.jobs = vec![job(&ready(node("n0"), "a", 1), &[install("a", 2)], Phase::Running)];
    world.jobs[0].start = Start::Waiting;
    assert_eq!(deeds(&world), NOTHING);
}

#[test]
fn a_node_of_containerd_1_is_looked_at_once_a_day() {
    let looked_at = |seconds| {
        let mut node = ready(node("n0"), "a", 1);
        if let Some(Mark::Ready(ready)) = node.marks.as_mut().unwrap().get_mut(&name("a")) {
            ready.since = seconds_ago(seconds);
        }
        node
    };
    assert_eq!(deeds(&one(looked_at(86_399))), NOTHING);
    assert_eq!(deeds(&one(looked_at(86_400))), ["n0 job a?1"]);
    let mut modern = looked_at(86_400);
    modern.handlers.insert("a".into());
    assert_eq!(deeds(&one(modern)), NOTHING, "its kubelet looks all the time");
    let node = looked_at(86_400);
    let mut world = one(node.clone());
    let create = |action| if let Action::Create(task) = action { Some(task) } else { None };
    let task = plan(&world).actions.into_iter().find_map(create).unwrap();
    let ops: Vec<_> = task.ops.into_iter().collect();
    world.jobs = vec![ended(&node, &ops, &failed(Reason::Drifted), 5)];
    assert_eq!(deeds(&world), ["n0 marks a claimed"], "pods would fail there");
    world.nodes = vec![Arc::new(marked(super::fixture::node("n0"), "a", Mark::Claimed))];
    assert_eq!(deeds(&world), ["delete job-n0"]);
    let told = plan(&world).actions.iter().flat_map(|action| notices(&world, action)).count();
    assert_eq!(told, 2, "on the Shim and on the Node");
    world.nodes = vec![Arc::new(node.clone())];
    world.jobs = vec![ended(&node, &ops, &failed(Reason::RuntimeNotReady), 5)];
    assert_eq!(deeds(&world), ["record job-n0: 1"], "nothing is known to be lost");
    world.jobs = vec![ended(&node, &ops, &Outcome::Done { disrupted: 0 }, 5)];
    assert_eq!(deeds(&world), ["n0 marks a ready 1"]);
}

#[test]
fn a_taint_on_a_failed_node_opens_no_brake_and_forgets_nothing() {
    let nodes = served(3);
    let mut world = upgrade(upgrading(0, 1), nodes.clone());
    world.jobs = vec![failing(&nodes[0], Reason::ChecksumMismatch, 5, None)];
    assert_eq!(deeds(&world), NOTHING, "it has stopped");
    let taint = Taint { key: "broken".to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
    Arc::make_mut(&mut world.nodes[0]).taints = vec![taint];
    assert_eq!(deeds(&world), NOTHING, "a node that is quarantined has failed all the same");
    world.shims[0] = with(upgrading(0, 1), |spec| (spec.inputs, spec.source) = (inputs(3), source("a", 3)));
    let current = revision(&world.shims[0], 3, inputs(3), None);
    world.revisions.push(current);
    assert_eq!(deeds(&world)[0], format!("delete job-{}", nodes[0].name), "another build");
}
