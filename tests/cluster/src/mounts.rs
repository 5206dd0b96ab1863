//! Mounts below a folder: made, listed and removed.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};

/// Mounts an overlay of `layers`, the uppermost first, on `merged`.
pub(crate) fn overlay(layers: &[PathBuf], upper: &Path, work: &Path, merged: &Path) -> Result<()> {
    let lower = layers.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(":");
    let options = format!("lowerdir={lower},upperdir={},workdir={}", upper.display(), work.display());
    let options = CString::new(options)?;
    mount("overlay", merged, "overlay", MountFlags::empty(), Some(options.as_c_str()))
        .with_context(|| format!("cannot mount an overlay on {}", merged.display()))
}

/// Shows `from` at `to` as well.
pub(crate) fn bind(from: &Path, to: &Path) -> Result<()> {
    mount_bind(from, to).with_context(|| format!("cannot mount {} on {}", from.display(), to.display()))
}

/// All mounts on or below `dir`, the last made first, which is the order to remove them in.
pub(crate) fn below(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = points(&fs::read("/proc/self/mountinfo")?);
    found.retain(|point| point.starts_with(dir));
    found.reverse();
    Ok(found)
}

/// Removes all mounts on or below `dir`.
pub(crate) fn remove_below(dir: &Path) -> Result<()> {
    for point in below(dir)? {
        // Detached: what a dying process still holds open goes with that process.
        unmount(&point, UnmountFlags::DETACH).with_context(|| format!("cannot unmount {}", point.display()))?;
    }
    Ok(())
}

/// The mount points of a mountinfo text, in its order.
fn points(mountinfo: &[u8]) -> Vec<PathBuf> {
    let lines = mountinfo.split(|&byte| byte == b'\n');
    lines.filter_map(|line| line.split(|&byte| byte == b' ').nth(4)).map(unescaped).collect()
}

/// The kernel writes spaces and the like as a backslash and three octal digits.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let digits = (first == b'\\').then(|| tail.get(..3)).flatten();
        let octal = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(octal.unwrap_or(first));
        rest = if octal.is_some() { &tail[3..] } else { tail };
    }
    PathBuf::from(std::ffi::OsStr::from_bytes(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_with_their_spaces() {
        let text = b"36 35 98:0 /mnt1 /a\\040b/c rw - ext3 /dev/root rw\n37 36 0:5 / /a rw - tmpfs tmpfs rw\n";
        assert_eq!(points(text), [Path::new("/a b/c"), Path::new("/a")]);
    }

    #[test]
    fn a_folder_with_the_same_beginning_is_not_below() {
        assert!(below(Path::new("/pro")).unwrap().is_empty());
        assert!(below(Path::new("/proc")).unwrap().contains(&PathBuf::from("/proc")));
    }
}
