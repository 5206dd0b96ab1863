//! `install`
use std::{fs, io::Read as _};

use kube::ResourceExt as _;
use shim_core::api::Shim;

use super::{
    App, Sent,
    follow::{Follow, Voice, doubt_controller, follow},
    preflight::{Preflight, preflight},
};
use crate::{
    cli::{
        ChangeFlags, InstallArgs, WaitFlags,
        goal::Goal,
        values::{DryRun, ObjectFormat},
    },
    cluster::{Applied, Cluster, Force},
    exit::{Exit, Failure},
    next::Next,
    spec::{self, Difference, Document},
    views::one_line,
};

/// Fields of a difference that are named; the rest is counted.
const FIELDS: usize = 3;
/// Fields that only another Shim can have otherwise.
const IMMUTABLE: [&str; 2] = ["spec.runtimeClass.name", "spec.runtimeClass.handler"];
const PAUSED: &str = "spec.rolloutStrategy.paused";

/// Checks everything, then sends.
pub async fn run(app: &App<'_>, args: &InstallArgs) -> Result<Exit, Failure> {
    let documents = read(args)?;
    for document in &documents {
        spec::check(&document.shim)?;
    }
    if args.change.dry_run == DryRun::Client {
        for document in &documents {
            app.report(&document.raw, Applied::Created, DryRun::Client, args.change.output)?;
        }
        return Ok(Exit::Done);
    }
    let cluster = app.cluster().await?;
    let mut new = Vec::new();
    for document in &documents {
        match cluster.shim(&document.shim.name_any()).await? {
            None => new.push(document.clone()),
            Some(live) => unchanged(document, &live, args)?,
        }
    }
    look_around(app, &cluster, &new).await?;
    let sent = send(app, &cluster, &documents, &new, &args.change).await?;
    finish(app, &cluster, &sent, &args.change, &args.wait).await
}

fn read(args: &InstallArgs) -> Result<Vec<Document>, Failure> {
    match &args.name {
        Some(name) => {
            let shim = spec::shim_of(name, args)?;
            let raw = serde_json::to_value(&shim).map_err(Failure::error)?;
            Ok(vec![Document { raw, shim, source: None }])
        }
        None => read_files(&args.filename),
    }
}

/// The Shims of all files; `-` is standard input.
pub(super) fn read_files(files: &[String]) -> Result<Vec<Document>, Failure> {
    let mut all = Vec::new();
    for file in files {
        let text = if file == "-" { read_stdin() } else { fs::read_to_string(file) };
        let text = text.map_err(|error| Failure::error(format!("{file} can't be read: {error}")))?;
        all.extend(spec::documents(file, &text)?);
    }
    Ok(all)
}

fn read_stdin() -> std::io::Result<String> {
    let mut text = String::new();
    std::io::stdin().lock().read_to_string(&mut text)?;
    Ok(text)
}

/// A Shim that exists is no obstacle if it means the same; `install` changes nothing.
fn unchanged(document: &Document, live: &Shim, args: &InstallArgs) -> Result<(), Failure> {
    let name = live.name_any();
    if live.metadata.deletion_timestamp.is_some() {
        return Err(Failure::error(format!("shim {name:?} is being uninstalled")).then(Next::watch(&name)));
    }
    let differences = spec::differences(live, &document.shim)?;
    if differences.is_empty() {
        return Ok(());
    }
    let fields: Vec<_> = differences.iter().take(FIELDS).map(ToString::to_string).collect();
    let more = differences.len().saturating_sub(FIELDS);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let version = one_line(&live.spec.version);
    let text = format!("shim {name:?} exists at {version} and is not the same: {}{more}", fields.join("; "));
    Err(Failure::error(text).then(way(document, live, args, &differences)?))
}

/// What makes the live Shim the one that is asked for.
fn way(document: &Document, live: &Shim, args: &InstallArgs, differences: &[Difference]) -> Result<Next, Failure> {
    let name = live.name_any();
    let differs = |path: &str| differences.iter().any(|difference| difference.path == path);
    if IMMUTABLE.into_iter().any(differs) {
        return Ok(Next::uninstall(&name));
    }
    if let Some(file) = &document.source {
        return Ok(Next::upgrade_file(file));
    }
    let paused = differs(PAUSED).then_some(args.paused);
    if paused == Some(false) && differences.len() == 1 {
        return Ok(Next::resume(&name));
    }
    let changes = spec::changes_of(&args.artifact, &args.rollout, paused)?;
    let after = spec::changed(live, &changes)?;
    // No flag takes away what was not given.
    Ok(if spec::differences(&after, &document.shim)?.is_empty() {
        Next::upgrade(&name, &spec::upgrade_flags(&args.artifact, &args.rollout, paused))
    } else {
        Next::kubectl(["edit", "shims.shim.dev", &name])
    })
}

/// What the nodes say to it, before anything is sent.
async fn look_around(app: &App<'_>, cluster: &Cluster, new: &[Document]) -> Result<(), Failure> {
    if new.is_empty() {
        return Ok(());
    }
    let candidates: Vec<_> = new.iter().map(|document| document.shim.clone()).collect();
    for found in check_nodes(app, cluster, &candidates).await? {
        found.facts().iter().for_each(|fact| app.console.note(fact));
        if let Some(warning) = found.warning() {
            app.console.warn(&warning);
        }
    }
    Ok(())
}

/// Stops where something stands in the way; empty where the nodes may not be read.
pub(super) async fn check_nodes(
    app: &App<'_>,
    cluster: &Cluster,
    candidates: &[Shim],
) -> Result<Vec<Preflight>, Failure> {
    let found = preflight(&cluster.snapshot().await?, candidates);
    match &found {
        Some(found) => found.iter().try_for_each(Preflight::obstacle)?,
        None => app.console.warn("the nodes may not be listed; which of them match was not checked"),
    }
    Ok(found.unwrap_or_default())
}

async fn send(
    app: &App<'_>,
    cluster: &Cluster,
    all: &[Document],
    new: &[Document],
    change: &ChangeFlags,
) -> Result<Vec<Sent>, Failure> {
    let user = if new.is_empty() { None } else { cluster.user().await? };
    let mut sent = Vec::new();
    for document in all {
        let name = document.shim.name_any();
        let is_new = new.iter().any(|new| new.shim.name_any() == name);
        let (applied, object) = if is_new {
            let mut body = document.raw.clone();
            spec::sign(&mut body, user.as_deref());
            let outcome = cluster.apply(&body, Force::Never, change.dry_run).await?;
            (outcome.applied, outcome.object)
        } else {
            (Applied::Unchanged, document.raw.clone())
        };
        app.report(&object, applied, change.dry_run, change.output)?;
        sent.push(Sent { name, applied });
    }
    Ok(sent)
}

/// Waits, or says how to.
pub(super) async fn finish(
    app: &App<'_>,
    cluster: &Cluster,
    sent: &[Sent],
    change: &ChangeFlags,
    wait: &WaitFlags,
) -> Result<Exit, Failure> {
    if change.dry_run != DryRun::None {
        return Ok(Exit::Done);
    }
    let names: Vec<_> = sent.iter().map(|sent| sent.name.clone()).collect();
    if wait.wait {
        return follow(app, cluster, Follow { names, goal: Goal::Ready, timeout: wait.timeout, voice: Voice::Aside })
            .await;
    }
    if sent.iter().any(|sent| sent.applied != Applied::Unchanged) && change.output != Some(ObjectFormat::Name) {
        let mut next = doubt_controller(app, cluster, &names, &Goal::Ready).await?;
        next.push(if let [name] = names.as_slice() { Next::watch(name) } else { Next::status() });
        app.console.next(&next);
    }
    Ok(Exit::Done)
}
