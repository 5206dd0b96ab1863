//! The binary into its directory, and the link onto it; and back again.
use std::{fs::File, io, os::unix::fs::PermissionsExt as _};

use rustix::fs::{StatVfs, StatVfsMountFlags, statvfs};
use shim_core::{
    names::{Build, ShimName},
    report::{Failure, Reason, Step},
    task::SHIM_DIR,
};

use super::{
    artifact::{Artifact, digest},
    context::{Context, OrFail as _},
};
use crate::{deadline::Deadline, host::Host};

/// Directory of a Shim.
pub fn directory(shim: &ShimName) -> String {
    format!("{SHIM_DIR}/{shim}")
}

/// Directory of one build of a Shim.
pub fn build_directory(shim: &ShimName, build: &Build) -> String {
    format!("{SHIM_DIR}/{shim}/{build}")
}

/// The link to the build in force.
pub fn link(shim: &ShimName) -> String {
    format!("{SHIM_DIR}/{shim}/current")
}

/// What containerd is told to run: always through the link, so that an upgrade needs no restart, and so that no path
/// that a running sandbox has recorded ever vanishes.
pub fn runtime_type(shim: &ShimName) -> String {
    format!("{}/{}", link(shim), file_name(shim))
}

fn file_name(shim: &ShimName) -> String {
    format!("containerd-shim-{shim}-v1")
}

/// Checks that our directory can take the binary and that the node can run it there.
pub fn preflight(host: &Host, artifact: &Artifact) -> Result<(), Failure> {
    artifact.check_platform()?;
    let unusable = |message: String| Failure::new(Step::Preflight, Reason::DirectoryUnusable, message);
    let missing = host.missing_directories(SHIM_DIR);
    let nearest = missing.first().map_or(SHIM_DIR, |first| first.rsplit_once('/').map_or("/", |(above, _)| above));
    let nearest = if nearest.is_empty() { "/" } else { nearest };
    let volume = statvfs(host.path(nearest)).map_err(|error| unusable(format!("{nearest}: {error}")))?;
    let size = artifact.size().map_err(|error| unusable(error.to_string()))?;
    usable(&volume, size).map_err(|why| unusable(format!("{nearest} {why}")))
}

fn usable(volume: &StatVfs, size: u64) -> Result<(), String> {
    if volume.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Err("is on a read-only file system".to_owned());
    }
    if volume.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Err("is on a file system mounted noexec".to_owned());
    }
    let free = volume.f_bavail.saturating_mul(volume.f_frsize);
    // Twice: the node must not be full because of us.
    if free < size.saturating_mul(2) {
        return Err(format!("has {} MiB left, {} MiB are needed", free >> 20, size >> 19));
    }
    Ok(())
}

/// Puts the binary into the directory of its build and runs it once. Nothing refers to it yet.
pub fn place(
    context: &Context<'_>,
    shim: &ShimName,
    build: &Build,
    artifact: &Artifact,
    deadline: &Deadline,
) -> Result<(), Failure> {
    let host = context.host;
    let directory = build_directory(shim, build);
    let path = format!("{directory}/{}", file_name(shim));
    host.make_directory(&directory).or_fail(Step::Place, Reason::DirectoryUnusable)?;
    if !is_there(host, &path, artifact).or_fail(Step::Place, Reason::DirectoryUnusable)? {
        let copied = host.write_program(&path, |file| artifact.copy_to(file));
        copied.or_fail(Step::Place, Reason::DirectoryUnusable)?;
    }
    context.run(&path, &["-v"], deadline, Step::Place, Reason::BinaryDoesNotRun).map(drop)
}

fn is_there(host: &Host, path: &str, artifact: &Artifact) -> io::Result<bool> {
    match File::open(host.path(path)) {
        Ok(file) => {
            let executable = file.metadata()?.permissions().mode() & 0o111 == 0o111;
            Ok(executable && digest(file)? == artifact.sha256.as_str())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes the link point to `build`, or takes it away.
pub fn switch(host: &Host, shim: &ShimName, build: Option<&Build>) -> Result<(), crate::host::HostError> {
    let link = link(shim);
    match build {
        Some(build) if host.read_link(&link)?.as_deref() == Some(build.as_str()) => Ok(()),
        Some(build) => host.link(&link, build.as_str()),
        None => host.remove(&link),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(flags: StatVfsMountFlags, free: u64) -> StatVfs {
        let mut volume = statvfs("/").unwrap();
        (volume.f_flag, volume.f_bavail, volume.f_frsize) = (flags, free, 1);
        volume
    }

    #[test]
    fn a_directory_must_be_writable_executable_and_roomy() {
        let fine = StatVfsMountFlags::empty();
        assert_eq!(usable(&volume(fine, 200), 100), Ok(()));
        assert!(usable(&volume(fine, 199), 100).unwrap_err().contains("are needed"));
        assert!(usable(&volume(StatVfsMountFlags::RDONLY, 200), 100).unwrap_err().contains("read-only"));
        assert!(usable(&volume(StatVfsMountFlags::NOEXEC, 200), 100).unwrap_err().contains("noexec"));
    }

    #[test]
    fn a_handler_names_its_shim_through_the_link() {
        assert_eq!(runtime_type(&"spin".parse().unwrap()), "/opt/shim/spin/current/containerd-shim-spin-v1");
    }
}
