//! The running cluster with the product in it.
use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use shim_cluster::{Cluster, FileServer, Paths, Reporter, UpOptions, install_packages, up};

use crate::{
    Artifacts, Product, Profile, ShimManifest, image_context, product,
    tool::{target_dir, workspace},
    wasmi_shim,
};

/// A rollout on four nodes takes about 10 s; a busy machine gets more time.
pub const ROLLOUT: Duration = Duration::from_secs(120);

/// Label of the installer's Jobs and their pods.
const INSTALLERS: &str = "app.kubernetes.io/managed-by=shim-controller";

/// The cluster, the product's image in its registry, a Wasm image, and a server for artifacts.
#[derive(Debug)]
pub struct Lab {
    /// The cluster.
    pub cluster: Cluster,
    /// Serves artifacts.
    pub files: FileServer,
    /// Image of controller and installer.
    pub image: String,
    /// Image with /hello.wat, which prints a line and ends, and /tick.wat, which prints for ever.
    pub wasm_image: String,
    /// The binaries.
    pub product: Product,
    wasmi: PathBuf,
}

/// What a command said.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Exit code; -1 after a signal.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Lab {
    /// Builds, boots, loads and serves what is not there yet.
    pub fn start(profile: Profile, report: &Reporter) -> Result<Self> {
        install_packages(report)?;
        let paths = Paths::of_this_workspace();
        let product = product(profile, report)?;
        let wasmi = wasmi_shim(report)?;
        let cluster = up(&paths, &UpOptions::default(), report)?;
        let context = image_context(&product)?;
        let image = report.step("loading the image", || cluster.images().build(&context, "kubectl-shim:test"))?;
        let wasm_image = cluster.images().build(&wasm_context()?, "wasm:1")?;
        let files = cluster.serve_files(target_dir().join("lab/files"))?;
        Ok(Self { cluster, files, image, wasm_image, product, wasmi })
    }

    /// Artifacts of the Wasm shim.
    pub fn artifacts(&self) -> Result<Artifacts<'_>> {
        Ok(Artifacts::new(fs::read(&self.wasmi).context("the Wasm shim is not built")?, &self.files))
    }

    /// Runs the plugin as a user does: `kubectl shim …` by its binary.
    pub fn shim(&self, args: &[&str]) -> Result<Answer> {
        self.shim_with(args, "")
    }

    /// Runs the plugin with text on its standard input.
    pub fn shim_with(&self, args: &[&str], input: &str) -> Result<Answer> {
        let mut command = Command::new(&self.product.plugin);
        command.args(args).env("KUBECONFIG", self.cluster.loopback_kubeconfig()).env("NO_COLOR", "1");
        answer(&mut command, input)
    }

    /// Runs the plugin and fails if it does.
    pub fn shim_ok(&self, args: &[&str]) -> Result<Answer> {
        let answer = self.shim(args)?;
        ensure!(
            answer.code == 0,
            "kubectl shim {} ended with {}: {}{}",
            args.join(" "),
            answer.code,
            answer.stdout,
            answer.stderr
        );
        Ok(answer)
    }

    /// An object as JSON; `None` where there is none.
    pub fn get(&self, what: &str, name: &str) -> Result<Option<Value>> {
        let text = self.cluster.kubectl(&["get", what, name, "--ignore-not-found", "-o", "json"])?;
        Ok(if text.trim().is_empty() { None } else { Some(serde_json::from_str(&text)?) })
    }

    /// Objects as JSON.
    pub fn list(&self, args: &[&str]) -> Result<Vec<Value>> {
        let text = self.cluster.kubectl(&[&["get"], args, &["-o", "json"]].concat())?;
        let list: Value = serde_json::from_str(&text)?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// The pods of the installer's Jobs.
    pub fn installers(&self) -> Result<Vec<Value>> {
        self.list(&["pods", "-n", "shim-system", "-l", INSTALLERS])
    }

    /// The installer's Jobs.
    pub fn jobs(&self) -> Result<Vec<Value>> {
        self.list(&["jobs", "-n", "shim-system", "-l", INSTALLERS])
    }

    /// Applies manifests.
    pub fn apply(&self, manifests: &str) -> Result<()> {
        self.cluster.kubectl_with(&["apply", "-f", "-"], manifests).map(drop)
    }

    /// Waits until `probe` answers; the error names `what`.
    pub fn wait<T>(&self, what: &str, limit: Duration, mut probe: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        let end = Instant::now() + limit;
        loop {
            let last = probe();
            if let Ok(Some(answer)) = last {
                return Ok(answer);
            }
            if Instant::now() > end {
                last.with_context(|| format!("while waiting for {what}"))?;
                let status = self.shim(&["status"]).map(|answer| answer.stdout + &answer.stderr).unwrap_or_default();
                bail!("waited {} s in vain for {what}\n{status}", limit.as_secs());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Applies a Shim and waits until it is Ready.
    pub fn roll_out(&self, shim: &ShimManifest) -> Result<()> {
        self.apply(&shim.text())?;
        self.wait_ready(shim.name())
    }

    /// Waits until the controller says Ready of what was applied last.
    pub fn wait_ready(&self, name: &str) -> Result<()> {
        self.wait(&format!("Shim {name} to be Ready"), ROLLOUT, || {
            let shim = self.get("shim", name)?.unwrap_or_default();
            let current = shim["status"]["observedGeneration"] == shim["metadata"]["generation"];
            Ok((current && ready_reason(&shim) == "Ready").then_some(()))
        })
    }

    /// Deletes Shims and waits until they are gone.
    pub fn remove(&self, names: &[&str]) -> Result<()> {
        self.cluster.kubectl(&[&["delete", "shim", "--wait=false"], names].concat())?;
        for name in names {
            self.wait(&format!("Shim {name} to be gone"), ROLLOUT, || {
                Ok(self.get("shim", name)?.is_none().then_some(()))
            })?;
        }
        Ok(())
    }

    /// How often containerd was started on each node.
    pub fn starts(&self) -> Result<BTreeMap<String, usize>> {
        self.cluster.nodes().iter().map(|node| Ok((node.name().to_owned(), node.containerd_starts()?))).collect()
    }

    /// Waits for the phase of a pod.
    pub fn wait_for_pod(&self, name: &str, phase: &str) -> Result<Value> {
        self.wait(&format!("pod {name} to be {phase}"), Duration::from_secs(60), || {
            Ok(self.get("pod", name)?.filter(|pod| pod["status"]["phase"] == phase))
        })
    }

    /// Puts the controller into the cluster, if it is not there.
    pub fn init(&self) -> Result<()> {
        self.shim_ok(&["init", "--image", &self.image, "--wait", "--timeout", "60s"]).map(drop)
    }
}

/// Reason of the Ready condition.
fn ready_reason(shim: &Value) -> &str {
    let conditions = shim["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
    ready.and_then(|condition| condition["reason"].as_str()).unwrap_or_default()
}

fn wasm_context() -> Result<PathBuf> {
    let context = target_dir().join("lab/wasm");
    fs::create_dir_all(&context)?;
    for module in ["hello.wat", "tick.wat"] {
        fs::copy(workspace().join("tests/wasmi-shim/modules").join(module), context.join(module))?;
    }
    let file = "FROM scratch\nCOPY hello.wat tick.wat /\nENTRYPOINT [\"/hello.wat\"]\n";
    fs::write(context.join("Containerfile"), file)?;
    Ok(context)
}

fn answer(command: &mut Command, input: &str) -> Result<Answer> {
    use std::io::Write;
    let shown = format!("{command:?}");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("{shown} can't be started"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that does not read its input closes it; that is no error here.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output()?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Answer { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) })
}
