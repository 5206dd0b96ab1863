//! How containerd makes one configuration of many files, as far as it was measured; and tasks to try on it.
use std::{collections::BTreeMap, io::Write as _};

use shim_core::{
    containerd::imports,
    names::{Build, ShimName},
    report::Report,
    task::{self, Check, Fetched, Install, Op, Task},
};

use super::{super::artifact::open_all, node::Node};
use crate::{
    fetch::FETCHED,
    host::Host,
    install::{artifact::digest, context::Context, install},
};

/// What an unconfigured daemon has.
const DEFAULTS: &str = "state = '/run/containerd'\n[grpc]\naddress = '/run/containerd/containerd.sock'\n";

/// The effective configuration of `root`: 1.x lets an import replace a plugin's whole table, 2.x merges.
pub(super) fn effective(host: &Host, root: &str, one: bool) -> Result<String, String> {
    let table = if one { "io.containerd.grpc.v1.cri" } else { "io.containerd.cri.v1.runtime" };
    let mut merged = defaults(table);
    for file in files(host, root)? {
        let mut file: toml::Table = file.parse().map_err(|error: toml::de::Error| error.to_string())?;
        migrate(&mut file, table);
        if one {
            replace_plugins(&mut merged, &file, table);
        }
        merge(&mut merged, file);
    }
    Ok(merged.to_string())
}

fn files(host: &Host, root: &str) -> Result<Vec<String>, String> {
    let Some(text) = host.read(root).unwrap() else { return Ok(Vec::new()) };
    let entries = imports::entries(root, &text).map_err(|error| error.to_string())?;
    let mut files = vec![text];
    for entry in entries {
        let found: Vec<_> = glob::glob(host.path(&entry).to_str().unwrap()).unwrap().flatten().collect();
        if found.is_empty() && !entry.contains('*') {
            return Err(format!("open {entry}: no such file"));
        }
        files.extend(found.iter().map(|path| std::fs::read_to_string(path).unwrap()));
    }
    Ok(files)
}

fn defaults(table: &str) -> toml::Table {
    let cri = format!(
        "[plugins.'{table}'.containerd]\ndefault_runtime_name = 'runc'\n[plugins.'{table}'.containerd.runtimes.runc]\nruntime_type = 'io.containerd.runc.v2'\n"
    );
    format!("{DEFAULTS}{cri}").parse().unwrap()
}

fn migrate(file: &mut toml::Table, table: &str) {
    let Some(plugins) = file.get_mut("plugins").and_then(toml::Value::as_table_mut) else { return };
    for old in ["cri", "io.containerd.grpc.v1.cri"] {
        if let Some(plugin) = plugins.remove(old) {
            plugins.insert(table.to_owned(), plugin);
        }
    }
}

/// Only an import does: the root's table is merged into the defaults.
fn replace_plugins(merged: &mut toml::Table, file: &toml::Table, table: &str) {
    let has = |file: &toml::Table| file.get("plugins").is_some_and(|plugins| plugins.get(table).is_some());
    if merged.contains_key("version") && has(file) {
        merged["plugins"].as_table_mut().unwrap().remove(table);
    }
}

fn merge(into: &mut toml::Table, from: toml::Table) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(toml::Value::Table(old)), toml::Value::Table(new)) => merge(old, new),
            (_, value) => drop(into.insert(key, value)),
        }
    }
}

/// What a shim's binary says; the played node acts on it.
pub(super) const GOOD: &str = "works";
pub(super) const BROKEN: &str = "fails in a sandbox";
pub(super) const DEADLY: &str = "ends containerd";
pub(super) const HANGS: &str = "hangs containerd";
pub(super) const BROKEN_IN_SILENCE: &str = "fails in a sandbox while the bus is silent";
pub(super) const FILLS_THE_DISK: &str = "fills the disk";
pub(super) const DOES_NOT_RUN: &str = "does not run";

/// A task for the played machine.
pub(super) fn task(ops: impl IntoIterator<Item = (&'static str, Op)>) -> Task {
    Task {
        format: task::FORMAT,
        node: "n".parse().unwrap(),
        node_uid: "u".to_owned(),
        machine_id: "0123456789abcdef".parse().unwrap(),
        tries: BTreeMap::new(),
        serial: 1,
        ops: ops.into_iter().map(|(shim, op)| (shim.parse().unwrap(), op)).collect(),
    }
}

/// An installation under the handler `<shim>-h`, whose binary says `what`.
pub(super) fn build(shim: &str, what: &str) -> Install {
    Install {
        build: Build::of_parts([shim, what]),
        location: format!("http://artifacts/{what}"),
        sha256: "0".repeat(64).parse().unwrap(),
        binary: None,
        handler: format!("{shim}-h").parse().unwrap(),
        options: None,
    }
}

pub(super) fn add(shim: &'static str, what: &str) -> (&'static str, Op) {
    (shim, Op::Install(build(shim, what)))
}

pub(super) fn remove(shim: &'static str) -> (&'static str, Op) {
    (shim, Op::Remove)
}

/// A look at what an installation has left.
pub(super) fn look(shim: &'static str, what: &str) -> (&'static str, Op) {
    let Install { build, handler, .. } = build(shim, what);
    (shim, Op::Check(Check { build, handler }))
}

/// Does the task as the two containers would.
pub(super) fn run(node: &Node, task: &Task) -> Report {
    run_in(&node.context(), task)
}

pub(super) fn run_in(context: &Context<'_>, task: &Task) -> Report {
    let work = tempfile::tempdir().unwrap();
    for (shim, op) in &task.ops {
        if let Op::Install(install) = op {
            fetched(work.path(), shim, install.location.rsplit('/').next().unwrap());
        }
    }
    install(context, task, &open_all(work.path(), task))
}

fn fetched(work: &std::path::Path, shim: &ShimName, what: &str) {
    let directory = work.join(shim.as_str());
    std::fs::create_dir(&directory).unwrap();
    let content = program(what);
    let sha256 = digest(content.as_bytes()).unwrap().parse().unwrap();
    std::fs::File::create(directory.join("binary")).unwrap().write_all(content.as_bytes()).unwrap();
    let note = Fetched::Binary { file: "binary".to_owned(), sha256 };
    std::fs::write(directory.join(FETCHED), serde_json::to_vec(&note).unwrap()).unwrap();
}

/// The head of a program for this machine, and a text.
fn program(what: &str) -> String {
    let machine: u16 = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
    let mut head = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    head.extend(2_u16.to_le_bytes());
    head.extend(if machine < 128 { machine.to_le_bytes() } else { [0, 0] });
    String::from_utf8(head).unwrap() + what
}

/// Outcomes as text, for comparison.
pub(super) fn words(report: &Report) -> BTreeMap<String, String> {
    let word = |outcome: &shim_core::report::Outcome| match outcome {
        shim_core::report::Outcome::Done { disrupted } => format!("done {disrupted}"),
        shim_core::report::Outcome::InUse { pods } => format!("in use {pods}"),
        shim_core::report::Outcome::Failed(failure) => format!("{} {}", failure.step, failure.reason),
    };
    report.outcomes.iter().map(|(shim, outcome)| (shim.to_string(), word(outcome))).collect()
}

/// Short form of [`words`] for a report with one outcome for each of `pairs`.
pub(super) fn assert_words(report: &Report, pairs: &[(&str, &str)]) {
    let want = pairs.iter().map(|(shim, word)| ((*shim).to_owned(), (*word).to_owned())).collect();
    assert_eq!(words(report), want, "{report:?}");
}
