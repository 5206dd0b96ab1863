//! The installer's two containers: `fetch` and `install`.
use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Write as _},
    os::unix::fs::chroot,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use shim_core::{
    report::{self, Failure, Outcome, Reason, Report, Step},
    task::{HOST_ROOT, POD_UID_ENV, Task, WORK_DIR},
};
use shim_installer::{
    deadline::Interrupt,
    fetch,
    host::Host,
    install::{
        artifact::{Artifacts, open_all},
        context::{Context, Limits},
        install,
    },
    machine::Node,
};

/// Puts containerd shims onto the node that it runs on. Started by the controller's Jobs.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// What to do, as JSON.
    #[arg(long, env = shim_core::task::TASK_ENV, hide_env_values = true)]
    task: String,
    /// Directory that both containers share.
    #[arg(long, default_value = WORK_DIR)]
    work: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Download and unpack; needs no privilege.
    Fetch,
    /// Change the node; needs to be root in a container that has the node's root directory.
    Install {
        /// Where the node's root directory is.
        #[arg(long, default_value = HOST_ROOT)]
        host: PathBuf,
        /// Where the result goes.
        #[arg(long, default_value = "/dev/termination-log")]
        report: PathBuf,
        /// Uid of the Pod that this runs in.
        #[arg(long, env = POD_UID_ENV)]
        pod_uid: Option<String>,
    },
}

fn main() -> anyhow::Result<ExitCode> {
    let filter = tracing_subscriber::EnvFilter::builder().with_default_directive(tracing::Level::INFO.into());
    tracing_subscriber::fmt().with_env_filter(filter.from_env_lossy()).with_writer(io::stderr).with_ansi(false).init();
    let arguments = Arguments::parse();
    let task: Task = serde_json::from_str(&arguments.task).context("the task is not JSON of a form that is known")?;
    match arguments.command {
        Command::Fetch => {
            fetch::run(&task, &arguments.work, &fetch::Limits::default())?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Install { host, report, pod_uid } => {
            let interrupt = Interrupt::default();
            signal_hook::flag::register(signal_hook::consts::SIGTERM, interrupt.flag())?;
            // Both are of the container's root directory, which is about to become the node's.
            let artifacts = open_all(&arguments.work, &task);
            let mut file = File::create(&report).with_context(|| format!("cannot write {}", report.display()))?;
            let result =
                on_node(&host, &task, &artifacts, interrupt, pod_uid).unwrap_or_else(|error| all_failed(&task, &error));
            file.write_all(result.to_termination_message().as_bytes())?;
            Ok(exit_code(&result))
        }
    }
}

/// From here on `/` is the node's: its symbolic links, its programs and its /proc mean what they mean on the node.
fn on_node(
    root: &Path,
    task: &Task,
    artifacts: &Artifacts,
    interrupt: Interrupt,
    own_pod: Option<String>,
) -> anyhow::Result<Report> {
    chroot(root).with_context(|| format!("cannot make {} the root directory", root.display()))?;
    std::env::set_current_dir("/")?;
    let (host, machine) = (Host::new("/"), Node::new()?);
    let context = Context { host: &host, machine: &machine, limits: Limits::default(), interrupt, own_pod };
    Ok(install(&context, task, artifacts))
}

fn all_failed(task: &Task, error: &anyhow::Error) -> Report {
    let failure = Failure::new(Step::Preflight, Reason::Internal, format!("{error:#}"));
    let outcomes: BTreeMap<_, _> =
        task.ops.keys().map(|shim| (shim.clone(), Outcome::Failed(failure.clone()))).collect();
    Report { format: report::FORMAT, outcomes, restarted: false, log: String::new() }
}

fn exit_code(report: &Report) -> ExitCode {
    let failed = report.outcomes.values().any(|outcome| matches!(outcome, Outcome::Failed(_)));
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
