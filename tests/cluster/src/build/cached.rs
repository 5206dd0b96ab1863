//! Folders that are made once, whole or not at all, and again when what they are made from changes.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::paths::Paths;
use crate::report::Reporter;

/// Names of unfinished folders start with it.
const UNFINISHED: &str = "unfinished-";

/// Writes an item's files into a folder.
pub(super) type Make = Box<dyn Fn(&Path) -> Result<()>>;

/// A folder of files and how to make it.
pub(super) struct Item {
    pub(super) name: String,
    /// Names everything that the files are made from; they are made again when it changes.
    pub(super) stamp: String,
    /// What is done, for people.
    pub(super) title: String,
    pub(super) make: Make,
}

/// Whether cached files can be used as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    Fresh,
    /// Missing, or made from something else.
    Stale,
}

impl Item {
    pub(super) fn freshness(&self, cache: &Path) -> Freshness {
        match fs::read_to_string(cache.join(&self.name).join("stamp")) {
            Ok(found) if found == self.stamp => Freshness::Fresh,
            _ => Freshness::Stale,
        }
    }
}

/// The cache folder, held by this process alone.
pub(super) struct Cache<'a> {
    dir: PathBuf,
    report: &'a Reporter,
    _lock: File,
}

impl<'a> Cache<'a> {
    pub(super) fn open(paths: &Paths, report: &'a Reporter) -> Result<Self> {
        let dir = paths.cache();
        fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        let lock = File::create(dir.join("lock"))?;
        if let Err(TryLockError::WouldBlock) = lock.try_lock() {
            report.say("another process builds the cluster's parts; waiting for it");
            lock.lock()?;
        }
        let cache = Self { dir, report, _lock: lock };
        cache.sweep()?;
        Ok(cache)
    }

    /// Makes `item`, unless it is fresh.
    pub(super) fn make(&self, item: &Item) -> Result<()> {
        match item.freshness(&self.dir) {
            Freshness::Fresh => Ok(()),
            Freshness::Stale => self.report.step(&item.title, || self.replace(item)),
        }
    }

    fn replace(&self, item: &Item) -> Result<()> {
        let unfinished = self.dir.join(format!("{UNFINISHED}{}", item.name));
        fs::create_dir_all(unfinished.join("root"))?;
        (item.make)(&unfinished.join("root"))?;
        fs::write(unfinished.join("stamp"), &item.stamp)?;
        // A killed build leaves an unfinished folder that the next one sweeps, never half of a finished one.
        let (place, old) = (self.dir.join(&item.name), self.dir.join(format!("{UNFINISHED}old-{}", item.name)));
        fs::rename(&place, &old)
            .or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
        fs::rename(&unfinished, &place)?;
        self.sweep()
    }

    fn sweep(&self) -> Result<()> {
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
                fs::remove_dir_all(entry.path()).with_context(|| entry.path().display().to_string())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    fn item(stamp: &str, make: impl Fn(&Path) -> Result<()> + 'static) -> Item {
        Item { name: "thing".into(), stamp: stamp.into(), title: "thing".into(), make: Box::new(make) }
    }

    /// A cache in a folder of its own under the test's temporary folder.
    fn with_cache(name: &str, test: impl FnOnce(&Cache<'_>)) {
        let target = std::env::temp_dir().join(format!("shim-cluster-{name}-{}", std::process::id()));
        let (paths, report) = (Paths::new(&target), Reporter::silent());
        test(&Cache::open(&paths, &report).unwrap());
        fs::remove_dir_all(target).unwrap();
    }

    #[test]
    fn an_item_is_made_once_per_stamp() {
        with_cache("once", |cache| {
            let make = |stamp: &str, text: &'static str| {
                cache.make(&item(stamp, move |dir| Ok(fs::write(dir.join("file"), text)?))).unwrap();
                fs::read_to_string(cache.dir.join("thing/root/file")).unwrap()
            };
            assert_eq!(make("v1", "first"), "first");
            assert_eq!(make("v1", "not made"), "first");
            assert_eq!(make("v2", "second"), "second");
        });
    }

    #[test]
    fn a_failed_build_leaves_the_old_item_and_no_half_of_the_new() {
        with_cache("half", |cache| {
            let (old, new) = (item("v1", |_| Ok(())), item("v2", |_| Ok(())));
            cache.make(&old).unwrap();
            let half = item("v2", |dir| {
                fs::write(dir.join("half"), "")?;
                bail!("killed")
            });
            cache.make(&half).unwrap_err();
            assert_eq!((old.freshness(&cache.dir), new.freshness(&cache.dir)), (Freshness::Fresh, Freshness::Stale));
            cache.sweep().unwrap();
            cache.make(&new).unwrap();
            assert_eq!(new.freshness(&cache.dir), Freshness::Fresh);
            assert!(!cache.dir.join("thing/root/half").exists());
        });
    }

    #[test]
    fn a_missing_item_is_stale() {
        assert_eq!(item("", |_| Ok(())).freshness(Path::new("/nowhere")), Freshness::Stale);
    }
}
