//! One laboratory for all tests, and what they all ask of it.
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use shim_cluster::Node;
pub(crate) use shim_e2e::ROLLOUT;
use shim_e2e::{Answer, Lab, Profile, Reporter, wasm_pod};

static LAB: OnceLock<Mutex<Lab>> = OnceLock::new();

/// A test's hold on the laboratory, and what the nodes looked like before.
pub(crate) struct Session {
    lab: MutexGuard<'static, Lab>,
    before: BTreeMap<String, Files>,
    started: Instant,
}

/// Path → content, of everything on a node that the installer may touch.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// Takes the laboratory; the controller runs and there is no Shim.
pub(crate) fn session() -> Session {
    let lab = LAB.get_or_init(|| {
        Mutex::new(Lab::start(Profile::Dev, &Reporter::stderr()).expect("the laboratory can't be set up"))
    });
    let lab = lab.lock().unwrap_or_else(PoisonError::into_inner);
    lab.init().expect("kubectl shim init failed");
    clear(&lab).expect("what an earlier test left can't be cleared");
    let before = snapshot(&lab).expect("the nodes can't be read");
    Session { lab, before, started: Instant::now() }
}

impl std::ops::Deref for Session {
    type Target = Lab;
    fn deref(&self) -> &Lab {
        &self.lab
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        println!("took {} s", self.started.elapsed().as_secs());
    }
}

/// No pods of tests, no Shims.
fn clear(lab: &Lab) -> Result<()> {
    lab.cluster.kubectl(&["delete", "pods", "-l", "app=wasm", "--wait=true", "--timeout=60s"])?;
    lab.cluster.kubectl(&["delete", "shims", "--all", "--wait=true", "--timeout=180s"]).map(drop)
}

fn snapshot(lab: &Lab) -> Result<BTreeMap<String, Files>> {
    lab.cluster.nodes().iter().map(|node| Ok((node.name().to_owned(), files_of(node)?))).collect()
}

/// What the installer may touch on a node.
pub(crate) fn files_of(node: &Node) -> Result<Files> {
    let mut files = Files::new();
    for folder in ["etc/containerd", "opt"] {
        collect(&node.root(), &node.root().join(folder), &mut files)?;
    }
    Ok(files)
}

fn collect(root: &Path, path: &Path, files: &mut Files) -> Result<()> {
    let name = path.strip_prefix(root)?.display().to_string();
    if path.is_symlink() {
        files.insert(name, fs::read_link(path)?.display().to_string().into_bytes());
    } else if path.is_dir() {
        files.insert(name + "/", Vec::new());
        for entry in fs::read_dir(path)? {
            collect(root, &entry?.path(), files)?;
        }
    } else {
        files.insert(name, fs::read(path)?);
    }
    Ok(())
}

impl Session {
    /// Deletes a Shim and waits until it is gone; then every node must be as it was before the test.
    pub(crate) fn remove_and_compare(&self, names: &[&str]) -> Result<()> {
        self.remove(names)?;
        for name in names {
            ensure!(self.get("runtimeclass", name)?.is_none(), "RuntimeClass {name} is still there");
        }
        self.compare()
    }

    /// Every node must be as it was before the test.
    pub(crate) fn compare(&self) -> Result<()> {
        let now = snapshot(&self.lab)?;
        for (node, before) in &self.before {
            let names = |files: &Files| files.keys().cloned().collect::<Vec<_>>();
            ensure!(
                names(&now[node]) == names(before),
                "{node} has other files: {:?}, not {:?}",
                names(&now[node]),
                names(before)
            );
            let changed: Vec<_> = before
                .iter()
                .filter(|(name, content)| now[node].get(*name) != Some(content))
                .map(|(name, _)| name)
                .collect();
            ensure!(changed.is_empty(), "{node} has other content in {changed:?}");
        }
        Ok(())
    }

    /// Forgets how a node looked: the test has replaced it.
    pub(crate) fn replaced(&mut self, node: &Node) -> Result<()> {
        self.before.insert(node.name().to_owned(), files_of(node)?);
        Ok(())
    }

    /// Runs hello.wat on each node and expects its line.
    pub(crate) fn hello_everywhere(&self, class: &str) -> Result<()> {
        let nodes = self.cluster.nodes();
        for node in &nodes {
            self.apply(&wasm_pod(&hello(node), node.name(), class, &self.wasm_image, "/hello.wat"))?;
        }
        for node in &nodes {
            self.wait_for_pod(&hello(node), "Succeeded")?;
            let said = self.cluster.kubectl(&["logs", &hello(node)])?;
            ensure!(said == "hello from wasm\n", "{} said {said:?}", node.name());
        }
        self.cluster.kubectl(&["delete", "pods", "-l", "app=wasm", "--field-selector=status.phase=Succeeded"]).map(drop)
    }

    /// Starts tick.wat on each node and waits until it runs.
    pub(crate) fn tick_everywhere(&self, class: &str) -> Result<()> {
        for node in self.cluster.nodes() {
            self.apply(&wasm_pod(&tick(&node), node.name(), class, &self.wasm_image, "/tick.wat"))?;
        }
        for node in self.cluster.nodes() {
            self.wait_for_pod(&tick(&node), "Running")?;
        }
        Ok(())
    }

    /// Polls `kubectl shim status NAME` until it says all of `words`.
    pub(crate) fn status_says(&self, name: &str, words: &[&str], limit: Duration) -> Result<Answer> {
        self.wait(&format!("status of {name} to say {words:?}"), limit, || {
            let answer = self.shim(&["status", name])?;
            let all = format!("{}{}", answer.stdout, answer.stderr);
            Ok(words.iter().all(|word| all.contains(word)).then_some(answer))
        })
    }

    /// The value of our label on a node.
    pub(crate) fn label(&self, node: &str, shim: &str) -> Result<Option<String>> {
        let node = self.get("node", node)?.unwrap_or_default();
        Ok(node["metadata"]["labels"][format!("shim.dev/{shim}")].as_str().map(str::to_owned))
    }
}

/// Name of the pod that says hello on a node.
pub(crate) fn hello(node: &Node) -> String {
    format!("hello-{}", node.name())
}

/// Name of the pod that ticks on a node.
pub(crate) fn tick(node: &Node) -> String {
    format!("tick-{}", node.name())
}
