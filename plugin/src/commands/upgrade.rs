//! `upgrade`
use kube::ResourceExt as _;
use serde_json::Value;
use shim_core::{api::Shim, status::nodes};

use super::{
    App, Sent,
    install::{check_nodes, finish, read_files, same},
    not_found,
    preflight::Preflight,
};
use crate::{
    cli::{UpgradeArgs, values::DryRun},
    cluster::{Applied, Cluster, Force},
    exit::{Exit, Failure},
    next::Next,
    spec,
    views::one_line,
};

/// One Shim and what it becomes.
struct Step {
    live: Shim,
    after: Shim,
    body: Value,
    applied: Applied,
}

/// Checks everything, then sends what changes.
pub async fn run(app: &App<'_>, args: &UpgradeArgs) -> Result<Exit, Failure> {
    let cluster = app.cluster().await?;
    let steps = match &args.name {
        Some(name) => vec![by_flags(&cluster, name, args).await?],
        None => by_files(&cluster, &args.filename).await?,
    };
    announce(app, &cluster, &steps).await?;
    let mut sent = Vec::new();
    for step in &steps {
        sent.push(send(app, &cluster, step, args).await?);
    }
    let unchanged = sent.iter().all(|sent| sent.applied == Applied::Unchanged);
    if unchanged && args.error_unchanged {
        return Ok(Exit::Unchanged);
    }
    finish(app, &cluster, &sent, &args.change, &args.wait).await
}

async fn by_flags(cluster: &Cluster, name: &str, args: &UpgradeArgs) -> Result<Step, Failure> {
    let changes = spec::changes_of(args)?;
    let live = live(cluster, name).await?;
    if let Some(text) = spec::held_by_others(&live, &changes) {
        return Err(Failure::error(text));
    }
    let after = spec::changed(&live, &changes)?;
    let body = spec::apply_body(&live, &changes)?;
    step(live.spec == after.spec, live, after, body)
}

async fn by_files(cluster: &Cluster, files: &[String]) -> Result<Vec<Step>, Failure> {
    let mut steps = Vec::new();
    for document in read_files(files)? {
        let live = live(cluster, &document.shim.name_any()).await?;
        let unchanged = same(&document, &live);
        let mut after = live.clone();
        after.spec = document.shim.spec.clone();
        steps.push(step(unchanged, live, after, document.raw)?);
    }
    Ok(steps)
}

fn step(unchanged: bool, live: Shim, after: Shim, body: Value) -> Result<Step, Failure> {
    spec::check_update(&after, &live)?;
    let applied = if unchanged { Applied::Unchanged } else { Applied::Configured };
    Ok(Step { live, after, body, applied })
}

async fn live(cluster: &Cluster, name: &str) -> Result<Shim, Failure> {
    let live = cluster.shim(name).await?.ok_or_else(|| not_found(name).then(Next::status()))?;
    match live.metadata.deletion_timestamp {
        Some(_) => Err(Failure::error(format!("shim {name:?} is being uninstalled")).then(Next::watch(name))),
        None => Ok(live),
    }
}

/// `spin v1 -> v2 on 4 nodes, 1 at a time`
async fn announce(app: &App<'_>, cluster: &Cluster, steps: &[Step]) -> Result<(), Failure> {
    let changed: Vec<_> = steps.iter().filter(|step| step.applied == Applied::Configured).collect();
    if changed.is_empty() {
        return Ok(());
    }
    let candidates: Vec<_> = changed.iter().map(|step| step.after.clone()).collect();
    let found = check_nodes(app, cluster, &candidates).await?;
    for (n, step) in changed.iter().enumerate() {
        app.console.note(&announcement(step, found.get(n)));
    }
    Ok(())
}

fn announcement(step: &Step, found: Option<&Preflight>) -> String {
    let (before, after) = (&step.live.spec, &step.after.spec);
    let what = if before.version != after.version {
        format!("{} -> {}", before.version, after.version)
    } else if before.fetch_strategy != after.fetch_strategy || before.binary != after.binary {
        format!("{} with another artifact", after.version)
    } else {
        format!("{}, the same artifact,", after.version)
    };
    let pace =
        found.map(|found| format!(" on {}, {} at a time", nodes(found.served), found.budget)).unwrap_or_default();
    one_line(&format!("{} {what}{pace}", step.live.name_any()))
}

async fn send(app: &App<'_>, cluster: &Cluster, step: &Step, args: &UpgradeArgs) -> Result<Sent, Failure> {
    let force = if args.force_conflicts { Force::Conflicts } else { Force::Never };
    let (applied, object) = match (step.applied, args.change.dry_run) {
        (Applied::Unchanged, _) | (_, DryRun::Client) => (step.applied, shown(&step.after)?),
        (_, dry_run) => {
            let outcome = cluster.apply(&step.body, force, dry_run).await?;
            (outcome.applied, outcome.object)
        }
    };
    app.report(&object, applied, args.change.dry_run, args.change.output)?;
    Ok(Sent { name: step.live.name_any(), applied })
}

fn shown(shim: &Shim) -> Result<Value, Failure> {
    let mut shim = shim.clone();
    shim.metadata.managed_fields = None;
    serde_json::to_value(shim).map_err(Failure::error)
}
