//! `-w` and `--wait`: every change once, and an end.
use kubectl_shim::views::{Picture, Settled, ShimPicture, Tracker, heartbeat};

use crate::fixture::{Cluster, rollout, written, zoo};

fn all(picture: &Picture) -> Vec<&ShimPicture> {
    picture.shims.iter().collect()
}

#[test]
fn every_change_is_told_once() {
    let mut tracker = Tracker::default();
    let mut cluster = Cluster::default();
    cluster.shim("spin-v2", "v2", 60);
    for name in ["node-01", "node-02"] {
        cluster.node(name);
        cluster.outdated(name, "spin-v2", 600);
    }
    let first = cluster.picture();
    assert_eq!(tracker.observe(&all(&first)), ["spin-v2 v2 Updating: 0 of 2 nodes updated; canary: 0 of 1 node done"]);
    assert!(tracker.observe(&all(&first)).is_empty());

    cluster.running("node-01", "spin-v2", 1);
    let second = cluster.picture();
    assert_eq!(tracker.observe(&all(&second)), ["node-01 Updating the installer starts  0/2"]);

    let mut cluster = Cluster::default();
    cluster.shim("spin-v2", "v2", 60);
    cluster.node("node-01");
    cluster.node("node-02");
    cluster.ready("node-01", "spin-v2", 1);
    cluster.marked("node-02", "spin-v2", "claimed");
    cluster.failed("node-02", "spin-v2", 1, 5);
    let third = cluster.picture();
    let lines = tracker.observe(&all(&third));
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!(lines[0], "node-01 Ready v2  1/2");
    assert!(lines[1].starts_with("node-02 Failed Fetch ChecksumMismatch: expected eec8df96fa3a0b1c"), "{lines:?}");
    assert!(lines[2].starts_with("spin-v2 v2 Failed: 1 of 2 nodes failed"), "{lines:?}");
    assert!(tracker.observe(&all(&third)).is_empty());
}

#[test]
fn what_has_failed_before_is_told_at_once() {
    let picture = rollout().picture();
    let lines = Tracker::default().observe(&all(&picture));
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[1].starts_with("node-02 Failed Fetch"), "{lines:?}");
}

#[test]
fn several_shims_are_told_apart() {
    let mut tracker = Tracker::default();
    let picture = zoo().picture();
    let lines = tracker.observe(&all(&picture));
    assert!(lines.iter().any(|line| line.starts_with("spin-v2 node-02 Failed")), "{lines:?}");
}

#[test]
fn nodes_that_are_clean_are_told() {
    let mut cluster = Cluster::default();
    let shim = cluster.shim("spin-v2", "v1", 60);
    shim.metadata.deletion_timestamp = shim.metadata.creation_timestamp.clone();
    cluster.node("node-01");
    cluster.marked("node-01", "spin-v2", "removing");
    let mut tracker = Tracker::default();
    tracker.observe(&all(&cluster.picture()));
    let mut clean = Cluster::default();
    clean.shims = cluster.shims.clone();
    clean.node("node-01");
    assert_eq!(tracker.observe(&all(&clean.picture())), ["node-01 Removed"]);
}

#[test]
fn without_rights_the_counts_are_told() {
    let lines = Tracker::default().observe(&all(&rollout().without_rights()));
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("spin-v2 v0.23.0 Failed: 1 of 4 nodes failed"), "{lines:?}");
}

#[test]
fn a_heartbeat_names_what_is_under_way() {
    let text = heartbeat(&all(&rollout().picture()));
    assert!(text.starts_with("still working: spin-v2 1/4: node-02 Failed"), "{text}");
    assert!(text.contains("node-03 Updating the installer starts"), "{text}");
}

#[test]
fn only_what_speaks_of_this_generation_ends_a_wait() {
    let settled = |conditions: &[(&str, bool)], generation: i64| {
        let mut cluster = rollout();
        written(&mut cluster.shims[0], conditions);
        cluster.shims[0].metadata.generation = Some(generation);
        cluster.picture().shims[0].settled
    };
    assert_eq!(settled(&[("Ready", true)], 1), Settled::Ready);
    assert_eq!(settled(&[("Ready", true)], 2), Settled::Open);
    assert_eq!(settled(&[("Ready", false), ("Stalled", true)], 1), Settled::Stalled);
    assert_eq!(settled(&[("Ready", false), ("Stalled", true)], 2), Settled::Open);
    assert_eq!(settled(&[("Ready", false), ("Stalled", false)], 1), Settled::Open);
    assert_eq!(rollout().picture().shims[0].settled, Settled::Open);
    let mut paused = rollout();
    written(&mut paused.shims[0], &[("Ready", false)]);
    paused.shims[0].status.as_mut().unwrap().conditions[0].reason = "Paused".into();
    assert_eq!(paused.picture().shims[0].settled, Settled::Stalled);
}
