//! etcd, the Kubernetes control plane, kubelet and kubectl as one Go program.

use std::fs;
use std::path::Path;

use anyhow::Result;
use sha2::{Digest, Sha256};

use super::cached::Item;
use crate::command::Cmd;

/// The program's files by name; part of this library, so that it can be built from wherever it runs.
const FILES: [(&str, &str); 3] = [
    ("main.go", include_str!("../../kube/main.go")),
    ("go.mod", include_str!("../../kube/go.mod")),
    ("go.sum", include_str!("../../kube/go.sum")),
];

pub(super) fn item() -> Item {
    let title = "building Kubernetes and etcd from their Go modules (11 minutes the first time)";
    Item { name: "kube".into(), stamp: stamp(), title: title.into(), make: Box::new(build) }
}

fn build(root: &Path) -> Result<()> {
    let source = root.with_file_name("source");
    fs::create_dir_all(&source)?;
    for (name, text) in FILES {
        fs::write(source.join(name), text)?;
    }
    let build = Cmd::new("go").words("build -trimpath -buildvcs=false -ldflags").arg(flags());
    build.arg("-o").arg(root.join("usr/local/bin/kube")).arg(".").dir(&source).hide_hosts().run()?;
    Ok(fs::remove_dir_all(source)?)
}

/// Kubernetes' release, as pinned.
fn version() -> &'static str {
    let pins = FILES[1].1.split_whitespace();
    pins.skip_while(|&word| word != "k8s.io/kubernetes").nth(1).unwrap_or("v0.0.0")
}

/// Kubernetes takes its version from its own release scripts; without them it would report `v0.0.0-master+$Format:%H$`.
fn flags() -> String {
    let version = version();
    let (major, minor) = version.trim_start_matches('v').split_once('.').unwrap_or_default();
    let minor = minor.split('.').next().unwrap_or_default();
    let values = [("gitVersion", version), ("gitMajor", major), ("gitMinor", minor), ("gitTreeState", "clean")];
    let packages = ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"];
    let set = packages.iter().flat_map(|package| values.map(|(name, value)| format!(" -X {package}.{name}={value}")));
    set.fold("-s -w".to_owned(), |flags, one| flags + &one)
}

fn stamp() -> String {
    let mut hash = Sha256::new();
    hash.update(flags());
    for (name, text) in FILES {
        hash.update(format!("{name} {}\n{text}", text.len()));
    }
    format!("{:x}", hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stamp_is_a_digest_of_the_files() {
        assert_eq!(stamp().len(), 64);
    }

    #[test]
    fn kubernetes_reports_the_pinned_version() {
        let version = version();
        assert!(version.starts_with("v1."), "{version}");
        assert!(flags().contains(&format!(" -X k8s.io/component-base/version.gitVersion={version} ")));
        assert!(!flags().contains(".gitMinor= "));
    }
}
