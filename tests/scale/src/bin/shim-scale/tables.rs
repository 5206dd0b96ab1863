//! What was measured, as the tables of docs/benchmarks.md.
use std::time::Duration;

use shim_scale::{Histogram, Idle, Requests, Rollout, Usage};

use crate::{Measured, Pace, Round};

pub(crate) fn print(measured: &Measured) {
    println!(
        "\n| nodes | what | at a time | time | against bare Jobs | nodes a second | writes on Nodes and Jobs, per node |"
    );
    println!("|---|---|---|---|---|---|---|");
    measured.rounds.iter().for_each(|round| print_times(measured.nodes, round));
    println!(
        "\n| nodes | during | passes | observe | plan | act | processor time | received | sent | requests | RSS after |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for round in &measured.rounds {
        for (what, rollout) in round.rollouts() {
            print_usage(measured.nodes, &format!("{what}, {} at a time", round.at_a_time), &rollout.usage);
        }
    }
    print_memory(measured);
    print_idle(measured.nodes, &measured.idle);
    if !measured.paces.is_empty() {
        println!("\n| controller manager | at a time | Jobs a second | requests of the Job controller for each |");
        println!("|---|---|---|---|");
        measured.paces.iter().for_each(print_pace);
    }
}

fn print_times(nodes: usize, round: &Round) {
    let (bare, at_a_time) = (round.bare.time, round.at_a_time);
    let pace = |time: Duration| count(nodes) / time.as_secs_f64();
    let cleared = bare + round.bare.cleared;
    let ratio = |time: Duration| time.as_secs_f64() / bare.as_secs_f64();
    for (what, time) in [("bare Jobs", bare), ("bare Jobs, deleted after that", cleared)] {
        println!("| {nodes} | {what} | {at_a_time} | {} | {:.2} | {:.1} | |", seconds(time), ratio(time), pace(time));
    }
    for (what, rollout) in round.rollouts() {
        let (time, writes) = (rollout.time, writes_per_node(nodes, rollout));
        println!(
            "| {nodes} | {what} | {at_a_time} | {} | {:.2} | {:.1} | {writes:.2} |",
            seconds(time),
            ratio(time),
            pace(time)
        );
    }
}

fn writes_per_node(nodes: usize, rollout: &Rollout) -> f64 {
    count(rollout.usage.requests.writes_on(&["nodes", "jobs"])) / count(nodes)
}

fn print_usage(nodes: usize, during: &str, usage: &Usage) {
    let Usage { passes, cpu, traffic, requests, memory, .. } = usage;
    println!(
        "| {nodes} | {during} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
        passes.plan.count(),
        times(&passes.observe),
        times(&passes.plan),
        times(&passes.act),
        seconds(*cpu),
        megabytes(traffic.received),
        megabytes(traffic.sent),
        verbs(requests),
        megabytes(memory.now),
    );
}

fn print_memory(measured: &Measured) {
    println!("\n| nodes | RSS before the first Shim | RSS idle | RSS at most |");
    println!("|---|---|---|---|");
    let idle = measured.idle.usage.memory;
    println!(
        "| {} | {} | {} | {} |",
        measured.nodes,
        megabytes(measured.fresh.now),
        megabytes(idle.now),
        megabytes(idle.peak)
    );
}

fn print_idle(nodes: usize, idle: &Idle) {
    println!(
        "\n| nodes | idle for | node reports | lease renewals of nodes | writes | renewals of the Lease | reads | received | processor, of one core |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let (usage, requests) = (&idle.usage, &idle.usage.requests);
    println!(
        "| {nodes} | {} | {} | {} | {} | {} | {} | {} | {:.2} % |",
        seconds(usage.time),
        idle.heartbeats.reports,
        idle.heartbeats.renewals,
        requests.writes(),
        requests.lease_writes(),
        requests.reads(),
        megabytes(usage.traffic.received),
        usage.core() * 100.0,
    );
}

fn print_pace(pace: &Pace) {
    let rate = count(pace.jobs) / pace.bare.time.as_secs_f64();
    let requests = count(pace.bare.usage.job_controller.all()) / count(pace.jobs);
    println!("| {:?} | {} | {rate:.1} | {requests:.1} |", pace.controllers, pace.at_a_time);
}

#[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are far below 2^52")]
fn count(number: usize) -> f64 {
    number as f64
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[expect(clippy::cast_precision_loss, reason = "bytes of a process are far below 2^52")]
fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// Median, and what 99 of 100 do not exceed.
fn times(passes: &Histogram) -> String {
    let quantile =
        |share| passes.quantile(share).map_or("-".to_owned(), |time| format!("{:.0} ms", time.as_secs_f64() * 1e3));
    format!("{}, 99 %: {}", quantile(0.5), quantile(0.99))
}

fn verbs(requests: &Requests) -> String {
    let all = requests.by_verb();
    all.iter().map(|(verb, count)| format!("{verb} {count}")).collect::<Vec<_>>().join(", ")
}
