//! `cargo xtask demo`: the main job, seen.
use std::{
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use shim_e2e::{Lab, Packing, Profile, Reporter, wasm_pod};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Use this cluster instead of a demo cluster
    #[arg(long, requires_all = ["image", "url", "sha256", "wasm_image"])]
    kubeconfig: Option<PathBuf>,
    /// Image of controller and installer, pullable by that cluster
    #[arg(long)]
    image: Option<String>,
    /// Artifact of a Wasm shim, reachable by that cluster's nodes
    #[arg(long)]
    url: Option<String>,
    /// SHA-256 of the artifact
    #[arg(long)]
    sha256: Option<String>,
    /// Image of a Wasm module that prints a line, pullable by that cluster
    #[arg(long)]
    wasm_image: Option<String>,
    /// Command in that image
    #[arg(long, default_value = "/hello.wat")]
    module: String,
}

/// Where the demo runs and what with.
struct Stage {
    plugin: PathBuf,
    kubectl: Vec<PathBuf>,
    kubeconfig: PathBuf,
    image: String,
    url: String,
    sha256: String,
    wasm_image: String,
    module: String,
}

const SHIM: &str = "wasmi";

pub(crate) fn run(options: &Options, report: &Reporter) -> Result<()> {
    if let Some(kubeconfig) = &options.kubeconfig {
        return given(options, kubeconfig, report)?.play();
    }
    let lab = Lab::start(Profile::Release, report)?;
    let stage = own(&lab, options)?;
    stage.play()?;
    println!("\nThe cluster goes on; look around with");
    println!("  export KUBECONFIG={}", stage.kubeconfig.display());
    println!("  export PATH={}:$PATH", stage.plugin.parent().unwrap_or(&stage.plugin).display());
    println!("  cargo xtask cluster kubectl get pods -A -o wide");
    println!("and end it with\n  cargo xtask cluster down");
    Ok(())
}

fn own(lab: &Lab, options: &Options) -> Result<Stage> {
    let artifact = lab.artifacts()?.build(1, Packing::TarGz)?;
    Ok(Stage {
        plugin: lab.product.plugin.clone(),
        kubectl: vec![shim_e2e::Paths::of_this_workspace().kube(), "kubectl".into()],
        kubeconfig: lab.cluster.loopback_kubeconfig(),
        image: lab.image.clone(),
        url: artifact.url,
        sha256: artifact.sha256,
        wasm_image: lab.wasm_image.clone(),
        module: options.module.clone(),
    })
}

fn given(options: &Options, kubeconfig: &std::path::Path, report: &Reporter) -> Result<Stage> {
    let needed = |value: &Option<String>, flag: &str| {
        value.clone().with_context(|| format!("--{flag} is needed with a cluster of your own"))
    };
    Ok(Stage {
        plugin: shim_e2e::product(Profile::Release, report)?.plugin,
        kubectl: vec!["kubectl".into()],
        kubeconfig: kubeconfig.to_owned(),
        image: needed(&options.image, "image")?,
        url: needed(&options.url, "url")?,
        sha256: needed(&options.sha256, "sha256")?,
        wasm_image: needed(&options.wasm_image, "wasm-image")?,
        module: options.module.clone(),
    })
}

impl Stage {
    fn play(&self) -> Result<()> {
        self.shim(&["init", "--image", &self.image, "--wait"])?;
        self.shim(&[
            "install",
            SHIM,
            "--version",
            "v1",
            "--url",
            &self.url,
            "--sha256",
            &self.sha256,
            "--max-update",
            "50%",
            "--wait",
        ])?;
        for node in self.served_nodes()? {
            self.pod(&node)?;
        }
        self.shim(&["status"])?;
        self.shim(&["status", SHIM])
    }

    /// Runs a command of the plugin as a user would, and shows both.
    fn shim(&self, args: &[&str]) -> Result<()> {
        println!("\n$ kubectl shim {}", args.join(" "));
        let status =
            Command::new(&self.plugin).args(args).env("KUBECONFIG", &self.kubeconfig).stdin(Stdio::null()).status()?;
        ensure!(status.success(), "kubectl shim {} failed: {status}", args.join(" "));
        Ok(())
    }

    fn kubectl(&self, args: &[&str], input: &str) -> Result<String> {
        use std::io::Write;
        let mut child = Command::new(&self.kubectl[0])
            .args(&self.kubectl[1..])
            .args(args)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("kubectl can't be started")?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes())?;
        }
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "kubectl {} failed", args.join(" "));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn served_nodes(&self) -> Result<Vec<String>> {
        let label = format!("shim.dev/{SHIM}=ready");
        let names = self.kubectl(&["get", "nodes", "-l", &label, "-o", "jsonpath={.items[*].metadata.name}"], "")?;
        let names: Vec<_> = names.split_whitespace().map(str::to_owned).collect();
        ensure!(!names.is_empty(), "no node has the label {label}");
        Ok(names)
    }

    fn pod(&self, node: &str) -> Result<()> {
        let name = format!("hello-{node}");
        println!("\n# a Wasm pod on {node}: runtimeClassName: {SHIM}");
        self.kubectl(&["delete", "pod", &name, "--ignore-not-found", "--wait"], "")?;
        self.kubectl(&["apply", "-f", "-"], &wasm_pod(&name, node, SHIM, &self.wasm_image, &self.module))?;
        let end = Instant::now() + Duration::from_secs(90);
        loop {
            let phase = self.kubectl(&["get", "pod", &name, "-o", "jsonpath={.status.phase}"], "")?;
            match phase.as_str() {
                "Succeeded" => break,
                "Failed" => bail!("pod {name} failed: kubectl describe pod {name}"),
                _ if Instant::now() > end => bail!("pod {name} did not end: kubectl describe pod {name}"),
                _ => std::thread::sleep(Duration::from_millis(200)),
            }
        }
        println!("$ kubectl logs {name}\n{}", self.kubectl(&["logs", &name], "")?.trim_end());
        Ok(())
    }
}
