//! A run that is killed before any of its changes: the next one completes or undoes it.
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use shim_core::task::Task;

use super::{
    faults::Killed,
    flow::NODES,
    node::{Node, WithOurs},
    recipe::{BROKEN, GOOD, add, remove, run, task, words},
};

/// Whether a run came to its end.
#[derive(Debug, PartialEq, Eq)]
enum Run {
    Ended,
    Killed,
}

/// What ends a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blow {
    /// SIGKILL: the daemon does not notice.
    Process,
    /// The whole node goes, and comes again with what is on its disk.
    Power,
}

fn killed_at(node: &Node, task: &Task, at: u32) -> Run {
    node.host.faults.kill_at(Some(at));
    let result = catch_unwind(AssertUnwindSafe(|| run(node, task)));
    node.host.faults.kill_at(None);
    match result {
        Ok(_) => Run::Ended,
        Err(payload) if payload.is::<Killed>() => Run::Killed,
        Err(payload) => resume_unwind(payload),
    }
}

/// For every moment of `second` after `first`: ends it there, then runs `then`; `check` looks at the node, and at one
/// where `second` was never begun.
fn at_every_moment(first: Option<&Task>, second: &Task, then: &Task, check: impl Fn(&Node, &Node, &str)) {
    // What a blow to the daemon adds does not depend on how its configuration is written.
    for (blow, nodes) in [(Blow::Process, &NODES[..]), (Blow::Power, &NODES[4..5])] {
        for (version, config) in nodes.iter().copied() {
            let start = || {
                let node = Node::new(version, config);
                first.map(|task| run(&node, task));
                node
            };
            at_every_moment_of(start, second, then, blow, &check);
        }
    }
}

fn at_every_moment_of(
    start: impl Fn() -> Node,
    second: &Task,
    then: &Task,
    blow: Blow,
    check: impl Fn(&Node, &Node, &str),
) {
    silence();
    let straight = start();
    let expected = run(&straight, then);
    for at in 0.. {
        let node = start();
        let place = format!("{blow:?} at {at}, {:?}", node.config());
        let ended = killed_at(&node, second, at);
        if blow == Blow::Power {
            node.start();
        }
        let report = run(&node, then);
        assert_eq!(words(&report), words(&expected), "{place}: {report:?}");
        check(&node, &straight, &place);
        if ended == Run::Ended {
            assert!(at > 5, "a run has more moments than that");
            break;
        }
    }
}

/// Hundreds of intended ends would drown the one that is not.
fn silence() {
    std::panic::set_hook(Box::new(|info| {
        if !info.payload().is::<Killed>() {
            eprintln!("{info}");
        }
    }));
}

/// The same files and the same service, whatever `previous` remembers.
fn same(node: &Node, straight: &Node, place: &str) {
    assert_eq!(node.tree(), straight.tree(), "{place}");
    assert_eq!(node.inner.borrow().loaded, straight.inner.borrow().loaded, "{place}");
}

#[test]
fn an_install_that_was_killed_is_completed_by_the_next_try() {
    let install = task([add("a", GOOD), add("b", GOOD)]);
    at_every_moment(None, &install, &install, |node, straight, place| {
        same(node, straight, place);
        assert!(node.restarts() <= 2, "{place}: {}", node.restarts());
    });
}

#[test]
fn an_install_that_was_killed_leaves_nothing_after_a_removal() {
    let there = task([add("z", GOOD)]);
    let install = task([add("a", GOOD)]);
    at_every_moment(Some(&there), &install, &task([remove("a")]), |node, straight, place| {
        assert_eq!(node.tree(), straight.tree(), "{place}");
        assert!(node.serves("z-h"), "{place}");
    });
    at_every_moment(None, &install, &task([remove("a")]), |node, straight, place| {
        assert_eq!(node.tree(), straight.tree(), "{place}");
    });
}

#[test]
fn a_removal_that_was_killed_is_completed_by_the_next_try() {
    let there = task([add("a", GOOD), add("z", GOOD)]);
    for removal in [task([remove("a")]), task([remove("a"), remove("z")])] {
        at_every_moment(Some(&there), &removal, &removal, same);
    }
}

#[test]
fn a_removal_that_was_killed_leaves_the_others_in_service() {
    let there = task([add("a", GOOD), add("z", GOOD)]);
    let other = task([add("z", GOOD)]);
    at_every_moment(Some(&there), &task([remove("a")]), &other, |node, _, place| {
        assert!(node.serves("z-h"), "{place}");
        assert!(node.host.exists("/opt/shim/z/current/containerd-shim-z-v1"), "{place}");
    });
}

#[test]
fn an_upgrade_that_was_killed_is_completed_or_leaves_the_old_build() {
    let there = task([add("a", "one")]);
    let upgrade = task([add("a", "two")]);
    at_every_moment(Some(&there), &upgrade, &upgrade, |node, straight, place| {
        same(node, straight, place);
        assert_eq!(node.restarts(), 1, "{place}");
    });
    let broken = task([add("a", BROKEN)]);
    at_every_moment(Some(&there), &broken, &task([add("b", GOOD)]), |node, _, place| {
        let program = node.host.read("/opt/shim/a/current/containerd-shim-a-v1").unwrap().unwrap();
        assert!(program.ends_with("one"), "{place}: {program}");
    });
}

#[test]
fn a_reinstall_without_the_state_leaves_the_build_that_serves() {
    for (version, config) in NODES {
        let start = || {
            let node = Node::new(version, config);
            run(&node, &task([add("a", "one")]));
            node.host.remove("/opt/shim/state.json").unwrap();
            node
        };
        let (broken, then) = (task([add("a", BROKEN)]), task([add("b", GOOD)]));
        at_every_moment_of(start, &broken, &then, Blow::Process, |node, _, place| {
            let program = node.host.read("/opt/shim/a/current/containerd-shim-a-v1").unwrap().unwrap();
            assert!(program.ends_with("one") && node.serves("a-h"), "{place}: {program}");
        });
    }
}

#[test]
fn a_task_in_which_one_shim_fails_can_be_killed_too() {
    let mixed = task([add("bad", BROKEN), add("good", GOOD)]);
    at_every_moment(None, &mixed, &mixed, |node, straight, place| {
        assert_eq!(node.tree(), straight.tree(), "{place}");
    });
}

#[test]
fn an_edit_that_containerd_dies_of_is_undone_even_if_the_installer_dies_with_it() {
    for how in [WithOurs::Dies, WithOurs::NotReady, WithOurs::LosesOthers] {
        let start = || {
            let node = Node::new(NODES[0].0, NODES[0].1);
            node.inner.borrow_mut().with_ours = how;
            node
        };
        let install = task([add("a", GOOD)]);
        at_every_moment_of(start, &install, &install, Blow::Process, |node, straight, place| {
            assert_eq!(node.tree(), straight.tree(), "{place}");
            assert!(node.serves("runc") && node.serves("kata") && !node.serves("a-h"), "{place}");
        });
        at_every_moment_of(start, &install, &task([add("b", GOOD)]), Blow::Power, |node, _, place| {
            assert!(node.serves("runc") && node.serves("kata"), "{place}");
        });
    }
}
