//! `pause` and `resume`
use shim_core::status::{NodeState, nodes};

use super::{
    App, Sent,
    follow::{Follow, Voice, follow},
    install::finish,
    step::{Step, live},
};
use crate::{
    cli::{
        PauseArgs,
        goal::Goal,
        values::{DryRun, ObjectFormat},
    },
    cluster::{Applied, Cluster},
    exit::{Exit, Failure},
    next::Next,
    spec,
    views::{Picture, ShimPicture},
};

/// Nodes that are named; the rest is counted.
const NAMES: usize = 3;

/// Starts on no further node; what is in progress goes on to its end.
pub async fn pause(app: &App<'_>, args: &PauseArgs) -> Result<Exit, Failure> {
    let cluster = app.cluster().await?;
    let sent = send(app, &cluster, args, true).await?;
    if args.send.change.dry_run != DryRun::None {
        return Ok(Exit::Done);
    }
    if sent.iter().all(|sent| sent.applied == Applied::Unchanged) && args.send.error_unchanged {
        return Ok(Exit::Unchanged);
    }
    let quiet = args.send.change.output == Some(ObjectFormat::Name);
    if !quiet {
        let picture = Picture::of(&cluster.snapshot().await?);
        let shims = sent.iter().filter_map(|sent| picture.shim(&sent.name));
        shims.for_each(|shim| app.console.note(&under_way(shim)));
    }
    if args.wait.wait {
        let names = args.names.clone();
        return follow(
            app,
            &cluster,
            Follow { names, goal: Goal::Paused, timeout: args.wait.timeout, voice: Voice::Aside },
        )
        .await;
    }
    if let ([name], false) = (args.names.as_slice(), quiet) {
        app.console.next(&[Next::resume(name)]);
    }
    Ok(Exit::Done)
}

/// Goes on.
pub async fn resume(app: &App<'_>, args: &PauseArgs) -> Result<Exit, Failure> {
    let cluster = app.cluster().await?;
    let sent = send(app, &cluster, args, false).await?;
    if sent.iter().all(|sent| sent.applied == Applied::Unchanged) && args.send.error_unchanged {
        return Ok(Exit::Unchanged);
    }
    finish(app, &cluster, &sent, &args.send.change, &args.wait).await
}

/// All are checked before the first is sent.
async fn send(app: &App<'_>, cluster: &Cluster, args: &PauseArgs, paused: bool) -> Result<Vec<Sent>, Failure> {
    let mut steps = Vec::new();
    for name in &args.names {
        let live = live(cluster, name).await?;
        let now = live.spec.rollout_strategy.as_ref().and_then(|strategy| strategy.paused).unwrap_or_default();
        // Absent is the same as false: nothing has to be written.
        let changes = if now == paused { Vec::new() } else { vec![spec::pausing(paused)] };
        steps.push(Step::of_changes(live, &changes)?);
    }
    let mut sent = Vec::new();
    for step in &steps {
        sent.push(step.send(app, cluster, &args.send, if paused { "paused" } else { "resumed" }).await?);
    }
    Ok(sent)
}

/// What a pause leaves alone.
fn under_way(shim: &ShimPicture) -> String {
    let busy = |state| matches!(state, NodeState::Updating | NodeState::Removing);
    let rows = shim.rows.iter().flatten().filter(|row| busy(row.row.state) && row.row.job.is_some());
    let mut names: Vec<_> = rows.take(NAMES + 1).map(|row| row.row.node.to_string()).collect();
    let count = shim.status.nodes_updating as usize;
    if count == 0 {
        return format!("{} paused; no node is in progress", shim.name);
    }
    if names.len() > NAMES {
        names.truncate(NAMES);
        names.push("…".to_owned());
    }
    let which = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
    format!("{} paused; {} in progress will finish{which}", shim.name, nodes(count))
}
