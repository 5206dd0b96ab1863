//! Where things are: what is built once, and what a running cluster writes.

use std::path::{Path, PathBuf};

/// The two folders of the cluster under cargo's target directory: `cluster/cache` (kept) and `cluster/run` (gone after `down`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    target: PathBuf,
}

impl Paths {
    /// Paths under `target`, which is cargo's target directory.
    pub fn new(target: impl Into<PathBuf>) -> Self {
        Self { target: target.into() }
    }

    /// Paths under the target directory of this checkout: `CARGO_TARGET_DIR`, else `target` of the workspace.
    pub fn of_this_workspace() -> Self {
        let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(default, PathBuf::from);
        // Mounts are listed by absolute path: a relative or dotted one would never match them.
        Self::new(normal(&target))
    }

    /// What is built once and kept.
    pub fn cache(&self) -> PathBuf {
        self.target.join("cluster/cache")
    }

    /// What the running cluster writes; `down` removes it.
    pub fn run(&self) -> PathBuf {
        self.target.join("cluster/run")
    }

    /// The folder of one cached item's files.
    pub(crate) fn layer(&self, item: &str) -> PathBuf {
        self.cache().join(item).join("root")
    }

    /// The program with etcd, the control plane, kubelet and kubectl.
    pub fn kube(&self) -> PathBuf {
        self.layer("kube").join("usr/local/bin/kube")
    }

    /// The program that plays kubelets.
    pub(crate) fn kwok(&self) -> PathBuf {
        self.layer("kwok").join("usr/local/bin/kwok")
    }

    /// Kubeconfig of the administrator, for use inside the cluster's network namespace.
    pub fn kubeconfig(&self) -> PathBuf {
        self.run().join("admin.kubeconfig")
    }

    /// Kubeconfig of the administrator, through the door on the machine's loopback.
    pub fn loopback_kubeconfig(&self) -> PathBuf {
        self.run().join("loopback.kubeconfig")
    }

    /// The log of a control plane part, or of a node's machine (its console) by the node's name.
    pub fn log(&self, name: &str) -> PathBuf {
        self.run().join("log").join(format!("{name}.log"))
    }

    pub(crate) fn pki(&self, file: &str) -> PathBuf {
        self.run().join("pki").join(file)
    }

    pub(crate) fn node(&self, name: &str) -> PathBuf {
        self.run().join("node").join(name)
    }
}

fn normal(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    absolute.components().fold(PathBuf::new(), |mut done, part| {
        match part {
            std::path::Component::ParentDir => done.pop(),
            other => {
                done.push(other);
                true
            }
        };
        done
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dotted_path_becomes_the_one_that_mounts_are_listed_by() {
        assert_eq!(normal(Path::new("/a/tests/cluster/../../target")), Path::new("/a/target"));
    }

    #[test]
    fn kube_is_at_its_place_in_a_nodes_root() {
        assert_eq!(Paths::new("/t").kube(), Path::new("/t/cluster/cache/kube/root/usr/local/bin/kube"));
    }
}
