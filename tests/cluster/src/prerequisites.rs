//! What this machine must have, all checked before anything is done.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::Result;

use crate::cgroup::CgroupMode;
use crate::command::Cmd;
use crate::paths::Paths;
use crate::pins::PACKAGES;
use crate::report::Reporter;

/// The Go release that `kube/go.mod` asks for.
const GO: (u32, u32) = (1, 26);
/// GiB of disk that building needs the first time, most of it Go's own build cache.
const DISK_COLD: u64 = 10;
/// GiB of disk that a running cluster needs.
const DISK_WARM: u64 = 2;
/// inotify instances that one node takes: systemd, its services, containerd and kubelet (measured).
const INOTIFY_PER_NODE: usize = 15;
/// inotify instances left to the control plane and everything else that root runs.
const INOTIFY_REST: usize = 8;
/// Programs that are run, and come from [`PACKAGES`].
const TOOLS: [&str; 12] = [
    "buildah",
    "busybox",
    "docker-registry",
    "dpkg-deb",
    "ip",
    "iptables",
    "mmdebstrap",
    "nsenter",
    "setsid",
    "socat",
    "sysctl",
    "systemd-nspawn",
];
/// statfs(2)'s number of an overlay.
const OVERLAY: rustix::fs::FsWord = 0x794c_7630;

/// What is missing, each with what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("a cluster can't run here:\n- {}", .0.join("\n- "))]
pub struct Missing(Vec<String>);

/// What was found out about this machine.
struct Machine {
    uid: u32,
    cgroup: Option<CgroupMode>,
    go: Option<String>,
    cargo: Option<String>,
    /// GiB.
    free: u64,
    needed: u64,
    overlay: bool,
    inotify: usize,
    tools: Vec<&'static str>,
    target: String,
}

/// Checks this machine for a cluster of `nodes` nodes.
pub fn check(paths: &Paths, nodes: usize, report: &Reporter) -> Result<()> {
    let machine = look(paths);
    let missing = missing(&machine);
    if !missing.is_empty() {
        return Err(Missing(missing).into());
    }
    if let Some(warning) = too_many(nodes, machine.inotify) {
        report.say(&warning);
    }
    Ok(())
}

fn look(paths: &Paths) -> Machine {
    let cache = paths.cache();
    // The folder itself may not be there yet; the disk is that of the nearest that is.
    let place = cache.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("/"));
    let version = |program: &str, arg: &str| Cmd::new(program).arg(arg).run().ok();
    Machine {
        uid: fs::metadata("/proc/self").map_or(u32::MAX, |meta| meta.uid()),
        cgroup: CgroupMode::detect(),
        go: version("go", "version"),
        cargo: version("cargo", "--version"),
        free: rustix::fs::statvfs(place).map_or(0, |disk| (disk.f_bavail * disk.f_frsize) >> 30),
        needed: if paths.kube().exists() { DISK_WARM } else { DISK_COLD },
        overlay: rustix::fs::statfs(place).is_ok_and(|disk| disk.f_type == OVERLAY),
        inotify: inotify_limit(),
        tools: missing_tools(),
        target: paths.run().display().to_string(),
    }
}

fn inotify_limit() -> usize {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_user_instances");
    limit.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(usize::MAX)
}

fn missing_tools() -> Vec<&'static str> {
    let places = std::env::var_os("PATH").unwrap_or_default();
    let there = |tool: &str| std::env::split_paths(&places).any(|dir| dir.join(tool).exists());
    TOOLS.into_iter().filter(|tool| !there(tool)).collect()
}

fn missing(machine: &Machine) -> Vec<String> {
    [rights(machine), programs(machine), place(machine)].concat()
}

fn rights(machine: &Machine) -> Vec<String> {
    let mut found = Vec::new();
    if machine.uid != 0 {
        found.push("this must run as root: it makes network namespaces, mounts and cgroups".to_owned());
    }
    if machine.cgroup.is_none() {
        found.push(
            "no usable cgroups in /sys/fs/cgroup: mount version 2 there, or version 1 with systemd's named hierarchy"
                .to_owned(),
        );
    }
    found
}

fn programs(machine: &Machine) -> Vec<String> {
    let mut found = Vec::new();
    let go = machine.go.as_deref();
    if go.and_then(go_version).is_none_or(|found| found < GO) {
        let there = go.map_or("none", str::trim);
        found.push(format!("Go {}.{} or newer must be on the PATH, found: {there}", GO.0, GO.1));
    }
    if machine.cargo.is_none() {
        found.push("cargo is not on the PATH".to_owned());
    }
    if !machine.tools.is_empty() {
        let tools = machine.tools.join(", ");
        found.push(format!("tools are missing: {tools}; install these Debian packages: {}", PACKAGES.join(" ")));
    }
    found
}

fn place(machine: &Machine) -> Vec<String> {
    let mut found = Vec::new();
    let (place, free, needed) = (&machine.target, machine.free, machine.needed);
    let other = "set CARGO_TARGET_DIR to another folder";
    if free < needed {
        found.push(format!("{place} is on a disk with {free} GiB free, {needed} needed: make room, or {other}"));
    }
    if machine.overlay {
        found.push(format!("{place} is on an overlay, which can't carry another: {other}, on a plain disk"));
    }
    if place.contains([':', ',']) {
        found.push(format!("{place} has a character that overlay mounts can't take (: or ,): {other}"));
    }
    found
}

/// A warning if so many nodes exceed the limit on inotify instances; beyond it kubelets and containerds fail at their start.
fn too_many(nodes: usize, limit: usize) -> Option<String> {
    let most = limit.saturating_sub(INOTIFY_REST) / INOTIFY_PER_NODE;
    (nodes > most).then(|| {
        let wanted = nodes * INOTIFY_PER_NODE + INOTIFY_REST;
        format!(
            "warning: {nodes} nodes need about {wanted} inotify instances and root may have {limit}, enough for {most} \
             nodes; `sysctl fs.inotify.max_user_instances={wanted}` raises it"
        )
    })
}

/// Major and minor of what `go version` prints.
fn go_version(text: &str) -> Option<(u32, u32)> {
    let version = text.split_whitespace().find_map(|word| word.strip_prefix("go1").map(|rest| format!("1{rest}")))?;
    let mut numbers = version.split('.').map(|part| part.chars().take_while(char::is_ascii_digit).collect::<String>());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Machine {
        Machine {
            uid: 0,
            cgroup: Some(CgroupMode::V2),
            go: Some("go version go1.26.8 linux/amd64\n".into()),
            cargo: Some("cargo 1.95.0".into()),
            free: 50,
            needed: 10,
            overlay: false,
            inotify: 128,
            tools: Vec::new(),
            target: "/t".into(),
        }
    }

    #[test]
    fn nothing_is_missing_on_a_good_machine() {
        assert_eq!(missing(&good()), Vec::<String>::new());
    }

    #[test]
    fn everything_that_is_missing_is_told_at_once() {
        let bad = Machine {
            uid: 1000,
            cgroup: None,
            go: None,
            cargo: None,
            free: 1,
            overlay: true,
            tools: vec!["socat"],
            target: "/a:b".into(),
            ..good()
        };
        assert_eq!(missing(&bad).len(), 8);
    }

    #[test]
    fn an_old_go_is_refused() {
        assert_eq!(go_version("go version go1.26rc1 linux/amd64"), Some((1, 26)));
        let old = Machine { go: Some("go version go1.19.8 linux/amd64".into()), ..good() };
        assert!(missing(&old)[0].contains("Go 1.26") && missing(&old)[0].contains("go1.19.8"));
    }

    #[test]
    fn more_nodes_than_inotify_allows_are_warned_of() {
        assert_eq!(too_many(4, 128), None);
        assert!(too_many(10, 128).unwrap().contains("enough for 8 nodes"));
    }
}
