//! The planner in a simulated cluster that lags, fails and changes, and its rules one by one.
//!
//! `SHIM_SIM_SEEDS` and `SHIM_SIM_FIRST` choose which seeds `the_invariants_hold_in_every_run` runs, `SHIM_SIM_LINES` how
//! much it tells of one that fails.
#![cfg(test)]

mod cluster;
mod costs;
mod environment;
mod executor;
mod exhaustive;
mod installers;
mod invariants;
mod log;
mod mutants;
mod oracle;
mod rng;
mod rules;
mod setting;
mod shrink;
mod sim;
mod story;
mod views;

use std::{env, thread};

use invariants::Invariant;
use mutants::Mutant;
use story::Story;

/// Runs where nothing else is asked for.
const SEEDS: u64 = 20_000;
/// Lines of the story that is told of a run which breaks an invariant.
const LINES: u64 = 60;

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
        let lines = usize::try_from(from_env("SHIM_SIM_LINES", LINES)).unwrap();
        let muted = shrink::needless_steps(*seed, None, broken.invariant);
        let shortest = sim::run_without(&muted, *seed, None, Story::Told(Vec::new()));
        let story = shortest.story.end(lines);
        let mut kinds = std::collections::BTreeMap::<_, Vec<u64>>::new();
        for (seed, broken) in &sum.broken {
            kinds.entry(broken.invariant).or_default().push(*seed);
        }
        for (kind, seeds) in kinds {
            println!("{kind:?}: {} runs, {:?}", seeds.len(), &seeds[..seeds.len().min(5)]);
        }
        panic!("seed {seed} breaks {broken}\nwithout {} of {} steps:\n{story}", muted.len(), sim::STEPS);
    }
}

#[test]
fn a_story_of_a_failure_is_shortened_to_what_it_takes() {
    let (mutant, invariant) = (Mutant::RemovesWithoutDemotion, Invariant::S3NoLies);
    let breaks =
        |seed: &u64| sim::run(*seed, Some(mutant), Story::Untold).broken.is_some_and(|b| b.invariant == invariant);
    let seed = (1..=5_000).find(breaks).unwrap();
    let muted = shrink::needless_steps(seed, Some(mutant), invariant);
    let shortest = sim::run_without(&muted, seed, Some(mutant), Story::Told(Vec::new()));
    assert_eq!(shortest.broken.unwrap().invariant, invariant);
    assert!(sim::STEPS - muted.len() <= 12, "{} steps are left", sim::STEPS - muted.len());
}

/// The fault of the mutant shows, in the way that it should.
fn kill(mutant: Mutant, invariant: Invariant) {
    let mut broken = std::collections::BTreeMap::<_, usize>::new();
    for seed in 1..=5_000 {
        match sim::run(seed, Some(mutant), Story::Untold).broken {
            Some(found) if found.invariant == invariant => return,
            Some(found) => *broken.entry(found.invariant).or_default() += 1,
            None => {}
        }
    }
    panic!("{mutant:?} does not break {invariant:?}, but {broken:?}");
}

macro_rules! mutants {
    ($($name:ident: $mutant:ident, $invariant:ident;)*) => {
        mod a_planner_that {
            use super::{Invariant, Mutant, kill};
            $(#[test]
            fn $name() {
                kill(Mutant::$mutant, Invariant::$invariant);
            })*
        }
    };
}

mutants! {
    deletes_a_job_before_it_records_loses_a_success: DeletesAJobBeforeItRecords, NoSuccessLost;
    starts_beside_an_unrecorded_success_installs_twice: StartsBesideAnUnrecordedSuccess, NoRedundantInstall;
    removes_without_demotion_lies: RemovesWithoutDemotion, S3NoLies;
    ignores_uid_and_machine_lies: IgnoresNodeIdentity, S3NoLies;
    forgets_running_jobs_overruns_the_budget: ForgetsRunningJobsInTheBudget, S1Budget;
    ignores_pause_starts_while_paused: IgnoresPause, S4Brakes;
    never_retries_does_not_converge: NeverRetries, L1Converges;
    retries_at_once_does_not_back_off: RetriesAtOnce, L3BackOff;
    starts_beside_a_running_job_has_two_on_a_node: StartsBesideARunningJob, S2Exclusion;
    starts_beside_a_stuck_job_has_two_on_a_node: StartsBesideAStuckJob, S2Exclusion;
    starts_beside_a_stray_pod_has_two_on_a_node: StartsBesideAStrayPod, S2Exclusion;
    starts_without_a_claim_makes_orphans: StartsWithoutAClaim, S7NoOrphan;
    forgets_a_claim_after_a_failure_makes_orphans: ForgetsAClaimAfterAFailure, S7NoOrphan;
    releases_a_shim_early_leaves_marks: ReleasesEarly, S8Finalizer;
    deletes_the_runtime_class_early_leaves_marks: DeletesTheRuntimeClassEarly, S8Finalizer;
    reads_jobs_from_a_cache_has_two_on_a_node: ReadsJobsFromACache, S2Exclusion;
    trusts_marks_of_other_machines_lies: TrustsMarksOfOtherMachines, S3NoLies;
    believes_that_a_killed_upgrade_changed_nothing_lies: BelievesThatAKilledUpgradeChangedNothing, S3NoLies;
    deletes_failed_jobs_at_once_does_not_back_off: DeletesFailedJobsAtOnce, L3BackOff;
    takes_foreign_runtime_classes_touches_what_is_not_ours: TakesForeignRuntimeClasses, S9Ownership;
    starts_on_nodes_that_are_not_ready: StartsOnNodesThatAreNotReady, L2NotReady;
    does_not_gather_restarts_more_often: DoesNotGather, Gathered;
    never_removes_does_not_converge: NeverRemoves, L1Converges;
    records_failures_as_success_lies: RecordsFailuresAsSuccess, S3NoLies;
    starts_without_a_finalizer: StartsWithoutAFinalizer, S8Finalizer;
    starts_before_old_jobs_are_gone_installs_again: StartsBeforeOldJobsAreGone, NoRedundantInstall;
    leaves_labels_torn_does_not_converge: LeavesLabelsTorn, L1Converges;
    applies_a_runtime_class_before_it_holds_the_shim_leaves_it_behind: AppliesBeforeItHolds, L1Converges;
    holds_no_shim_in_conflict_leaves_marks_of_an_earlier_one: HoldsNoShimInConflict, L1Converges;
    never_wakes_sleeps_through_what_is_due: NeverWakes, P4WakesInTime;
    drops_results_of_shims_that_are_gone_never_rests: DropsResultsOfShimsThatAreGone, L1Converges;
    writes_without_its_lease_has_two_on_a_node: WritesWithoutItsLease, S2Exclusion;
    ignores_the_canary: IgnoresTheCanary, S6Canary;
    starts_what_is_not_on_record: StartsWhatIsNotOnRecord, S6Canary;
    ignores_failures_starts_after_them: IgnoresFailures, S4Brakes;
    forgets_a_failure_while_it_tries_again_starts_another: ForgetsAFailureWhileItTriesAgain, S4Brakes;
    never_doubles_the_pause_tries_too_often: NeverDoublesThePause, L3BackOff;
    numbers_what_is_on_record: NumbersWhatIsOnRecord, L4Bounded;
    forgets_the_last_complete_revision: ForgetsTheLastCompleteRevision, S6Canary;
    demotes_what_it_upgrades_does_harm: DemotesWhatItUpgrades, S10NoHarm;
    withdraws_jobs_that_have_begun: WithdrawsJobsThatHaveBegun, S4Brakes;
    forgets_repairs_repeats_them_too_often: ForgetsRepairs, L3BackOff;
}
