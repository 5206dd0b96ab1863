//! What is built or fetched once and kept: the kube program, containerds, root file systems.
//!
//! Each is a folder of files that nodes have below each other as layers of an overlay, so nothing is copied when a node boots.

mod cached;
mod containerd;
mod debian;
mod kube;
mod kwok;

use std::path::PathBuf;

use anyhow::Result;

use crate::paths::Paths;
use crate::pins::{BASE_SUITE, Containerd, Source};
use crate::report::Reporter;
pub(crate) use cached::Freshness;
use cached::{Cache, Item};

/// What a cluster's nodes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Machines.
    Real,
    /// Objects, whose kubelets kwok plays.
    Fake,
}

/// Builds what is missing or was built from other pins, for a cluster of machines. Cold it takes about a quarter of an hour, else nothing.
/// A cluster that runs from this checkout must not be up while something is replaced; [`crate::up`] sees to that.
pub fn build(paths: &Paths, report: &Reporter) -> Result<()> {
    build_for(Kind::Real, paths, report)
}

pub(crate) fn build_for(kind: Kind, paths: &Paths, report: &Reporter) -> Result<()> {
    let cache = Cache::open(paths, report)?;
    items(kind).iter().try_for_each(|item| cache.make(item))
}

/// Whether [`build_for`] has nothing to do.
pub(crate) fn freshness(kind: Kind, paths: &Paths) -> Freshness {
    let all_fresh = items(kind).iter().all(|item| item.freshness(&paths.cache()) == Freshness::Fresh);
    if all_fresh { Freshness::Fresh } else { Freshness::Stale }
}

fn items(kind: Kind) -> Vec<Item> {
    match kind {
        Kind::Real => machines(),
        Kind::Fake => vec![kube::item(), kwok::item()],
    }
}

fn machines() -> Vec<Item> {
    let newer = Containerd::ALL.into_iter().filter_map(|containerd| {
        let name = containerd.layer()?;
        match containerd.source() {
            Source::Base => None,
            Source::Suite(suite) => Some(debian::containerd(name, suite)),
            Source::GoModule(version) => Some(containerd::item(name, version)),
        }
    });
    [kube::item(), debian::base()].into_iter().chain(newer).collect()
}

/// The layers of a node's root file system, the uppermost first.
pub(crate) fn layers(paths: &Paths, containerd: Containerd) -> Vec<PathBuf> {
    let own = containerd.layer().into_iter();
    own.chain(["kube".to_owned(), BASE_SUITE.to_owned()]).map(|item| paths.layer(&item)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_containerd_lies_over_the_base() {
        let paths = Paths::new("/t");
        let names = |containerd| -> Vec<String> {
            let layers = layers(&paths, containerd);
            layers.iter().map(|dir| dir.strip_prefix(paths.cache()).unwrap().display().to_string()).collect()
        };
        assert_eq!(names(Containerd::V1_6), ["kube/root", "bookworm/root"]);
        assert_eq!(names(Containerd::V2_4), ["containerd-2.4/root", "kube/root", "bookworm/root"]);
    }

    #[test]
    fn every_layer_of_every_node_is_built() {
        let names: Vec<String> = items(Kind::Real).into_iter().map(|item| item.name).collect();
        let paths = Paths::new("/t");
        for layer in Containerd::ALL.into_iter().flat_map(|containerd| layers(&paths, containerd)) {
            assert!(names.iter().any(|name| paths.layer(name) == layer), "{} is not built", layer.display());
        }
    }
}
