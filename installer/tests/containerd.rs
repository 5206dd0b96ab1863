//! containerd's own binaries as the judges of our edits.
//!
//! They are taken from the root file systems below `SHIM_TEST_CONTAINERD_DIR` (`*/root/usr/bin/containerd`), which
//! `cargo xtask test` sets. Without them the tests say so; what they prove is tested on a model in
//! `src/install/tests` and in the core's `containerd` module too.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]
use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use shim_core::{
    containerd::{
        edit::{Change, Config, File},
        effective::{Effective, judge as judge_edit},
        imports,
        release::{Release, Style},
        runtime::{Runtime, Runtimes},
    },
    task::OptionValue,
};
use shim_installer::{
    deadline::{Deadline, Interrupt},
    process::run,
};

const VARIABLE: &str = "SHIM_TEST_CONTAINERD_DIR";

/// A binary of containerd.
struct Judge {
    binary: String,
    release: Release,
}

impl Judge {
    fn new(binary: &Path) -> Self {
        let binary = binary.to_str().unwrap().to_owned();
        let release = Release::parse(&output(&binary, &["--version"]).unwrap()).unwrap();
        Self { binary, release }
    }

    fn effective(&self, root: &str) -> Result<Effective, String> {
        let text = output(&self.binary, &["-c", root, "config", self.release.effective_command()])?;
        Effective::parse(&text).map_err(|error| error.to_string())
    }
}

fn output(program: &str, args: &[&str]) -> Result<String, String> {
    let deadline = Deadline::new(Duration::from_secs(60), &Interrupt::default());
    run(program, args, &deadline).map(|output| output.stdout).map_err(|error| error.to_string())
}

/// Every binary that there is; none, and a word about it, if none was given.
fn judges() -> Vec<Judge> {
    let Ok(directory) = std::env::var(VARIABLE) else {
        // Not eprintln!, which a test that passes does not show.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: {VARIABLE} names no directory with containerd's binaries; `cargo xtask test` sets it"
        );
        return Vec::new();
    };
    let found = fs::read_dir(&directory).unwrap_or_else(|error| panic!("{directory}: {error}"));
    let binaries =
        found.map(|entry| entry.unwrap().path().join("root/usr/bin/containerd")).filter(|path| path.exists());
    let judges: Vec<_> = binaries.map(|path| Judge::new(&path)).collect();
    assert!(!judges.is_empty(), "there is no */root/usr/bin/containerd in {directory}");
    judges
}

/// A configuration on disk.
struct Disk {
    directory: tempfile::TempDir,
}

impl Disk {
    /// `DIR` in a text stands for the directory of the root file.
    fn new(files: &[(&str, String)]) -> Self {
        let disk = Self { directory: tempfile::tempdir().unwrap() };
        for (name, text) in files {
            let path = disk.path(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text.replace("DIR", disk.directory.path().to_str().unwrap())).unwrap();
        }
        disk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn root(&self) -> String {
        self.path("config.toml").to_str().unwrap().to_owned()
    }

    /// Reads what containerd reads.
    fn config(&self) -> Config {
        let mut files = Vec::new();
        if let Ok(text) = fs::read_to_string(self.root()) {
            let entries = imports::entries("root", &text).unwrap();
            files.push(File { path: self.root(), text });
            for entry in entries {
                for path in glob::glob(&entry).unwrap().flatten() {
                    let text = fs::read_to_string(&path).unwrap();
                    files.push(File { path: path.to_str().unwrap().to_owned(), text });
                }
            }
        }
        Config { root: self.root(), files, unread: None }
    }

    fn apply(changes: &[Change]) {
        for change in changes {
            match &change.after {
                Some(text) => {
                    fs::create_dir_all(Path::new(&change.path).parent().unwrap()).unwrap();
                    fs::write(&change.path, text).unwrap();
                }
                None => fs::remove_file(&change.path).unwrap(),
            }
        }
    }

    fn contents(&self) -> BTreeMap<PathBuf, String> {
        let files = glob::glob(&format!("{}/**/*.toml", self.directory.path().display())).unwrap().flatten();
        files.map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
    }
}

fn candidate(judge: &Judge, config: &Config, changes: &[Change]) -> Result<Effective, String> {
    let directory = tempfile::tempdir().unwrap();
    let files = config.check_files(judge.release.style(), changes, directory.path().to_str().unwrap()).unwrap();
    for file in &files {
        fs::write(&file.path, &file.text).unwrap();
    }
    judge.effective(&files[0].path)
}

fn ours() -> Runtimes {
    let options = BTreeMap::from([
        ("SystemdCgroup".to_owned(), OptionValue::Bool(true)),
        ("Level".to_owned(), OptionValue::Integer(3)),
        ("Names".to_owned(), OptionValue::Array(vec![OptionValue::String("a \"b\"\n# END kubectl-shim\n".to_owned())])),
        ("Inner".to_owned(), OptionValue::Table(BTreeMap::from([("x y".to_owned(), OptionValue::Float(1.0))]))),
    ]);
    let runtime = |name: &str, options| Runtime {
        runtime_type: format!("/opt/shim/{name}/current/containerd-shim-{name}-v1"),
        options,
    };
    Runtimes::from([
        ("spin".parse().unwrap(), runtime("spin", options)),
        ("wasm-2".parse().unwrap(), runtime("wasm", BTreeMap::new())),
    ])
}

const V2_CRI: &str = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\n  sandbox_image = \"mine/pause:1\"\n  [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n    runtime_type = \"io.containerd.runc.v2\"\n    [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\n      SystemdCgroup = true\n  [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.other]\n    runtime_type = \"/usr/bin/other\"\n";
const V3_CRI: &str = "version = 3\n[plugins.'io.containerd.cri.v1.images'.pinned_images]\n  sandbox = 'mine/pause:1'\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]\n  runtime_type = 'io.containerd.runc.v2'\n  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]\n    SystemdCgroup = true\n";
const AKS: &str = "version = 2\n[plugins.\"io.containerd.cri.v1.images\".pinned_images]\n  sandbox = \"mine/pause:1\"\n[plugins.\"io.containerd.cri.v1.runtime\".containerd]\n  default_runtime_name = \"runc\"\n  [plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.runc]\n    runtime_type = \"io.containerd.runc.v2\"\n    [plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.runc.options]\n      SystemdCgroup = true\n";
const IMPORT: &str = "imports = [\"DIR/conf.d/*.toml\"]\n";

/// Every configuration that a node of this release may have.
fn disks(judge: &Judge) -> Vec<(&'static str, Disk)> {
    let default = output(&judge.binary, &["config", "default"]).unwrap();
    let root = |text: &str| Disk::new(&[("config.toml", text.to_owned())]);
    let mut disks = vec![
        ("absent", Disk::new(&[])),
        ("default", root(&default)),
        ("default, CRLF", root(&default.replace('\n', "\r\n"))),
        ("default, no newline", root(default.trim_end())),
        ("version 2", root(V2_CRI)),
        ("version 2, minimal", root("version = 2")),
        ("comment only", root("# nothing\n")),
    ];
    match judge.release.style() {
        Style::InPlace => disks.extend([
            ("version 1", root("[plugins.cri.containerd.runtimes.runc]\n  runtime_type = \"io.containerd.runc.v2\"\n")),
            (
                "copy in an import",
                Disk::new(&[
                    ("config.toml", format!("{IMPORT}{V2_CRI}")),
                    ("conf.d/99-n.toml", V2_CRI.replace("other", "nvidia")),
                ]),
            ),
            (
                "other import",
                Disk::new(&[
                    ("config.toml", format!("{IMPORT}{V2_CRI}")),
                    ("conf.d/x.toml", "version = 2\noom_score = -999\n".to_owned()),
                ]),
            ),
        ]),
        Style::DropIn => disks.extend([
            ("version 3", root(V3_CRI)),
            ("version 3, minimal", root("version = 3\n")),
            ("AKS", root(AKS)),
            (
                "imports",
                Disk::new(&[
                    ("config.toml", format!("{IMPORT}{V3_CRI}")),
                    ("conf.d/x.toml", V3_CRI.replace("runc", "kata")),
                ]),
            ),
            (
                "imports, version 2",
                Disk::new(&[
                    ("config.toml", format!("{IMPORT}{V2_CRI}")),
                    ("conf.d/x.toml", V2_CRI.replace("other", "kata")),
                ]),
            ),
            (
                "unread conf.d",
                Disk::new(&[("config.toml", V3_CRI.to_owned()), ("conf.d/x.toml", "version = 99".to_owned())]),
            ),
        ]),
    }
    disks
}

#[test]
fn every_edit_adds_exactly_our_runtimes_and_goes_without_a_trace() {
    for judge in judges() {
        for (name, disk) in disks(&judge) {
            let place = format!("{} with containerd {}", name, judge.release);
            let original = disk.contents();
            let config = disk.config();
            let base = candidate(&judge, &config, &[]).unwrap_or_else(|error| panic!("{place}: {error}"));
            let changes = config.edit(judge.release.style(), &ours(), &base.all()).unwrap();
            let after = candidate(&judge, &config, &changes).unwrap_or_else(|error| panic!("{place}: {error}"));
            judge_edit(&base, &after, &ours()).unwrap_or_else(|error| panic!("{place}: {error}"));
            Disk::apply(&changes);
            assert_eq!(judge.effective(&disk.root()).unwrap(), after, "{place}");
            let changes = disk.config().without_ours().unwrap();
            Disk::apply(&changes);
            assert_eq!(disk.contents(), original, "{place}");
        }
    }
}

/// Forms that were measured to lose the settings of others, or to be ignored or refused.
fn wrong_forms(release: &str) -> Vec<(&'static str, String)> {
    let fragment = |version: u32, table: &str| {
        format!(
            "version = {version}\n[plugins.\"{table}\".containerd.runtimes.wasm-2]\nruntime_type = \"/opt/shim/wasm/current/containerd-shim-wasm-v1\"\n"
        )
    };
    match release {
        "1.6" | "1.7" => vec![
            (V2_CRI, fragment(2, "io.containerd.grpc.v1.cri")),
            (V2_CRI, fragment(3, "io.containerd.cri.v1.runtime")),
        ],
        "2.0" | "2.1" | "2.2" => vec![
            (V2_CRI, fragment(3, "io.containerd.cri.v1.runtime")),
            (V3_CRI, fragment(2, "io.containerd.grpc.v1.cri")),
            (V3_CRI, fragment(4, "io.containerd.cri.v1.runtime")),
            (AKS, fragment(2, "io.containerd.grpc.v1.cri")),
        ],
        _ => vec![(V3_CRI, fragment(99, "io.containerd.cri.v1.runtime"))],
    }
}

#[test]
fn edits_that_would_lose_something_are_rejected() {
    for judge in judges() {
        for (root, fragment) in wrong_forms(&judge.release.to_string()) {
            let disk = Disk::new(&[("config.toml", root.to_owned())]);
            let config = disk.config();
            let base = candidate(&judge, &config, &[]).unwrap();
            let path = disk.path("conf.d/x.toml").to_str().unwrap().to_owned();
            let change = Change { path, before: None, after: Some(fragment.clone()) };
            let wasm: Runtimes = ours().into_iter().filter(|(handler, _)| handler.as_str() == "wasm-2").collect();
            let verdict = candidate(&judge, &config, &[change]).map(|after| judge_edit(&base, &after, &wasm));
            assert!(!matches!(verdict, Ok(Ok(()))), "{}: {fragment} was accepted for {root}", judge.release);
        }
    }
}
