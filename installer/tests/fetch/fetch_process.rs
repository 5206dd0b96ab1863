//! What needs a process of its own: signals and the environment.
use std::{
    env,
    os::unix::process::ExitStatusExt as _,
    path::PathBuf,
    process::{Command, Stdio},
};

use shim_core::{report::Reason, task::Task};
use shim_installer::fetch;

use crate::{
    pack::program,
    rig::{Rig, install, limits, task},
    stub::{Reply, Stub},
};

const TASK: &str = "SHIM_TEST_TASK";
const WORK: &str = "SHIM_TEST_WORK";

/// True in a process that [`command`] started: the test must do nothing more.
pub(crate) fn is_child() -> bool {
    let (Ok(task), Some(work)) = (env::var(TASK), env::var_os(WORK)) else { return false };
    let task: Task = serde_json::from_str(&task).unwrap();
    fetch::run(&task, &PathBuf::from(work), &limits()).unwrap();
    true
}

/// This very test again, as a process that only fetches.
pub(crate) fn command(test: &str, task: &Task, rig: &Rig) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([test, "--exact"]).stdout(Stdio::null());
    command.env(TASK, serde_json::to_string(task).unwrap()).env(WORK, rig.path());
    for ours in ["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "SSL_CERT_DIR"] {
        command.env_remove(ours).env_remove(ours.to_lowercase());
    }
    command
}

#[test]
fn sigterm_ends_it_at_once_and_leaves_no_result() {
    if is_child() {
        return;
    }
    let stub = Stub::always(|| Reply::Stalled(program(b"half")));
    let rig = Rig::new();
    let task = task(vec![("spin", install(&stub.url("/a"), b"", None))]);
    let mut child =
        command("fetch_process::sigterm_ends_it_at_once_and_leaves_no_result", &task, &rig).spawn().unwrap();
    stub.wait_for_request();
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    let status = child.wait().unwrap();
    // By its handler, not by the signal: the first process of a container would survive the signal.
    assert_eq!((status.code(), status.signal()), (Some(143), None));
    assert!(!rig.path().join("spin").exists());
}

#[test]
fn proxies_of_the_environment_are_honoured() {
    if is_child() {
        return;
    }
    let proxy = Stub::always(|| Reply::status("403 Forbidden"));
    let server = Stub::always(|| Reply::ok(&program(b"direct")));
    let rig = Rig::new();
    let task = task(vec![
        ("direct", install(&server.url("/a"), &program(b"direct"), None)),
        ("proxied", install("http://shim.invalid/a", b"", None)),
    ]);
    let mut child = command("fetch_process::proxies_of_the_environment_are_honoured", &task, &rig);
    let status = child.env("HTTPS_PROXY", proxy.url("")).env("NO_PROXY", "127.0.0.1").status().unwrap();
    assert!(status.success());
    rig.expect_binary("direct", &program(b"direct"));
    rig.expect_failure("proxied", Reason::DownloadFailed);
    assert!(proxy.seen()[0].head.starts_with("CONNECT shim.invalid:80 "), "{:?}", proxy.seen());
}
