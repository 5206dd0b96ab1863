//! The planner in a simulated cluster that lags, fails and changes, and its rules one by one.
//!
//! `SHIM_SIM_SEEDS` and `SHIM_SIM_FIRST` choose which seeds `the_invariants_hold_in_every_run` runs.
#![cfg(test)]

mod cluster;
mod environment;
mod executor;
mod installers;
mod invariants;
mod log;
mod mutants;
mod oracle;
mod rng;
mod sim;
mod story;
mod views;

use std::{env, thread};

use invariants::Invariant;
use mutants::Mutant;
use story::Story;

/// Runs where nothing else is asked for.
const SEEDS: u64 = 5_000;
/// Lines of the story that is told of a run which breaks an invariant.
const LINES: usize = 60;

fn from_env(name: &str, otherwise: u64) -> u64 {
    env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}

/// What many runs came to.
#[derive(Default)]
struct Sum {
    writes: usize,
    broken: Vec<(u64, invariants::Broken)>,
}

fn run_all(seeds: impl Iterator<Item = u64>) -> Sum {
    seeds.fold(Sum::default(), |mut sum, seed| {
        let outcome = sim::run(seed, None, Story::Untold);
        sum.writes += outcome.writes;
        sum.broken.extend(outcome.broken.map(|broken| (seed, broken)));
        sum
    })
}

/// Two halves side by side.
fn run_range(first: u64, count: u64) -> Sum {
    let half = move |offset: u64| move || run_all((first + offset..first + count).step_by(2));
    let (even, odd) = (thread::spawn(half(0)), thread::spawn(half(1)));
    let (mut sum, odd) = (even.join().unwrap(), odd.join().unwrap());
    sum.writes += odd.writes;
    sum.broken.extend(odd.broken);
    sum.broken.sort_by_key(|(seed, _)| *seed);
    sum
}

#[test]
fn the_invariants_hold_in_every_run() {
    let (first, count) = (from_env("SHIM_SIM_FIRST", 1), from_env("SHIM_SIM_SEEDS", SEEDS));
    let sum = run_range(first, count);
    println!("seeds {count}, writes checked {}, invariants broken {}", sum.writes, sum.broken.len());
    if let Some((seed, broken)) = sum.broken.first() {
        let story = sim::run(*seed, None, Story::Told(Vec::new())).story.end(LINES);
        let mut kinds = std::collections::BTreeMap::<_, Vec<u64>>::new();
        for (seed, broken) in &sum.broken {
            kinds.entry(broken.invariant).or_default().push(*seed);
        }
        for (kind, seeds) in kinds {
            println!("{kind:?}: {} runs, {:?}", seeds.len(), &seeds[..seeds.len().min(5)]);
        }
        panic!("seed {seed} breaks {broken}\n{story}");
    }
}

/// Runs until the fault of the mutant shows.
fn killer_of(mutant: Mutant) -> Option<Invariant> {
    (1..=2_000).find_map(|seed| sim::run(seed, Some(mutant), Story::Untold).broken).map(|broken| broken.invariant)
}
