//! `cargo xtask generate`: what is generated in deploy/. The golden test knows what; told so, it writes instead of comparing.
use std::process::Command;

use anyhow::{Result, ensure};

pub(crate) fn run(check: bool) -> Result<()> {
    let mut command = Command::new("cargo");
    command.args(["test", "--quiet", "--workspace", "--test", "golden"]);
    if !check {
        command.env("SHIM_GENERATE", "1");
    }
    ensure!(command.status()?.success(), "deploy/ is not what the code generates: run cargo xtask generate");
    Ok(())
}
