//! The node as far as it is not files: systemd, programs, CRI. One trait, so that tests can play the node.
use std::path::Path;

use crate::{
    cri::{Client, Cri, CriError},
    deadline::Deadline,
    process::{self, Output, RunError},
    systemd::{SOCKET, Systemd, SystemdError},
};

/// What the installer asks of a node.
pub trait Machine {
    /// Process id of a service; absent if it is not known or does not run.
    fn main_pid(&self, unit: &str) -> Result<Option<u32>, SystemdError>;
    /// Which processes of a service end when it is stopped, in systemd's words; absent if it is not known.
    fn kill_mode(&self, unit: &str) -> Result<Option<String>, SystemdError>;
    /// Restarts a service and waits until systemd is done with it.
    fn restart(&self, unit: &str, deadline: &Deadline) -> Result<(), SystemdError>;
    /// Runs a program of the node.
    fn run(&self, program: &str, args: &[&str], deadline: &Deadline) -> Result<Output, RunError>;
    /// A client for containerd's socket.
    fn cri(&self, socket: &str) -> Result<Box<dyn Cri>, CriError>;
}

/// The node that this process has as its root.
#[derive(Debug)]
pub struct Node(Systemd);

impl Node {
    /// For a process whose root directory is the node's.
    pub fn new() -> Result<Self, SystemdError> {
        Systemd::new(SOCKET.into()).map(Self)
    }
}

impl Machine for Node {
    fn main_pid(&self, unit: &str) -> Result<Option<u32>, SystemdError> {
        self.0.main_pid(unit)
    }

    fn kill_mode(&self, unit: &str) -> Result<Option<String>, SystemdError> {
        self.0.kill_mode(unit)
    }

    fn restart(&self, unit: &str, deadline: &Deadline) -> Result<(), SystemdError> {
        self.0.restart(unit, deadline)
    }

    fn run(&self, program: &str, args: &[&str], deadline: &Deadline) -> Result<Output, RunError> {
        process::run(program, args, deadline)
    }

    fn cri(&self, socket: &str) -> Result<Box<dyn Cri>, CriError> {
        Ok(Box::new(Client::new(Path::new(socket))?))
    }
}
