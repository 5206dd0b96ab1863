//! systemd over the system bus, its documented interface. Its private socket is none: it names its sender in a way that
//! the D-Bus specification forbids, and a strict library refuses every answer.
use std::{os::unix::net::UnixStream, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Runtime};
use zbus::{Connection, OwnedObjectPath, OwnedVariant, Type, connection};

use crate::deadline::Deadline;

/// Socket of the system bus.
pub const SOCKET: &str = "/run/dbus/system_bus_socket";
/// One answer.
const ANSWER: Duration = Duration::from_secs(10);
const MANAGER: &str = "/org/freedesktop/systemd1";
const PREFIX: &str = "org.freedesktop.systemd1";

/// Why systemd did not do it.
#[derive(Debug, thiserror::Error)]
pub enum SystemdError {
    /// No systemd, or it does not answer.
    #[error("systemd does not answer on {SOCKET}, is dbus installed on the node? {0}")]
    Unreachable(String),
    /// systemd answers with an error.
    #[error("systemd: {0}")]
    Refused(String),
    /// systemd knows no such unit or job.
    #[error("systemd does not know it")]
    Unknown,
    /// The restart did not end in time.
    #[error("systemd has not restarted {unit}: {why}")]
    NotEnded {
        /// Name of the unit.
        unit: String,
        /// Why the wait ended.
        why: crate::deadline::Ended,
    },
    /// The job is done, and the process is the one from before.
    #[error("systemd has not restarted {unit}: it still is process {pid}")]
    NotRestarted {
        /// Name of the unit.
        unit: String,
        /// Its process.
        pid: u32,
    },
    /// The unit is not active after the restart.
    #[error("{unit} is {state} after the restart")]
    NotActive {
        /// Name of the unit.
        unit: String,
        /// Its `ActiveState`.
        state: String,
    },
}

/// systemd's manager.
#[derive(Debug)]
pub struct Systemd {
    runtime: Runtime,
    socket: PathBuf,
}

impl Systemd {
    /// The manager behind the system bus at `socket`.
    pub fn new(socket: PathBuf) -> Result<Self, SystemdError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        Ok(Self { runtime: runtime.map_err(|error| SystemdError::Unreachable(error.to_string()))?, socket })
    }

    /// Process id of a service; absent if it is not known or does not run.
    pub fn main_pid(&self, unit: &str) -> Result<Option<u32>, SystemdError> {
        let pid = self.property(unit, "Service", "MainPID")?.and_then(|pid| u32::try_from(pid).ok());
        Ok(pid.filter(|pid| *pid != 0))
    }

    /// Which processes of a service end when it is stopped; absent if it is not known.
    pub fn kill_mode(&self, unit: &str) -> Result<Option<String>, SystemdError> {
        self.text(unit, "Service", "KillMode")
    }

    /// Restarts a service and waits until systemd is done with it.
    pub fn restart(&self, unit: &str, deadline: &Deadline) -> Result<(), SystemdError> {
        // Otherwise systemd refuses the start that brings the good configuration back, after too many of the bad one.
        if let Err(error) = self.ask::<()>(MANAGER, "Manager", "ResetFailedUnit", &(unit,)) {
            tracing::warn!(%error, unit, "the count of its starts could not be reset");
        }
        let before = self.main_pid(unit).unwrap_or_default();
        let job: OwnedObjectPath = self.ask(MANAGER, "Manager", "RestartUnit", &(unit, "replace"))?;
        let id = job.as_str().rsplit('/').next().and_then(|id| id.parse().ok());
        let id = id.ok_or_else(|| SystemdError::Refused(format!("{job} is no job")))?;
        let ended = deadline.poll(|| self.job_end(id));
        ended.map_err(|why| SystemdError::NotEnded { unit: unit.to_owned(), why })??;
        match (before, self.main_pid(unit)?) {
            (Some(before), Some(pid)) if before == pid => {
                Err(SystemdError::NotRestarted { unit: unit.to_owned(), pid })
            }
            _ => self.check_active(unit),
        }
    }

    /// How a job has ended, if it has.
    fn job_end(&self, id: u32) -> Option<Result<(), SystemdError>> {
        match absent_is_none(self.ask::<OwnedObjectPath>(MANAGER, "Manager", "GetJob", &(id,))) {
            // A job that is done is forgotten.
            Ok(None) => Some(Ok(())),
            // An answer that does not come says nothing of the job.
            Ok(Some(_)) | Err(SystemdError::Unreachable(_)) => None,
            Err(error) => Some(Err(error)),
        }
    }

    fn check_active(&self, unit: &str) -> Result<(), SystemdError> {
        match (self.text(unit, "Unit", "ActiveState")?.as_deref(), self.text(unit, "Unit", "SubState")?) {
            // Waiting for its next start: this one has failed.
            (Some("activating"), Some(sub)) if sub == "auto-restart" => Err(not_active(unit, "failing")),
            (Some("active" | "activating"), _) => Ok(()),
            (state, _) => Err(not_active(unit, state.unwrap_or("unknown"))),
        }
    }

    fn text(&self, unit: &str, interface: &str, name: &str) -> Result<Option<String>, SystemdError> {
        Ok(self.property(unit, interface, name)?.and_then(|text| String::try_from(text).ok()))
    }

    fn property(&self, unit: &str, interface: &str, name: &str) -> Result<Option<OwnedVariant>, SystemdError> {
        let unit = self.ask::<OwnedObjectPath>(MANAGER, "Manager", "GetUnit", &(unit,));
        let Some(unit) = absent_is_none(unit)? else { return Ok(None) };
        let argument = (format!("{PREFIX}.{interface}"), name);
        self.call(unit.as_str(), "org.freedesktop.DBus.Properties", "Get", &argument).map(Some)
    }

    fn ask<T>(
        &self,
        path: &str,
        interface: &str,
        method: &str,
        arguments: &(impl Serialize + Type),
    ) -> Result<T, SystemdError>
    where
        T: for<'d> Deserialize<'d> + Type,
    {
        self.call(path, &format!("{PREFIX}.{interface}"), method, arguments)
    }

    /// One connection for each question: nothing has to be kept alive between them.
    fn call<T>(
        &self,
        path: &str,
        interface: &str,
        method: &str,
        arguments: &(impl Serialize + Type),
    ) -> Result<T, SystemdError>
    where
        T: for<'d> Deserialize<'d> + Type,
    {
        let exchange = async {
            let connection = self.connect().await.map_err(|error| SystemdError::Unreachable(error.to_string()))?;
            let answer = connection.call_method(Some(PREFIX), path, Some(interface), method, arguments).await;
            answer.and_then(|answer| answer.body().deserialize()).map_err(refused)
        };
        self.runtime.block_on(async {
            let timed = tokio::time::timeout(ANSWER, exchange).await;
            timed.unwrap_or_else(|_| Err(SystemdError::Unreachable(format!("no answer in {} s", ANSWER.as_secs()))))
        })
    }

    async fn connect(&self) -> zbus::Result<Connection> {
        connection::Builder::unix_stream(UnixStream::connect(&self.socket)?).build().await
    }
}

fn not_active(unit: &str, state: &str) -> SystemdError {
    SystemdError::NotActive { unit: unit.to_owned(), state: state.to_owned() }
}

#[expect(clippy::needless_pass_by_value, reason = "used as a function of map_err")]
fn refused(error: zbus::Error) -> SystemdError {
    match &error {
        zbus::Error::MethodError(name, ..) if name.ends_with(".NoSuchUnit") || name.ends_with(".NoSuchJob") => {
            SystemdError::Unknown
        }
        _ => SystemdError::Refused(error.to_string()),
    }
}

fn absent_is_none<T>(result: Result<T, SystemdError>) -> Result<Option<T>, SystemdError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(SystemdError::Unknown) => Ok(None),
        Err(error) => Err(error),
    }
}
