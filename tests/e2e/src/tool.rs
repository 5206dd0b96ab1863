//! Running cargo and other tools, with errors that say what was run.
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

/// The checkout.
pub fn workspace() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    folder.canonicalize().unwrap_or(folder)
}

/// cargo's target directory, absolute.
pub fn target_dir() -> PathBuf {
    let dir = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from);
    std::path::absolute(&dir).unwrap_or(dir)
}

/// Runs cargo in a folder of the checkout; its own progress goes to standard error.
pub fn cargo(folder: &str, args: &[&str]) -> Result<()> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    run(command.args(args).current_dir(workspace().join(folder)).stdout(Stdio::null()))
}

/// Runs a command to its end; fails if it does.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = format!("{command:?}");
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("{shown} can't be started"))?;
    if !status.success() {
        bail!("{shown} failed: {status}");
    }
    Ok(())
}
