//! A node's disk: an overlay over the shared layers, with the files of this node.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::config;
use crate::build::layers;
use crate::command::Cmd;
use crate::mounts;
use crate::paths::Paths;
use crate::plan::NodePlan;

/// The root of a node's file system as this machine sees it.
pub(super) fn root(paths: &Paths, node: &NodePlan) -> PathBuf {
    paths.node(&node.name).join("merged")
}

/// Makes a fresh disk.
pub(super) fn make(paths: &Paths, node: &NodePlan) -> Result<()> {
    let (dir, root) = (paths.node(&node.name), root(paths, node));
    for part in ["upper", "work", "merged", "containerd"] {
        fs::create_dir_all(dir.join(part))?;
    }
    mounts::overlay(&layers(paths, node.containerd), &dir.join("upper"), &dir.join("work"), &root)?;
    // containerd's own overlays can't have an overlay below them: its data is on a plain folder.
    fs::create_dir_all(root.join("var/lib/containerd"))?;
    mounts::bind(&dir.join("containerd"), &root.join("var/lib/containerd"))?;
    write_files(paths, node, &root)?;
    enable_units(&root)
}

/// Removes the disk with all that was written on it.
pub(super) fn remove(paths: &Paths, node: &NodePlan) -> Result<()> {
    let dir = paths.node(&node.name);
    mounts::remove_below(&dir)?;
    fs::remove_dir_all(&dir).with_context(|| dir.display().to_string())
}

fn write_files(paths: &Paths, node: &NodePlan, root: &Path) -> Result<()> {
    for (path, text) in config::files(node) {
        write(&root.join(path), &text)?;
    }
    let certificates = root.join("etc/kubernetes");
    fs::copy(paths.pki("ca.crt"), certificates.join("ca.crt"))?;
    for kind in ["crt", "key"] {
        fs::copy(paths.pki(&format!("{}.{kind}", node.name)), certificates.join(format!("kubelet.{kind}")))?;
    }
    // The kubelet reports it: a machine that is made again under its name is known by it.
    let id = fs::read_to_string("/proc/sys/kernel/random/uuid")?.replace('-', "");
    fs::remove_file(root.join("etc/machine-id")).or_else(ignore_missing)?;
    write(&root.join("etc/machine-id"), &id)?;
    let default = Cmd::new("chroot").arg(root).words("containerd config default").run()?;
    write(&root.join("etc/containerd/config.toml"), &config::containerd(&default))
}

fn enable_units(root: &Path) -> Result<()> {
    let system = root.join("etc/systemd/system");
    fs::create_dir_all(system.join("multi-user.target.wants"))?;
    for (unit, from) in config::UNITS {
        let link = system.join("multi-user.target.wants").join(format!("{unit}.service"));
        replace_link(&format!("{from}/{unit}.service"), &link)?;
    }
    config::MASKED.iter().try_for_each(|unit| replace_link("/dev/null", &system.join(unit)))
}

fn replace_link(to: &str, link: &Path) -> Result<()> {
    fs::remove_file(link).or_else(ignore_missing)?;
    symlink(to, link).with_context(|| link.display().to_string())
}

fn ignore_missing(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    fs::write(path, text).with_context(|| path.display().to_string())
}
