//! `cargo xtask cluster`: the test cluster, by hand.
use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Result, bail};
use clap::Subcommand;
use shim_cluster::{Cluster, Paths, Reporter, Running, UpOptions, down, install_packages, up};
use shim_e2e::{Profile, image_context, product};

#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Boot the cluster; one that runs is kept if it has the wanted nodes
    Up {
        /// Number of nodes; their containerd is 1.6, 1.7, 2.2 and 2.4 in turn
        #[arg(long, default_value_t = 4)]
        nodes: usize,
        /// Take down first what runs
        #[arg(long)]
        replace: bool,
    },
    /// Take the cluster down; nothing of it stays
    Down,
    /// Run kubectl against the cluster
    #[command(trailing_var_arg = true, allow_hyphen_values = true)]
    Kubectl {
        /// Arguments of kubectl
        args: Vec<String>,
    },
    /// Load an image archive into the cluster's registry, or build and load the product's image
    Load {
        /// OCI or Docker archive
        archive: Option<PathBuf>,
    },
    /// Print the log of a part of the control plane, or of a node
    Logs {
        /// etcd, apiserver, controller-manager, scheduler, registry, door, or a node's name
        part: String,
    },
}

pub(crate) fn run(task: &Task, report: &Reporter) -> Result<()> {
    let paths = Paths::of_this_workspace();
    match task {
        Task::Up { nodes, replace } => boot(&paths, *nodes, *replace, report),
        Task::Down => down(&paths, report),
        Task::Kubectl { args } => kubectl(&paths, args),
        Task::Load { archive } => load(&paths, archive.as_ref(), report),
        Task::Logs { part } => logs(&paths, part),
    }
}

fn boot(paths: &Paths, nodes: usize, replace: bool, report: &Reporter) -> Result<()> {
    install_packages(report)?;
    let running = if replace { Running::Replace } else { Running::Keep };
    let cluster = up(paths, &UpOptions { nodes, running, ..UpOptions::default() }, report)?;
    println!("export KUBECONFIG={}", cluster.loopback_kubeconfig().display());
    Ok(())
}

fn kubectl(paths: &Paths, args: &[String]) -> Result<()> {
    Cluster::open(paths)?;
    let status = Command::new(paths.kube())
        .arg("kubectl")
        .arg("--kubeconfig")
        .arg(paths.loopback_kubeconfig())
        .args(args)
        .stdin(Stdio::inherit())
        .status()?;
    std::process::exit(status.code().unwrap_or(1));
}

fn load(paths: &Paths, archive: Option<&PathBuf>, report: &Reporter) -> Result<()> {
    let images = Cluster::open(paths)?.images();
    let reference = match archive {
        Some(archive) => images.load(archive, "loaded:1")?,
        None => images.build(&image_context(&product(Profile::Release, report)?)?, "kubectl-shim:test")?,
    };
    println!("{reference}");
    Ok(())
}

fn logs(paths: &Paths, part: &str) -> Result<()> {
    let file = paths.log(part);
    let Ok(text) = std::fs::read_to_string(&file) else {
        bail!("there is no {}; see the other files in its folder", file.display());
    };
    print!("{text}");
    Ok(())
}
