//! What starts, where and when.
use std::collections::BTreeMap;

use jiff::SignedDuration;
use shim_core::{
    job::Start,
    mark::Mark,
    plan::{Action, plan},
    world::{Life, NodeView, Phase, Retry, Share, World},
};

use super::fixture::*;

#[test]
fn a_new_node_is_claimed_before_its_job_starts() {
    assert_eq!(deeds(&one(node("n1"))), ["n1 marks a claimed", "n1 job a+1"]);
}

#[test]
fn a_node_that_has_the_build_is_left_alone() {
    assert_eq!(deeds(&one(ready(node("n1"), "a", 1))), NOTHING);
    let in_23_hours = now() + SignedDuration::from_hours(23);
    assert_eq!(plan(&one(ready(node("n1"), "a", 1))).wake_at, Some(in_23_hours), "its kubelet reports no handlers");
}

#[test]
fn another_digest_is_an_upgrade_and_needs_no_claim() {
    let world = world(vec![asking_for("a", 2)], vec![ready(node("n1"), "a", 1)]);
    assert_eq!(deeds(&world), ["n1 job a+2"]);
}

#[test]
fn another_version_alone_changes_nothing() {
    let renamed = with(shim("a"), |spec| spec.inputs.version = "v2".to_owned());
    assert_eq!(deeds(&world(vec![renamed], vec![ready(node("n1"), "a", 1)])), NOTHING);
}

#[test]
fn all_that_is_due_on_a_node_goes_into_one_job() {
    let gone = elsewhere(shim("c"));
    let node = ready(ready(node("n1"), "b", 1), "c", 1);
    let world = world(vec![shim("a"), asking_for("b", 2), gone], vec![node]);
    assert_eq!(deeds(&world), ["n1 marks a claimed b ready 1 c removing", "n1 job a+1 b+2 c-"]);
}

#[test]
fn a_node_that_is_no_longer_selected_is_demoted_and_cleaned() {
    let red = elsewhere(shim("a"));
    let cases = [
        (node("n1"), vec![]),
        (ready(node("n1"), "a", 1), vec!["n1 marks a removing", "n1 job a-"]),
        (marked(node("n1"), "a", Mark::Claimed), vec!["n1 marks a removing", "n1 job a-"]),
        (marked(node("n1"), "a", Mark::Removing), vec!["n1 job a-"]),
    ];
    for (node, wanted) in cases {
        assert_eq!(deeds(&world(vec![red.clone()], vec![node])), wanted);
    }
}

#[test]
fn a_node_that_is_selected_again_during_its_removal_is_installed_again() {
    assert_eq!(deeds(&one(marked(node("n1"), "a", Mark::Removing))), ["n1 job a+1"]);
}

#[test]
fn a_node_that_was_created_again_owes_nothing_to_the_job_of_the_old_one() {
    let old = node("n1");
    let new = NodeView { uid: "another".to_owned(), ..node("n1") };
    let mut world = one(new);
    world.jobs = vec![job(&old, &[install("a", 1)], Phase::Running)];
    assert_eq!(deeds(&world), NOTHING, "the old Job may still touch the machine");
    world.jobs = vec![ended(&old, &[install("a", 1)], &done(), 5)];
    assert_eq!(deeds(&world), ["n1 marks a claimed", "delete job-n1", "n1 job a+1"]);
}

#[test]
fn a_machine_that_comes_back_under_another_name_is_another_node() {
    let old = NodeView { ready: false, ..ready(node("old"), "a", 1) };
    let new = NodeView { machine: old.machine.clone(), ..node("new") };
    let wanted = ["new marks a claimed", "new job a+1"];
    assert_eq!(deeds(&world(vec![shim("a")], vec![old.clone(), new.clone()])), wanted, "both are there for a while");
    let mut world = one(new.clone());
    world.jobs = vec![job(&old, &[install("a", 1)], Phase::Running)];
    assert_eq!(deeds(&world), NOTHING, "the only place in the budget is taken until the old Job has ended");
    world.jobs = vec![ended(&old, &[install("a", 1)], &done(), 5)];
    assert_eq!(deeds(&world), ["new marks a claimed", "delete job-old", "new job a+1"]);
}

#[test]
fn a_mark_of_another_machine_is_not_believed() {
    let mut node = ready(node("n1"), "a", 1);
    node.machine = Some("another".parse().unwrap());
    assert_eq!(deeds(&one(node)), ["n1 marks a claimed", "n1 job a+1"]);
}

#[test]
fn a_node_with_work_of_ours_on_it_gets_no_second_job() {
    let busy = marked(node("n1"), "b", Mark::Claimed);
    for (phase, wanted) in [(Phase::Running, vec![]), (Phase::Stuck, vec!["note job-n1: NodeLost"])] {
        let mut world = world(vec![shim("a"), shim("b")], vec![busy.clone()]);
        world.jobs = vec![job(&busy, &[install("b", 1)], phase)];
        assert_eq!(deeds(&world), wanted);
    }
    let mut world = one(node("n1"));
    world.occupied.insert("n1".parse().unwrap());
    assert_eq!(deeds(&world), NOTHING);
}

#[test]
fn a_pod_that_may_have_something_to_say_is_looked_at_again() {
    let claimed = marked(node("n1"), "a", Mark::Claimed);
    let mut world = one(claimed.clone());
    world.jobs = vec![job(&claimed, &[install("a", 1)], Phase::Running)];
    for (start, wanted) in [(Start::Waiting, Some(seconds_ago(-5))), (Start::Begun, None)] {
        world.jobs[0].start = start;
        assert_eq!(plan(&world).wake_at, wanted);
    }
    world.jobs.clear();
    world.occupied.insert("n1".parse().unwrap());
    assert_eq!(plan(&world).wake_at, Some(seconds_ago(-5)), "nothing tells when a Pod without a Job has gone");
}

fn jobs_started(world: &World) -> usize {
    plan(world).actions.iter().filter(|action| matches!(action, Action::Create(_))).count()
}

#[test]
fn the_budget_is_a_number_or_a_share_rounded_up_and_at_least_one() {
    let cases = [
        (Share::Count(3), 10, 3),
        (Share::Count(30), 10, 10),
        (Share::Percent(10), 10, 1),
        (Share::Percent(10), 11, 2),
        (Share::Percent(1), 3, 1),
        (Share::Percent(100), 7, 7),
    ];
    for (budget, count, started) in cases {
        let limited = with(shim("a"), |spec| spec.rollout.max_update = budget);
        assert_eq!(jobs_started(&world(vec![limited], nodes(count))), started, "{budget:?} of {count}");
    }
}

#[test]
fn running_jobs_use_the_budget_up_and_stuck_ones_do_not() {
    let all = nodes(4);
    for (phase, started) in [(Phase::Running, 1), (Phase::Stuck, 2)] {
        let mut world = world(vec![with(shim("a"), |spec| spec.rollout.max_update = Share::Count(2))], all.clone());
        world.jobs = vec![job(&all[0], &[install("a", 1)], phase)];
        assert_eq!(jobs_started(&world), started);
    }
}

#[test]
fn the_budget_of_one_shim_does_not_hold_up_another() {
    let narrow = with(shim("a"), |spec| spec.rollout.max_update = Share::Count(1));
    let started = plan(&world(vec![narrow, shim("b")], nodes(3))).actions;
    let with_a = started.iter().filter(|action| matches!(action, Action::Create(task) if task.ops.len() == 2)).count();
    let with_b = started.iter().filter(|action| matches!(action, Action::Create(_))).count();
    assert_eq!((with_a, with_b), (1, 3));
}

#[test]
fn nodes_that_are_not_ready_neither_start_nor_hold_up_others() {
    let mut all = nodes(3);
    all[1].ready = false;
    let started = deeds(&world(vec![with(shim("a"), |spec| spec.rollout.max_update = Share::Count(2))], all));
    assert_eq!(started.len(), 4);
    assert!(started.iter().all(|deed| !deed.starts_with("n1")), "{started:?}");
}

#[test]
fn cordoned_nodes_come_last() {
    for cordoned in 0..4 {
        let mut all = nodes(4);
        all[cordoned].cordoned = true;
        let started = deeds(&world(vec![with(shim("a"), |spec| spec.rollout.max_update = Share::Count(3))], all));
        assert_eq!(started.len(), 6);
        assert!(started.iter().all(|deed| !deed.starts_with(&format!("n{cordoned}"))), "{started:?}");
    }
}

#[test]
fn the_first_job_of_a_new_shim_waits_for_others_two_seconds() {
    for (age, started) in [(0, 0), (1, 0), (2, 1)] {
        let mut young = shim("a");
        young.created = seconds_ago(age);
        let world = world(vec![young, shim("b")], nodes(1));
        assert_eq!(jobs_started(&world), started, "{age} s old");
        let wake = plan(&world).wake_at;
        assert_eq!(wake, (started == 0).then(|| seconds_ago(age - 2)));
    }
}

#[test]
fn paused_starts_nothing_and_demotes_nothing_and_records_what_ran() {
    let paused = |text| with(asking_for(text, 2), |spec| spec.rollout.paused = true);
    assert_eq!(deeds(&world(vec![paused("a")], vec![node("n1"), ready(node("n2"), "a", 1)])), NOTHING);
    let elsewhere = elsewhere(paused("a"));
    assert_eq!(deeds(&world(vec![elsewhere], vec![ready(node("n1"), "a", 1)])), NOTHING);
    let node = marked(node("n1"), "a", Mark::Claimed);
    let mut world = world(vec![paused("a")], vec![node.clone()]);
    world.jobs = vec![ended(&node, &[install("a", 2)], &done(), 5)];
    assert_eq!(deeds(&world), ["n1 marks a ready 2"]);
}

#[test]
fn a_deleted_shim_ignores_pause() {
    let mut leaving = with(shim("a"), |spec| spec.rollout.paused = true);
    leaving.life = Life::Deleting;
    assert_eq!(deeds(&world(vec![leaving], vec![ready(node("n1"), "a", 1)])), ["n1 marks a removing", "n1 job a-"]);
}

#[test]
fn a_label_that_somebody_took_off_comes_back() {
    let mut node = ready(node("n1"), "a", 1);
    node.labels.clear();
    let actions = plan(&one(node)).actions;
    let Some(Action::Mark(write)) = actions.first() else { panic!("{actions:?}") };
    assert_eq!(write.old, write.new);
    assert_eq!(write.labels, BTreeMap::from([("shim.dev/a".to_owned(), Some("ready"))]));
}

#[test]
fn a_label_without_a_mark_is_not_ours() {
    let mut node = ready(node("n1"), "a", 1);
    node.labels.insert("shim.dev/other".into(), "ready".into());
    assert_eq!(deeds(&one(node)), NOTHING);
}

#[test]
fn a_handler_that_the_kubelet_denies_is_installed_again_after_a_minute_and_then_ever_later() {
    for (repairs, pause) in [(0, 60), (1, 120), (2, 240), (4, 960), (5, 1800), (u32::MAX, 1800)] {
        for (age, wanted) in [(pause - 1, vec![]), (pause, vec!["n1 job a+1"])] {
            let world = one(denied("n1", age, repairs));
            assert_eq!(deeds(&world), wanted);
            assert_eq!(plan(&world).wake_at, wanted.is_empty().then(|| seconds_ago(-1)));
        }
    }
}

#[test]
fn a_repair_is_made_at_once_when_somebody_asks_for_it() {
    let mut world = one(denied("n1", 70, 5));
    world.shims[0].retry = Some(Retry { at: seconds_ago(5), nodes: None });
    assert_eq!(deeds(&world), ["n1 job a+1"]);
}
