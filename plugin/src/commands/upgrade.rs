//! `upgrade`
use kube::ResourceExt as _;

use super::{
    App,
    install::{finish, read_files},
    step::{Step, announce, live},
};
use crate::{
    cli::UpgradeArgs,
    cluster::{Applied, Cluster},
    exit::{Exit, Failure},
    spec,
};

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
        sent.push(step.send(app, &cluster, &args.send, "configured").await?);
    }
    let unchanged = sent.iter().all(|sent| sent.applied == Applied::Unchanged);
    if unchanged && args.send.error_unchanged {
        return Ok(Exit::Unchanged);
    }
    finish(app, &cluster, &sent, &args.send.change, &args.wait).await
}

async fn by_flags(cluster: &Cluster, name: &str, args: &UpgradeArgs) -> Result<Step, Failure> {
    let changes = spec::changes_of(&args.artifact, &args.rollout, args.paused)?;
    Step::of_changes(live(cluster, name).await?, &changes)
}

async fn by_files(cluster: &Cluster, files: &[String]) -> Result<Vec<Step>, Failure> {
    let mut steps = Vec::new();
    for document in read_files(files)? {
        let live = live(cluster, &document.shim.name_any()).await?;
        let unchanged = spec::differences(&live, &document.shim)?.is_empty();
        let mut after = live.clone();
        after.spec = document.shim.spec.clone();
        steps.push(Step::new(unchanged, live, after, document.raw)?);
    }
    Ok(steps)
}
