//! An HTTP server for files that nodes and pods fetch, on the bridge.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::command::Cmd;
use crate::images::busybox;
use crate::paths::Paths;
use crate::plan::{GATEWAY, NETNS};
use crate::process::{Identity, Life};
use crate::record::Record;
use crate::wait::until;

/// The ports that servers listen on.
const PORTS: std::ops::Range<u16> = 8099..8199;

/// Serves a folder until it is dropped.
#[derive(Debug)]
pub struct FileServer {
    dir: PathBuf,
    port: u16,
    process: Identity,
}

impl FileServer {
    pub(crate) fn start(paths: &Paths, dir: PathBuf) -> Result<Self> {
        fs::create_dir_all(&dir)?;
        let record = Record::well_known();
        // Else two programs could take each other's server for their own.
        let _lock = record.lock_files()?;
        sweep(&record)?;
        let taken = |port: &u16| record.processes().get(&name(*port)).is_some();
        for port in PORTS.filter(|port| !taken(port)) {
            if let Some(process) = listen(&record, paths, &dir, port)? {
                return Ok(Self { dir, port, process });
            }
        }
        bail!("no free port for a file server in {PORTS:?}")
    }

    /// The address of the folder, as nodes and pods reach it, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{GATEWAY}:{}", self.port)
    }

    /// Puts a file into the folder, whole at once; its address.
    pub fn put(&self, name: &str, content: impl AsRef<[u8]>) -> Result<String> {
        // The name with a dot at its start is not served while it is written to.
        let unfinished = self.dir.join(format!(".unfinished-{}", name.replace('/', "-")));
        let place = self.dir.join(name);
        fs::create_dir_all(place.parent().unwrap_or(&self.dir))?;
        fs::write(&unfinished, content)?;
        fs::rename(&unfinished, place).with_context(|| name.to_owned())?;
        Ok(format!("{}/{name}", self.url()))
    }

    /// The folder that is served.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Ends the server: from now on nothing listens at its address.
    pub fn stop(self) -> Result<()> {
        self.process.kill()
    }
}

impl Drop for FileServer {
    fn drop(&mut self) {
        // What stays after a failure here is ended by the next server's start, or by `down`.
        if self.process.kill().is_ok() {
            forget(&Record::well_known(), &name(self.port));
        }
    }
}

fn name(port: u16) -> String {
    format!("files-{port}")
}

fn forget(record: &Record, name: &str) {
    record.processes().forget(name);
    record.owners().forget(name);
}

/// Ends the servers whose programs ended without it: what a test program keeps to its very end is never dropped.
fn sweep(record: &Record) -> Result<()> {
    for (name, owner) in record.owners().all() {
        if owner.life() == Life::Ended {
            record.processes().get(&name).map_or(Ok(()), Identity::kill)?;
            forget(record, &name);
        }
    }
    Ok(())
}

/// A server on `port`; none if the port is taken.
fn listen(record: &Record, paths: &Paths, dir: &Path, port: u16) -> Result<Option<Identity>> {
    let cmd = Cmd::inside(NETNS, busybox()?).words(&format!("httpd -f -p {GATEWAY}:{port} -h")).arg(dir);
    let pid = cmd.start(&paths.log(&name(port)))?;
    let Some(process) = Identity::of(pid) else { return Ok(None) };
    until("the file server", Duration::from_secs(10), || {
        let ended = process.life() == Life::Ended;
        Ok((ended || answers(port)?).then_some(()))
    })?;
    if process.life() == Life::Ended {
        return Ok(None);
    }
    record.owners().record(&name(port), std::process::id())?;
    record.processes().record(&name(port), pid)?;
    Ok(Some(process))
}

/// Whether something listens on the port of the bridge.
fn answers(port: u16) -> Result<bool> {
    let place = format!("TCP:{GATEWAY}:{port},connect-timeout=2");
    Ok(Cmd::inside(NETNS, "socat").args(["-u", "OPEN:/dev/null", &place]).output()?.status.success())
}
