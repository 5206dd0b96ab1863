//! One run: a cluster in motion, a controller that lags and crashes; then everything calms down and has to come to rest.
use std::{
    collections::{BTreeMap, BTreeSet},
    mem::discriminant,
};

use jiff::SignedDuration;
use shim_core::{
    names::{NodeName, ShimName},
    plan::{Action, Plan, plan},
    world::{Life, World},
};

use crate::{
    cluster::Cluster,
    environment, executor,
    executor::Pass,
    installers::{self, Luck},
    invariants::{self, Broken, Invariant},
    mutants::Mutant,
    rng::Rng,
    setting,
    story::Story,
    views::Views,
};

/// Steps before the faults end.
pub const STEPS: usize = 90;
/// Passes within which the cluster comes to rest.
const ROUNDS: usize = 80;
/// Most Jobs that one node needs to come to rest from any state: a removal and an installation of each Shim.
const JOBS_TO_REST: usize = 6;

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    pub writes: usize,
    pub broken: Option<Broken>,
    pub story: Story,
}

/// Steps that are left out of a run.
pub type Muted = BTreeSet<usize>;

/// Runs one seed, with a planner that has a fault or with ours.
pub fn run(seed: u64, mutant: Option<Mutant>, story: Story) -> Outcome {
    run_without(&Muted::new(), seed, mutant, story)
}

/// Runs one seed but for some of its steps: each has its own luck, so that the others stay as they are.
pub fn run_without(muted: &Muted, seed: u64, mutant: Option<Mutant>, story: Story) -> Outcome {
    let mut sim = Sim::new(seed, mutant, story);
    let broken = sim.disturb(seed, muted).and_then(|()| sim.settle()).err();
    Outcome { writes: sim.writes, broken, story: sim.story }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Faults {
    On,
    Off,
}

/// Whether a planner has anything to do, now or at a time that it knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    More,
    Rest,
}

/// What one node has cost.
#[derive(Debug, Default)]
pub struct Bill {
    pub jobs: usize,
    /// To the Node and to its Jobs.
    pub writes: usize,
}

pub struct Sim {
    rng: Rng,
    pub cluster: Cluster,
    views: Views,
    mutant: Option<Mutant>,
    faults: Faults,
    /// How many of a hundred deletions of Jobs fail.
    deletes_fail: usize,
    story: Story,
    writes: usize,
    pub bills: BTreeMap<NodeName, Bill>,
    /// Shims that were let go of: what they left stays.
    orphaned: Vec<ShimName>,
    /// Only for one that writes without its Lease, which ours does not.
    old_leader: Option<OldLeader>,
}

/// A leader that was stopped in the middle of a pass.
struct OldLeader {
    view: World,
    pass: Pass,
    left: Vec<Action>,
}

type Verdict = Result<(), Broken>;

impl Sim {
    fn new(seed: u64, mutant: Option<Mutant>, story: Story) -> Self {
        let mut rng = Rng::new(seed);
        let cluster = setting::found(&mut rng);
        let deletes_fail = [2, 2, 2, 50][rng.below(4)];
        let views = Views::fresh(&cluster, &mut rng);
        Self { rng, views, mutant, deletes_fail, faults: Faults::On, story, ..Self::of(cluster) }
    }

    /// Our planner in this cluster, without faults.
    pub fn of(cluster: Cluster) -> Self {
        let mut rng = Rng::new(0);
        Self {
            views: Views::fresh(&cluster, &mut rng),
            rng,
            cluster,
            mutant: None,
            faults: Faults::Off,
            deletes_fail: 0,
            story: Story::Untold,
            writes: 0,
            bills: BTreeMap::new(),
            orphaned: Vec::new(),
            old_leader: None,
        }
    }

    fn fault(&mut self, percent: usize) -> bool {
        self.faults == Faults::On && self.rng.chance(percent)
    }

    fn disturb(&mut self, seed: u64, muted: &Muted) -> Verdict {
        for step in (0..STEPS).filter(|step| !muted.contains(step)) {
            self.rng = Rng::new(seed.wrapping_mul(1_000_003) + step as u64 + 1);
            self.let_time_pass();
            match self.rng.below(10) {
                0..=4 => drop(self.pass()?),
                5..=7 => installers::advance_one(&mut self.cluster, &mut self.rng, Luck::Mixed, &mut self.story),
                _ => self.happen(),
            }
            invariants::check_state(&self.cluster)?;
        }
        Ok(())
    }

    fn let_time_pass(&mut self) {
        let seconds = match self.rng.below(200) {
            0 => 90_000,
            1..=5 => 600,
            6..=20 => 30 + self.rng.below(60),
            _ => self.rng.below(5),
        };
        self.cluster.pass_seconds(i64::try_from(seconds).unwrap());
        if seconds > 5 || self.rng.chance(20) {
            self.cluster.kubelets_report();
        }
    }

    fn happen(&mut self) {
        environment::happen(&mut self.cluster, &mut self.rng, &mut self.story);
        let orphaned = self.cluster.shims.iter().filter(|shim| shim.view.life == Life::Orphaned);
        self.orphaned.extend(orphaned.map(|shim| shim.view.name.clone()));
    }

    fn look(&mut self) -> World {
        match self.faults {
            Faults::On => self.views.catch_up(&self.cluster, &mut self.rng),
            Faults::Off => self.views = Views::fresh(&self.cluster, &mut self.rng).accurate(),
        }
        self.views.world(&self.cluster)
    }

    fn plan(&mut self, view: &World) -> Result<Plan, Broken> {
        let made = match self.mutant {
            None => plan(view),
            Some(mutant) => self.plan_of(mutant, view),
        };
        if self.rng.chance(3) {
            check_purity(self.mutant, view, &made, &mut self.rng)?;
        }
        Ok(made)
    }

    fn plan_of(&mut self, mutant: Mutant, view: &World) -> Plan {
        if self.rng.chance(50) {
            self.views.catch_up_jobs(&self.cluster);
        }
        let mut world = view.clone();
        mutant.disturb(&mut world, &self.views);
        let mut made = plan(&world);
        mutant.spoil(&mut made, view);
        made
    }

    /// Looks, plans and acts once.
    fn pass(&mut self) -> Result<Next, Broken> {
        let view = self.look();
        let mut made = self.plan(&view)?;
        let mut pass = Pass::new(&view);
        // Writes of one kind are under way together, and end in any order.
        made.actions.chunk_by_mut(|a, b| discriminant(a) == discriminant(b)).for_each(|alike| self.rng.shuffle(alike));
        for (number, action) in made.actions.iter().enumerate() {
            self.let_the_old_leader_write()?;
            if self.fault(2) {
                self.hand_over(&view, pass, &made.actions[number..])?;
                break;
            }
            self.interrupt();
            self.act(&view, &mut pass, action)?;
        }
        // A node of containerd 1.x is looked at once a day, for ever.
        let soon = made.wake_at.is_some_and(|at| at < view.now + SignedDuration::from_hours(2));
        Ok(if made.actions.is_empty() && !soon { Next::Rest } else { Next::More })
    }

    /// The leader is killed, stopped or cut off. A write of it may still be under way; the next leader waits for that.
    fn hand_over(&mut self, view: &World, mut pass: Pass, left: &[Action]) -> Verdict {
        self.story.tell(|| "ANOTHER LEADER".to_owned());
        if self.rng.chance(30) {
            let alike = left.iter().take_while(|action| discriminant(*action) == discriminant(&left[0]));
            for action in alike.take(1 + self.rng.below(4)) {
                self.act(view, &mut pass, action)?;
            }
        }
        let wait = if self.rng.chance(50) { 25 } else { 0 };
        self.cluster.pass_seconds(wait);
        self.views = Views::fresh(&self.cluster, &mut self.rng);
        if self.mutant == Some(Mutant::WritesWithoutItsLease) {
            self.old_leader = Some(OldLeader { view: view.clone(), pass, left: left.to_vec() });
        }
        Ok(())
    }

    /// One that does not ask for the time that its Lease has left goes on where it was stopped.
    fn let_the_old_leader_write(&mut self) -> Verdict {
        let Some(mut old) = self.old_leader.take() else { return Ok(()) };
        if old.left.is_empty() {
            return Ok(());
        }
        let action = old.left.remove(0);
        self.act(&old.view, &mut old.pass, &action)?;
        self.old_leader = Some(old);
        Ok(())
    }

    /// Something may happen between two writes.
    fn interrupt(&mut self) {
        if self.fault(6) {
            match self.rng.below(2) {
                0 => self.happen(),
                _ => installers::advance_one(&mut self.cluster, &mut self.rng, Luck::Mixed, &mut self.story),
            }
        }
    }

    fn act(&mut self, view: &World, pass: &mut Pass, action: &Action) -> Verdict {
        if pass.skips(action) || executor::is_needless(&self.cluster, action) {
            return Ok(());
        }
        let odds = if matches!(action, Action::Delete(_)) { self.deletes_fail } else { 2 };
        if self.fault(odds) || !executor::accepts(&self.cluster, pass, action) {
            self.story.tell(|| format!("  refused: {}", executor::story_of(action)));
            self.give_up(pass, action);
            return Ok(());
        }
        self.story.tell(|| format!("  {}", executor::story_of(action)));
        self.write(view, pass, action)
    }

    fn give_up(&mut self, pass: &mut Pass, action: &Action) {
        pass.drop(action);
        if let Action::Mark(write) = action {
            self.views.is_unsure(&write.node);
        }
    }

    fn write(&mut self, view: &World, pass: &mut Pass, action: &Action) -> Verdict {
        invariants::check_write(&self.cluster, view, action)?;
        self.charge(action);
        executor::apply(&mut self.cluster, pass, action);
        self.writes += 1;
        if self.fault(1) {
            self.story.tell(|| "  … of which no answer comes".to_owned());
            self.give_up(pass, action);
        } else if let Action::Mark(write) = action {
            self.views.wrote(&self.cluster, &write.node);
        }
        invariants::check_state(&self.cluster)
    }

    fn charge(&mut self, action: &Action) {
        let node = match action {
            Action::Create(task) => &task.node,
            Action::Mark(write) => &write.node,
            Action::Delete(job) | Action::Withdraw(job, _) | Action::Record(job, _) | Action::Note(job, _) => {
                &self.cluster.jobs[&job.name].task().node
            }
            _ => return,
        };
        let bill = self.bills.entry(node.clone()).or_default();
        bill.writes += 1;
        bill.jobs += usize::from(matches!(action, Action::Create(_)));
    }

    /// The faults end and every installer succeeds.
    pub fn settle(&mut self) -> Verdict {
        self.story.tell(|| "CALM".to_owned());
        self.faults = Faults::Off;
        environment::calm_down(&mut self.cluster);
        self.run_until_rest()?;
        self.rest()
    }

    /// Passes until there is nothing to do, now or later.
    pub fn run_until_rest(&mut self) -> Verdict {
        self.bills.clear();
        for _ in 0..ROUNDS {
            installers::finish_all(&mut self.cluster, &mut self.rng, &mut self.story);
            self.cluster.kubelets_report();
            self.cluster.pass_seconds(45);
            self.story.tell(|| "pass".to_owned());
            if self.pass()? == Next::Rest && self.cluster.jobs.is_empty() {
                return Ok(());
            }
        }
        invariants::must(false, Invariant::L1Converges, || format!("no rest after {ROUNDS} passes"))
    }

    fn rest(&mut self) -> Verdict {
        invariants::check_rest(&self.cluster)?;
        invariants::check_no_class_left(&self.cluster, &self.orphaned)?;
        for seconds in [0, 3600] {
            self.cluster.pass_seconds(seconds);
            let view = self.look();
            let left = self.plan(&view)?.actions;
            let how = || left.iter().map(executor::story_of).collect::<Vec<_>>().join("; ");
            invariants::must(left.is_empty(), Invariant::L1Converges, || format!("there is no rest: {}", how()))?;
        }
        let most = self.bills.iter().max_by_key(|(_, bill)| bill.jobs);
        let few = most.is_none_or(|(_, bill)| bill.jobs <= JOBS_TO_REST);
        invariants::must(few, Invariant::L4Bounded, || format!("{most:?}"))
    }
}

/// The same World gives the same plan, in whatever order its parts come.
fn check_purity(mutant: Option<Mutant>, view: &World, made: &Plan, rng: &mut Rng) -> Verdict {
    match mutant {
        None => check_function(view, made, rng)?,
        Some(Mutant::NeverWakes) => {}
        // Its plan is not one that `plan` would make.
        Some(_) => return Ok(()),
    }
    check_wake(view, made)
}

fn check_function(view: &World, made: &Plan, rng: &mut Rng) -> Verdict {
    invariants::must(plan(view) == *made, Invariant::P1Deterministic, || "two plans of one World differ".to_owned())?;
    let mut shuffled = view.clone();
    rng.shuffle(&mut shuffled.shims);
    rng.shuffle(&mut shuffled.revisions);
    rng.shuffle(&mut shuffled.nodes);
    rng.shuffle(&mut shuffled.jobs);
    rng.shuffle(&mut shuffled.runtime_classes);
    let (ours, theirs) = (sorted(made), sorted(&plan(&shuffled)));
    let strange = ours.iter().find(|action| !theirs.contains(action));
    let same = ours == theirs;
    invariants::must(same, Invariant::P3OrderIndependent, || format!("another order has no {strange:?}"))
}

/// Until `wake_at` waiting alone makes no difference.
fn check_wake(view: &World, made: &Plan) -> Verdict {
    let mut later = view.clone();
    let hour = view.now + SignedDuration::from_hours(1);
    later.now = made.wake_at.map_or(hour, |at| at - SignedDuration::from_secs(1)).max(view.now);
    let waited = plan(&later);
    let (ours, theirs) = (deeds(made), deeds(&waited));
    let story = |deeds: &[&Action]| deeds.iter().map(|deed| executor::story_of(deed)).collect::<Vec<_>>().join("; ");
    let how = || format!("from {} to {}: {} becomes {}", view.now, later.now, story(&ours), story(&theirs));
    invariants::must(ours == theirs, Invariant::P4WakesInTime, how)
}

fn deeds(made: &Plan) -> Vec<&Action> {
    // Status and records of revisions hold the time at which they are written.
    let timeless = |action: &&Action| !matches!(action, Action::Status(..) | Action::Stamp(..) | Action::Revise(_));
    made.actions.iter().filter(timeless).collect()
}

fn sorted(made: &Plan) -> Vec<String> {
    let mut actions: Vec<_> = made.actions.iter().map(|action| format!("{action:?}")).collect();
    actions.sort();
    actions
}
