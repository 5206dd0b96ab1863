//! One run: a cluster in motion, a controller that lags and crashes; then everything calms down and has to come to rest.
use std::collections::BTreeMap;

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
    story::Story,
    views::Views,
};

/// Steps before the faults end.
const STEPS: usize = 90;
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

/// Runs one seed, with a planner that has a fault or with ours.
pub fn run(seed: u64, mutant: Option<Mutant>, story: Story) -> Outcome {
    let mut sim = Sim::new(seed, mutant, story);
    let broken = sim.disturb().and_then(|()| sim.settle()).err();
    Outcome { writes: sim.writes, broken, story: sim.story }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Faults {
    On,
    Off,
}

struct Sim {
    rng: Rng,
    cluster: Cluster,
    views: Views,
    mutant: Option<Mutant>,
    faults: Faults,
    story: Story,
    writes: usize,
    jobs: BTreeMap<NodeName, usize>,
    /// Shims that were let go of: what they left stays.
    orphaned: Vec<ShimName>,
}

type Verdict = Result<(), Broken>;

impl Sim {
    fn new(seed: u64, mutant: Option<Mutant>, story: Story) -> Self {
        let mut rng = Rng::new(seed);
        let cluster = environment::found(&mut rng);
        let views = Views::fresh(&cluster);
        let (faults, jobs) = (Faults::On, BTreeMap::new());
        Self { rng, cluster, views, mutant, faults, story, writes: 0, jobs, orphaned: Vec::new() }
    }

    fn fault(&mut self, percent: usize) -> bool {
        self.faults == Faults::On && self.rng.chance(percent)
    }

    fn disturb(&mut self) -> Verdict {
        for _ in 0..STEPS {
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
        let seconds = if self.rng.chance(10) { 30 + self.rng.below(60) } else { self.rng.below(5) };
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
            Faults::Off => self.views = Views::fresh(&self.cluster),
        }
        self.views.world(&self.cluster)
    }

    fn plan(&mut self, view: &World) -> Result<Plan, Broken> {
        let Some(mutant) = self.mutant else {
            let made = plan(view);
            if self.rng.chance(10) {
                check_purity(view, &made, &mut self.rng)?;
            }
            return Ok(made);
        };
        if self.rng.chance(50) {
            self.views.catch_up_jobs(&self.cluster);
        }
        let mut world = view.clone();
        mutant.disturb(&mut world, &self.views);
        let mut made = plan(&world);
        mutant.spoil(&mut made, view);
        Ok(made)
    }

    /// Looks, plans and acts once; says how many actions there were.
    fn pass(&mut self) -> Result<usize, Broken> {
        let view = self.look();
        let made = self.plan(&view)?;
        let mut pass = Pass::new(&view);
        for action in &made.actions {
            if self.fault(2) {
                self.story.tell(|| "CRASH".to_owned());
                self.views = Views::fresh(&self.cluster);
                break;
            }
            if self.fault(3) {
                self.happen();
            } else if self.fault(3) {
                installers::advance_one(&mut self.cluster, &mut self.rng, Luck::Mixed, &mut self.story);
            }
            self.act(&view, &mut pass, action)?;
        }
        Ok(made.actions.len())
    }

    fn act(&mut self, view: &World, pass: &mut Pass, action: &Action) -> Verdict {
        if pass.skips(action) {
            return Ok(());
        }
        if self.fault(1) || !executor::accepts(&self.cluster, pass, action) {
            self.story.tell(|| format!("  refused: {}", executor::story_of(action)));
            pass.drop(action);
            return Ok(());
        }
        self.story.tell(|| format!("  {}", executor::story_of(action)));
        self.write(view, pass, action)
    }

    fn write(&mut self, view: &World, pass: &mut Pass, action: &Action) -> Verdict {
        invariants::check_write(&self.cluster, view, action)?;
        executor::apply(&mut self.cluster, pass, action);
        self.writes += 1;
        if self.fault(1) {
            self.story.tell(|| "  … of which no answer comes".to_owned());
            pass.drop(action);
        } else if let Action::Mark(write) = action {
            self.views.wrote(&self.cluster, &write.node);
        }
        if let Action::Create(task) = action {
            *self.jobs.entry(task.node.clone()).or_default() += 1;
        }
        invariants::check_state(&self.cluster)
    }

    /// The faults end and every installer succeeds.
    fn settle(&mut self) -> Verdict {
        self.story.tell(|| "CALM".to_owned());
        self.faults = Faults::Off;
        environment::calm_down(&mut self.cluster);
        self.jobs.clear();
        for _ in 0..ROUNDS {
            installers::finish_all(&mut self.cluster, &mut self.rng, &mut self.story);
            self.cluster.kubelets_report();
            self.cluster.pass_seconds(15);
            self.story.tell(|| "pass".to_owned());
            if self.pass()? == 0 && self.cluster.jobs.is_empty() {
                break;
            }
        }
        self.rest()
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
        let most = self.jobs.iter().max_by_key(|(_, count)| **count);
        invariants::must(most.is_none_or(|(_, count)| *count <= JOBS_TO_REST), Invariant::L4Bounded, || format!("Jobs: {most:?}"))
    }
}

/// The same World gives the same plan, in whatever order its parts come.
fn check_purity(view: &World, made: &Plan, rng: &mut Rng) -> Verdict {
    invariants::must(plan(view) == *made, Invariant::P1Deterministic, || "two plans of one World differ".to_owned())?;
    let mut shuffled = view.clone();
    rng.shuffle(&mut shuffled.shims);
    rng.shuffle(&mut shuffled.nodes);
    rng.shuffle(&mut shuffled.jobs);
    rng.shuffle(&mut shuffled.runtime_classes);
    let (ours, theirs) = (sorted(made), sorted(&plan(&shuffled)));
    let strange = ours.iter().find(|action| !theirs.contains(action));
    let same = ours == theirs;
    invariants::must(same, Invariant::P3OrderIndependent, || format!("another order has no {strange:?}"))
}

fn sorted(made: &Plan) -> Vec<String> {
    let mut actions: Vec<_> = made.actions.iter().map(|action| format!("{action:?}")).collect();
    actions.sort();
    actions
}
