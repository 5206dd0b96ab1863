//! Which containerd runs this node's pods, how it is configured, and whether we know how to change that.
use shim_core::{
    containerd::{DEFAULT_CONFIG, release::Release},
    report::{Failure, Reason, Step},
};

use super::context::{Context, OrFail as _};
use crate::deadline::Deadline;

/// How a node runs its container runtime. The others are recognised, to be refused with their name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// `containerd.service`, configured by `/etc/containerd/config.toml` or what its command line says.
    Plain,
}

impl Layout {
    /// The systemd unit to restart.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Plain => "containerd.service",
        }
    }
}

/// Units of runtimes that are configured in ways of their own. They are looked for first: Docker's containerd.service
/// may run beside them, and does not run the node's pods then.
const FOREIGN: [(&str, &str); 8] = [
    ("k3s.service", "k3s"),
    ("k3s-agent.service", "k3s"),
    ("rke2-server.service", "rke2"),
    ("rke2-agent.service", "rke2"),
    ("k0sworker.service", "k0s"),
    ("k0scontroller.service", "k0s"),
    ("snap.microk8s.daemon-containerd.service", "microk8s"),
    ("crio.service", "CRI-O"),
];

/// The daemon as it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Daemon {
    /// How it is run.
    pub layout: Layout,
    /// Path of its binary: the file that the next start takes, even where a package upgrade has replaced it already.
    pub binary: String,
    /// Release of that binary.
    pub release: Release,
    /// Path of its configuration.
    pub config: String,
    /// Address from its command line.
    pub address: Option<String>,
}

/// Why there is no daemon to work with.
#[derive(Debug)]
pub enum Trouble {
    /// It does not run, does not answer or is not ready: a restart may help.
    Unwell(Failure),
    /// Anything else; the daemon may be well.
    Other(Failure),
}

impl Trouble {
    /// A daemon that is unwell.
    pub fn unwell(message: impl std::fmt::Display) -> Self {
        Self::Unwell(Failure::new(Step::Preflight, Reason::RuntimeNotReady, message))
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Other(failure)
    }
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        let (Trouble::Unwell(failure) | Trouble::Other(failure)) = trouble;
        failure
    }
}

/// Finds the daemon.
pub fn find(context: &Context<'_>, deadline: &Deadline) -> Result<Daemon, Trouble> {
    let layout = layout(context)?;
    let pid = pid_of(context, layout.unit())?.ok_or_else(|| Trouble::unwell("containerd.service does not run"))?;
    let binary = binary(context, pid)?;
    let output = context.run(&binary, &["--version"], deadline, Step::Preflight, Reason::RuntimeUnsupported)?;
    let release = Release::parse(&output)
        .ok_or_else(|| unsupported(format!("containerd 1.6, 1.7 or 2.x is needed, this is \"{}\"", output.trim())))?;
    let arguments =
        context.host.read(&format!("/proc/{pid}/cmdline")).map_err(|error| unsupported(error.to_string()))?;
    let arguments: Vec<_> = arguments.iter().flat_map(|line| line.split('\0')).collect();
    let config = option(&arguments, &["-c", "--config"]).unwrap_or_else(|| DEFAULT_CONFIG.to_owned());
    if !config.starts_with('/') {
        let message = format!("containerd was started with the relative path {config} for its configuration");
        return Err(unsupported(message).into());
    }
    Ok(Daemon { layout, binary, release, config, address: option(&arguments, &["-a", "--address"]) })
}

/// Refuses a restart that would end every pod of the node: containerd's shims are processes of its unit.
pub fn check_restart(context: &Context<'_>, layout: Layout) -> Result<(), Failure> {
    let unit = layout.unit();
    let mode = context.machine.kill_mode(unit).or_fail(Step::Preflight, Reason::RuntimeNotReady)?;
    match mode.as_deref().unwrap_or("unknown") {
        "process" | "none" => Ok(()),
        mode => Err(unsupported(format!(
            "a restart of {unit} would end every pod of the node, for its KillMode is {mode}; set KillMode=process in \
             its section [Service], as in containerd's own unit"
        ))),
    }
}

fn layout(context: &Context<'_>) -> Result<Layout, Failure> {
    for (unit, name) in FOREIGN {
        if pid_of(context, unit)?.is_some() {
            return Err(unsupported(format!("{name} ({unit}) runs this node's pods; it cannot be configured yet")));
        }
    }
    Ok(Layout::Plain)
}

fn pid_of(context: &Context<'_>, unit: &str) -> Result<Option<u32>, Failure> {
    context.machine.main_pid(unit).or_fail(Step::Preflight, Reason::RuntimeNotReady)
}

fn binary(context: &Context<'_>, pid: u32) -> Result<String, Trouble> {
    let link = format!("/proc/{pid}/exe");
    let target = context.host.read_link(&link).map_err(|error| unsupported(error.to_string()))?;
    let target = target.ok_or_else(|| Trouble::unwell(format!("process {pid} of containerd.service is gone")))?;
    let path = target.strip_suffix(" (deleted)").unwrap_or(&target);
    if path.rsplit('/').next() != Some("containerd") {
        return Err(unsupported(format!("containerd.service runs {path}, which is not containerd")).into());
    }
    Ok(if context.host.exists(path) { path.to_owned() } else { link })
}

/// Value of an option: `-c x`, `-c=x`, `--config x`, `--config=x`; Go also takes `-config` and `--c`.
fn option(arguments: &[&str], names: &[&str]) -> Option<String> {
    let bare = |name: &str| name.trim_start_matches('-').to_owned();
    let is_ours = |key: &str| key.starts_with('-') && names.iter().any(|name| bare(name) == bare(key));
    let mut values = arguments.iter().enumerate().filter_map(|(at, argument)| match argument.split_once('=') {
        Some((key, value)) if is_ours(key) => Some(value.to_owned()),
        None if is_ours(argument) => arguments.get(at + 1).map(|&value| value.to_owned()),
        _ => None,
    });
    values.next_back()
}

fn unsupported(message: impl std::fmt::Display) -> Failure {
    Failure::new(Step::Preflight, Reason::RuntimeUnsupported, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_in_every_way_that_they_can_be_written() {
        for (line, want) in [
            ("/usr/bin/containerd", None),
            ("/usr/bin/containerd -c /a", Some("/a")),
            ("/usr/bin/containerd --config=/a --log-level debug", Some("/a")),
            ("/usr/bin/containerd --config /a --config /b", Some("/b")),
            ("/usr/bin/containerd --configuration /a", None),
            ("/usr/bin/containerd -c", None),
        ] {
            let arguments: Vec<_> = line.split(' ').collect();
            assert_eq!(option(&arguments, &["-c", "--config"]).as_deref(), want, "{line}");
        }
    }
}
