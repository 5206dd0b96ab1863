//! The init container `fetch`: downloads and unpacks every artifact of a task, without any privilege.
//!
//! | file | does |
//! |---|---|
//! | `location` | a URL that never shows its credentials |
//! | `download` | tries until the artifact is there and its digest is right |
//! | `client` | one HTTP request |
//! | `answer` | what a status or an error means, and how long to wait |
//! | `content` | what kind of file it is, from its first bytes |
//! | `unpack` | reads the artifact, writes the one binary |
//! | `listing` | which entry of an archive is the binary |
//! | `elf` | does the binary fit this machine? |
//! | `stream` | reading with limits, copying with a digest |
//! | `work` | files in the work directory |
//!
//! Whatever is wrong with one Shim's artifact is noted for that Shim, and the others go on.
mod answer;
mod client;
mod content;
mod download;
pub mod elf;
mod listing;
mod location;
mod stream;
mod unpack;
mod work;

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use shim_core::{
    limits,
    names::{Sha256Hex, ShimName},
    report::{Failure, Reason, Step},
    task::{self, Fetched, Install, Op, Task},
};
use tempfile::NamedTempFile;

pub use self::work::{BINARY, FETCHED};
use self::{client::Client, download::Download, unpack::Unpack, work::Work};

/// Exit code after SIGTERM, as shells count it.
const TERMINATED: i32 = 143;

/// How much `fetch` may take of everything.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Largest artifact as downloaded, in bytes.
    pub artifact_bytes: u64,
    /// Largest content of an artifact, unpacked, in bytes.
    pub unpacked_bytes: u64,
    /// Most entries of an archive.
    pub entries: u64,
    /// One artifact, with all tries.
    pub artifact_deadline: Duration,
    /// The whole task.
    pub task_deadline: Duration,
    /// A server that sends nothing for this long is given up.
    pub stall: Duration,
    /// Tries of one download.
    pub tries: u32,
    /// Wait before the second try; doubles with each one.
    pub backoff: Duration,
    /// Longest wait between two tries, unless the server asks for more.
    pub backoff_cap: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            artifact_bytes: limits::ARTIFACT_BYTES,
            unpacked_bytes: limits::UNPACKED_BYTES,
            entries: 100_000,
            artifact_deadline: limits::FETCH_DEADLINE,
            task_deadline: limits::FETCH_ALL_DEADLINE,
            stall: Duration::from_secs(30),
            tries: limits::FETCH_TRIES,
            backoff: Duration::from_secs(1),
            backoff_cap: Duration::from_secs(15),
        }
    }
}

/// Why nothing at all could be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The controller is newer than this installer.
    #[error(
        "the task has format {0}, this installer knows formats up to {known}: install the image of the controller's version",
        known = task::FORMAT
    )]
    TooNew(u32),
    /// The work directory is not as the Pod should have it.
    #[error("{path} cannot be used: {source}; it must be a directory that this user may write")]
    WorkDir {
        /// What was to be written.
        path: PathBuf,
        /// Why it was not.
        source: io::Error,
    },
    /// No handler for SIGTERM.
    #[error("SIGTERM cannot be handled: {0}")]
    Signal(io::Error),
}

/// Fetches the binary of every Shim that `task` installs into `work`, and notes there how it went.
///
/// Ends the process on SIGTERM; a file under its final name is always whole.
pub fn run(task: &Task, work: &Path, limits: &Limits) -> Result<(), FetchError> {
    if task.format > task::FORMAT {
        return Err(FetchError::TooNew(task.format));
    }
    end_on_sigterm().map_err(FetchError::Signal)?;
    let fetch = Fetch {
        work: Work::open(work)?,
        client: Client::new(limits.stall),
        limits,
        deadline: Instant::now() + limits.task_deadline,
    };
    by_artifact(task).into_iter().try_for_each(|(artifact, shims)| fetch.artifact(artifact, &shims))
}

/// The first process of a container ignores SIGTERM unless it has a handler. Ending at once is safe because results
/// appear by rename only.
fn end_on_sigterm() -> io::Result<()> {
    let always = Arc::new(AtomicBool::new(true));
    signal_hook::flag::register_conditional_shutdown(signal_hook::consts::SIGTERM, TERMINATED, always).map(drop)
}

/// Shims that share an artifact are served by one download.
fn by_artifact(task: &Task) -> BTreeMap<Artifact<'_>, Vec<(&ShimName, &Install)>> {
    let mut artifacts = BTreeMap::<_, Vec<_>>::new();
    for (shim, op) in &task.ops {
        if let Op::Install(install) = op {
            let artifact = Artifact { location: &install.location, sha256: &install.sha256 };
            artifacts.entry(artifact).or_default().push((shim, install));
        }
    }
    artifacts
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Artifact<'a> {
    location: &'a str,
    sha256: &'a Sha256Hex,
}

struct Fetch<'a> {
    work: Work,
    client: Client,
    limits: &'a Limits,
    deadline: Instant,
}

impl Fetch<'_> {
    fn artifact(&self, artifact: Artifact<'_>, shims: &[(&ShimName, &Install)]) -> Result<(), FetchError> {
        let downloaded = self.download(artifact);
        for (shim, install) in shims {
            self.work.clear(shim)?;
            let unpacked = downloaded.as_ref().map_err(Clone::clone).and_then(|file| self.unpack(shim, install, file));
            self.work.note(shim, &outcome(shim, unpacked))?;
        }
        Ok(())
    }

    fn download(&self, artifact: Artifact<'_>) -> Result<NamedTempFile, Failure> {
        let deadline = self.deadline.min(Instant::now() + self.limits.artifact_deadline);
        let location = artifact.location.parse()?;
        let file = self.work.temporary().map_err(work::full)?;
        Download { client: &self.client, limits: self.limits, location, sha256: artifact.sha256, deadline }.run(file)
    }

    fn unpack(&self, shim: &ShimName, install: &Install, artifact: &NamedTempFile) -> Result<Sha256Hex, Failure> {
        let mut binary = self.work.temporary().map_err(work::full)?;
        let unpack = Unpack::new(install.binary.as_deref(), self.limits, self.deadline);
        let sha256 = unpack.run(artifact.path(), binary.as_file_mut())?;
        self.work.place(shim, binary).map_err(work::full)?;
        Ok(sha256)
    }
}

fn outcome(shim: &ShimName, unpacked: Result<Sha256Hex, Failure>) -> Fetched {
    match unpacked {
        Ok(sha256) => {
            tracing::info!(%shim, %sha256, "binary is ready");
            Fetched::Binary { file: BINARY.to_owned(), sha256 }
        }
        Err(failure) => {
            tracing::error!(%shim, reason = %failure.reason, "{}", failure.message);
            Fetched::Failed(failure)
        }
    }
}

fn failure(reason: Reason, message: impl std::fmt::Display) -> Failure {
    Failure::new(Step::Fetch, reason, message)
}
