//! One file per command: what happens in which order. What is decided stands in `spec` and `views`.
//!
//! | file | |
//! |---|---|
//! | `status`, `install`, `upgrade`, `uninstall` | the basic commands |
//! | `history`, `rollback`, `pause`, `retry`, `wait` | the rollout commands |
//! | `init`, `teardown`, `version` | the setup commands |
//! | `image` | which image `init` takes |
//! | `step` | a change of a Shim, for all that make one |
//! | `follow`, `reach` | waiting and watching, for all of them |
//! | `preflight` | what is known before something is sent; pure |

mod follow;
mod history;
mod image;
mod init;
mod install;
mod orphan;
mod pause;
mod preflight;
mod reach;
mod retry;
mod rollback;
mod status;
mod step;
mod teardown;
mod uninstall;
mod upgrade;
mod version;
mod wait;

use serde_json::Value;

use crate::{
    cli::{
        Command,
        values::{DryRun, ObjectFormat},
    },
    cluster::{Applied, Cluster, reference},
    connect::{ConnectionFlags, Env},
    console::Console,
    exit::{Exit, Failure},
    output,
};

/// What every command needs.
pub struct App<'a> {
    /// The streams.
    pub console: &'a Console,
    /// Which cluster.
    pub flags: &'a ConnectionFlags,
    /// Variables and home directory.
    pub env: &'a Env,
}

impl App<'_> {
    /// Runs one command.
    pub async fn run(&self, command: Command) -> Result<Exit, Failure> {
        match command {
            Command::Status(args) => status::run(self, &args).await,
            Command::Install(args) => install::run(self, &args).await,
            Command::Upgrade(args) => upgrade::run(self, &args).await,
            Command::Uninstall(args) => uninstall::run(self, &args).await,
            Command::History(args) => history::run(self, &args).await,
            Command::Rollback(args) => Box::pin(rollback::run(self, &args)).await,
            Command::Pause(args) => pause::pause(self, &args).await,
            Command::Resume(args) => pause::resume(self, &args).await,
            Command::Retry(args) => retry::run(self, &args).await,
            Command::Wait(args) => wait::run(self, &args).await,
            Command::Init(args) => init::run(self, &args).await,
            Command::Teardown(args) => teardown::run(self, &args).await,
            Command::Version(args) => version::run(self, &args).await,
        }
    }

    async fn cluster(&self) -> Result<Cluster, Failure> {
        Cluster::open(self.flags, self.env).await
    }

    /// `TYPE/NAME verbed`, or the object where a format was asked for.
    fn report(
        &self,
        object: &Value,
        verb: impl std::fmt::Display,
        dry_run: DryRun,
        format: Option<ObjectFormat>,
    ) -> Result<(), Failure> {
        match format {
            Some(format) => self.console.print(&output::objects(std::slice::from_ref(object), format)?),
            None => self.console.line(&format!("{} {verb}{}", reference(object), suffix(dry_run))),
        }
    }
}

/// As kubectl marks what did not happen.
fn suffix(dry_run: DryRun) -> &'static str {
    match dry_run {
        DryRun::None => "",
        DryRun::Client => " (dry run)",
        DryRun::Server => " (server dry run)",
    }
}

/// An object that was sent, and what became of it.
struct Sent {
    name: String,
    applied: Applied,
}

/// kubectl's sentence for a Shim that is not there.
fn not_found(name: &str) -> Failure {
    Failure::worded(format!("Error from server (NotFound): shims.shim.dev {name:?} not found"))
}
