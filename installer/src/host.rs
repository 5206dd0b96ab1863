//! The node's files. Every path of the node goes through here, so that tests can stand on a directory.
use std::{
    fs::{self, File, Permissions},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown, symlink},
    path::{Path, PathBuf},
};

/// The node's root directory: `/` once the process has changed its root to the node's.
#[derive(Debug, Clone)]
pub struct Host {
    root: PathBuf,
    #[cfg(test)]
    pub(crate) faults: crate::install::tests::faults::Faults,
}

/// Mode of files that the daemon and people may read.
const PUBLIC: u32 = 0o644;
/// Mode of files with somebody's secrets.
const PRIVATE: u32 = 0o600;
/// Mode of programs.
const PROGRAM: u32 = 0o755;

/// What a file is called before it takes its place, …
const NEW: &str = ".kubectl-shim-new";
/// … and what the one before it is called while it is kept.
pub const KEPT: &str = ".kubectl-shim-old";

/// Which mode a file gets.
#[derive(Debug, Clone, Copy)]
enum Mode {
    /// This one.
    Set(u32),
    /// Its own, with its owner; this one if it is new.
    Kept(u32),
}

/// A file operation that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path}: {source}")]
pub struct HostError {
    action: &'static str,
    path: String,
    source: io::Error,
}

type Result<T> = std::result::Result<T, HostError>;

impl Host {
    /// The node whose root is `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            #[cfg(test)]
            faults: crate::install::tests::faults::Faults::default(),
        }
    }

    /// Where an absolute path of the node is for us.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Content of a text file; absent if there is none.
    pub fn read(&self, path: &str) -> Result<Option<String>> {
        absent_is_none(fs::read_to_string(self.path(path))).map_err(at("read", path))
    }

    /// Target of a symbolic link; absent if there is no link.
    pub fn read_link(&self, path: &str) -> Result<Option<String>> {
        let target = absent_is_none(fs::read_link(self.path(path))).map_err(at("read the link", path))?;
        Ok(target.map(|target| target.to_string_lossy().into_owned()))
    }

    /// Whether anything is there.
    pub fn exists(&self, path: &str) -> bool {
        self.path(path).symlink_metadata().is_ok()
    }

    /// Names in a directory, sorted; none if there is no directory.
    pub fn list(&self, path: &str) -> Result<Vec<String>> {
        let Some(entries) = absent_is_none(fs::read_dir(self.path(path))).map_err(at("list", path))? else {
            return Ok(Vec::new());
        };
        let mut names: Vec<_> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        Ok(names)
    }

    /// The directories that [`Self::make_directory`] would create, outermost first.
    pub fn missing_directories(&self, path: &str) -> Vec<String> {
        let ancestors = Path::new(path).ancestors().map(|path| path.to_string_lossy().into_owned());
        let mut missing: Vec<_> = ancestors.take_while(|path| !self.path(path).is_dir()).collect();
        missing.reverse();
        missing
    }

    /// Creates a directory with all above it, readable by everyone.
    pub fn make_directory(&self, path: &str) -> Result<()> {
        for directory in self.missing_directories(path) {
            self.step();
            let full = self.path(&directory);
            fs::create_dir(&full).map_err(at("create", &directory))?;
            // Whatever the umask says: the daemon and people must be able to read it.
            fs::set_permissions(&full, Permissions::from_mode(0o755)).map_err(at("change the mode of", &directory))?;
            sync_parent(&full).map_err(at("create", &directory))?;
        }
        Ok(())
    }

    /// Writes a file so that at any moment it is the old or the new one. A file that exists keeps mode and owner, a new
    /// one can be read by everyone.
    pub fn write(&self, path: &str, content: &[u8]) -> Result<()> {
        self.write_as(path, Mode::Kept(PUBLIC), |file| file.write_all(content))
    }

    /// Like [`Self::write`], for content that may hold somebody's secrets: registry passwords in a configuration.
    pub fn write_private(&self, path: &str, content: &[u8]) -> Result<()> {
        self.write_as(path, Mode::Kept(PRIVATE), |file| file.write_all(content))
    }

    /// Writes a program, with a content that is streamed.
    pub fn write_program(&self, path: &str, fill: impl FnOnce(&mut File) -> io::Result<()>) -> Result<()> {
        self.write_as(path, Mode::Set(PROGRAM), fill)
    }

    fn write_as(&self, path: &str, mode: Mode, fill: impl FnOnce(&mut File) -> io::Result<()>) -> Result<()> {
        self.step();
        let real = self.real(path);
        let temporary = beside(&real, NEW);
        self.replace(&real, &temporary, mode, fill)
            .inspect_err(|_| drop(fs::remove_file(&temporary)))
            .map_err(at("write", path))
    }

    fn replace(
        &self,
        path: &Path,
        temporary: &Path,
        mode: Mode,
        content: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> io::Result<()> {
        absent_is_none(fs::remove_file(temporary))?;
        let mut file = File::options().read(true).write(true).create_new(true).mode(PRIVATE).open(temporary)?;
        #[cfg(test)]
        self.faults.need_room()?;
        content(&mut file)?;
        let mode = match (mode, absent_is_none(path.metadata())?) {
            (Mode::Kept(_), Some(old)) => {
                fchown(&file, Some(old.uid()), Some(old.gid()))?;
                old.mode() & 0o7777
            }
            (Mode::Kept(mode) | Mode::Set(mode), _) => mode,
        };
        file.set_permissions(Permissions::from_mode(mode))?;
        file.sync_all()?;
        self.step();
        fs::rename(temporary, path)?;
        sync_parent(path)
    }

    /// A symbolic link stays one: its target is what is replaced.
    fn real(&self, path: &str) -> PathBuf {
        let named = self.path(path);
        fs::canonicalize(&named).unwrap_or(named)
    }

    /// Gives the file at `path` a second name beside it. Whatever replaces it, [`Self::bring_back`] then needs no room.
    pub fn keep(&self, path: &str) -> Result<()> {
        self.step();
        let real = self.real(path);
        let kept = beside(&real, KEPT);
        let keep = || {
            absent_is_none(fs::remove_file(&kept))?;
            fs::hard_link(&real, &kept)?;
            sync_parent(&kept)
        };
        keep().map_err(at("keep", path))
    }

    /// Puts a file back: the very file, if it was kept.
    pub fn bring_back(&self, path: &str, content: &str) -> Result<()> {
        let real = self.real(path);
        let kept = beside(&real, KEPT);
        if !fs::read_to_string(&kept).is_ok_and(|kept| kept == content) {
            return self.write(path, content.as_bytes());
        }
        self.step();
        fs::rename(&kept, &real).and_then(|()| sync_parent(&real)).map_err(at("put back", path))
    }

    /// Makes `path` a link to `target`, whatever link it was before, with no moment without one.
    pub fn link(&self, path: &str, target: &str) -> Result<()> {
        self.step();
        let full = self.path(path);
        let temporary = beside(&full, NEW);
        let switch = || {
            absent_is_none(fs::remove_file(&temporary))?;
            symlink(target, &temporary)?;
            fs::rename(&temporary, &full)?;
            sync_parent(&full)
        };
        switch().map_err(at("switch the link", path))
    }

    /// Removes a file or link if it is there.
    pub fn remove(&self, path: &str) -> Result<()> {
        if !self.exists(path) {
            return Ok(());
        }
        self.step();
        let full = self.path(path);
        let gone = absent_is_none(fs::remove_file(&full)).and_then(|_| sync_parent(&full));
        gone.map_err(at("remove", path))
    }

    /// Removes what was kept of the file at `path`, and what a killed run has left of a new file or link.
    pub fn remove_leftover(&self, path: &str) -> Result<()> {
        let leftovers = [self.real(path), self.path(path)].map(|path| [beside(&path, NEW), beside(&path, KEPT)]);
        for leftover in leftovers.as_flattened().iter().filter(|leftover| leftover.symlink_metadata().is_ok()) {
            self.step();
            absent_is_none(fs::remove_file(leftover)).map_err(at("remove what is left of", path))?;
        }
        Ok(())
    }

    /// Removes a directory with everything in it if it is there.
    pub fn remove_tree(&self, path: &str) -> Result<()> {
        if !self.exists(path) {
            return Ok(());
        }
        self.step();
        absent_is_none(fs::remove_dir_all(self.path(path))).map(drop).map_err(at("remove", path))
    }

    /// Removes a directory if it is empty; anything in it is somebody else's.
    pub fn remove_if_empty(&self, path: &str) -> Result<()> {
        self.step();
        match fs::remove_dir(self.path(path)) {
            Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty) => {
                Err(at("remove", path)(error))
            }
            _ => Ok(()),
        }
    }

    /// Opens a file for reading and writing, created for root alone if it is not there: the lock.
    pub fn open(&self, path: &str) -> Result<File> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(PRIVATE);
        options.open(self.path(path)).map_err(at("open", path))
    }

    /// A point before a change: where a test ends the run as a power failure would.
    #[cfg_attr(not(test), expect(clippy::unused_self, reason = "tests count here"))]
    fn step(&self) {
        #[cfg(test)]
        self.faults.step();
    }
}

fn at(action: &'static str, path: &str) -> impl Fn(io::Error) -> HostError {
    let path = path.to_owned();
    move |source| HostError { action, path: path.clone(), source }
}

/// Not `*.toml`, so that no glob of a configuration matches it; the same for each run, so that none piles up.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}

fn absent_is_none<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A name survives a power failure only when its directory is on disk.
fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_keeps_mode_and_links_and_leaves_nothing_beside() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::new(dir.path());
        host.make_directory("/etc/real").unwrap();
        host.write("/etc/real/config", b"old").unwrap();
        fs::set_permissions(host.path("/etc/real/config"), Permissions::from_mode(0o640)).unwrap();
        symlink("real/config", host.path("/etc/link")).unwrap();
        host.write("/etc/link", b"new").unwrap();
        assert_eq!(host.read("/etc/real/config").unwrap().as_deref(), Some("new"));
        assert_eq!(host.path("/etc/real/config").metadata().unwrap().mode() & 0o777, 0o640);
        assert_eq!(host.list("/etc").unwrap(), ["link", "real"]);
        assert_eq!(host.list("/etc/real").unwrap(), ["config"]);
    }

    #[test]
    fn a_file_that_was_kept_comes_back_on_a_full_disk() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::new(dir.path());
        host.write("/real", b"old").unwrap();
        fs::set_permissions(host.path("/real"), Permissions::from_mode(0o640)).unwrap();
        symlink("real", host.path("/link")).unwrap();
        host.keep("/link").unwrap();
        host.write("/link", b"new").unwrap();
        host.faults.fill_disk(true);
        host.bring_back("/link", "old").unwrap();
        assert_eq!((host.read("/real").unwrap().as_deref(), host.list("/").unwrap().len()), (Some("old"), 2));
        assert_eq!(host.path("/real").metadata().unwrap().mode() & 0o777, 0o640);
        host.keep("/link").unwrap();
        assert!(host.bring_back("/link", "another").is_err(), "what was kept is not what has to come back");
        host.remove_leftover("/link").unwrap();
        assert_eq!(host.list("/").unwrap(), ["link", "real"]);
    }

    #[test]
    fn what_may_hold_secrets_is_for_root_alone() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::new(dir.path());
        for (path, mode) in [("/public", 0o644), ("/private", 0o600)] {
            if mode == PUBLIC { host.write(path, b"x") } else { host.write_private(path, b"x") }.unwrap();
            assert_eq!(host.path(path).metadata().unwrap().mode() & 0o777, mode);
        }
    }

    #[test]
    fn a_link_is_switched_and_everything_tolerates_absence() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::new(dir.path());
        assert_eq!(host.read_link("/current").unwrap(), None);
        host.link("/current", "a").unwrap();
        host.link("/current", "b").unwrap();
        assert_eq!(host.read_link("/current").unwrap().as_deref(), Some("b"));
        for _ in 0..2 {
            host.remove("/current").unwrap();
            host.remove_tree("/x").unwrap();
            host.remove_if_empty("/x").unwrap();
        }
        assert_eq!((host.read("/x").unwrap(), host.list("/x").unwrap()), (None, vec![]));
        assert_eq!(host.missing_directories("/a/b"), ["/a", "/a/b"]);
    }
}
