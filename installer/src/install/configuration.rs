//! containerd's configuration on this node: what there is, what containerd makes of it, and changing it.
use std::collections::BTreeSet;

use shim_core::{
    containerd::{
        edit::{Change, Config, File},
        effective::Effective,
        imports,
    },
    report::{Failure, Reason, Step},
};

use super::{
    context::{Context, OrFail as _},
    discover::Daemon,
};
use crate::{
    deadline::Deadline,
    host::{Host, HostError, KEPT},
};

/// Where candidates are put: no configuration imports from there, and a reboot clears it.
const CHECK_DIRECTORY: &str = "/run/kubectl-shim-check";

/// Reads the root file and everything that it imports.
pub fn load(host: &Host, root: &str) -> Result<Config, Failure> {
    let mut config = Config { root: root.to_owned(), files: Vec::new(), unread: None };
    if let Some(text) = read(host, root)? {
        let imports = imports::entries(root, &text).or_fail(Step::Configure, Reason::ConfigUnusable)?;
        config.files.push(File { path: root.to_owned(), text });
        for path in imported(host, root, &imports)? {
            let text = read(host, &path)?.ok_or_else(|| dangling(&path))?;
            config.files.push(File { path, text });
        }
    }
    let own = config.own_drop_in();
    if config.files.iter().all(|file| file.path != own) {
        config.unread = read(host, &own)?.map(|text| File { path: own, text });
    }
    Ok(config)
}

fn read(host: &Host, path: &str) -> Result<Option<String>, Failure> {
    host.read(path).or_fail(Step::Configure, Reason::ConfigUnusable)
}

/// containerd would not start again, whatever we do.
fn dangling(path: &str) -> Failure {
    let message = format!("containerd's configuration imports {path}, which does not exist; repair it first");
    Failure::new(Step::Configure, Reason::ConfigUnusable, message)
}

/// The files that containerd imports, in its order, each once.
fn imported(host: &Host, root: &str, entries: &[String]) -> Result<Vec<String>, Failure> {
    let mut seen = BTreeSet::from([root.to_owned()]);
    let mut paths = Vec::new();
    let directory = root.rsplit_once('/').map_or("", |(directory, _)| directory);
    for entry in entries {
        let entry = if entry.starts_with('/') { entry.clone() } else { format!("{directory}/{entry}") };
        // containerd expands only what has a star; any other entry must exist.
        let matches = if entry.contains('*') { expand(host, &entry)? } else { vec![entry] };
        paths.extend(matches.into_iter().filter(|path| seen.insert(path.clone())));
    }
    Ok(paths)
}

fn expand(host: &Host, pattern: &str) -> Result<Vec<String>, Failure> {
    let root = host.path("/").to_string_lossy().into_owned();
    let full = format!("{}{pattern}", glob::Pattern::escape(root.trim_end_matches('/')));
    let paths = glob::glob(&full).or_fail(Step::Configure, Reason::ConfigUnusable)?;
    let on_host =
        |path: std::path::PathBuf| path.to_string_lossy().strip_prefix(root.trim_end_matches('/')).map(str::to_owned);
    Ok(paths.flatten().filter_map(on_host).collect())
}

/// What containerd makes of the configuration after `changes`, as the daemon's own binary says.
pub fn effective(
    context: &Context<'_>,
    daemon: &Daemon,
    config: &Config,
    changes: &[Change],
    deadline: &Deadline,
) -> Result<Effective, Failure> {
    let files = config
        .check_files(daemon.release.style(), changes, CHECK_DIRECTORY)
        .or_fail(Step::Configure, Reason::ConfigRejected)?;
    context.host.make_directory(CHECK_DIRECTORY).or_fail(Step::Configure, Reason::ConfigUnusable)?;
    for file in &files {
        let written = context.host.write_private(&file.path, file.text.as_bytes());
        written.or_fail(Step::Configure, Reason::ConfigUnusable)?;
    }
    let root = files.first().map(|file| file.path.clone()).unwrap_or_default();
    let result = print(context, daemon, &root, deadline);
    context.host.remove_tree(CHECK_DIRECTORY).or_fail(Step::Configure, Reason::ConfigUnusable)?;
    result
}

/// What containerd makes of the files that are in force.
pub fn effective_now(
    context: &Context<'_>,
    daemon: &Daemon,
    config: &Config,
    deadline: &Deadline,
) -> Result<Effective, Failure> {
    if config.files.is_empty() {
        effective(context, daemon, config, &[], deadline)
    } else {
        print(context, daemon, &config.root, deadline)
    }
}

fn print(context: &Context<'_>, daemon: &Daemon, root: &str, deadline: &Deadline) -> Result<Effective, Failure> {
    let arguments = ["-c", root, "config", daemon.release.effective_command()];
    let output = context.run(&daemon.binary, &arguments, deadline, Step::Configure, Reason::ConfigRejected)?;
    Effective::parse(&output).or_fail(Step::Configure, Reason::ConfigRejected)
}

/// Keeps the files that [`apply`] replaces, so that [`restore`] needs no room on the disk. One that can't be kept is
/// written then.
pub fn keep(host: &Host, root: &str, changes: &[Change]) {
    for change in changes.iter().filter(|change| change.before.is_some()) {
        if let Err(error) = host.keep(&change.path) {
            tracing::warn!(%error, "the way back will need room on the disk");
        }
    }
    // A glob of the configuration may match whatever is beside a file.
    let is_kept = |file: &File| file.path.ends_with(KEPT);
    if load(host, root).map_or(true, |config| config.files.iter().any(is_kept)) {
        forget(host, changes);
    }
}

/// Undoes [`keep`].
pub fn forget(host: &Host, changes: &[Change]) {
    for change in changes {
        if let Err(error) = host.remove_leftover(&change.path) {
            tracing::warn!(%error, "a file that is not needed any more could not be removed");
        }
    }
}

/// Puts `changes` on disk, if every file still holds what the edit was computed from.
pub fn apply(host: &Host, changes: &[Change]) -> Result<(), Failure> {
    for change in changes {
        if read(host, &change.path)? != change.before {
            return Err(Failure::new(
                Step::Configure,
                Reason::ConfigUnusable,
                format!("{} was changed by somebody else in this moment", change.path),
            ));
        }
        put(host, &change.path, change.after.as_deref()).or_fail(Step::Configure, Reason::ConfigUnusable)?;
    }
    Ok(())
}

/// Undoes [`apply`], byte for byte: everything that can be undone; the first error. A file that holds neither is left
/// alone: somebody else has written it since.
pub fn restore(host: &Host, changes: &[Change]) -> Result<(), HostError> {
    // Collected first: an error must not end it.
    let undone: Vec<_> = changes.iter().rev().map(|change| undo(host, change)).collect();
    undone.into_iter().collect()
}

fn undo(host: &Host, change: &Change) -> Result<(), HostError> {
    if host.read(&change.path)? == change.after {
        match &change.before {
            Some(text) => {
                make_parent(host, &change.path)?;
                host.bring_back(&change.path, text)?;
            }
            None => host.remove(&change.path)?,
        }
    }
    host.remove_leftover(&change.path)
}

fn put(host: &Host, path: &str, text: Option<&str>) -> Result<(), HostError> {
    match text {
        Some(text) => {
            make_parent(host, path)?;
            host.write(path, text.as_bytes())
        }
        None => host.remove(path),
    }
}

fn make_parent(host: &Host, path: &str) -> Result<(), HostError> {
    host.make_directory(path.rsplit_once('/').map_or("/", |(directory, _)| directory))
}

/// Directories that [`apply`] will have to create.
pub fn directories_to_make(host: &Host, changes: &[Change]) -> Vec<String> {
    let parents =
        changes.iter().filter(|change| change.after.is_some()).filter_map(|change| change.path.rsplit_once('/'));
    let missing: BTreeSet<_> = parents.flat_map(|(directory, _)| host.missing_directories(directory)).collect();
    missing.into_iter().collect()
}

/// Removes what a killed run has left of a check.
pub fn clear_check(host: &Host) -> Result<(), HostError> {
    host.remove_tree(CHECK_DIRECTORY)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that is ours afterwards.
    fn change(path: &str, before: Option<&str>) -> Change {
        Change { path: path.to_owned(), before: before.map(str::to_owned), after: Some("ours".to_owned()) }
    }

    #[test]
    fn an_edit_is_undone_unless_somebody_has_written_the_file_since() {
        let directory = tempfile::tempdir().unwrap();
        let host = Host::new(directory.path());
        let changes = [change("/old", Some("theirs")), change("/new", None), change("/touched", Some("theirs"))];
        for path in ["/old", "/touched"] {
            host.write(path, b"theirs").unwrap();
        }
        apply(&host, &changes).unwrap();
        host.write("/touched", b"theirs again").unwrap();
        for _ in 0..2 {
            restore(&host, &changes).unwrap();
            let texts = ["/old", "/new", "/touched"].map(|path| host.read(path).unwrap());
            assert_eq!(texts, [Some("theirs".to_owned()), None, Some("theirs again".to_owned())]);
        }
        assert!(apply(&host, &changes).is_err(), "/touched is not what the edit was computed from");
    }

    #[test]
    fn what_can_be_undone_is_undone() {
        let directory = tempfile::tempdir().unwrap();
        let host = Host::new(directory.path());
        let changes = [change("/kept", Some("theirs")), change("/new", None), change("/written", Some("theirs"))];
        for path in ["/kept", "/written"] {
            host.write(path, b"theirs").unwrap();
        }
        keep(&host, "/config", &changes[..1]);
        apply(&host, &changes).unwrap();
        host.faults.fill_disk(true);
        assert!(restore(&host, &changes).unwrap_err().to_string().contains("/written"));
        assert_eq!((host.read("/kept").unwrap().as_deref(), host.list("/").unwrap().len()), (Some("theirs"), 2));
        host.faults.fill_disk(false);
        restore(&host, &changes).unwrap();
        assert_eq!(host.read("/written").unwrap().as_deref(), Some("theirs"));
    }

    #[test]
    fn an_import_that_does_not_exist_is_found_before_anything_is_changed() {
        let directory = tempfile::tempdir().unwrap();
        let host = Host::new(directory.path());
        host.make_directory("/etc/c/d").unwrap();
        host.write("/etc/c/config.toml", b"imports = ['d/*.toml', '/etc/c/none*.toml', 'd/b.toml']").unwrap();
        host.write("/etc/c/d/b.toml", b"").unwrap();
        host.write("/etc/c/d/a.toml", b"").unwrap();
        let config = load(&host, "/etc/c/config.toml").unwrap();
        let paths: Vec<_> = config.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["/etc/c/config.toml", "/etc/c/d/a.toml", "/etc/c/d/b.toml"]);
        host.write("/etc/c/config.toml", b"imports = ['d/c.toml']").unwrap();
        assert_eq!(load(&host, "/etc/c/config.toml").unwrap_err().reason, Reason::ConfigUnusable);
    }
}
