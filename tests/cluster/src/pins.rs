//! Every version that the cluster is made of. Kubernetes and etcd are pinned by `kube/go.mod` (`kube/update` writes it).

/// A line of containerd releases that a node can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Containerd {
    /// 1.6, configuration version 2.
    V1_6,
    /// 1.7, configuration version 2, restarts pods of shims that don't answer `Pids`.
    V1_7,
    /// 2.2, configuration version 3.
    V2_2,
    /// 2.4, configuration version 4 known.
    V2_4,
}

/// Where a line's binaries come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The package of the base root file system.
    Base,
    /// The package of another suite, unpacked over the base.
    Suite(&'static str),
    /// Built from containerd's Go module at this version.
    GoModule(&'static str),
}

impl Containerd {
    /// The lines in the order in which nodes get them.
    pub const ALL: [Self; 4] = [Self::V1_6, Self::V1_7, Self::V2_2, Self::V2_4];

    /// `MAJOR.MINOR`.
    pub fn line(self) -> &'static str {
        match self {
            Self::V1_6 => "1.6",
            Self::V1_7 => "1.7",
            Self::V2_2 => "2.2",
            Self::V2_4 => "2.4",
        }
    }

    pub(crate) fn source(self) -> Source {
        match self {
            Self::V1_6 => Source::Base,
            Self::V1_7 => Source::Suite("trixie"),
            Self::V2_2 => Source::GoModule("2.2.9"),
            Self::V2_4 => Source::GoModule("2.4.2"),
        }
    }

    /// The name of the cached layer over the base; none for the base's own containerd.
    pub(crate) fn layer(self) -> Option<String> {
        (self.source() != Source::Base).then(|| format!("containerd-{}", self.line()))
    }
}

/// kwok, which plays the kubelets of nodes that are objects only.
pub(crate) const KWOK: &str = "0.8.0";

/// The suite of every node's root file system. Newer ones have a systemd that refuses cgroup v1, so newer containerds go over this one.
pub(crate) const BASE_SUITE: &str = "bookworm";

/// What a node's root file system has beside the essential packages.
pub(crate) const BASE_PACKAGES: &[&str] = &[
    "systemd",
    "systemd-sysv",
    "dbus",
    "containerd",
    "runc",
    "containernetworking-plugins",
    "iproute2",
    "iptables",
    "kmod",
    "mount",
    "ca-certificates",
    "procps",
];

/// Debian packages that this machine needs, for the cluster and for building what runs on it.
pub const PACKAGES: &[&str] = &[
    "buildah",
    "busybox-static",
    "ca-certificates",
    "debian-archive-keyring",
    "docker-registry",
    "gcc",
    "iproute2",
    "iptables",
    "libc6-dev",
    "libseccomp-dev",
    "mmdebstrap",
    "openssl",
    "pkg-config",
    "procps",
    "protobuf-compiler",
    "socat",
    "systemd-container",
    "util-linux",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_built_version_is_of_its_line() {
        for containerd in Containerd::ALL {
            if let Source::GoModule(version) = containerd.source() {
                assert!(version.starts_with(&format!("{}.", containerd.line())), "{version}");
            }
        }
    }
}
