//! What a rollout without faults costs the API server and the nodes.
use shim_core::{
    names::NodeName,
    world::{Life, NodeView},
};

use crate::{environment, setting, sim::Sim};

const NODES: usize = 6;

/// Three Shims on six nodes, installed and at rest.
fn installed() -> Sim {
    let mut sim = Sim::of(setting::plain(NODES));
    sim.settle().unwrap();
    sim
}

/// Jobs and writes for each node since `bills` was emptied, all nodes alike.
fn bill(sim: &Sim) -> (usize, usize) {
    let bills: Vec<_> = sim.bills.values().map(|bill| (bill.jobs, bill.writes)).collect();
    assert_eq!(bills.len(), NODES);
    assert!(bills.iter().all(|bill| *bill == bills[0]), "{bills:?}");
    bills[0]
}

#[test]
fn three_shims_cost_a_new_node_one_job_and_four_writes() {
    // Claim, Job, mark, the Job's deletion.
    assert_eq!(bill(&installed()), (1, 4));
}

#[test]
fn an_upgrade_costs_a_node_one_job_and_three_writes() {
    let mut sim = installed();
    environment::upgrade_all(&mut sim.cluster);
    sim.settle().unwrap();
    assert_eq!(bill(&sim), (1, 3));
}

#[test]
fn a_removal_costs_a_node_one_job_and_four_writes() {
    let mut sim = installed();
    for shim in sim.cluster.shims.keys() {
        sim.cluster.delete_shim(&shim, Life::Deleting);
    }
    sim.settle().unwrap();
    assert_eq!(bill(&sim), (1, 4));
}

#[test]
fn a_cluster_at_rest_costs_nothing() {
    let mut sim = installed();
    sim.settle().unwrap();
    assert_eq!(sim.bills.len(), 0);
}

#[test]
fn a_node_that_does_not_answer_holds_up_no_other() {
    let mut sim = Sim::of(setting::plain(NODES));
    let silent: NodeName = "n0".parse().unwrap();
    sim.cluster.nodes.change(sim.cluster.now, &silent, |node| node.ready = false);
    sim.run_until_rest().unwrap();
    let served = |node: &&NodeView| node.marks.as_ref().is_some_and(|marks| marks.len() == 3);
    assert_eq!(sim.cluster.nodes.iter().filter(served).count(), NODES - 1);
}
