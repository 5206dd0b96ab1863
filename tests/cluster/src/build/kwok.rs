//! kwok, which plays kubelets, from its Go module.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::cached::Item;
use crate::command::Cmd;
use crate::pins::KWOK;

pub(super) fn item() -> Item {
    let title = format!("building kwok {KWOK} from its Go module (2 minutes)");
    Item { name: "kwok".into(), stamp: KWOK.into(), title, make: Box::new(build) }
}

fn build(root: &Path) -> Result<()> {
    let bin = root.join("usr/local/bin");
    fs::create_dir_all(&bin)?;
    let install = Cmd::new("go").env("CGO_ENABLED", "0").env("GOBIN", &bin).words("install -trimpath -ldflags");
    install.arg("-s -w").arg(format!("sigs.k8s.io/kwok/cmd/kwok@v{KWOK}")).hide_hosts().run()?;
    Ok(())
}
