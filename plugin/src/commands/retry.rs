//! `retry`
use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use shim_core::{
    api::Problem,
    names::{NodeName, RETRY_ANNOTATION},
    report::Step,
    status::NodeState,
    world::{Life, Retry},
};

use super::{
    App,
    follow::{Follow, Voice, doubt_controller, follow},
    not_found,
    step::shown,
};
use crate::{
    cli::{
        RetryArgs,
        goal::Goal,
        values::{DryRun, ObjectFormat},
    },
    cluster::Cluster,
    exit::{Exit, Failure},
    next::Next,
    views::{Picture, ShimPicture, one_line},
};

/// Nodes that are named; the rest is counted.
const NAMES: usize = 5;

/// A node whose last try did not get it done, or does not begin.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fallen {
    node: NodeName,
    since: Timestamp,
}

/// Asks for another try now of what has failed.
pub async fn run(app: &App<'_>, args: &RetryArgs) -> Result<Exit, Failure> {
    let cluster = app.cluster().await?;
    let missing = || not_found(&args.name).then(Next::status());
    let live = cluster.shim(&args.name).await?.ok_or_else(missing)?;
    let picture = Picture::of(&cluster.snapshot().await?);
    let shim = picture.shim(&args.name).ok_or_else(missing)?;
    let fallen = chosen(shim, &args.nodes)?;
    if fallen.is_empty() {
        app.report(&shown(&live)?, "unchanged", args.change.dry_run, args.change.output)?;
        app.console.note(&format!("{}: no node has failed or waits", args.name));
        return Ok(if args.error_unchanged { Exit::Unchanged } else { Exit::Done });
    }
    let mut after = live.clone();
    if args.change.dry_run != DryRun::Client {
        let text = wish(shim, &fallen, &args.nodes).to_string();
        after = cluster.annotate(&live, RETRY_ANNOTATION, &text, args.change.dry_run).await?;
    }
    app.report(&shown(&after)?, "retried", args.change.dry_run, args.change.output)?;
    if args.change.output != Some(ObjectFormat::Name) {
        app.console.note(&told(shim, &fallen));
    }
    if args.change.dry_run != DryRun::None {
        return Ok(Exit::Done);
    }
    finish(app, &cluster, shim, args).await
}

async fn finish(app: &App<'_>, cluster: &Cluster, shim: &ShimPicture, args: &RetryArgs) -> Result<Exit, Failure> {
    let names = vec![args.name.clone()];
    let goal = if shim.life == Life::Active { Goal::Ready } else { Goal::Gone };
    if args.wait.wait {
        return follow(app, cluster, Follow { names, goal, timeout: args.wait.timeout, voice: Voice::Aside }).await;
    }
    let mut next = doubt_controller(app, cluster, &names, &goal).await?;
    next.push(Next::watch(&args.name));
    app.console.next(&next);
    Ok(Exit::Done)
}

/// Those that are asked for; all where none is named. Errors: one of them has nothing to try again.
fn chosen(shim: &ShimPicture, names: &[String]) -> Result<Vec<Fallen>, Failure> {
    let all = fallen(shim);
    if names.is_empty() {
        return Ok(all);
    }
    let names: BTreeSet<_> = names.iter().collect();
    let find = |name: &&String| {
        let found = all.iter().find(|fallen| fallen.node.as_str() == name.as_str());
        found.cloned().ok_or_else(|| nothing_to_try(shim, name))
    };
    names.iter().map(find).collect()
}

fn fallen(shim: &ShimPicture) -> Vec<Fallen> {
    match &shim.rows {
        Some(rows) => {
            let found = rows.iter().filter(|row| match row.row.state {
                NodeState::Failed | NodeState::Retrying => true,
                NodeState::Waiting => waits_for_time(&row.row.reason),
                NodeState::Updating | NodeState::Removing => row.row.step == Some(Step::Start),
                _ => false,
            });
            found.filter_map(|row| Some(Fallen { node: row.row.node.clone(), since: row.row.since? })).collect()
        }
        None => shim.status.problems.iter().filter_map(of_problem).collect(),
    }
}

/// Whether a node waits until its next try is due: for pods to go, or for the kubelet to report the handler.
fn waits_for_time(reason: &str) -> bool {
    ["InUse", "HandlerNotReported"].contains(&reason)
}

/// The same from `.status`, where the nodes may not be read.
fn of_problem(problem: &Problem) -> Option<Fallen> {
    let states = [NodeState::Failed, NodeState::Retrying].map(|state| state.to_string());
    let counts = states.contains(&problem.state)
        || waits_for_time(&problem.reason)
        || problem.step.as_ref().is_some_and(|step| *step == Step::Start.to_string());
    let fallen = || Some(Fallen { node: problem.node.parse().ok()?, since: problem.since.as_ref()?.parse().ok()? });
    counts.then(fallen).flatten()
}

fn nothing_to_try(shim: &ShimPicture, name: &str) -> Failure {
    let row = shim.rows.iter().flatten().find(|row| row.row.node.as_str() == name);
    let text = match (row, &shim.rows) {
        (Some(row), _) => {
            format!("node {name:?} has nothing to try again: shim {:?} is {} there", shim.name, row.row.state)
        }
        (None, Some(_)) => format!("node {name:?} is not one of shim {:?}", shim.name),
        (None, None) => format!("node {name:?} is not among the problems that shim {:?} tells of", shim.name),
    };
    Failure::error(one_line(&(text + "; nothing was changed"))).then(Next::status_of(&shim.name))
}

/// The moment is that of the last failure by the cluster's clock: that of this machine may be wrong, and one in the
/// future would take the pauses between all tries until then.
fn wish(shim: &ShimPicture, fallen: &[Fallen], named: &[String]) -> Retry {
    let last = fallen.iter().map(|fallen| fallen.since).max().unwrap_or_default();
    let after = last.checked_add(SignedDuration::from_secs(1)).unwrap_or(last);
    // Of many failures `.status` only tells the worst: then the clock of this machine has to do.
    let at = if shim.rows.is_some() || !named.is_empty() { after } else { after.max(Timestamp::now()) };
    let nodes = fallen.iter().map(|fallen| fallen.node.clone()).collect();
    Retry { at, nodes: (!named.is_empty()).then_some(nodes) }
}

fn told(shim: &ShimPicture, fallen: &[Fallen]) -> String {
    let names: Vec<_> = fallen.iter().take(NAMES).map(|fallen| fallen.node.as_str()).collect();
    let more = fallen.len().saturating_sub(NAMES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}: another try on {}{more}", shim.name, names.join(", "))
}
