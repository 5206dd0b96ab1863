//! Clears away a cluster, whole or in pieces: what is there is looked up, not remembered, since it may have been killed from outside.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use crate::control_plane::doors;
use crate::node::machine;
use crate::plan::{NETNS, NODE_PREFIX};
use crate::process::{Identity, Life, children, own_line};
use crate::record::Record;
use crate::{cgroup, mounts, network};

/// Clears away whatever cluster is on this machine, and `run`, this checkout's own folder.
pub(crate) fn clear(record: &Record, run: &Path) -> Result<()> {
    kill_machines(record)?;
    kill_parts(record)?;
    network::remove()?;
    // Another checkout's cluster has the same names: it is cleared from the folder that it recorded.
    for dir in record.run().into_iter().chain([run.to_owned()]) {
        remove_folder(&dir)?;
    }
    verify(record, run)?;
    record.remove()
}

/// What is on this machine of a cluster. None of it, if all is well after `down`.
pub(crate) fn leftovers(record: &Record, run: &Path) -> Result<Vec<String>> {
    let mut found: Vec<String> =
        network::namespaces().into_iter().map(|name| format!("network namespace {name}")).collect();
    found.extend(cgroup::all().iter().map(|path| format!("cgroup {}", path.display())));
    found.extend(doors().iter().map(|pid| format!("door, process {pid}")));
    found.extend(running(record).iter().map(|name| format!("process {name}")));
    found.extend(mounts::below(run)?.iter().map(|path| format!("mount {}", path.display())));
    if run.exists() {
        found.push(format!("folder {}", run.display()));
    }
    Ok(found)
}

fn verify(record: &Record, run: &Path) -> Result<()> {
    let found = leftovers(record, run)?;
    if !found.is_empty() {
        bail!("the cluster could not be cleared away, there is still: {}", found.join(", "));
    }
    Ok(())
}

fn running(record: &Record) -> Vec<String> {
    let all = record.processes().all().into_iter();
    all.filter(|(_, identity)| identity.life() == Life::Running).map(|(name, _)| name).collect()
}

/// All machines at once: each takes a moment to die.
fn kill_machines(record: &Record) -> Result<()> {
    let machines = machines(record);
    thread::scope(|scope| {
        let killers: Vec<_> = machines.iter().map(|machine| scope.spawn(|| machine::kill(machine))).collect();
        killers.into_iter().try_for_each(|killer| killer.join().unwrap_or_else(|_| bail!("a machine's killer crashed")))
    })
}

fn machines(record: &Record) -> Vec<String> {
    let mut names = network::namespaces();
    names.extend(record.processes().all().into_iter().map(|(name, _)| name));
    names.extend(cgroup::all().iter().filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())));
    names.retain(|name| name.starts_with(NODE_PREFIX));
    names.sort();
    names.dedup();
    names
}

/// The parts as recorded, and what else is in their namespace: the record may be lost.
fn kill_parts(record: &Record) -> Result<()> {
    let mut recorded: Vec<Identity> = record.processes().all().into_iter().map(|(_, identity)| identity).collect();
    // The id of one that ended may be a stranger's by now, and the stranger's children are not ours.
    recorded.retain(|part| part.life() == Life::Running);
    // The door's open connections are children of their own.
    let connections = recorded.iter().flat_map(|part| children(part.pid)).filter_map(Identity::of);
    let mut all: Vec<Identity> = recorded.iter().copied().chain(connections).collect();
    let found = network::processes(NETNS).into_iter().chain(doors());
    all.extend(found.filter_map(Identity::of));
    // A shell inside the namespace may be what runs this.
    let own = own_line();
    all.retain(|process| !own.contains(&process.pid));
    for process in &all {
        process.signal(Signal::KILL);
    }
    all.into_iter().try_for_each(Identity::kill)
}

fn remove_folder(dir: &PathBuf) -> Result<()> {
    mounts::remove_below(dir)?;
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| dir.display().to_string())
        }
        _ => Ok(()),
    }
}
