//! Every order of events in a small cluster: two nodes, two Shims, one upgrade, one removal, one failure, one change of
//! leader. What the simulator samples, this goes through to the end.
use std::{
    collections::{BTreeSet, HashSet, VecDeque, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
};

use jiff::SignedDuration;
use shim_core::{
    plan::{Action, Plan, plan},
    world::{Life, Share, World},
};

use crate::{
    cluster::Cluster,
    environment,
    executor::{self, Pass},
    installers::{self, Fate, Fates},
    invariants::{self, Broken, Invariant},
    mutants::Mutant,
    rng::Rng,
    setting::{self, shim_name},
    story::Story,
    views::Views,
};

/// More states than there are; a model that grows beyond it has lost its bounds.
const MOST: usize = 400_000;

/// What happens once at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Once {
    Upgrade,
    Removal,
    Failure,
    LostLeader,
}

/// A pass that has been planned, as far as it is not carried out.
#[derive(Debug, Clone)]
struct Pending {
    view: World,
    pass: Pass,
    left: VecDeque<Action>,
}

#[derive(Clone)]
struct State {
    mutant: Option<Mutant>,
    cluster: Cluster,
    pending: Option<Pending>,
    left: BTreeSet<Once>,
}

/// One thing that can happen next.
#[derive(Debug, Clone)]
enum Move {
    Look,
    Write,
    LoseLeader,
    Begin(String),
    End(String, Fates),
    /// Without a word; what it left on the machine depends on its luck.
    Vanish(String, u64),
    EndStray,
    Upgrade,
    Remove,
    Wait,
}

fn start(mutant: Option<Mutant>) -> State {
    let mut cluster = setting::plain(2);
    cluster.shims.set(cluster.now, shim_name(2), None);
    environment::edit_spec(&mut cluster, &shim_name(0), |spec| {
        (spec.rollout.canary, spec.rollout.max_update) = (Share::Count(1), Share::Count(1));
    });
    cluster.pass_seconds(5);
    let left = BTreeSet::from([Once::Upgrade, Once::Removal, Once::Failure, Once::LostLeader]);
    State { mutant, cluster, pending: None, left }
}

impl State {
    /// What decides about everything that follows: uids of Jobs and the order of past events do not.
    fn key(&self) -> u64 {
        let cluster = &self.cluster;
        let mut hash = DefaultHasher::new();
        let shims: Vec<_> =
            cluster.shims.iter().map(|s| (&s.view.name, s.view.life, s.view.finalizer, &s.view.spec)).collect();
        let jobs: Vec<_> = cluster.jobs.values().map(|j| (&j.view.task, &j.view.phase, &j.view.start)).collect();
        let strays: Vec<_> = cluster.strays.iter().map(|j| (&j.view.task, &j.view.start)).collect();
        let nodes: Vec<_> = cluster.nodes.iter().collect();
        let revisions: Vec<_> =
            cluster.revisions.iter().map(|r| (&r.view.shim, r.view.number, r.view.fate())).collect();
        let pending = self.pending.as_ref().map(|p| p.left.iter().map(executor::story_of).collect::<Vec<_>>());
        let text = format!(
            "{:?} {shims:?} {nodes:?} {jobs:?} {strays:?} {revisions:?} {:?} {} {pending:?}",
            cluster.now,
            cluster.machines,
            cluster.classes.iter().count(),
        );
        (text, &self.left).hash(&mut hash);
        hash.finish()
    }

    fn plan(&self) -> (World, Plan) {
        let view = self.cluster.world();
        let mut world = view.clone();
        if let Some(mutant) = self.mutant {
            mutant.disturb(&mut world, &Views::default());
        }
        let mut made = plan(&world);
        if let Some(mutant) = self.mutant {
            mutant.spoil(&mut made, &view);
        }
        // Nobody decides by a status.
        made.actions.retain(|action| !matches!(action, Action::Status(..)));
        (view, made)
    }

    fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        let mut awaited = false;
        let may = |what| self.left.contains(&what);
        if self.pending.is_some() {
            moves.push(Move::Write);
            moves.extend(may(Once::LostLeader).then_some(Move::LoseLeader));
        } else {
            let (view, made) = self.plan();
            let soon = view.now + SignedDuration::from_hours(2);
            awaited = made.actions.is_empty() && made.wake_at.is_some_and(|at| at < soon);
            moves.extend((!made.actions.is_empty()).then_some(Move::Look));
        }
        self.installers(&mut moves);
        let there = |index| self.cluster.shims.get(&shim_name(index)).is_some();
        moves.extend((may(Once::Upgrade) && there(0)).then_some(Move::Upgrade));
        moves.extend((may(Once::Removal) && there(1)).then_some(Move::Remove));
        // Time is long: what can happen before it passes does.
        moves.extend((awaited && moves.is_empty()).then_some(Move::Wait));
        moves
    }

    fn installers(&self, moves: &mut Vec<Move>) {
        moves.extend((!self.cluster.strays.is_empty()).then_some(Move::EndStray));
        for job in self.cluster.jobs.values().filter(|job| !job.is_finished()) {
            let name = job.view.name.clone();
            if !job.has_begun() {
                moves.push(Move::Begin(name));
                continue;
            }
            let done: Fates = job.task().ops.keys().map(|shim| (shim.clone(), Fate::Done)).collect();
            moves.push(Move::End(name.clone(), done.clone()));
            if self.left.contains(&Once::Failure) {
                // One fails beside another that succeeds.
                let one = |shim| -> Fates { done.clone().into_iter().chain([(shim, Fate::Failed)]).collect() };
                moves.extend(done.keys().map(|shim| Move::End(name.clone(), one(shim.clone()))));
                moves.extend((0..2).map(|luck| Move::Vanish(name.clone(), luck)));
            }
        }
    }

    fn after(&self, next: &Move) -> Result<Self, Broken> {
        let mut state = self.clone();
        let (cluster, story) = (&mut state.cluster, &mut Story::Untold);
        match next {
            Move::Look => {
                let (view, made) = self.plan();
                state.pending = Some(Pending { pass: Pass::new(&view), view, left: made.actions.into() });
            }
            Move::Write => state.write()?,
            Move::LoseLeader => {
                state.pending = None;
                state.left.remove(&Once::LostLeader);
            }
            Move::Begin(name) => {
                let job = cluster.jobs[name].clone();
                installers::begin(cluster, &job, story);
            }
            Move::End(name, fates) => {
                let job = cluster.jobs[name].clone();
                if fates.values().any(|fate| *fate != Fate::Done) {
                    state.left.remove(&Once::Failure);
                }
                installers::conclude(cluster, &mut Rng::new(1), &job, fates, story);
                cluster.kubelets_report();
            }
            Move::Vanish(name, luck) => {
                let job = cluster.jobs[name].clone();
                state.left.remove(&Once::Failure);
                installers::end_silently(cluster, &mut Rng::new(*luck), &job, story);
                cluster.kubelets_report();
            }
            Move::EndStray => installers::end_stray(cluster, &mut Rng::new(1), story),
            Move::Upgrade => {
                environment::edit_spec(cluster, &shim_name(0), |spec| setting::ask_for(spec, 0, 2));
                state.left.remove(&Once::Upgrade);
            }
            Move::Remove => {
                cluster.delete_shim(&shim_name(1), Life::Deleting);
                state.left.remove(&Once::Removal);
            }
            Move::Wait => {
                cluster.pass_seconds(60);
                cluster.kubelets_report();
            }
        }
        invariants::check_state(&state.cluster)?;
        Ok(state)
    }

    fn write(&mut self) -> Result<(), Broken> {
        let Some(mut pending) = self.pending.take() else { return Ok(()) };
        let Some(action) = pending.left.pop_front() else { return Ok(()) };
        let cluster = &mut self.cluster;
        if !pending.pass.skips(&action) && !executor::is_needless(cluster, &action) {
            if executor::accepts(cluster, &pending.pass, &action) {
                invariants::check_write(cluster, &pending.view, &action)?;
                executor::apply(cluster, &mut pending.pass, &action);
            } else {
                pending.pass.drop(&action);
            }
        }
        self.pending = Some(pending).filter(|pending| !pending.left.is_empty());
        Ok(())
    }
}

/// Goes through every state; how many there are.
fn explore(mutant: Option<Mutant>) -> Result<usize, (Vec<String>, Broken)> {
    let mut seen = HashSet::new();
    let first = start(mutant);
    seen.insert(first.key());
    let mut open = vec![(first, Vec::new())];
    while let Some((state, path)) = open.pop() {
        let moves = state.moves();
        let with = |path: &[String], next: &Move| path.iter().cloned().chain([format!("{next:?}")]).collect::<Vec<_>>();
        if moves.is_empty() {
            invariants::check_rest(&state.cluster).map_err(|broken| (path.clone(), broken))?;
        }
        for next in &moves {
            let after = state.after(next).map_err(|broken| (with(&path, next), broken))?;
            if seen.insert(after.key()) {
                open.push((after, with(&path, next)));
            }
        }
        let bounded = seen.len() < MOST;
        invariants::must(bounded, Invariant::L4Bounded, || format!("{} states", seen.len())).map_err(|b| (path, b))?;
    }
    Ok(seen.len())
}

#[test]
fn every_order_of_events_on_two_nodes_with_two_shims_is_safe_and_comes_to_rest() {
    match explore(None) {
        Ok(states) => {
            println!("states {states}");
            assert!(states > 1_000, "the model has lost its moves: {states} states");
        }
        Err((path, broken)) => panic!("{broken}\n{}", path.join("\n")),
    }
}

#[test]
fn a_fault_of_the_planner_is_found_in_the_small_cluster_too() {
    for mutant in [Mutant::RemovesWithoutDemotion, Mutant::StartsWithoutAClaim, Mutant::NeverRemoves] {
        assert!(explore(Some(mutant)).is_err(), "{mutant:?}");
    }
}
