//! Runs the program.
use std::{
    io::Write as _,
    process::{Child, Command, Output, Stdio},
};

use crate::stub::Stub;

/// A digest.
pub const SHA: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// What the program did.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// The program with these words, without a kubeconfig, a terminal or colours of ours.
pub fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-shim"));
    command.args(words).env_clear().env("HOME", "/nonexistent").env("TZ", "UTC");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs it.
pub fn run(words: &[&str]) -> Ran {
    finish(command(words).output().unwrap())
}

/// Runs it with a text on standard input.
pub fn run_with(words: &[&str], input: &str) -> Ran {
    let mut child = command(words).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    finish(child.wait_with_output().unwrap())
}

/// Runs it against a stub.
pub fn ask(stub: &Stub, words: &[&str]) -> Ran {
    let server = stub.url();
    run(&[words, &["--server", &server]].concat())
}

/// Starts it against a stub.
pub fn start(stub: &Stub, words: &[&str]) -> Child {
    let server = stub.url();
    command(&[words, &["--server", &server]].concat()).spawn().unwrap()
}

/// What a started one did in the end.
pub fn end(child: Child) -> Ran {
    finish(child.wait_with_output().unwrap())
}

fn finish(output: Output) -> Ran {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let ran = Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) };
    assert!(!ran.err.contains("panicked"), "{ran:?}");
    ran
}
