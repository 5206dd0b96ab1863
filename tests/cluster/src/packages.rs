//! The Debian packages that this machine needs.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::command::Cmd;
use crate::pins::PACKAGES;
use crate::report::Reporter;

/// Installs what is missing of [`PACKAGES`]; touches nothing when all are there. Needs root and apt.
pub fn install_packages(report: &Reporter) -> Result<()> {
    let missing = missing(PACKAGES)?;
    if missing.is_empty() {
        return Ok(());
    }
    report.step(&format!("installing Debian packages: {}", missing.join(" ")), || {
        let apt = || Cmd::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").arg("-q").hide_hosts();
        apt().arg("update").run()?;
        apt().args(["install", "--yes", "--no-install-recommends"]).args(&missing).run()?;
        Ok(())
    })
}

/// Unpacks a Debian package into a folder, once, without installing it: none of its services starts. Needs apt.
pub fn unpack_package(package: &str, folder: &Path, report: &Reporter) -> Result<()> {
    if folder.exists() {
        return Ok(());
    }
    report.step(&format!("unpacking the Debian package {package}"), || {
        // An unpacking that was broken off must not be taken for a whole one.
        let half = folder.with_extension("half");
        if half.exists() {
            fs::remove_dir_all(&half)?;
        }
        fs::create_dir_all(&half)?;
        let apt = || Cmd::new("apt-get").arg("-q").hide_hosts().dir(&half);
        apt().arg("update").run()?;
        apt().args(["download", package]).run()?;
        let archive = fs::read_dir(&half)?.next().context("apt-get download left no file")??.path();
        Cmd::new("dpkg-deb").arg("-x").args([&archive, &half]).run()?;
        fs::remove_file(archive)?;
        Ok(fs::rename(&half, folder)?)
    })
}

fn missing<'a>(packages: &[&'a str]) -> Result<Vec<&'a str>> {
    // It exits with 1 when it does not know one of the names, and lists the others all the same.
    let output =
        Cmd::new("dpkg-query").args(["-W", "-f", "${db:Status-Abbrev} ${Package}\n"]).args(packages).output()?;
    Ok(not_listed(packages, &String::from_utf8_lossy(&output.stdout)))
}

fn not_listed<'a>(packages: &[&'a str], listing: &str) -> Vec<&'a str> {
    let listed: Vec<&str> = listing.lines().filter_map(|line| line.strip_prefix("ii ")).map(str::trim).collect();
    packages.iter().copied().filter(|package| !listed.contains(package)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_installed_packages_count() {
        let listing = "ii  socat\nrc  openssl\nun  buildah\n";
        assert_eq!(not_listed(&["socat", "openssl", "buildah", "gcc"], listing), ["openssl", "buildah", "gcc"]);
    }
}
