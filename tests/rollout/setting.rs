//! What a simulated cluster is made of, and how it looks before anything happens.
use std::collections::BTreeMap;

use shim_core::{
    api::{FetchStrategy, HttpArtifact, PlatformArtifact, RuntimeClassSpec, ShimStatus},
    names::{Handler, MachineId, NodeName, ShimName},
    revision::Inputs,
    world::{Handlers, Life, NodeView, Rollout, Share, ShimView, Source, SpecView, place},
};

use crate::{
    cluster::{Cluster, Disk, Shim},
    environment,
    rng::Rng,
};

pub const SHIMS: usize = 3;
pub const NODES: usize = 6;
/// Its spec names artifacts by platform, and has none for arm64.
const PICKY: usize = 2;

pub fn shim_name(index: usize) -> ShimName {
    format!("shim-{}", ["a", "b", "c"][index]).parse().unwrap()
}

pub fn node_name(index: usize) -> NodeName {
    format!("n{index}").parse().unwrap()
}

pub fn class_name(index: usize) -> String {
    format!("class-{index}")
}

/// All nodes at the same time, whatever becomes of them.
pub const AT_ONCE: Rollout = Rollout {
    max_update: Share::Percent(100),
    canary: Share::Count(0),
    max_failures: Share::Percent(100),
    paused: false,
};

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
        environment::toggle_foreign_class(&mut cluster, rng);
    }
    cluster
}

/// Three Shims that ask for all of some nodes at once, all alike.
pub fn plain(nodes: usize) -> Cluster {
    let (mut cluster, mut rng) = (Cluster::new(), Rng::new(0));
    for index in 0..SHIMS {
        create_shim(&mut cluster, &mut rng, index, shim_name(index).as_str().parse().unwrap());
        environment::edit_spec(&mut cluster, &shim_name(index), |spec| {
            (spec.selector, spec.rollout) = (BTreeMap::new(), AT_ONCE);
        });
    }
    for index in 0..nodes {
        create_node(&mut cluster, &mut rng, index, None);
        cluster.nodes.change(cluster.now, &node_name(index), |node| node.arch = "amd64".into());
    }
    cluster.kubelets_report();
    cluster
}

/// What a Shim asks for in one of its builds.
pub fn inputs(index: usize, number: u32) -> Inputs {
    let sha256 = format!("{index:032x}{number:032x}");
    let location = format!("https://example.org/{index}/{number}");
    let fetch_strategy = if index == PICKY {
        let platform = PlatformArtifact { os: "linux".to_owned(), arch: "amd64".to_owned(), location, sha256 };
        FetchStrategy { platforms: Some(vec![platform]), ..FetchStrategy::default() }
    } else {
        FetchStrategy { anon_http: Some(HttpArtifact { location, sha256 }), ..FetchStrategy::default() }
    };
    Inputs { version: format!("v{number}"), fetch_strategy, binary: None, containerd_runtime_options: None }
}

/// Changes the build that a spec asks for.
pub fn ask_for(spec: &mut SpecView, index: usize, number: u32) {
    spec.inputs = inputs(index, number);
    spec.source = Source::read(&spec.inputs, &spec.handler).unwrap();
}

pub fn budget(rng: &mut Rng) -> Share {
    match rng.below(4) {
        0 => Share::Percent(10),
        1 => Share::Percent(50),
        more => Share::Count(u32::try_from(more).unwrap() - 1),
    }
}

pub fn canary(rng: &mut Rng) -> Share {
    [Share::Count(0), Share::Count(1), Share::Count(1), Share::Count(2), Share::Percent(50), Share::Count(9)]
        [rng.below(6)]
}

pub fn max_failures(rng: &mut Rng) -> Share {
    [Share::Count(1), Share::Count(1), Share::Count(2), Share::Percent(50), Share::Percent(100)][rng.below(5)]
}

pub fn create_shim(cluster: &mut Cluster, rng: &mut Rng, index: usize, handler: Handler) {
    let inputs = inputs(index, 1);
    let spec = SpecView {
        source: Source::read(&inputs, &handler).unwrap(),
        inputs,
        selector: selector(rng),
        tolerations: Vec::new(),
        handler,
        rollout: Rollout {
            max_update: budget(rng),
            canary: canary(rng),
            max_failures: max_failures(rng),
            paused: rng.chance(10),
        },
        history: 2,
        runtime_class: RuntimeClassSpec { name: class_name(index), handler: None, overhead: None, tolerations: None },
    };
    let view = ShimView {
        name: shim_name(index),
        uid: cluster.id(),
        generation: Some(1),
        author: "somebody".to_owned(),
        retry: None,
        created: cluster.now,
        life: Life::Active,
        finalizer: false,
        spec: Ok(spec.clone()),
        status: ShimStatus::default(),
    };
    let shim = Shim { view, deleted: false, legible: spec, newest: 1 };
    cluster.shims.set(cluster.now, shim_name(index), Some(shim));
}

pub fn selector(rng: &mut Rng) -> BTreeMap<String, String> {
    match rng.below(9) {
        0 => BTreeMap::from([("pool".to_owned(), "nowhere".to_owned())]),
        1..=3 => BTreeMap::from([("pool".to_owned(), pool(rng))]),
        _ => BTreeMap::new(),
    }
}

pub fn pool(rng: &mut Rng) -> String {
    ["red", "blue"][rng.below(2)].to_owned()
}

/// A Node on a machine that was there before, or on a new one.
pub fn create_node(cluster: &mut Cluster, rng: &mut Rng, index: usize, machine: Option<MachineId>) {
    let uid = cluster.id();
    let machine = machine.unwrap_or_else(|| new_machine(cluster));
    let modern = index.is_multiple_of(2);
    let node = NodeView {
        name: node_name(index),
        place: place(&uid),
        uid: uid.clone(),
        machine: (!rng.chance(20)).then(|| machine.clone()),
        labels: BTreeMap::from([("pool".into(), pool(rng).into())]),
        taints: Vec::new(),
        cordoned: false,
        ready: true,
        os: "linux".into(),
        arch: if index == 3 { "arm64" } else { "amd64" }.into(),
        runtime: format!("containerd://{}", if modern { "2.1.4" } else { "1.7.24" }).into(),
        handlers: if modern { cluster.handlers(&machine) } else { Handlers::new() },
        annotation: None,
        marks: Some(BTreeMap::new()),
    };
    cluster.hosts.insert(uid, machine);
    cluster.nodes.set(cluster.now, node_name(index), Some(node));
}

pub fn new_machine(cluster: &mut Cluster) -> MachineId {
    let machine: MachineId = format!("machine-{}", cluster.id()).parse().unwrap();
    cluster.machines.insert(machine.clone(), Disk::new());
    machine
}
