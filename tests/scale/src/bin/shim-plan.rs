//! One pass of the planner over a large cluster, without any IO: `cargo xtask bench plan`.
use std::{
    collections::{BTreeMap, BTreeSet},
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use shim_core::{
    api::Shim,
    mark::{self, Mark, Ready},
    plan::{self, Action},
    revision::{Fate, Inputs, Record, RevisionView},
    runtime_class::runtime_class_for,
    world::{LeanNode, NodeView, ShimView, World},
};

const NODES: usize = 15_000;
const SHIMS: usize = 10;
const ROUNDS: usize = 21;

fn main() -> Result<()> {
    let rest = world()?;
    ensure!(plan::plan(&rest).actions.iter().all(|a| matches!(a, Action::Status(..))), "the cluster is not at rest");
    let rest = settled(rest);
    row("reading each label, handler and mark once", &rest, read);
    row("`plan` at rest", &rest, plan::plan);
    row("`plan`, one Shim upgraded, before the first node", &settled(upgraded(rest)?), plan::plan);
    Ok(())
}

fn row<T>(what: &str, world: &World, work: impl Fn(&World) -> T) {
    let mut times: Vec<_> = (0..ROUNDS).map(|_| time(world, &work)).collect();
    times.sort();
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    println!("| {what} | {:.1} ms | {:.1} ms |", ms(times[ROUNDS / 2]), ms(times[ROUNDS - 1]));
}

fn time<T>(world: &World, work: impl Fn(&World) -> T) -> Duration {
    let start = Instant::now();
    black_box(work(black_box(world)));
    start.elapsed()
}

/// What no plan can do without: how slow this machine's memory is today.
fn read(world: &World) -> usize {
    let of_node = |node: &NodeView| {
        let labels: usize = node.labels.iter().map(|(key, value)| key.len() + value.len()).sum();
        let handlers: usize = node.handlers.iter().map(AsRef::<str>::as_ref).map(str::len).sum();
        let ready = |mark: &Mark| if let Mark::Ready(ready) = mark { ready.build.as_str().len() } else { 0 };
        labels
            + handlers
            + node.marks.iter().flatten().map(|(name, mark)| name.as_str().len() + ready(mark)).sum::<usize>()
    };
    world.nodes.iter().map(|node| of_node(node)).sum()
}

/// With the status that the planner wants.
fn settled(mut world: World) -> World {
    for action in plan::plan(&world).actions {
        if let Action::Status(name, status) = action {
            world.shims.iter_mut().filter(|shim| shim.name == name).for_each(|shim| shim.status = status.clone());
        }
    }
    world
}

/// Every node has every Shim.
fn world() -> Result<World> {
    let now = Timestamp::now();
    let shims = (0..SHIMS).map(shim).collect::<Result<Vec<_>>>()?;
    let verified = now - SignedDuration::from_hours(2);
    let nodes = (0..NODES).map(|number| node(number, &shims, verified)).collect::<Result<Vec<_>>>()?;
    let class = |shim: &ShimView| {
        let spec = shim.spec.as_ref().ok()?;
        Some(runtime_class_for(&shim.name, &spec.handler, &spec.runtime_class))
    };
    Ok(World {
        now,
        revisions: shims.iter().filter_map(|shim| revision(shim, verified)).collect(),
        runtime_classes: shims.iter().filter_map(class).collect(),
        shims,
        nodes,
        jobs: Vec::new(),
        occupied: BTreeSet::new(),
    })
}

fn revision(shim: &ShimView, at: Timestamp) -> Option<RevisionView> {
    let nodes = u32::try_from(NODES).ok()?;
    Some(RevisionView {
        shim: shim.name.clone(),
        number: 1,
        inputs: shim.spec.as_ref().ok()?.inputs.clone(),
        created: at,
        generation: 1,
        author: String::new(),
        record: Some(Record { fate: Fate::Complete, updated: nodes, nodes, at }),
    })
}

fn shim(number: usize) -> Result<ShimView> {
    let shim: Shim = serde_json::from_value(json!({
        "apiVersion": "shim.dev/v1alpha1", "kind": "Shim",
        "metadata": {"name": format!("shim-{number}x"), "uid": format!("s{number}"), "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["shim.dev/nodes"]},
        "spec": {
            "version": "v1",
            "fetchStrategy": {"anonHttp": {"location": "https://example.org/a", "sha256": format!("{number:064x}")}},
            "runtimeClass": {"name": format!("class-{number}")},
        },
    }))?;
    ShimView::read(&shim).context("the Shim can't be read")
}

fn node(number: usize, shims: &[ShimView], since: Timestamp) -> Result<Arc<NodeView>> {
    let mut labels: BTreeMap<String, String> =
        (0..20).map(|label| (format!("example.org/label-{label}"), format!("value-{}", number % 7))).collect();
    labels.extend(shims.iter().map(|shim| (shim.name.node_label(), "ready".to_owned())));
    let node: LeanNode = serde_json::from_value(json!({
        "metadata": {"name": format!("node-{number:05}"), "uid": format!("u{number}"), "labels": labels},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"machineID": format!("{number:032x}"), "operatingSystem": "linux", "architecture": "amd64",
                "containerRuntimeVersion": "containerd://2.2.0"},
            "runtimeHandlers": shims.iter().map(|shim| json!({"name": shim.name})).collect::<Vec<_>>(),
        },
    }))?;
    let mut view = NodeView::read(&node).context("the Node can't be read")?;
    let machine = view.machine.clone().context("the Node has no machine id")?;
    let marks = shims.iter().filter_map(|shim| {
        let build = shim.spec.as_ref().ok()?.source.build("amd64")?.clone();
        Some((
            shim.name.clone(),
            Mark::Ready(Ready { build, machine: machine.clone(), since, disrupted: 0, repairs: 0 }),
        ))
    });
    let marks = marks.collect();
    view.annotation = mark::render(&marks);
    view.marks = Some(marks);
    Ok(Arc::new(view))
}

/// The first Shim asks for something new.
fn upgraded(mut world: World) -> Result<World> {
    let shim = world.shims.first_mut().context("no Shim")?;
    let spec = shim.spec.as_mut().map_err(|error| anyhow::anyhow!(error.clone()))?;
    spec.inputs = Inputs { version: "v2".to_owned(), ..spec.inputs.clone() };
    spec.source.options = Some(BTreeMap::new());
    if let shim_core::world::Artifacts::One(artifact) = &mut spec.source.artifacts {
        artifact.build = "0123456789ab".parse()?;
    }
    Ok(world)
}
