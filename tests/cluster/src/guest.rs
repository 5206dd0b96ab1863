//! A program beside the cluster, in a network namespace of its own: all that it sends and receives is its own.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use crate::command::Cmd;
use crate::images::busybox;
use crate::kubeconfig;
use crate::network;
use crate::paths::Paths;
use crate::plan::{API_PORT, GATEWAY, GUEST};
use crate::process::{Identity, Life, Processes};
use crate::record::Record;
use crate::wait::until;

/// How long a program may take to end when it is asked to.
const END_LIMIT: Duration = Duration::from_secs(30);

/// The guest's place. `down` ends what runs there.
#[derive(Clone, Debug)]
pub struct Guest {
    paths: Paths,
}

impl Guest {
    /// The guest's end of its link to the cluster.
    pub const LINK: &str = network::LINK;

    pub(crate) fn make(paths: &Paths) -> Result<Self> {
        if !network::namespaces().iter().any(|name| name == GUEST) {
            network::add_guest()?;
        }
        Ok(Self { paths: paths.clone() })
    }

    /// Writes a kubeconfig with a bearer token for the guest's program; its path.
    pub fn kubeconfig(&self, token: &str) -> Result<PathBuf> {
        let file = self.paths.run().join("guest.kubeconfig");
        let ca = self.paths.pki("ca.crt").display().to_string();
        std::fs::write(&file, kubeconfig::with_token(&format!("{GATEWAY}:{API_PORT}"), &ca, token))?;
        Ok(file)
    }

    /// Starts the guest's program, which must not run; its process id.
    pub fn start(&self, program: &Path, args: &[&str], env: &[(&str, &Path)]) -> Result<u32> {
        ensure!(process().is_none(), "the guest's program runs already");
        let cmd = env.iter().fold(Cmd::inside(GUEST, program), |cmd, (name, value)| cmd.env(name, value));
        let pid = cmd.args(args).dir(&self.paths.run()).start(&self.log())?;
        processes().record(GUEST, pid)?;
        Ok(pid)
    }

    /// The process id of the guest's program; an error if it has ended.
    pub fn pid(&self) -> Result<u32> {
        let process = process();
        process
            .map(|it| it.pid)
            .with_context(|| format!("the guest's program ended, its log: {}", self.log().display()))
    }

    /// What the guest's program answers to a GET of this path on its own loopback.
    pub fn get(&self, port: u16, path: &str) -> Result<String> {
        let url = format!("http://127.0.0.1:{port}{path}");
        Cmd::inside(GUEST, busybox()?).args(["wget", "-q", "-O", "-", &url]).run()
    }

    /// Asks the guest's program to end, and waits until it has.
    pub fn stop(&self) -> Result<()> {
        let Some(process) = process() else { return Ok(()) };
        process.signal(Signal::TERM);
        until("the end of the guest's program", END_LIMIT, || Ok((process.life() == Life::Ended).then_some(())))?;
        processes().forget(GUEST);
        Ok(())
    }

    /// Where the program's output is.
    pub fn log(&self) -> PathBuf {
        self.paths.log("guest")
    }
}

fn process() -> Option<Identity> {
    processes().get(GUEST).filter(|process| process.life() == Life::Running)
}

fn processes() -> Processes {
    Record::well_known().processes()
}
