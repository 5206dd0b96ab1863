//! What people, clouds and kubelets do meanwhile.
use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Taint;
use shim_core::{
    api::RuntimeClassSpec,
    mark::Mark,
    names::{GROUP, ShimName},
    runtime_class::runtime_class_for,
    task::Op,
    world::{Life, NodeView, Retry, SpecView},
};

use crate::{
    cluster::{Cluster, DiskState, Job, Shim},
    rng::Rng,
    setting::{
        NODES, SHIMS, ask_for, budget, canary, class_name, create_node, create_shim, max_failures, new_machine,
        node_name, pool, selector, shim_name,
    },
    story::Story,
};

/// Something happens.
pub fn happen(cluster: &mut Cluster, rng: &mut Rng, story: &mut Story) {
    match rng.below(10) {
        0..=4 => happen_to_shim(cluster, rng, story),
        5..=7 => happen_to_node(cluster, rng, story),
        8 => tear_down_job(cluster, rng, story),
        _ => happen_behind_our_back(cluster, rng, story),
    }
}

fn happen_to_shim(cluster: &mut Cluster, rng: &mut Rng, story: &mut Story) {
    let index = rng.below(SHIMS);
    let name = shim_name(index);
    let Some(shim) = cluster.shims.get(&name).cloned() else {
        story.tell(|| format!("{name} is created"));
        let handler = if rng.chance(15) { shim_name(0) } else { name };
        return create_shim(cluster, rng, index, handler.as_str().parse().unwrap());
    };
    let young = !shim.view.finalizer && rng.chance(30);
    match if young { 0 } else { rng.below(20) } {
        0..=1 if shim.view.life == Life::Active => {
            let life = if rng.chance(40) { Life::Orphaned } else { Life::Deleting };
            story.tell(|| format!("{name} is deleted: {life:?}"));
            cluster.delete_shim(&name, life);
        }
        2 => {
            story.tell(|| format!("{name} gets a spec that can't be read, or out of it"));
            edit(cluster, &name, |shim| {
                shim.view.spec =
                    if shim.view.spec.is_ok() { Err("illegible".to_owned()) } else { Ok(shim.legible.clone()) };
            });
        }
        17 => {
            let nodes = rng.chance(50).then(|| [node_name(rng.below(NODES))].into());
            let retry = Retry { at: cluster.now, nodes };
            story.tell(|| format!("{name} is to be tried again: {retry}"));
            cluster.shims.change(cluster.now, &name, |shim| shim.view.retry = Some(retry));
        }
        what => {
            let spec = change_spec(rng, index, &shim, what, story);
            edit_spec(cluster, &name, |found| *found = spec.0);
            cluster.shims.change(cluster.now, &name, |shim| shim.newest = shim.newest.max(spec.1));
        }
    }
}

fn edit(cluster: &mut Cluster, name: &ShimName, change: impl FnOnce(&mut Shim)) {
    cluster.shims.change(cluster.now, name, |shim| {
        change(shim);
        shim.view.generation = shim.view.generation.map(|generation| generation + 1);
    });
}

/// Changes what a Shim asks for; afterwards it can be read.
pub fn edit_spec(cluster: &mut Cluster, name: &ShimName, change: impl FnOnce(&mut SpecView)) {
    edit(cluster, name, |shim| {
        change(&mut shim.legible);
        shim.view.spec = Ok(shim.legible.clone());
    });
}

fn change_spec(rng: &mut Rng, index: usize, shim: &Shim, what: usize, story: &mut Story) -> (SpecView, u32) {
    let name = &shim.view.name;
    let mut spec = shim.legible.clone();
    let mut number = shim.newest;
    match what {
        3..=6 => {
            number += 1;
            story.tell(|| format!("{name} asks for build {number}"));
            ask_for(&mut spec, index, number);
        }
        7..=9 => {
            let old = u32::try_from(rng.below(number as usize)).unwrap() + 1;
            story.tell(|| format!("{name} goes back to build {old}"));
            ask_for(&mut spec, index, old);
        }
        10..=11 => {
            spec.rollout.paused = !spec.rollout.paused;
            story.tell(|| format!("{name} paused: {}", spec.rollout.paused));
        }
        12..=14 => {
            spec.selector = selector(rng);
            story.tell(|| format!("{name} selects {:?}", spec.selector));
        }
        15 => {
            spec.rollout.canary = canary(rng);
            story.tell(|| format!("{name} canary {}", spec.rollout.canary));
        }
        16 => {
            spec.rollout.max_failures = max_failures(rng);
            story.tell(|| format!("{name} maxFailures {}", spec.rollout.max_failures));
        }
        _ => {
            spec.rollout.max_update = budget(rng);
            story.tell(|| format!("{name} maxUpdate {}", spec.rollout.max_update));
        }
    }
    (spec, number)
}

fn happen_to_node(cluster: &mut Cluster, rng: &mut Rng, story: &mut Story) {
    let index = rng.below(NODES);
    let name = node_name(index);
    let Some(node) = cluster.nodes.get(&name).cloned() else {
        story.tell(|| format!("{name} is added"));
        return create_node(cluster, rng, index, None);
    };
    match rng.below(13) {
        0 => {
            story.tell(|| format!("{name} is removed"));
            cluster.nodes.set(cluster.now, name, None);
        }
        1 => {
            story.tell(|| format!("{name} is replaced by another machine"));
            create_node(cluster, rng, index, None);
        }
        2 => {
            // Its annotation is lost with the Node object: what is on the disk is nobody's knowledge any more.
            story.tell(|| format!("{name} is registered anew by the same machine"));
            let machine = cluster.host(&node).clone();
            create_node(cluster, rng, index, Some(machine));
        }
        3 => {
            story.tell(|| format!("{name} is installed anew, its Node object stays"));
            let machine = new_machine(cluster);
            cluster.hosts.insert(node.uid, machine);
        }
        4..=5 => {
            let ready = !node.ready;
            story.tell(|| format!("{name} ready: {ready}"));
            cluster.nodes.change(cluster.now, &name, |node| node.ready = ready);
            cluster.kubelet_reports(&name);
        }
        6..=8 => {
            let pool = pool(rng);
            story.tell(|| format!("{name} moves to pool {pool}"));
            cluster.nodes.change(cluster.now, &name, |node| drop(node.labels.insert("pool".into(), pool.into())));
        }
        9 => {
            story.tell(|| format!("{name} is cordoned or not"));
            cluster.nodes.change(cluster.now, &name, |node| node.cordoned = !node.cordoned);
        }
        10 => rename(cluster, rng, &node, story),
        _ => {
            story.tell(|| format!("{name} gets a taint or loses it"));
            cluster.nodes.change(cluster.now, &name, toggle_taint);
        }
    }
}

/// The same machine registers under a name that is free.
fn rename(cluster: &mut Cluster, rng: &mut Rng, node: &NodeView, story: &mut Story) {
    let is_free = |index: &usize| cluster.nodes.get(&node_name(*index)).is_none();
    let Some(index) = (0..NODES).find(is_free) else { return };
    story.tell(|| format!("{} is called {} from now on", node.name, node_name(index)));
    let machine = cluster.host(node).clone();
    cluster.nodes.set(cluster.now, node.name.clone(), None);
    create_node(cluster, rng, index, Some(machine));
}

fn toggle_taint(node: &mut NodeView) {
    let taint = Taint { key: "dedicated".to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
    node.taints = if node.taints.is_empty() { vec![taint] } else { Vec::new() };
}

/// Somebody deletes a Job; its Pod runs on for a while.
fn tear_down_job(cluster: &mut Cluster, rng: &mut Rng, story: &mut Story) {
    let names: Vec<_> = cluster.jobs.keys().cloned().collect();
    let Some(job) = rng.pick(&names).and_then(|name| cluster.jobs.remove(&name)) else { return };
    story.tell(|| format!("{} is deleted by hand", job.view.name));
    forget_upgrades(cluster, &job);
    if !job.is_finished() {
        cluster.strays.push(job);
    }
}

/// A node keeps `ready` while it is upgraded: with the Job goes the only trace of the upgrade.
fn forget_upgrades(cluster: &mut Cluster, job: &Job) {
    let Some(node) = cluster.node_of(job.task()) else { return };
    let uid = node.uid.clone();
    let marks = node.marks.clone().unwrap_or_default();
    for (shim, op) in &job.task().ops {
        if matches!((op, marks.get(shim)), (Op::Install(_), Some(Mark::Ready(_)))) {
            cluster.untold.insert((uid.clone(), shim.clone()));
        }
    }
}

fn happen_behind_our_back(cluster: &mut Cluster, rng: &mut Rng, story: &mut Story) {
    match rng.below(5) {
        4 => turn_deaf(cluster, rng, story),
        3 => cluster.collect_garbage(),
        0 => {
            story.tell(|| "a foreign RuntimeClass comes or goes".to_owned());
            toggle_foreign_class(cluster, rng);
        }
        1 => drift(cluster, rng, story),
        _ => tear_label(cluster, rng, story),
    }
}

pub fn toggle_foreign_class(cluster: &mut Cluster, rng: &mut Rng) {
    let name = class_name(rng.below(SHIMS));
    let foreign = cluster.classes.get(&name).is_some_and(|class| class.metadata.labels.is_none());
    let mut class = runtime_class_for(
        &shim_name(0),
        &"foreign".parse().unwrap(),
        &RuntimeClassSpec { name: name.clone(), handler: None, overhead: None, tolerations: None },
    );
    class.metadata.labels = None;
    cluster.classes.set(cluster.now, name, (!foreign).then_some(class));
}

/// Somebody edits containerd's configuration.
fn drift(cluster: &mut Cluster, rng: &mut Rng, story: &mut Story) {
    let Some(name) = rng.pick(&cluster.nodes.keys()) else { return };
    let machine = cluster.nodes.get(&name).map(|node| cluster.host(node).clone()).unwrap();
    story.tell(|| format!("{name} loses its handlers"));
    let disk = cluster.machines.get_mut(&machine).unwrap();
    for found in disk.values_mut().filter(|found| found.state == DiskState::Verified) {
        found.state = DiskState::Drifted;
    }
}

/// A kubelet reports no handler of ours any more, whatever containerd serves, or it does again.
fn turn_deaf(cluster: &mut Cluster, rng: &mut Rng, story: &mut Story) {
    let Some(name) = rng.pick(&cluster.nodes.keys()) else { return };
    let uid = cluster.nodes.get(&name).unwrap().uid.clone();
    let deaf = cluster.deaf.insert(uid.clone());
    story.tell(|| format!("the kubelet of {name} reports the handlers: {}", !deaf));
    if !deaf {
        cluster.deaf.remove(&uid);
    }
    cluster.kubelet_reports(&name);
}

/// Somebody takes a label of ours off.
fn tear_label(cluster: &mut Cluster, rng: &mut Rng, story: &mut Story) {
    let Some(name) = rng.pick(&cluster.nodes.keys()) else { return };
    let node = cluster.nodes.get(&name).unwrap().clone();
    let ours: Vec<_> =
        node.labels.keys().filter_map(|key| key.strip_prefix(GROUP)?.strip_prefix('/')).map(str::to_owned).collect();
    let Some(shim) = rng.pick(&ours) else { return };
    story.tell(|| format!("{name} loses its label of {shim}"));
    let shim: ShimName = shim.parse().unwrap();
    cluster.nodes.change(cluster.now, &name, |node| drop(node.labels.remove(shim.node_label().as_str())));
    cluster.torn_labels.insert((node.uid, shim));
}

/// The faults end: every node answers and reports, none is tainted where something failed, nothing is paused, every spec
/// can be read.
pub fn calm_down(cluster: &mut Cluster) {
    for name in cluster.nodes.keys() {
        cluster.nodes.change(cluster.now, &name, |node| node.ready = true);
    }
    let tried: BTreeSet<_> = cluster.jobs.values().map(|job| job.task().node.clone()).collect();
    for name in tried {
        cluster.nodes.change(cluster.now, &name, |node| node.taints.clear());
    }
    cluster.deaf.clear();
    cluster.kubelets_report();
    cluster.collect_garbage();
    for name in cluster.shims.keys() {
        edit_spec(cluster, &name, |spec| spec.rollout.paused = false);
    }
}

/// Every Shim asks for a new build.
pub fn upgrade_all(cluster: &mut Cluster) {
    for index in 0..SHIMS {
        edit_spec(cluster, &shim_name(index), |spec| ask_for(spec, index, 2));
    }
}
