//! Files that nothing needs any more.
use std::{collections::BTreeSet, fs, io};

use shim_core::{
    containerd::runtime::Runtimes,
    names::{Build, ShimName},
    task::SHIM_DIR,
};

use super::place::{build_directory, directory, runtime_type};
use crate::{
    host::{Host, HostError},
    state::{State, path as state_path},
};

/// Which files of ours running shims need.
#[derive(Debug, Clone, Default)]
pub struct InUse {
    /// Programs that run; absent where a process did not let itself be looked at.
    programs: Option<BTreeSet<String>>,
    /// Paths that sandboxes and containers have recorded: containerd deletes the pod's files and loses its processes
    /// when such a path is gone at its next start.
    recorded: BTreeSet<String>,
}

impl InUse {
    /// Looks at all processes, and at the bundles in containerd's state directory.
    pub fn look(host: &Host, state_directory: &str) -> Result<Self, HostError> {
        Ok(Self { programs: programs(host)?, recorded: recorded(host, state_directory)? })
    }

    /// How many sandboxes and containers have recorded a path below `directory`.
    pub fn bundles(&self, directory: &str) -> usize {
        self.recorded.iter().filter(|path| is_below(path, directory)).count()
    }

    fn needs(&self, directory: &str) -> bool {
        let runs = |programs: &BTreeSet<String>| programs.iter().any(|path| is_below(path, directory));
        self.programs.as_ref().is_none_or(runs) || self.bundles(directory) > 0
    }
}

fn is_below(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

fn programs(host: &Host) -> Result<Option<BTreeSet<String>>, HostError> {
    let mut programs = BTreeSet::new();
    for process in host.list("/proc")?.iter().filter(|name| name.bytes().all(|b| b.is_ascii_digit())) {
        match fs::read_link(host.path(&format!("/proc/{process}/exe"))) {
            Ok(path) => {
                let path = path.to_string_lossy().into_owned();
                programs.insert(path.strip_suffix(" (deleted)").unwrap_or(&path).to_owned());
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
            // A kernel thread, or a process that has just ended.
            Err(_) => {}
        }
    }
    Ok(Some(programs))
}

fn recorded(host: &Host, state_directory: &str) -> Result<BTreeSet<String>, HostError> {
    let tasks = format!("{state_directory}/io.containerd.runtime.v2.task");
    let mut recorded = BTreeSet::new();
    for namespace in host.list(&tasks)? {
        for id in host.list(&format!("{tasks}/{namespace}"))? {
            recorded.extend(host.read(&format!("{tasks}/{namespace}/{id}/shim-binary-path"))?);
        }
    }
    Ok(recorded)
}

/// Removes builds of known Shims that are neither in force, nor the one before, nor in use; and whatever is left of
/// Shims that are not on the node any more. What the configuration names stays, even if the state was lost.
pub fn prune(host: &Host, state: &State, in_use: &InUse, configured: &Runtimes) -> Result<(), HostError> {
    for name in host.list(SHIM_DIR)? {
        let Ok(shim) = name.parse::<ShimName>() else { continue };
        match state.shims.get(&shim) {
            Some(known) => {
                let keep = [known.applied.as_ref(), known.previous.as_ref()];
                for build in builds(host, &shim)?.iter().filter(|build| !keep.contains(&Some(build))) {
                    remove_build(host, &shim, build, in_use)?;
                }
            }
            None if configured.values().any(|runtime| runtime.runtime_type == runtime_type(&shim)) => {}
            None => remove_shim(host, &shim, in_use)?,
        }
    }
    Ok(())
}

/// Removes one build unless a process or a bundle needs it.
pub fn remove_build(host: &Host, shim: &ShimName, build: &Build, in_use: &InUse) -> Result<(), HostError> {
    let directory = build_directory(shim, build);
    if in_use.needs(&directory) { Ok(()) } else { host.remove_tree(&directory) }
}

/// A process without a bundle is one that containerd has lost: it does not miss its file.
fn remove_shim(host: &Host, shim: &ShimName, in_use: &InUse) -> Result<(), HostError> {
    let directory = directory(shim);
    if in_use.bundles(&directory) > 0 || !host.path(&directory).is_dir() {
        return Ok(());
    }
    host.remove(&format!("{directory}/current"))?;
    for build in builds(host, shim)? {
        host.remove_tree(&build_directory(shim, &build))?;
    }
    host.remove_if_empty(&directory)
}

fn builds(host: &Host, shim: &ShimName) -> Result<Vec<Build>, HostError> {
    Ok(host.list(&directory(shim))?.into_iter().filter_map(|name| name.parse().ok()).collect())
}

/// Removes empty directories that we made for the configuration, and with the last Shim everything that is left.
pub fn tidy(host: &Host, state: &mut State) -> Result<(), HostError> {
    for directory in state.made.iter().rev() {
        host.remove_if_empty(directory)?;
    }
    state.made.retain(|directory| host.exists(directory));
    if state.is_empty() {
        host.remove(&state_path())?;
        host.remove_if_empty(SHIM_DIR)?;
    }
    Ok(())
}
