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
    let uri = format!("{}/{VERSION}/{name}", options.base_url);
    let sha256 = format!("\"{sha256}\"");
    let values = [("version", VERSION), ("os", os), ("arch", arch), ("uri", &uri), ("sha256", &sha256)];
    fs::write(dist.join("shim.yaml"), fill(&template, &values))?;
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

/// The template with these values in place of its own.
fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let line = |line: &str| {
        let (indent, text) = line.split_at(line.len() - line.trim_start().len());
        let key = text.split_once(": ").map(|(key, _)| key);
        match values.iter().find(|(name, _)| Some(*name) == key) {
            Some((name, value)) => format!("{indent}{name}: {value}\n"),
            None => format!("{line}\n"),
        }
    };
    template.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_is_that_of_the_platform() {
        let values = [("version", "v9"), ("os", "darwin"), ("arch", "arm64"), ("uri", "https://x/a"), ("sha256", "ab")];
        let filled = fill(include_str!("../../krew-manifest.yaml"), &values);
        let lines: Vec<_> = filled.lines().collect();
        for line in [
            "  version: v9",
            "        os: darwin",
            "        arch: arm64",
            "    uri: https://x/a",
            "    sha256: ab",
            "    bin: kubectl-shim",
        ] {
            assert_eq!(lines.iter().filter(|found| **found == line).count(), 1, "{line}: {filled}");
        }
    }
}
