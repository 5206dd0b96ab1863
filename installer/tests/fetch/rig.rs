//! Runs `fetch` in a directory of its own and looks at what it left.
use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use sha2::{Digest as _, Sha256};
use shim_core::{
    names::{Build, Sha256Hex, hex},
    report::{Failure, Reason, Step},
    task::{FORMAT, Fetched, Install, Op, Task},
};
use shim_installer::fetch::{self, BINARY, FETCHED, Limits};
use tempfile::TempDir;

/// Limits that make a test quick and still leave a busy machine enough time.
pub(crate) fn limits() -> Limits {
    Limits {
        artifact_bytes: 1 << 20,
        unpacked_bytes: 1 << 20,
        artifact_deadline: Duration::from_secs(60),
        task_deadline: Duration::from_secs(60),
        stall: Duration::from_secs(20),
        tries: 3,
        backoff: Duration::from_millis(2),
        ..Limits::default()
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> Sha256Hex {
    hex(&Sha256::digest(bytes)).parse().unwrap()
}

pub(crate) fn install(location: &str, artifact: &[u8], binary: Option<&str>) -> Op {
    Op::Install(Install {
        build: Build::of_parts(["test"]),
        location: location.to_owned(),
        sha256: sha256(artifact),
        binary: binary.map(str::to_owned),
        handler: "spin".parse().unwrap(),
        options: None,
    })
}

pub(crate) fn task(ops: Vec<(&str, Op)>) -> Task {
    Task {
        format: FORMAT,
        node: "node-1".parse().unwrap(),
        node_uid: "uid".to_owned(),
        machine_id: "machine".parse().unwrap(),
        tries: std::collections::BTreeMap::new(),
        serial: 1,
        ops: ops.into_iter().map(|(shim, op)| (shim.parse().unwrap(), op)).collect(),
    }
}

/// A work directory.
pub(crate) struct Rig(pub(crate) TempDir);

impl Rig {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn run(&self, task: &Task, limits: &Limits) {
        fetch::run(task, self.path(), limits).unwrap();
    }

    pub(crate) fn fetched(&self, shim: &str) -> Fetched {
        serde_json::from_slice(&fs::read(self.path().join(shim).join(FETCHED)).unwrap()).unwrap()
    }

    /// The binary, which must be as it was packed, executable, and what the note says.
    pub(crate) fn expect_binary(&self, shim: &str, program: &[u8]) {
        let expected = Fetched::Binary { file: BINARY.to_owned(), sha256: sha256(program) };
        assert_eq!(self.fetched(shim), expected);
        let path = self.path().join(shim).join(BINARY);
        assert!(fs::read(&path).unwrap() == program, "another binary");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o755);
    }

    /// The failure, whose message must fit on its way.
    pub(crate) fn expect_failure(&self, shim: &str, reason: Reason) -> Failure {
        let Fetched::Failed(failure) = self.fetched(shim) else { panic!("{shim} was fetched") };
        assert_eq!((failure.step, failure.reason), (Step::Fetch, reason), "{}", failure.message);
        assert!(!failure.message.is_empty() && failure.message.len() <= 300, "{}", failure.message);
        failure
    }

    /// Every file below the directory, and nothing else may be there.
    pub(crate) fn expect_files(&self, expected: &[&str]) {
        let expected: BTreeSet<_> = expected.iter().map(PathBuf::from).collect();
        assert_eq!(files_below(self.path(), self.path()), expected);
    }
}

fn files_below(root: &Path, dir: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries
        .flat_map(|entry| {
            if entry.file_type().unwrap().is_dir() {
                files_below(root, &entry.path())
            } else {
                BTreeSet::from([entry.path().strip_prefix(root).unwrap().to_owned()])
            }
        })
        .collect()
}
