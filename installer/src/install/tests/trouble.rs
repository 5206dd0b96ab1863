//! What goes wrong around a run: answers that do not come, full disks, units that take pods with them.
use shim_core::report::{Outcome, Report};

use super::{
    flow::{NODES, V1_7, V2},
    node::{CONFIG, Node, Silent, WithOurs},
    recipe::{BROKEN_IN_SILENCE, FILLS_THE_DISK, GOOD, HANGS, add, assert_words, remove, run, task},
};
use crate::state::{Owed, State};

/// What happens to a node, and how the run ends then.
type Trouble = (fn(&Node), &'static str);

fn owe_a_restart(node: &Node) {
    let mut state = State::default();
    state.restart_owed = Some(Owed::default());
    state.save(&node.host).unwrap();
}

fn messages(report: &Report) -> String {
    let message = |outcome: &Outcome| match outcome {
        Outcome::Failed(failure) => failure.message.clone(),
        _ => String::new(),
    };
    report.outcomes.values().map(message).collect()
}

#[test]
fn a_restart_that_is_owed_is_made_only_where_containerd_is_unwell() {
    let others: [Trouble; 4] = [
        (|node| node.host.write(CONFIG, b"version = 'x'\n").unwrap(), "Configure ConfigUnusable"),
        (|node| node.inner.borrow_mut().slow_at = Some("config"), "Configure DeadlineExceeded"),
        (|node| node.inner.borrow_mut().silent = Silent::Bus, "Preflight RuntimeNotReady"),
        (|node| node.inner.borrow_mut().units.extend(["crio.service"]), "Preflight RuntimeUnsupported"),
    ];
    for (trouble, words) in others {
        let node = Node::new(V2, None);
        owe_a_restart(&node);
        trouble(&node);
        assert_words(&run(&node, &task([add("a", GOOD)])), &[("a", words)]);
        assert_eq!(node.restarts(), 0, "{words}");
    }
    let node = Node::new(V2, None);
    owe_a_restart(&node);
    node.inner.borrow_mut().silent = Silent::Cri;
    assert_words(&run(&node, &task([add("a", GOOD)])), &[("a", "done 0")]);
    assert_eq!(node.restarts(), 2, "one that was owed, one for the shim");
}

#[test]
fn what_may_pass_is_not_called_certain() {
    let troubles: [Trouble; 5] = [
        (|node| node.inner.borrow_mut().slow_at = Some("--version"), "Preflight DeadlineExceeded"),
        (|node| node.inner.borrow_mut().slow_at = Some("config"), "Configure DeadlineExceeded"),
        (|node| node.inner.borrow_mut().slow_at = Some("-v"), "Place DeadlineExceeded"),
        (|node| node.inner.borrow_mut().silent = Silent::Bus, "Preflight RuntimeNotReady"),
        (|node| node.inner.borrow_mut().silent = Silent::Cri, "Preflight RuntimeNotReady"),
    ];
    for (trouble, words) in troubles {
        let node = Node::new(V2, None);
        let before = node.tree();
        trouble(&node);
        let report = run(&node, &task([add("a", GOOD)]));
        assert_words(&report, &[("a", words)]);
        let certain = |outcome: &Outcome| matches!(outcome, Outcome::Failed(failure) if failure.reason.is_certain());
        assert!(!report.outcomes.values().any(certain), "{words}");
        assert_eq!((node.tree(), node.restarts()), (before, 0), "{words}");
    }
}

#[test]
fn a_silent_systemd_is_no_end_of_containerd() {
    let node = Node::new(V2, None);
    let before = node.tree();
    for _ in 0..2 {
        assert_words(&run(&node, &task([add("a", BROKEN_IN_SILENCE)])), &[("a", "Verify SandboxFailed")]);
        assert_eq!((node.tree(), node.restarts()), (before.clone(), 1), "neither restarted again nor condemned");
        node.inner.borrow_mut().silent = Silent::Nobody;
    }
}

#[test]
fn a_restart_is_good_although_systemd_is_silent_for_a_moment() {
    let node = Node::new(V2, None);
    node.inner.borrow_mut().silent = Silent::BusOnce;
    assert_words(&run(&node, &task([add("a", GOOD)])), &[("a", "done 0")]);
    assert_eq!((node.inner.borrow().silent, node.restarts()), (Silent::Nobody, 1));
}

#[test]
fn a_containerd_that_hangs_is_restarted_without_the_shim_that_may_be_tried_again() {
    let node = Node::new(V2, None);
    let before = node.tree();
    for restarts in [2, 4] {
        assert_words(&run(&node, &task([add("a", HANGS)])), &[("a", "Verify SandboxFailed")]);
        assert_eq!((node.tree(), node.restarts()), (before.clone(), restarts));
        assert_eq!((node.inner.borrow().silent, node.serves("a-h")), (Silent::Nobody, false));
    }
}

#[test]
fn a_restart_that_would_end_every_pod_is_not_made() {
    for mode in ["control-group", "mixed"] {
        let node = Node::new(V2, None);
        run(&node, &task([add("a", GOOD)]));
        node.inner.borrow_mut().kill_mode = mode;
        assert_words(&run(&node, &task([add("a", "two")])), &[("a", "done 0")]);
        let before = node.tree();
        for op in [add("b", GOOD), remove("a")] {
            let report = run(&node, &task([op.clone()]));
            assert_words(&report, &[(op.0, "Preflight RuntimeUnsupported")]);
            assert!(messages(&report).contains("set KillMode=process"), "{report:?}");
            assert_eq!((node.tree(), node.restarts()), (before.clone(), 1));
        }
        assert_words(&run(&node, &task([add("a", HANGS)])), &[("a", "Verify SandboxFailed")]);
        assert_eq!(node.restarts(), 1);
        owe_a_restart(&node);
        assert_words(&run(&node, &task([add("a", GOOD)])), &[("a", "Preflight RuntimeUnsupported")]);
        assert_eq!(node.restarts(), 1);
    }
}

#[test]
fn what_could_not_be_remembered_is_not_done() {
    let node = Node::new(V2, None);
    let before = node.tree();
    assert_words(&run(&node, &task([add("a", FILLS_THE_DISK)])), &[("a", "Configure DirectoryUnusable")]);
    node.host.faults.fill_disk(false);
    assert_words(&run(&node, &task([remove("a")])), &[("a", "done 0")]);
    assert_eq!(node.tree(), before);
    assert_words(&run(&node, &task([add("a", GOOD)])), &[("a", "done 0")]);
    assert!(node.serves("a-h"));
}

#[test]
fn a_full_disk_does_not_bar_the_way_back() {
    for (version, config) in NODES {
        let node = Node::new(version, config);
        let before = node.tree();
        node.inner.borrow_mut().with_ours = WithOurs::DiesOnAFullDisk;
        let report = run(&node, &task([add("a", GOOD)]));
        assert_words(&report, &[("a", "Verify RuntimeNotReady")]);
        assert_eq!((node.config(), node.restarts()), (before.get(CONFIG).cloned(), 2), "{version} {config:?}");
        assert!(node.serves("runc") && !node.serves("a-h"));
        node.host.faults.fill_disk(false);
        assert_words(&run(&node, &task([remove("a")])), &[("a", "done 0")]);
        assert_eq!((node.tree(), node.restarts()), (before, 2), "{version} {config:?}");
    }
}

#[test]
fn containerd_is_started_again_also_with_a_file_that_could_not_be_put_back() {
    // What is kept beside the file would be read, so nothing is.
    let config = "imports = ['/etc/containerd/*-old']\nversion = 2\n";
    let node = Node::new(V1_7, Some(config));
    let before = node.tree();
    node.inner.borrow_mut().with_ours = WithOurs::DiesOnAFullDisk;
    let report = run(&node, &task([add("a", GOOD)]));
    assert_words(&report, &[("a", "Verify RuntimeNotReady")]);
    assert!(messages(&report).contains("after the roll back: cannot write /etc/containerd/config.toml"), "{report:?}");
    assert_eq!(node.restarts(), 2);
    node.inner.borrow_mut().with_ours = WithOurs::Works;
    node.host.faults.fill_disk(false);
    assert_words(&run(&node, &task([remove("a")])), &[("a", "done 0")]);
    assert_eq!((node.tree(), node.restarts()), (before, 3));
    assert!(node.serves("runc"));
}
