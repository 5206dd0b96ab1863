//! `cargo xtask dist`: release archives, the krew manifest, the image's folder.
use std::{
    fs::{self, File},
    path::Path,
};

use anyhow::{Context, Result};
use clap::Args;
use flate2::{Compression, GzBuilder};
use sha2::{Digest, Sha256};
use shim_core::names::hex;
use shim_e2e::{Profile, Reporter, image_context, product, target_dir, workspace};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Address of the folder that the archives will be downloaded from
    #[arg(long, default_value = "https://github.com/kubectl-shim/kubectl-shim/releases/download")]
    base_url: String,
}

const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

pub(crate) fn run(options: &Options, report: &Reporter) -> Result<()> {
    let product = product(Profile::Release, report)?;
    let dist = target_dir().join("dist");
    fs::create_dir_all(&dist)?;
    let (os, arch) = platform()?;
    let name = format!("kubectl-shim_{VERSION}_{os}_{arch}.tar.gz");
    archive(&dist.join(&name), &product.plugin)?;
    let sha256 = hex(&Sha256::digest(fs::read(dist.join(&name))?));
    let template = fs::read_to_string(workspace().join("krew-manifest.yaml"))?;
    let manifest = fill(&template, &format!("{}/{VERSION}/{name}", options.base_url), &sha256);
    fs::write(dist.join("shim.yaml"), manifest)?;
    let context = image_context(&product)?;
    println!(
        "{}\n{}\nimage folder: {}",
        dist.join(name).display(),
        dist.join("shim.yaml").display(),
        context.display()
    );
    Ok(())
}

/// As Go names it.
fn platform() -> Result<(&'static str, &'static str)> {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => anyhow::bail!("krew has no platform for {other}"),
    };
    Ok((if std::env::consts::OS == "macos" { "darwin" } else { std::env::consts::OS }, arch))
}

/// The same bytes for the same content: owners, times and order are fixed.
fn archive(path: &Path, plugin: &Path) -> Result<()> {
    let gzip = GzBuilder::new().mtime(0).write(File::create(path)?, Compression::best());
    let mut tar = tar::Builder::new(gzip);
    for (name, file, mode) in
        [("LICENSE", workspace().join("LICENSE"), 0o644), ("kubectl-shim", plugin.to_owned(), 0o755)]
    {
        let content = fs::read(&file).with_context(|| file.display().to_string())?;
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(mode);
        header.set_mtime(0);
        tar.append_data(&mut header, name, &content[..])?;
    }
    tar.into_inner()?.finish()?;
    Ok(())
}

fn fill(template: &str, uri: &str, sha256: &str) -> String {
    let line = |line: &str| match line.trim_start().split_once(": ") {
        Some(("version", _)) => format!("  version: {VERSION}\n"),
        Some(("uri", _)) => format!("    uri: {uri}\n"),
        Some(("sha256", _)) => format!("    sha256: {sha256}\n"),
        _ => format!("{line}\n"),
    };
    template.lines().map(line).collect()
}
