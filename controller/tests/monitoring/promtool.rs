//! Prometheus' own checks. `cargo xtask test monitoring` says where promtool is; else it is on the PATH.
use std::{
    env,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A file of this repository.
pub fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Runs it with a text on standard input; it must find nothing.
pub fn promtool(words: &[&str], input: &str) {
    let program = env::var_os("SHIM_TEST_PROMTOOL").unwrap_or_else(|| "promtool".into());
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("promtool: run `cargo xtask test monitoring`");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    assert!(output.status.success(), "promtool {words:?}: {said}\n{input}");
}

fn check(words: [&str; 2], path: &str) {
    let path = file(path);
    promtool(&[words[0], words[1], path.to_str().unwrap()], "");
}

#[test]
fn the_rules_are_sound() {
    check(["check", "rules"], "deploy/monitoring/rules.yaml");
}

#[test]
fn the_alerts_fire_when_they_should_and_only_then() {
    check(["test", "rules"], "controller/tests/monitoring/alerts.yaml");
}
