//! The cgroups of node machines: where version 1 and version 2 differ.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::command::Cmd;
use crate::plan::NODE_PREFIX;
use crate::wait::until;

const ROOT: &str = "/sys/fs/cgroup";

/// How this machine's cgroups are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupMode {
    /// One hierarchy per controller beside an empty unified one.
    V1Hybrid,
    /// The unified hierarchy, and nobody manages it. Written from documentation, not tried.
    V2,
    /// The unified hierarchy, managed by systemd as this machine's init. Written from documentation, not tried.
    V2Systemd,
}

/// What shows the layout, apart from the machine so that the decision can be tested.
#[derive(Clone, Copy)]
struct Signs {
    /// `cgroup.controllers` at the root: only the unified hierarchy has it.
    unified: bool,
    /// The named hierarchy that systemd needs under version 1.
    named: bool,
    /// systemd is this machine's init (what `sd_booted` looks at).
    systemd: bool,
}

impl CgroupMode {
    /// The layout of this machine; none that a cluster can run on otherwise.
    pub fn detect() -> Option<Self> {
        let there = |path: &str| Path::new(path).exists();
        decide(Signs {
            unified: there("/sys/fs/cgroup/cgroup.controllers"),
            named: there("/sys/fs/cgroup/systemd/cgroup.procs"),
            systemd: there("/run/systemd/system"),
        })
    }

    /// Makes a machine's cgroups; the files through which its first process enters them.
    pub(crate) fn make(self, machine: &str) -> Result<Vec<PathBuf>> {
        match self {
            Self::V1Hybrid => hierarchies().iter().map(|hierarchy| make_v1(hierarchy, machine)).collect(),
            Self::V2 => make_v2(machine).map(|procs| vec![procs]),
            Self::V2Systemd => Ok(Vec::new()),
        }
    }

    /// What starts a machine's first process: systemd gives it a delegated cgroup where it manages them, since one made
    /// behind its back may be removed or emptied.
    pub(crate) fn launcher(self, machine: &str) -> Option<Cmd> {
        let scope = || Cmd::new("systemd-run").words("--scope --quiet --collect --property=Delegate=yes");
        (self == Self::V2Systemd).then(|| scope().arg(format!("--unit={machine}")).arg("--"))
    }
}

fn decide(signs: Signs) -> Option<CgroupMode> {
    match signs {
        Signs { unified: true, systemd: true, .. } => Some(CgroupMode::V2Systemd),
        Signs { unified: true, systemd: false, .. } => Some(CgroupMode::V2),
        Signs { unified: false, named: true, .. } => Some(CgroupMode::V1Hybrid),
        Signs { unified: false, named: false, .. } => None,
    }
}

/// The roots of all hierarchies. Links between them (`cpu` to `cpu,cpuacct`) are left out.
fn hierarchies() -> Vec<PathBuf> {
    if Path::new(ROOT).join("cgroup.procs").exists() {
        return vec![PathBuf::from(ROOT)];
    }
    let Ok(entries) = fs::read_dir(ROOT) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    paths.filter(|path| !path.is_symlink() && path.join("cgroup.procs").exists()).collect()
}

fn make_v1(hierarchy: &Path, machine: &str) -> Result<PathBuf> {
    let cgroup = hierarchy.join(machine);
    fs::create_dir_all(&cgroup).with_context(|| cgroup.display().to_string())?;
    // A new cpuset is empty, and a process can't enter it until it has processors and memory.
    for file in ["cpuset.cpus", "cpuset.mems"] {
        if let Ok(value) = fs::read_to_string(hierarchy.join(file)) {
            fs::write(cgroup.join(file), value)?;
        }
    }
    Ok(cgroup.join("cgroup.procs"))
}

fn make_v2(machine: &str) -> Result<PathBuf> {
    let root = Path::new(ROOT);
    let controllers = fs::read_to_string(root.join("cgroup.controllers"))?;
    for controller in controllers.split_whitespace() {
        // The kubelet needs cpu, memory and pids; others may be refused without harm.
        let _ = fs::write(root.join("cgroup.subtree_control"), format!("+{controller}"));
    }
    fs::create_dir_all(root.join(machine))?;
    Ok(root.join(machine).join("cgroup.procs"))
}

/// Every cgroup of ours, or of one machine.
fn of_machines(prefix: &str) -> Vec<PathBuf> {
    let entries = hierarchies().into_iter().filter_map(|hierarchy| fs::read_dir(hierarchy).ok()).flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    ours.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

/// Every cgroup of ours.
pub(crate) fn all() -> Vec<PathBuf> {
    of_machines(NODE_PREFIX)
}

/// The processes of a machine, wherever in its cgroups they are.
pub(crate) fn processes(machine: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for cgroup in exact(machine) {
        walk(&cgroup, &mut |dir| {
            let list = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
            found.extend(list.lines().filter_map(|pid| pid.parse::<u32>().ok()));
        });
    }
    found
}

/// Removes a machine's cgroups. They can go only after the last process, and killed processes take a moment: tried again for 20 s.
pub(crate) fn remove(machine: &str) -> Result<()> {
    let gone = until(&format!("the cgroups of {machine} to be empty"), Duration::from_secs(20), || {
        for cgroup in exact(machine) {
            walk(&cgroup, &mut |dir| drop(fs::remove_dir(dir)));
        }
        Ok(exact(machine).is_empty().then_some(()))
    });
    if gone.is_err() {
        bail!("cgroups of {machine} can't be removed, processes in them: {:?}", processes(machine));
    }
    Ok(())
}

fn exact(machine: &str) -> Vec<PathBuf> {
    of_machines(machine).into_iter().filter(|path| path.file_name().is_some_and(|name| name == machine)).collect()
}

/// Visits a cgroup and all below it, the deepest first.
fn walk(cgroup: &Path, visit: &mut impl FnMut(&Path)) {
    if let Ok(entries) = fs::read_dir(cgroup) {
        for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
            walk(&entry.path(), visit);
        }
    }
    visit(cgroup);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_follows_from_its_signs() {
        let mode = |unified, named, systemd| decide(Signs { unified, named, systemd });
        assert_eq!(mode(false, true, false), Some(CgroupMode::V1Hybrid));
        assert_eq!(mode(true, false, false), Some(CgroupMode::V2));
        assert_eq!(mode(true, false, true), Some(CgroupMode::V2Systemd));
        assert_eq!(mode(false, false, true), None);
    }
}
