//! What people, clouds and kubelets do meanwhile.
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Taint;
use shim_core::{
    api::{RuntimeClassSpec, ShimStatus},
    mark::Mark,
    names::{Build, GROUP, Handler, MachineId, NodeName, ShimName},
    runtime_class::runtime_class_for,
    task::Op,
    world::{Artifact, Artifacts, Life, MaxUpdate, NodeView, ShimView, SpecView},
};

use crate::{
    cluster::{Cluster, Disk, DiskState, Job, Shim},
    rng::Rng,
    story::Story,
};

const SHIMS: usize = 3;
const NODES: usize = 6;
/// Its spec names artifacts by platform, and has none for arm64.
const PICKY: usize = 2;

fn shim_name(index: usize) -> ShimName {
    format!("shim-{}", ["a", "b", "c"][index]).parse().unwrap()
}

fn node_name(index: usize) -> NodeName {
    format!("n{index}").parse().unwrap()
}

fn class_name(index: usize) -> String {
    format!("class-{index}")
}

/// A cluster in which nothing has happened yet.
pub fn found(rng: &mut Rng) -> Cluster {
    let mut cluster = Cluster::new();
    let rival = rng.chance(15);
    for index in 0..SHIMS {
        cluster.pass_seconds(1);
        let handler = if rival && index == 1 { shim_name(0) } else { shim_name(index) };
        create_shim(&mut cluster, rng, index, handler.as_str().parse().unwrap());
    }
    for index in 0..NODES - 1 {
        create_node(&mut cluster, rng, index, None);
    }
    if rng.chance(10) {
        toggle_foreign_class(&mut cluster, rng);
    }
    cluster
}

fn artifacts(index: usize, handler: &Handler, number: u32) -> Artifacts {
    let digest = format!("{index:032x}{number:032x}");
    let build = Build::of_parts([digest.as_str(), handler.as_str()]);
    let location = format!("https://example.org/{index}/{number}");
    let artifact = Artifact { location, sha256: digest.parse().unwrap(), build };
    match index == PICKY {
        true => Artifacts::ByArch(BTreeMap::from([("amd64".to_owned(), artifact)])),
        false => Artifacts::One(artifact),
    }
}

fn budget(rng: &mut Rng) -> MaxUpdate {
    match rng.below(4) {
        0 => MaxUpdate::DEFAULT,
        1 => MaxUpdate::Percent(50),
        more => MaxUpdate::Count(u32::try_from(more).unwrap() - 1),
    }
}

fn create_shim(cluster: &mut Cluster, rng: &mut Rng, index: usize, handler: Handler) {
    let spec = SpecView {
        version: "v1".to_owned(),
        selector: selector(rng),
        tolerations: Vec::new(),
        artifacts: artifacts(index, &handler, 1),
        binary: None,
        handler,
        options: None,
        max_update: budget(rng),
        paused: rng.chance(10),
        runtime_class: RuntimeClassSpec { name: class_name(index), handler: None, overhead: None, tolerations: None },
    };
    let view = ShimView {
        name: shim_name(index),
        generation: Some(1),
        created: cluster.now,
        life: Life::Active,
        finalizer: false,
        spec: Ok(spec.clone()),
        status: ShimStatus::default(),
    };
    let shim = Shim { view, deleted: false, legible: spec, newest: 1 };
    cluster.shims.set(cluster.now, shim_name(index), Some(shim));
}

fn selector(rng: &mut Rng) -> BTreeMap<String, String> {
    match rng.below(3) {
        0 => BTreeMap::from([("pool".to_owned(), pool(rng))]),
        _ => BTreeMap::new(),
    }
}

fn pool(rng: &mut Rng) -> String {
    ["red", "blue"][rng.below(2)].to_owned()
}

/// A Node on a machine that was there before, or on a new one.
fn create_node(cluster: &mut Cluster, rng: &mut Rng, index: usize, machine: Option<MachineId>) {
    let uid = cluster.id();
    let machine = machine.unwrap_or_else(|| new_machine(cluster));
    let modern = index % 2 == 0;
    let node = NodeView {
        name: node_name(index),
        uid: uid.clone(),
        machine: (!rng.chance(20)).then(|| machine.clone()),
        labels: BTreeMap::from([("pool".to_owned(), pool(rng))]),
        taints: Vec::new(),
        cordoned: false,
        ready: true,
        os: "linux".to_owned(),
        arch: if index == 3 { "arm64" } else { "amd64" }.to_owned(),
        runtime: format!("containerd://{}", if modern { "2.1.4" } else { "1.7.24" }),
        handlers: if modern { cluster.handlers(&machine) } else { BTreeSet::new() },
        annotation: None,
        marks: Some(BTreeMap::new()),
    };
    cluster.hosts.insert(uid, machine);
    cluster.nodes.set(cluster.now, node_name(index), Some(node));
}

fn new_machine(cluster: &mut Cluster) -> MachineId {
    let machine: MachineId = format!("machine-{}", cluster.id()).parse().unwrap();
    cluster.machines.insert(machine.clone(), Disk::new());
    machine
}

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
    match rng.below(16) {
        0 if shim.view.life == Life::Active => {
            let life = if rng.chance(20) { Life::Orphaned } else { Life::Deleting };
            story.tell(|| format!("{name} is deleted: {life:?}"));
            cluster.delete_shim(&name, life);
        }
        1 => {
            story.tell(|| format!("{name} gets a spec that can't be read, or out of it"));
            edit(cluster, &name, |shim| {
                shim.view.spec = if shim.view.spec.is_ok() { Err("illegible".to_owned()) } else { Ok(shim.legible.clone()) };
            });
        }
        what => {
            let spec = change_spec(rng, index, &shim, what, story);
            edit(cluster, &name, |shim| {
                shim.newest = shim.newest.max(spec.1);
                shim.legible = spec.0.clone();
                shim.view.spec = Ok(spec.0);
            });
        }
    }
}

fn edit(cluster: &mut Cluster, name: &ShimName, change: impl FnOnce(&mut Shim)) {
    cluster.shims.change(cluster.now, name, |shim| {
        change(shim);
        shim.view.generation = shim.view.generation.map(|generation| generation + 1);
    });
}

fn change_spec(rng: &mut Rng, index: usize, shim: &Shim, what: usize, story: &mut Story) -> (SpecView, u32) {
    let name = &shim.view.name;
    let mut spec = shim.legible.clone();
    let mut number = shim.newest;
    match what {
        2..=6 => {
            number += 1;
            story.tell(|| format!("{name} asks for build {number}"));
            spec.artifacts = artifacts(index, &spec.handler, number);
        }
        7..=9 => {
            let old = u32::try_from(rng.below(number as usize)).unwrap() + 1;
            story.tell(|| format!("{name} goes back to build {old}"));
            spec.artifacts = artifacts(index, &spec.handler, old);
        }
        10..=11 => {
            spec.paused = !spec.paused;
            story.tell(|| format!("{name} paused: {}", spec.paused));
        }
        12..=14 => {
            spec.selector = selector(rng);
            story.tell(|| format!("{name} selects {:?}", spec.selector));
        }
        _ => {
            spec.max_update = budget(rng);
            story.tell(|| format!("{name} maxUpdate {:?}", spec.max_update));
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
    match rng.below(12) {
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
            cluster.nodes.change(cluster.now, &name, |node| drop(node.labels.insert("pool".to_owned(), pool)));
        }
        9 => {
            story.tell(|| format!("{name} is cordoned or not"));
            cluster.nodes.change(cluster.now, &name, |node| node.cordoned = !node.cordoned);
        }
        _ => {
            story.tell(|| format!("{name} gets a taint or loses it"));
            cluster.nodes.change(cluster.now, &name, toggle_taint);
        }
    }
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
    match rng.below(3) {
        0 => {
            story.tell(|| "a foreign RuntimeClass comes or goes".to_owned());
            toggle_foreign_class(cluster, rng);
        }
        1 => drift(cluster, rng, story),
        _ => tear_label(cluster, rng, story),
    }
}

fn toggle_foreign_class(cluster: &mut Cluster, rng: &mut Rng) {
    let name = class_name(rng.below(SHIMS));
    let foreign = cluster.classes.get(&name).is_some_and(|class| class.metadata.labels.is_none());
    let mut class = runtime_class_for(&shim_name(0), &"foreign".parse().unwrap(), &RuntimeClassSpec {
        name: name.clone(),
        handler: None,
        overhead: None,
        tolerations: None,
    });
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

/// Somebody takes a label of ours off.
fn tear_label(cluster: &mut Cluster, rng: &mut Rng, story: &mut Story) {
    let Some(name) = rng.pick(&cluster.nodes.keys()) else { return };
    let node = cluster.nodes.get(&name).unwrap().clone();
    let ours: Vec<_> = node.labels.keys().filter_map(|key| key.strip_prefix(GROUP)?.strip_prefix('/')).map(str::to_owned).collect();
    let Some(shim) = rng.pick(&ours) else { return };
    story.tell(|| format!("{name} loses its label of {shim}"));
    let shim: ShimName = shim.parse().unwrap();
    cluster.nodes.change(cluster.now, &name, |node| drop(node.labels.remove(&shim.node_label())));
    cluster.torn_labels.insert((node.uid, shim));
}

/// The faults end: every node answers, nothing is paused, every spec can be read.
pub fn calm_down(cluster: &mut Cluster) {
    for name in cluster.nodes.keys() {
        cluster.nodes.change(cluster.now, &name, |node| node.ready = true);
    }
    cluster.kubelets_report();
    for name in cluster.shims.keys() {
        edit(cluster, &name, |shim| {
            shim.legible.paused = false;
            shim.view.spec = Ok(shim.legible.clone());
        });
    }
}
