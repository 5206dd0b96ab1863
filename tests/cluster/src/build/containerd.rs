//! containerd and its runc shim from containerd's Go module.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::cached::Item;
use crate::command::Cmd;

const MODULE: &str = "github.com/containerd/containerd/v2";

pub(super) fn item(name: String, version: &'static str) -> Item {
    let title = format!("building containerd {version} from its Go module (3 minutes)");
    Item { name, stamp: version.into(), title, make: Box::new(move |root| build(root, version)) }
}

fn build(root: &Path, version: &str) -> Result<()> {
    let bin = root.join("usr/bin");
    fs::create_dir_all(&bin)?;
    // Without cgo the binaries need nothing of the root file system that they are put into.
    let install = Cmd::new("go").env("CGO_ENABLED", "0").env("GOBIN", &bin).arg("install").arg("-trimpath");
    // The tags leave out snapshotters that need C libraries.
    let install = install.words("-tags no_btrfs,no_devmapper,no_zfs").arg("-ldflags").arg(flags(version));
    let commands = ["containerd", "containerd-shim-runc-v2"];
    install.args(commands.map(|name| format!("{MODULE}/cmd/{name}@v{version}"))).hide_hosts().run()?;
    Ok(())
}

/// `go install` knows no version to put in; a node would report `2.x.y+unknown`.
fn flags(version: &str) -> String {
    format!("-s -w -X {MODULE}/version.Version={version}")
}
