//! The kubectl plugin: kubectl shim
use std::process::ExitCode;

fn main() -> ExitCode {
    kubectl_shim::run(std::env::args_os())
}
