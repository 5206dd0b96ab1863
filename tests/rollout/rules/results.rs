//! What becomes of results: recorded, kept, tried again.
use std::sync::Arc;

use shim_core::{
    mark::{self, Mark, Ready},
    plan::{Action, plan},
    report::{Outcome, Reason},
    world::{Life, NodeView, Phase},
};

use super::fixture::*;

#[test]
fn a_success_is_recorded_first_and_its_job_forgotten_next() {
    let fresh = marked(node("n1"), "a", Mark::Claimed);
    let job = ended(&fresh, &[install("a", 1)], &done(), 5);
    let mut world = one(fresh);
    world.jobs = vec![job.clone()];
    assert_eq!(deeds(&world), ["n1 marks a ready 1"]);
    let told = Ready {
        build: build("a", 1),
        machine: "machine-n1".parse().unwrap(),
        since: seconds_ago(5),
        disrupted: 0,
        repairs: 0,
    };
    world.nodes = vec![Arc::new(marked(node("n1"), "a", Mark::Ready(told)))];
    assert_eq!(deeds(&world), ["delete job-n1"]);
}

#[test]
fn a_removal_that_succeeded_takes_the_mark_off() {
    let red = elsewhere(shim("a"));
    let node = marked(node("n1"), "a", Mark::Removing);
    let mut world = world(vec![red], vec![node.clone()]);
    world.jobs = vec![ended(&node, &[removal("a")], &done(), 5)];
    assert_eq!(deeds(&world), ["n1 marks nothing"]);
}

#[test]
fn what_was_installed_while_its_node_was_deselected_is_recorded_as_leaving() {
    let red = elsewhere(shim("a"));
    let node = marked(node("n1"), "a", Mark::Claimed);
    let mut world = world(vec![red], vec![node.clone()]);
    world.jobs = vec![ended(&node, &[install("a", 1)], &done(), 5)];
    assert_eq!(deeds(&world), ["n1 marks a removing"]);
}

#[test]
fn the_job_of_a_node_that_is_gone_is_deleted_once_it_has_ended() {
    let mut world = one(ready(node("n1"), "a", 1));
    for (phase_of, wanted) in [(done(), vec!["delete job-n2"]), (failed(Reason::NoResult), vec!["delete job-n2"])] {
        world.jobs = vec![ended(&node("n2"), &[install("a", 1)], &phase_of, 5)];
        assert_eq!(deeds(&world), wanted);
    }
    world.jobs = vec![job(&node("n2"), &[install("a", 1)], Phase::Running)];
    assert_eq!(deeds(&world), NOTHING);
}

#[test]
fn a_failure_is_tried_again_while_paused() {
    let paused = with(shim("a"), |spec| spec.rollout.paused = true);
    let node = marked(node("n1"), "a", Mark::Claimed);
    let mut world = world(vec![paused], vec![node.clone()]);
    world.jobs = vec![recorded(ended(&node, &[install("a", 1)], &failed(Reason::DownloadFailed), 61))];
    assert_eq!(deeds(&world), ["n1 job a+1"]);
}

#[test]
fn a_failure_is_recorded_and_tried_again_soon() {
    let node = marked(node("n1"), "a", Mark::Claimed);
    let job = ended(&node, &[install("a", 1)], &failed(Reason::DownloadFailed), 19);
    let mut world = one(node.clone());
    world.jobs = vec![job.clone()];
    assert_eq!(deeds(&world), ["record job-n1: 1"]);
    world.jobs = vec![recorded(job)];
    assert_eq!(deeds(&world), NOTHING);
    assert_eq!(plan(&world).wake_at, Some(seconds_ago(-1)));
    world.jobs = vec![recorded(ended(&node, &[install("a", 1)], &failed(Reason::DownloadFailed), 20))];
    let again = plan(&world).actions;
    let Some(Action::Create(task)) = again.iter().find(|action| matches!(action, Action::Create(_))) else { panic!() };
    assert_eq!((task.attempt(&name("a")), task.serial), (2, 2));
}

#[test]
fn a_removal_that_found_pods_asks_again_after_half_a_minute() {
    let mut leaving = shim("a");
    leaving.life = Life::Deleting;
    let node = marked(node("n1"), "a", Mark::Removing);
    for (age, wanted) in [(29, vec![]), (30, vec!["n1 job a-"])] {
        let mut world = world(vec![leaving.clone()], vec![node.clone()]);
        world.jobs = vec![recorded(ended(&node, &[removal("a")], &Outcome::InUse { pods: 2 }, age))];
        assert_eq!(deeds(&world), wanted);
    }
}

#[test]
fn a_failure_is_tried_at_once_when_the_spec_asks_for_another_build() {
    let node = marked(node("n1"), "a", Mark::Claimed);
    let mut world = world(vec![asking_for("a", 2)], vec![node.clone()]);
    world.jobs = vec![recorded(ended(&node, &[install("a", 1)], &failed(Reason::ChecksumMismatch), 5))];
    assert_eq!(deeds(&world), ["delete job-n1", "n1 job a+2"]);
}

#[test]
fn a_failed_job_stays_until_its_successor_is_there() {
    let node = marked(node("n1"), "a", Mark::Claimed);
    let first = recorded(ended(&node, &[install("a", 1)], &failed(Reason::DownloadFailed), 90));
    let mut second = job(&node, &[install("a", 1)], Phase::Running);
    (second.task.serial, second.uid) = (2, "second".to_owned());
    let mut world = one(node);
    world.jobs = vec![second, first];
    assert_eq!(deeds(&world), ["delete job-n1"]);
}

#[test]
fn a_success_beside_a_failure_is_recorded_and_only_the_failure_kept() {
    let node = marked(marked(node("n1"), "a", Mark::Claimed), "b", Mark::Claimed);
    let mut job = ended(&node, &[install("a", 1), install("b", 1)], &failed(Reason::DownloadFailed), 5);
    if let Phase::Finished(finished) = &mut job.phase {
        finished.report.outcomes.insert(name("a"), done());
    }
    let mut world = world(vec![shim("a"), shim("b")], vec![node]);
    world.jobs = vec![job];
    assert_eq!(deeds(&world), ["n1 marks a ready 1 b claimed"]);
    world.nodes = vec![Arc::new(marked(ready(super::fixture::node("n1"), "a", 1), "b", Mark::Claimed))];
    Arc::make_mut(&mut world.nodes[0]).marks.as_mut().unwrap().insert(
        name("a"),
        Mark::Ready(Ready {
            build: build("a", 1),
            machine: "machine-n1".parse().unwrap(),
            since: seconds_ago(5),
            disrupted: 0,
            repairs: 0,
        }),
    );
    assert_eq!(deeds(&world), ["record job-n1: 1"]);
}

#[test]
fn a_failure_is_history_once_the_shim_was_installed_or_removed_since() {
    let red = elsewhere(with(shim("a"), |spec| spec.rollout.paused = true));
    let node = marked(ready(node("n1"), "a", 1), "b", Mark::Claimed);
    let mut world = world(vec![red, shim("b")], vec![node.clone()]);
    // Kept for b; a was installed by a Job that is gone.
    world.jobs = vec![recorded(ended(&node, &[removal("a"), install("b", 1)], &failed(Reason::Internal), 3700))];
    assert_eq!(deeds(&world), ["n1 job b+1"], "a is paused and did not fail since");
}

#[test]
fn nothing_is_removed_under_a_label_that_says_ready() {
    let red = elsewhere(with(shim("a"), |spec| spec.rollout.paused = true));
    let node = ready(node("n1"), "a", 1);
    let mut world = world(vec![red], vec![node.clone()]);
    world.jobs = vec![recorded(ended(&node, &[removal("a")], &failed(Reason::Internal), 70))];
    assert_eq!(deeds(&world), ["n1 marks a removing", "n1 job a-"]);
}

#[test]
fn nothing_starts_on_a_node_before_the_old_job_is_recorded_or_gone() {
    let node = ready(node("n1"), "a", 1);
    let mut world = world(vec![shim("a"), shim("b")], vec![node.clone()]);
    world.jobs = vec![ended(&node, &[install("a", 1)], &done(), 3600)];
    assert_eq!(deeds(&world), ["delete job-n1"]);
}

#[test]
fn an_upgrade_that_ended_without_a_word_leaves_the_build_unknown() {
    let node = ready(node("n1"), "a", 1);
    let mut world = world(vec![asking_for("a", 2)], vec![node.clone()]);
    world.jobs = vec![ended(&node, &[install("a", 2)], &failed(Reason::NoResult), 5)];
    assert_eq!(deeds(&world), ["n1 marks a ready "]);
    // Back to build 1: it may not be what the node has.
    let mut world = one(ready(super::fixture::node("n1"), "a", 0));
    world.jobs = vec![];
    assert_eq!(deeds(&world), ["n1 job a+1"]);
}

#[test]
fn a_result_is_recorded_although_its_shim_has_let_go_of_the_node() {
    let node = ready(node("n1"), "a", 1);
    let mut world = world(vec![], vec![node.clone()]);
    world.jobs = vec![ended(&node, &[install("a", 2)], &done(), 5)];
    assert_eq!(deeds(&world), ["n1 marks a ready 2"]);
}

#[test]
fn repairs_are_counted_as_long_as_they_follow_each_other() {
    let after = |before: NodeView, number| {
        let mut world = world(vec![asking_for("a", number)], vec![before.clone()]);
        world.jobs = vec![ended(&before, &[install("a", number)], &done(), 5)];
        let write = |action| if let Action::Mark(write) = action { Some(write) } else { None };
        let marks = plan(&world).actions.into_iter().find_map(write).map(|write| mark::parse(write.new.as_deref()));
        marks.map(|marks| marks.unwrap()[&name("a")].clone())
    };
    let repairs = |before, number| match after(before, number) {
        Some(Mark::Ready(ready)) => Some(ready.repairs),
        _ => None,
    };
    let day = 86_400;
    assert_eq!(repairs(denied("n1", 70, 0), 1), Some(1));
    assert_eq!(repairs(denied("n1", day, 3), 1), Some(4));
    assert_eq!(repairs(denied("n1", 5 + day, 3), 1), Some(0), "a day apart");
    assert_eq!(repairs(denied("n1", 70, 3), 2), Some(0), "an upgrade");
    assert_eq!(repairs(denied("n1", 5, 3), 1), None, "it has been recorded");
    let reimaged = NodeView { machine: Some("other".parse().unwrap()), ..denied("n1", 70, 3) };
    assert_eq!(repairs(reimaged, 1), Some(0), "another machine");
}

#[test]
fn pods_that_were_ended_are_counted_on_until_there_is_another_build() {
    let mut node = ready(node("n1"), "a", 1);
    if let Some(Mark::Ready(ready)) = node.marks.as_mut().unwrap().get_mut(&name("a")) {
        ready.disrupted = 2;
    }
    let disrupted = |number, pods| {
        let mut world = world(vec![asking_for("a", number)], vec![node.clone()]);
        world.jobs = vec![ended(&node, &[install("a", number)], &Outcome::Done { disrupted: pods }, 5)];
        let write = |action| if let Action::Mark(write) = action { Some(write) } else { None };
        let write = plan(&world).actions.into_iter().find_map(write).unwrap();
        let Mark::Ready(ready) = &mark::parse(write.new.as_deref()).unwrap()[&name("a")] else { panic!("{write:?}") };
        ready.disrupted
    };
    assert_eq!((disrupted(1, 0), disrupted(1, 1), disrupted(2, 0)), (2, 3, 0));
}
