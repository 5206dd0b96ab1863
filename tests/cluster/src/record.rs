//! The one well-known place that tells which cluster runs on this machine, whichever checkout started it.
//!
//! It is under /run, which is as short-lived as processes and namespaces are.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::process::Processes;
use crate::report::Reporter;

/// The folder with the record of the cluster on this machine.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    dir: PathBuf,
}

impl Record {
    pub(crate) fn well_known() -> Self {
        Self { dir: PathBuf::from("/run/kubectl-shim-cluster") }
    }

    /// Keeps every other `up` and `down` of this machine out while the result lives.
    pub(crate) fn lock(&self, report: &Reporter) -> Result<File> {
        // Beside the folder, which `down` removes.
        let lock = File::create(self.dir.with_extension("lock")).context("the cluster needs root")?;
        if let Err(TryLockError::WouldBlock) = lock.try_lock() {
            report.say("another process brings a cluster up or down; waiting for it");
            lock.lock()?;
        }
        Ok(lock)
    }

    /// The processes of the cluster.
    pub(crate) fn processes(&self) -> Processes {
        Processes::at(self.dir.join("processes"))
    }

    /// Who started those processes that are of use to nobody else, by the same names.
    pub(crate) fn owners(&self) -> Processes {
        Processes::at(self.dir.join("owners"))
    }

    /// Keeps other programs from starting a file server while the result lives.
    pub(crate) fn lock_files(&self) -> Result<File> {
        let lock = File::create(self.dir.join("files.lock")).context("no cluster runs on this machine")?;
        lock.lock()?;
        Ok(lock)
    }

    /// The folder that the cluster on this machine writes to, if there is one.
    pub(crate) fn run(&self) -> Option<PathBuf> {
        let run = fs::read_to_string(self.dir.join("run")).ok().map(|text| PathBuf::from(text.trim_end()));
        // It will be removed with all that is in it: nothing but such a folder is believed.
        run.filter(|dir| dir.is_absolute() && dir.ends_with("cluster/run"))
    }

    /// Records that the cluster on this machine writes to `run`.
    pub(crate) fn claim(&self, run: &Path) -> Result<()> {
        fs::create_dir_all(&self.dir)?;
        Ok(fs::write(self.dir.join("run"), format!("{}\n", run.display()))?)
    }

    pub(crate) fn remove(&self) -> Result<()> {
        match fs::remove_dir_all(&self.dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}
