//! Files in the work directory. What has its final name is whole and on disk.
use std::{
    fs::{self, File, Permissions},
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use shim_core::{
    names::ShimName,
    report::{Failure, Reason},
    task::Fetched,
};
use tempfile::NamedTempFile;

use super::FetchError;

/// Name of the binary in a Shim's directory; never the archive's, which could be anything.
pub const BINARY: &str = "binary";
/// Name of the note beside it.
pub const FETCHED: &str = "fetched.json";

/// The directory that `install` reads afterwards.
pub(super) struct Work(PathBuf);

impl Work {
    /// Makes sure that files can be written there.
    pub(super) fn open(dir: &Path) -> Result<Self, FetchError> {
        let work = Self(dir.to_owned());
        work.temporary().map_err(|source| unusable(dir, source))?;
        Ok(work)
    }

    /// A file that vanishes unless it is given a name.
    pub(super) fn temporary(&self) -> io::Result<NamedTempFile> {
        NamedTempFile::with_prefix_in(".fetch-", &self.0)
    }

    /// An empty directory for a Shim: a note of an earlier run must not be taken for ours.
    pub(super) fn clear(&self, shim: &ShimName) -> Result<(), FetchError> {
        let dir = self.dir(shim);
        let removed = match fs::remove_dir_all(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        };
        removed.and_then(|()| fs::create_dir(&dir)).map_err(|source| unusable(&dir, source))
    }

    /// Gives the binary its name.
    pub(super) fn place(&self, shim: &ShimName, file: NamedTempFile) -> io::Result<()> {
        settle(file, &self.dir(shim).join(BINARY), 0o755)
    }

    /// Writes the note; the Shim's files are complete after it.
    pub(super) fn note(&self, shim: &ShimName, fetched: &Fetched) -> Result<(), FetchError> {
        let path = self.dir(shim).join(FETCHED);
        self.write(&path, fetched).map_err(|source| unusable(&path, source))
    }

    fn write(&self, path: &Path, fetched: &Fetched) -> io::Result<()> {
        let mut file = self.temporary()?;
        file.write_all(&serde_json::to_vec(fetched)?)?;
        settle(file, path, 0o644)
    }

    fn dir(&self, shim: &ShimName) -> PathBuf {
        self.0.join(shim.as_str())
    }
}

/// Content to disk, then the name, then the name to disk: in any other order a crash leaves half a file.
fn settle(file: NamedTempFile, path: &Path, mode: u32) -> io::Result<()> {
    file.as_file().set_permissions(Permissions::from_mode(mode))?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

fn unusable(path: &Path, source: io::Error) -> FetchError {
    FetchError::WorkDir { path: path.to_owned(), source }
}

/// A file of one Shim that could not be written, most often because the disk is full.
#[expect(clippy::needless_pass_by_value, reason = "used as a function of map_err")]
pub(super) fn full(error: io::Error) -> Failure {
    super::failure(Reason::DirectoryUnusable, format!("the work directory of the installer's Pod: {error}"))
}
