//! Root file systems and packages from the Debian archive that this machine uses.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::cached::Item;
use crate::command::Cmd;
use crate::pins::{BASE_PACKAGES, BASE_SUITE};

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The root file system below every node.
pub(super) fn base() -> Item {
    let title = format!("making a Debian {BASE_SUITE} root file system (1 minute)");
    Item { name: BASE_SUITE.into(), stamp: BASE_PACKAGES.join(","), title, make: Box::new(bootstrap) }
}

fn bootstrap(root: &Path) -> Result<()> {
    let include = format!("--include={}", BASE_PACKAGES.join(","));
    let make = Cmd::new("mmdebstrap").args(["--variant=minbase", &include, BASE_SUITE]).arg(root).arg("-");
    make.stdin(source_line(&archive()?, BASE_SUITE)).hide_hosts().run()?;
    Ok(())
}

/// The containerd of another suite as a layer over the base.
pub(super) fn containerd(name: String, suite: &'static str) -> Item {
    let title = format!("fetching Debian {suite}'s containerd");
    Item { name, stamp: suite.into(), title, make: Box::new(move |root| unpack(root, suite, "containerd")) }
}

fn unpack(root: &Path, suite: &str, package: &str) -> Result<()> {
    let apt = root.with_file_name("apt");
    Cmd::new("dpkg-deb").arg("-x").arg(download(&apt, suite, package)?).arg(root).run()?;
    merge_usr(root)?;
    Ok(fs::remove_dir_all(apt)?)
}

/// Downloads a suite's package by an apt of its own, so that this machine's package lists stay as they are.
fn download(apt: &Path, suite: &str, package: &str) -> Result<PathBuf> {
    for dir in ["state/lists/partial", "cache/archives/partial", "download"] {
        fs::create_dir_all(apt.join(dir))?;
    }
    fs::write(apt.join("sources.list"), source_line(&archive()?, suite))?;
    let options = [
        format!("Dir::State={}", apt.join("state").display()),
        format!("Dir::Cache={}", apt.join("cache").display()),
        format!("Dir::Etc::sourcelist={}", apt.join("sources.list").display()),
        "Dir::Etc::sourceparts=/dev/null".to_owned(),
        "Dir::State::status=/dev/null".to_owned(),
        // apt's unprivileged helper can't write below a folder that only root enters.
        "APT::Sandbox::User=root".to_owned(),
    ];
    let get =
        || options.iter().fold(Cmd::new("apt-get").arg("-q"), |cmd, option| cmd.arg("-o").arg(option)).hide_hosts();
    get().arg("update").run()?;
    get().args(["download", package]).dir(&apt.join("download")).run()?;
    let found = fs::read_dir(apt.join("download"))?.next().context("apt-get downloaded nothing")??;
    Ok(found.path())
}

/// A real `/lib` in a layer would hide the base's link to `/usr/lib` with everything behind it.
fn merge_usr(root: &Path) -> Result<()> {
    for dir in ["bin", "sbin", "lib", "lib64"].map(|name| root.join(name)) {
        if dir.is_dir() {
            Cmd::new("cp").arg("-a").arg(&dir).arg(root.join("usr")).run()?;
            fs::remove_dir_all(dir)?;
        }
    }
    Ok(())
}

fn source_line(archive: &str, suite: &str) -> String {
    format!("deb [signed-by={KEYRING}] {archive} {suite} main\n")
}

/// Where Debian comes from: `DEBIAN_MIRROR`, else what this machine's own apt uses.
fn archive() -> Result<String> {
    if let Ok(mirror) = std::env::var("DEBIAN_MIRROR") {
        return Ok(mirror);
    }
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    if let Ok(entries) = fs::read_dir("/etc/apt/sources.list.d") {
        files.extend(entries.flatten().map(|entry| entry.path()));
    }
    files.sort();
    let texts: Vec<String> = files.iter().flat_map(fs::read_to_string).collect();
    match texts.iter().find_map(|text| archive_of(text)) {
        Some(archive) => Ok(archive),
        None => bail!("found no Debian archive in /etc/apt; set DEBIAN_MIRROR to the address of one"),
    }
}

/// The first Debian archive that an apt sources file names, in either of its two formats.
fn archive_of(text: &str) -> Option<String> {
    let addresses = text.lines().filter_map(|line| {
        let line = line.trim();
        let words = line.strip_prefix("URIs:").or_else(|| line.strip_prefix("deb "))?;
        words.split_whitespace().find(|word| word.contains("://"))
    });
    // A machine that runs a derivative names the derivative's archive, which has none of our suites.
    addresses
        .map(|address| address.trim_end_matches('/'))
        .find(|address| address.ends_with("/debian"))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_of_apt_sources_are_read() {
        let new = "Types: deb\nURIs: https://a.example/debian/\nSuites: bookworm\n";
        assert_eq!(archive_of(new).as_deref(), Some("https://a.example/debian"));
        let old = "# deb http://no.example/debian x main\ndeb [arch=amd64] http://b.example/debian bookworm main\n";
        assert_eq!(archive_of(old).as_deref(), Some("http://b.example/debian"));
    }

    #[test]
    fn other_archives_are_passed_over() {
        assert_eq!(archive_of("deb https://c.example/node_22.x nodistro main"), None);
        assert_eq!(archive_of("URIs: https://d.example/debian-security"), None);
    }
}
