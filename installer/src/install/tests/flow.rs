//! What a task does to a node.
use std::collections::BTreeMap;

use shim_core::{names::Build, task::Op};

use super::{
    node::{CONFIG, Node, WithOurs},
    recipe::{BROKEN, DEADLY, DOES_NOT_RUN, GOOD, add, assert_words, build, look, remove, run, run_in, task},
};
use crate::{cri::Origin, deadline::Interrupt};

pub(super) const V1_7: &str = "containerd github.com/containerd/containerd 1.7.24 x";
pub(super) const V2: &str = "containerd github.com/containerd/containerd/v2 v2.2.9 x";
const OTHERS: &str = "version = 3\nimports = ['/etc/containerd/conf.d/*.toml'] # ours\n\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.kata]\n  runtime_type = 'io.containerd.kata.v2'\n";
const OLD: &str = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n  runtime_type = \"io.containerd.runc.v2\"\n  [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\n    SystemdCgroup = true";

/// Every kind of node that there is: version and configuration.
pub(super) const NODES: [(&str, Option<&str>); 6] =
    [(V2, Some(OTHERS)), (V2, None), (V2, Some("version = 2\r\n")), (V2, Some("")), (V1_7, Some(OLD)), (V1_7, None)];

#[test]
fn a_shim_comes_with_one_restart_and_goes_without_a_trace() {
    for (version, config) in NODES {
        let node = Node::new(version, config);
        let before = node.tree();
        let report = run(&node, &task([add("spin", GOOD)]));
        assert_words(&report, &[("spin", "done 0")]);
        assert!(report.restarted && node.serves("spin-h"), "{version} {config:?}");
        assert_eq!((node.restarts(), node.inner.borrow().probes.as_slice()), (1, ["spin-h".to_owned()].as_slice()));
        let report = run(&node, &task([remove("spin")]));
        assert_words(&report, &[("spin", "done 0")]);
        assert!(report.restarted && !node.serves("spin-h") && node.serves("runc"));
        assert_eq!(node.tree(), before, "{version} {config:?}");
    }
}

#[test]
fn a_repeat_changes_nothing_and_restarts_nothing() {
    for (version, config) in NODES {
        let node = Node::new(version, config);
        run(&node, &task([add("spin", GOOD)]));
        let once = node.tree();
        assert_words(&run(&node, &task([add("spin", GOOD)])), &[("spin", "done 0")]);
        assert_eq!((node.tree(), node.restarts()), (once, 1));
        run(&node, &task([remove("spin")]));
        for _ in 0..2 {
            assert_words(&run(&node, &task([remove("spin")])), &[("spin", "done 0")]);
        }
        assert_eq!(node.restarts(), 2);
    }
}

#[test]
fn a_check_finds_what_is_lost_and_changes_nothing() {
    for (version, config) in NODES {
        let losses: [fn(&Node); 3] = [
            |node| {
                for path in [CONFIG, "/etc/containerd/conf.d/kubectl-shim.toml"] {
                    drop(std::fs::remove_file(node.host.path(path)));
                }
            },
            |node| std::fs::remove_dir_all(node.host.path("/opt/shim/spin")).unwrap(),
            |node| std::fs::remove_file(node.host.path("/opt/shim/state.json")).unwrap(),
        ];
        for lose in losses {
            let node = Node::new(version, config);
            run(&node, &task([add("spin", GOOD)]));
            let before = node.tree();
            assert_words(&run(&node, &task([look("spin", GOOD)])), &[("spin", "done 0")]);
            assert_words(&run(&node, &task([look("spin", "another")])), &[("spin", "Verify BuildMismatch")]);
            assert_eq!((node.tree(), node.restarts()), (before, 1), "{version} {config:?}");
            lose(&node);
            assert_words(&run(&node, &task([look("spin", GOOD)])), &[("spin", "Verify Drifted")]);
            assert_eq!(node.restarts(), 1, "{version} {config:?}");
        }
    }
}

#[test]
fn what_a_check_has_found_lost_is_repaired_by_an_installation() {
    for (version, config) in NODES {
        let node = Node::new(version, config);
        run(&node, &task([add("spin", GOOD)]));
        std::fs::remove_dir_all(node.host.path("/opt/shim/spin")).unwrap();
        assert_words(&run(&node, &task([look("spin", GOOD)])), &[("spin", "Verify Drifted")]);
        assert_words(&run(&node, &task([add("spin", GOOD)])), &[("spin", "done 0")]);
        assert_words(&run(&node, &task([look("spin", GOOD)])), &[("spin", "done 0")]);
    }
}

#[test]
fn the_same_meaning_in_other_words_is_left_as_it_is() {
    for (version, config) in NODES {
        let node = Node::new(version, config);
        run(&node, &task([add("spin", GOOD)]));
        for path in [CONFIG, "/etc/containerd/conf.d/kubectl-shim.toml"] {
            let text = node.host.read(path).unwrap().unwrap_or_default();
            if let Some((head, tail)) = text.split_once("  runtime_type = \"/opt/shim") {
                let reworded = format!("{head}# a word\n  runtime_type = \"/opt/shim{tail}");
                node.host.write(path, reworded.as_bytes()).unwrap();
            }
        }
        let before = node.tree();
        assert_words(&run(&node, &task([add("spin", GOOD)])), &[("spin", "done 0")]);
        assert_eq!((node.tree(), node.restarts()), (before, 1), "{version} {config:?}");
    }
}

#[test]
fn many_operations_share_one_restart() {
    for (version, config) in NODES {
        let node = Node::new(version, config);
        run(&node, &task([add("a", GOOD), add("b", GOOD), add("c", GOOD)]));
        assert_eq!(node.restarts(), 1);
        let report = run(&node, &task([remove("a"), add("b", "other"), add("d", GOOD)]));
        assert_words(&report, &[("a", "done 0"), ("b", "done 0"), ("d", "done 0")]);
        assert_eq!(node.restarts(), 2);
        let served = ["a-h", "b-h", "c-h", "d-h"].map(|handler| node.serves(handler));
        assert_eq!(served, [false, true, true, true]);
    }
}

#[test]
fn an_upgrade_restarts_nothing_and_keeps_one_build_before() {
    let node = Node::new(V2, Some(OTHERS));
    for what in ["one", "two", "three"] {
        let report = run(&node, &task([add("spin", what)]));
        assert_words(&report, &[("spin", "done 0")]);
        assert_eq!(report.restarted, what == "one");
    }
    assert_eq!(node.restarts(), 1);
    let kept = [Build::of_parts(["spin", "two"]), Build::of_parts(["spin", "three"])].map(|build| build.to_string());
    let mut there = node.host.list("/opt/shim/spin").unwrap();
    there.retain(|name| name != "current");
    assert_eq!(there.iter().collect::<std::collections::BTreeSet<_>>(), kept.iter().collect());
    assert_eq!(node.host.read_link("/opt/shim/spin/current").unwrap(), Some(kept[1].clone()));
}

#[test]
fn a_build_that_a_process_runs_is_kept() {
    let node = Node::new(V2, None);
    run(&node, &task([add("spin", "one")]));
    let one = format!("/opt/shim/spin/{}/containerd-shim-spin-v1", Build::of_parts(["spin", "one"]));
    node.host.make_directory("/proc/7").unwrap();
    std::os::unix::fs::symlink(format!("{one} (deleted)"), node.host.path("/proc/7/exe")).unwrap();
    run(&node, &task([add("spin", "two")]));
    run(&node, &task([add("spin", "three")]));
    assert!(node.host.exists(&one));
    std::fs::remove_file(node.host.path("/proc/7/exe")).unwrap();
    run(&node, &task([add("spin", "three")]));
    assert!(!node.host.exists(&one));
}

#[test]
fn what_goes_wrong_after_the_restart_is_undone_byte_for_byte() {
    for (how, words) in [
        (WithOurs::Dies, "Verify RuntimeNotReady"),
        (WithOurs::NotReady, "Verify RuntimeNotReady"),
        (WithOurs::LosesOthers, "Verify HandlerLost"),
        (WithOurs::IgnoresOurs, "Verify HandlerMissing"),
    ] {
        for (version, config) in NODES {
            let node = Node::new(version, config);
            let before = node.tree();
            node.inner.borrow_mut().with_ours = how;
            let report = run(&node, &task([add("a", GOOD), add("b", GOOD)]));
            assert_words(&report, &[("a", words), ("b", words)]);
            assert_eq!(report.log, "the daemon's last words");
            assert_eq!((node.tree(), node.restarts()), (before, 2), "{how:?} {version} {config:?}");
            assert!(node.serves("runc") && !node.serves("a-h"));
        }
    }
}

#[test]
fn a_systemd_that_refuses_leaves_the_node_as_it_was() {
    let node = Node::new(V2, Some(OTHERS));
    let before = node.tree();
    node.inner.borrow_mut().with_ours = WithOurs::SystemdRefuses;
    assert_words(&run(&node, &task([add("a", GOOD)])), &[("a", "Restart RestartFailed")]);
    let mut after = node.tree();
    // It could not be seen that containerd is well, so the next run has to look.
    assert!(after.remove("/opt/shim/state.json").unwrap().contains("restartOwed"));
    assert_eq!(after.remove("/opt/shim").as_deref(), Some("directory"));
    assert_eq!(after, before);
    node.inner.borrow_mut().with_ours = WithOurs::Works;
    assert_words(&run(&node, &task([remove("a")])), &[("a", "done 0")]);
    assert_eq!(node.tree(), before);
}

#[test]
fn a_sandbox_that_fails_takes_only_its_own_shim_out() {
    for (version, config) in NODES {
        let node = Node::new(version, config);
        let report = run(&node, &task([add("bad", BROKEN), add("good", GOOD)]));
        assert_words(&report, &[("bad", "Verify SandboxFailed"), ("good", "done 0")]);
        assert_eq!(
            (node.restarts(), node.host.list("/opt/shim").unwrap()),
            (1, vec!["good".into(), "state.json".into()])
        );
        let only_good = Node::new(version, config);
        run(&only_good, &task([add("good", GOOD)]));
        assert_eq!(node.tree(), only_good.tree(), "{version} {config:?}");
    }
}

#[test]
fn a_sandbox_that_fails_leaves_what_was_there() {
    for (version, config) in NODES {
        let node = Node::new(version, config);
        run(&node, &task([add("good", GOOD)]));
        let before = node.tree();
        let report = run(&node, &task([add("bad", BROKEN), add("good", GOOD)]));
        assert_words(&report, &[("bad", "Verify SandboxFailed"), ("good", "done 0")]);
        assert_eq!((node.tree(), node.restarts()), (before, 2), "{version} {config:?}");
    }
}

#[test]
fn a_shim_that_fails_again_and_again_restarts_containerd_once() {
    let node = Node::new(V2, Some(OTHERS));
    let before = node.tree();
    for _ in 0..3 {
        assert_words(&run(&node, &task([add("bad", BROKEN)])), &[("bad", "Verify SandboxFailed")]);
        assert_eq!((node.tree(), node.restarts()), (before.clone(), 1));
    }
    assert_words(&run(&node, &task([add("bad", GOOD)])), &[("bad", "done 0")]);
    assert_eq!(node.restarts(), 1, "the handler is loaded already");
    assert!(node.config().unwrap().contains("kata"));
}

#[test]
fn a_shim_that_containerd_ends_of_is_tried_once() {
    for (version, config) in NODES {
        let node = Node::new(version, config);
        run(&node, &task([add("a", GOOD)]));
        let before = node.tree();
        let report = run(&node, &task([add("a", "two"), add("b", DEADLY), add("c", GOOD)]));
        assert_words(&report, &[("a", "done 0"), ("b", "Verify SandboxFailed"), ("c", "Verify SandboxFailed")]);
        assert_eq!(node.restarts(), 3, "for both, and without both");
        assert!(node.serves("a-h") && node.serves("runc") && !node.serves("b-h") && !node.serves("c-h"));
        assert_eq!(node.config(), before.get(CONFIG).cloned());
        let report = run(&node, &task([add("b", DEADLY), add("c", GOOD)]));
        assert_words(&report, &[("b", "Preflight ConfigRejected"), ("c", "done 0")]);
        assert_eq!(node.restarts(), 4);
        assert_words(&run(&node, &task([add("b", GOOD)])), &[("b", "done 0")]);
    }
    let node = Node::new(V2, None);
    let before = node.tree();
    run(&node, &task([add("b", DEADLY)]));
    run(&node, &task([remove("b")]));
    assert_eq!(node.tree(), before);
}

#[test]
fn options_that_containerd_1_x_ends_of_are_refused() {
    let mut mixed = build("a", GOOD);
    mixed.options = Some(serde_json::from_str(r#"{"list": [1, "x"]}"#).unwrap());
    for (version, words) in [(V1_7, "Preflight ConfigRejected"), (V2, "done 0")] {
        let report = run(&Node::new(version, None), &task([("a", Op::Install(mixed.clone()))]));
        assert_words(&report, &[("a", words)]);
    }
}

#[test]
fn an_upgrade_that_fails_leaves_the_build_before_in_force() {
    for (what, words) in [(BROKEN, "Verify SandboxFailed"), (DOES_NOT_RUN, "Place BinaryDoesNotRun")] {
        let node = Node::new(V1_7, Some(OLD));
        run(&node, &task([add("spin", GOOD)]));
        let before = node.tree();
        assert_words(&run(&node, &task([add("spin", what)])), &[("spin", words)]);
        let mut after = node.tree();
        // Only what was asked for last is remembered.
        let state = after.insert("/opt/shim/state.json".to_owned(), before["/opt/shim/state.json"].clone());
        assert!(state.unwrap().contains(Build::of_parts(["spin", what]).as_str()));
        assert_eq!((after, node.restarts()), (before, 1));
    }
}

#[test]
fn options_that_break_a_shim_are_taken_back_with_a_second_restart() {
    let node = Node::new(V2, None);
    run(&node, &task([add("spin", GOOD)]));
    let before = node.config();
    let mut install = build("spin", BROKEN);
    install.options = Some(BTreeMap::from([("Level".to_owned(), shim_core::task::OptionValue::Integer(3))]));
    assert_words(&run(&node, &task([("spin", Op::Install(install))])), &[("spin", "Verify SandboxFailed")]);
    assert_eq!((node.config(), node.restarts()), (before, 3));
    assert!(node.inner.borrow().loaded["spin-h"].options.is_empty());
}

#[test]
fn options_are_those_given_or_the_default_runtime_s_cgroup_driver() {
    let node = Node::new(V1_7, Some(OLD));
    let mut given = build("given", GOOD);
    given.options = Some(BTreeMap::new());
    run(&node, &task([add("copied", GOOD), ("given", Op::Install(given))]));
    let inner = node.inner.borrow();
    assert_eq!(inner.loaded["copied-h"].options["SystemdCgroup"], shim_core::task::OptionValue::Bool(true));
    assert!(inner.loaded["given-h"].options.is_empty());
}

#[test]
fn a_handler_of_somebody_else_is_left_alone() {
    let node = Node::new(V2, Some(OTHERS));
    let before = node.tree();
    let mut kata = build("spin", GOOD);
    kata.handler = "kata".parse().unwrap();
    let report = run(&node, &task([("spin", Op::Install(kata)), add("good", GOOD)]));
    assert_words(&report, &[("good", "done 0"), ("spin", "Preflight HandlerConflict")]);
    run(&node, &task([remove("good"), remove("spin")]));
    assert_eq!(node.tree(), before);
}

#[test]
fn two_shims_cannot_have_one_handler() {
    let node = Node::new(V2, None);
    let mut second = build("b", GOOD);
    second.handler = "a-h".parse().unwrap();
    let report = run(&node, &task([add("a", GOOD), ("b", Op::Install(second))]));
    assert_words(&report, &[("a", "done 0"), ("b", "Preflight HandlerConflict")]);
}

#[test]
fn pods_keep_a_shim_and_nothing_is_changed_for_it() {
    let node = Node::new(V2, None);
    run(&node, &task([add("a", GOOD), add("b", GOOD)]));
    node.add_pod("p1", "a-h");
    node.add_pod("p2", "a-h");
    let report = run(&node, &task([remove("a"), remove("b")]));
    assert_words(&report, &[("a", "in use 2"), ("b", "done 0")]);
    assert!(node.serves("a-h") && !node.serves("b-h"));
    assert!(node.host.exists("/opt/shim/a/current/containerd-shim-a-v1"));
    node.inner.borrow_mut().sandboxes.retain(|sandbox| sandbox.handler != "a-h");
    let bundle = "/run/containerd/io.containerd.runtime.v2.task/k8s.io/p1";
    node.host.make_directory(bundle).unwrap();
    let recorded = b"/opt/shim/a/current/containerd-shim-a-v1";
    node.host.write(&format!("{bundle}/shim-binary-path"), recorded).unwrap();
    assert_words(&run(&node, &task([remove("a")])), &[("a", "in use 1")]);
    node.host.remove_tree(bundle).unwrap();
    assert_words(&run(&node, &task([remove("a")])), &[("a", "done 0")]);
}

#[test]
fn a_throw_away_sandbox_that_was_left_is_cleared_and_keeps_nobody() {
    let node = Node::new(V2, None);
    run(&node, &task([add("a", GOOD)]));
    node.add_pod("left", "a-h");
    if let Some(left) = node.inner.borrow_mut().sandboxes.last_mut() {
        left.origin = Origin::Probe;
    }
    assert_words(&run(&node, &task([remove("a")])), &[("a", "done 0")]);
    assert!(node.inner.borrow().sandboxes.iter().all(|sandbox| sandbox.origin == Origin::Pod));
}

#[test]
fn pods_that_the_restart_has_ended_are_counted() {
    let node = Node::new(V2, None);
    for (pod, handler) in [("wasm", "old"), ("web", "runc"), ("job", "runc")] {
        node.add_pod(pod, handler);
    }
    node.inner.borrow_mut().fragile = ["wasm-c".to_owned(), "job-c".to_owned()].into();
    assert_words(&run(&node, &task([add("a", GOOD)])), &[("a", "done 2")]);
    assert_words(&run(&node, &task([add("a", "two")])), &[("a", "done 0")]);
}

#[test]
fn a_configuration_that_containerd_refuses_is_not_touched() {
    let inline = "version = 2\n[plugins.'io.containerd.grpc.v1.cri']\ncontainerd = { runtimes = { runc = { runtime_type = 'io.containerd.runc.v2' } } }\n";
    for (config, words) in [
        (inline, "Configure ConfigRejected"),
        ("version = 2\nimports = ['/etc/none.toml']\n", "Configure ConfigUnusable"),
        ("version = 'x'\n", "Configure ConfigUnusable"),
    ] {
        let node = Node::new(V1_7, Some(OLD));
        node.host.write(CONFIG, config.as_bytes()).unwrap();
        let before = node.tree();
        assert_words(&run(&node, &task([add("a", GOOD)])), &[("a", words)]);
        assert_eq!((node.tree(), node.restarts()), (before, 0), "{config}");
    }
}

#[test]
fn what_others_have_rewritten_is_repaired_and_still_goes_byte_for_byte() {
    for (version, config) in NODES {
        let node = Node::new(version, config);
        run(&node, &task([add("a", GOOD), add("b", GOOD)]));
        node.host.write(CONFIG, b"version = 2\n# anew\n").unwrap();
        node.start();
        let report = run(&node, &task([add("a", GOOD)]));
        assert_words(&report, &[("a", "done 0")]);
        assert!(node.serves("a-h") && node.serves("b-h"));
        run(&node, &task([remove("a"), remove("b")]));
        assert_eq!(node.config().as_deref(), Some("version = 2\n# anew\n"));
        assert!(!node.host.exists("/etc/containerd/conf.d") && !node.host.exists("/opt/shim"));
    }
}

#[test]
fn a_node_that_is_not_the_one_that_was_meant_is_left_alone() {
    let node = Node::new(V2, None);
    let before = node.tree();
    let mut other = task([add("a", GOOD)]);
    other.machine_id = "ffff".parse().unwrap();
    assert_words(&run(&node, &other), &[("a", "Preflight MachineMismatch")]);
    for unit in ["k3s.service", "crio.service"] {
        node.inner.borrow_mut().units.insert(unit);
        assert_words(&run(&node, &task([add("a", GOOD)])), &[("a", "Preflight RuntimeUnsupported")]);
        assert_words(&run(&node, &task([remove("a")])), &[("a", "done 0")]);
        node.inner.borrow_mut().units.remove(unit);
    }
    let mut context = node.context();
    context.own_pod = Some("uid-elsewhere".to_owned());
    assert_words(&run_in(&context, &task([add("a", GOOD)])), &[("a", "Preflight RuntimeUnsupported")]);
    context.own_pod = Some("uid-system".to_owned());
    assert_eq!(node.tree(), before);
    assert_words(&run_in(&context, &task([add("a", GOOD)])), &[("a", "done 0")]);
}

#[test]
fn only_one_installer_works_at_a_time() {
    let node = Node::new(V2, None);
    let lock = crate::lock::acquire(&node.host, &node.context().patient(std::time::Duration::from_secs(1))).unwrap();
    assert_words(&run(&node, &task([add("a", GOOD)])), &[("a", "Preflight Locked")]);
    drop(lock);
    assert_words(&run(&node, &task([add("a", GOOD)])), &[("a", "done 0")]);
}

#[test]
fn a_state_that_was_lost_costs_no_handler() {
    for (version, config) in NODES {
        let node = Node::new(version, config);
        let before = node.config();
        run(&node, &task([add("a", GOOD)]));
        node.host.remove("/opt/shim/state.json").unwrap();
        assert_words(&run(&node, &task([add("b", GOOD)])), &[("b", "done 0")]);
        assert!(node.serves("a-h") && node.host.exists("/opt/shim/a/current/containerd-shim-a-v1"));
        assert_words(&run(&node, &task([remove("a"), remove("b")])), &[("a", "done 0"), ("b", "done 0")]);
        assert!(!node.serves("a-h") && !node.host.exists("/opt/shim"));
        assert_eq!(node.config(), before);
    }
}

#[test]
fn a_state_of_a_newer_installer_is_left_alone() {
    let node = Node::new(V2, None);
    node.host.make_directory("/opt/shim").unwrap();
    node.host.write("/opt/shim/state.json", br#"{"format": 99}"#).unwrap();
    let before = node.tree();
    assert_words(&run(&node, &task([add("a", GOOD)])), &[("a", "Preflight StateTooNew")]);
    assert_eq!(node.tree(), before);
}

#[test]
fn sigterm_before_the_edit_undoes_and_after_it_completes() {
    for (at, words) in
        [("--version", "Preflight Interrupted"), ("-v", "Place Interrupted"), ("config", "Configure Interrupted")]
    {
        let node = Node::new(V2, None);
        let before = node.tree();
        let interrupt = Interrupt::default();
        node.inner.borrow_mut().interrupt_at = Some((at, interrupt.clone()));
        let context = super::super::context::Context { interrupt, ..node.context() };
        let report = run_in(&context, &task([add("a", GOOD)]));
        assert_words(&report, &[("a", words)]);
        assert_eq!((node.tree(), node.restarts()), (before, 0));
    }
    let node = Node::new(V2, None);
    let interrupt = Interrupt::default();
    node.inner.borrow_mut().interrupt_at = Some((CONFIG, interrupt.clone()));
    let context = super::super::context::Context { interrupt, ..node.context() };
    assert_words(&run_in(&context, &task([add("a", GOOD)])), &[("a", "done 0")]);
}
