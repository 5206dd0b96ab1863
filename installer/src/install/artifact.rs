//! What `fetch` left for us.
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

use sha2::{Digest as _, Sha256};
use shim_core::{
    names::{Sha256Hex, ShimName, hex},
    report::{Failure, Reason, Step},
    task::{Fetched, Op, Task},
};

use crate::fetch::{FETCHED, elf};

/// A binary that was fetched, open since before our root directory became the node's.
#[derive(Debug)]
pub struct Artifact {
    file: File,
    /// Digest that the file must have.
    pub sha256: Sha256Hex,
}

/// For each Shim to install: its binary, or why it could not be had.
pub type Artifacts = BTreeMap<ShimName, Result<Artifact, Failure>>;

/// Opens everything that the task needs below `work`.
pub fn open_all(work: &Path, task: &Task) -> Artifacts {
    let installs = task.ops.iter().filter(|(_, op)| matches!(op, Op::Install(_)));
    installs.map(|(shim, _)| (shim.clone(), open(&work.join(shim.as_str())))).collect()
}

fn open(directory: &Path) -> Result<Artifact, Failure> {
    let note = fs::read_to_string(directory.join(FETCHED)).map_err(missing)?;
    match serde_json::from_str(&note).map_err(missing)? {
        Fetched::Failed(failure) => Err(failure),
        Fetched::Binary { file, sha256 } => {
            Ok(Artifact { file: File::open(directory.join(file)).map_err(missing)?, sha256 })
        }
    }
}

fn missing(error: impl std::fmt::Display) -> Failure {
    Failure::new(Step::Fetch, Reason::NoResult, format!("the container fetch left nothing usable: {error}"))
}

impl Artifact {
    /// Size in bytes.
    pub fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Checks that this machine can run it.
    pub fn check_platform(&self) -> Result<(), Failure> {
        let mut head = Vec::new();
        self.reader().and_then(|file| file.take(elf::HEAD as u64).read_to_end(&mut head)).map_err(missing)?;
        elf::check(&head).map_err(|error| Failure::new(Step::Preflight, Reason::WrongArchitecture, error))
    }

    /// Copies it; the digest is checked on the way.
    pub fn copy_to(&self, into: &mut File) -> io::Result<()> {
        io::copy(&mut self.reader()?, into)?;
        into.seek(SeekFrom::Start(0))?;
        // What is on disk counts, not what was read.
        if digest(into)? == self.sha256.as_str() { Ok(()) } else { Err(io::Error::other(WRONG_DIGEST)) }
    }

    fn reader(&self) -> io::Result<&File> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(0))?;
        Ok(file)
    }
}

const WRONG_DIGEST: &str = "the copy has another digest than the file that was fetched";

/// SHA-256 of everything that can be read, as lower-case hex digits.
pub fn digest(mut from: impl Read) -> io::Result<String> {
    let mut hash = Sha256::new();
    io::copy(&mut from, &mut hash)?;
    Ok(hex(&hash.finalize()))
}
