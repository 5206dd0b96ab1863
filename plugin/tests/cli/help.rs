//! Help, usage errors, the name that is shown.
use std::os::unix::process::CommandExt as _;

use crate::rig::{command, run};

#[test]
fn a_bare_call_prints_grouped_help() {
    let ran = run(&[]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    for line in [
        "Usage:\n  kubectl shim COMMAND [flags]",
        "Basic commands:\n  status ",
        "Rollout commands:\n  history ",
        "Setup commands:\n  init ",
        "  124  --timeout passed",
    ] {
        assert!(ran.out.contains(line), "{line}: {}", ran.out);
    }
    assert_eq!(run(&["--help"]).out, ran.out);
    assert_eq!(run(&["--context", "nowhere"]).out, ran.out, "a bare call asks no cluster");
}

#[test]
fn each_command_has_help_with_examples() {
    let basic = ["status", "install", "upgrade", "uninstall"];
    let rollout = ["history", "rollback", "pause", "resume", "retry", "wait"];
    for name in basic.into_iter().chain(rollout).chain(["init", "teardown", "version"]) {
        let ran = run(&[name, "--help"]);
        assert_eq!(ran.code, Some(0), "{name}");
        assert!(ran.out.contains(&format!("Usage: kubectl shim {name}")), "{}", ran.out);
        assert!(ran.out.contains("Examples:\n"), "{name}");
        assert!(ran.out.contains("--kubeconfig"), "{name}");
        assert!(!run(&[name, "-h"]).out.contains("--kubeconfig"), "{name}");
    }
}

#[test]
fn who_waits_without_a_time_is_told_that_it_may_be_for_ever() {
    for name in ["install", "upgrade", "uninstall", "rollback", "pause", "resume", "retry", "init"] {
        let ran = run(&[name, "--help"]);
        assert!(ran.out.contains(", for ever without --timeout"), "{name}: {}", ran.out);
    }
}

#[test]
fn usage_errors_look_like_those_of_kubectl() {
    let sha = crate::rig::SHA;
    for (words, first) in [
        (&["stauts"][..], "error: unknown command \"stauts\" for \"kubectl shim\""),
        (&["status", "--nope"], "error: unknown flag: --nope"),
        (&["status", "-z"], "error: unknown shorthand flag: \"z\""),
        (
            &["status", "-o", "x"],
            "error: unable to match a printer suitable for the output format \"x\", allowed formats are: table,wide,json,yaml,name",
        ),
        (
            &["status", "-w", "--timeout", "x"],
            "error: invalid argument \"x\" for \"--timeout\" flag: Invalid timeout value.",
        ),
        (&["status", "--timeout"], "error: flag needs an argument: --timeout"),
        (
            &["status", "--color", "x"],
            "error: invalid argument \"x\" for \"--color\" flag: use one of auto, always, never",
        ),
        (&["install"], "error: required argument NAME not set"),
        (&["install", "spin"], "error: required flag(s) \"version\" not set"),
        (&["install", "spin", "--version", "v1"], "error: an artifact is needed"),
        (&["install", "spin", "--version", "v1", "--url", "https://x/a"], "error: required flag(s) \"sha256\" not set"),
        (&["install", "spin", "-f", "x"], "error: NAME can't be used together with --filename"),
        (
            &["install", "spin", "--dry-run=x"],
            "error: invalid argument \"x\" for \"--dry-run\" flag: use one of none, client, server",
        ),
        (&["install", "spin", "--timeout", "1s"], "error: required flag(s) \"wait\" not set"),
        (&["upgrade", "spin", "--url", "https://x/a", "--sha256", sha], "error: required flag(s) \"version\" not set"),
        (&["uninstall"], "error: required argument NAME not set"),
        (&["uninstall", "--all", "spin"], "error: --all can't be used together with"),
        (&["rollback"], "error: required argument NAME not set"),
        (
            &["rollback", "spin", "--to-revision", "1", "--to-version", "v1"],
            "error: --to-revision can't be used together with --to-version",
        ),
        (&["pause"], "error: required argument NAME not set"),
        (&["retry", "spin", "--node"], "error: flag needs an argument: --node"),
        (
            &["wait", "spin", "--for=gone"],
            "error: invalid argument \"gone\" for \"--for\" flag: use ready, updated, paused, deleted, condition=TYPE[=VALUE] or revision=N",
        ),
        (
            &["wait", "spin", "--for=condition=Redy"],
            "error: invalid argument \"condition=Redy\" for \"--for\" flag: \"Redy\" is not one of Ready, Reconciling, Stalled, Paused",
        ),
        (&["init", "--dry-run=client"], "error: required flag(s) \"image\" not set: this plugin was built without one"),
        (&["init", "--image", "x", "--timeout", "1s"], "error: required flag(s) \"wait\" not set"),
    ] {
        // The image may have been fixed when this was built.
        if words == ["init", "--dry-run=client"] && option_env!("SHIM_IMAGE").is_some() {
            continue;
        }
        let ran = run(words);
        assert_eq!(ran.code, Some(2), "{words:?} {ran:?}");
        assert_eq!(ran.out, "", "{words:?}");
        assert!(ran.err.starts_with(first), "{words:?}: {}", ran.err);
        let path = if ["stauts"].contains(&words[0]) {
            "kubectl shim".to_owned()
        } else {
            format!("kubectl shim {}", words[0])
        };
        assert!(ran.err.ends_with(&format!("See '{path} --help' for usage.\n")), "{words:?}: {}", ran.err);
    }
}

#[test]
fn near_misses_are_suggested() {
    assert!(run(&["stauts"]).err.contains("Did you mean status?"));
    assert!(run(&["status", "--nod", "x"]).err.contains("Did you mean --node?"));
}

#[test]
fn the_shown_name_is_that_of_the_link() {
    let output = command(&["status", "--nope"]).arg0("/opt/bin/kubectl-my_shim").output().unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains("See 'kubectl my-shim status --help'"));
}

#[test]
fn a_closed_pipe_is_no_panic() {
    for words in [&[][..], &["install", "--help"], &["init", "--image", "x", "--dry-run=client", "-o", "yaml"]] {
        let mut child = command(words).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()), "{words:?}");
    }
}

#[test]
fn flags_of_the_connection_may_stand_anywhere() {
    for words in [["--context", "nowhere", "status"], ["status", "--context", "nowhere"]] {
        let ran = run(&words);
        assert_eq!(ran.code, Some(1));
        assert!(ran.err.contains("nowhere"), "{}", ran.err);
    }
}
