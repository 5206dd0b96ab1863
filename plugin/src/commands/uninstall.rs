//! `uninstall`
use kube::{
    ResourceExt as _,
    api::{DeleteParams, Preconditions},
};
use serde_json::{Value, json};
use shim_core::{
    api::Shim,
    status::{nodes, pods},
};

use super::{
    App,
    follow::{Follow, Voice, doubt_controller, follow},
    not_found,
    orphan::let_go,
};
use crate::{
    cli::{
        UninstallArgs,
        goal::Goal,
        values::{DryRun, ObjectFormat},
    },
    cluster::{Cluster, PodUse},
    console::Answer,
    exit::{Exit, Failure},
    next::Next,
    views::{Cell, Table},
};

/// Rows of pods that are shown; the rest is counted.
const ROWS: usize = 10;

/// Asks where pods are in the way, then deletes.
pub async fn run(app: &App<'_>, args: &UninstallArgs) -> Result<Exit, Failure> {
    let cluster = app.cluster().await?;
    let shims = chosen(&cluster, args).await?;
    if shims.is_empty() {
        app.console.note("No resources found");
        return Ok(Exit::Done);
    }
    if !args.orphan && args.change.dry_run == DryRun::None {
        confirm(app, &cluster, &shims, args).await?;
    }
    for shim in &shims {
        remove(app, &cluster, shim, args).await?;
    }
    if args.change.dry_run != DryRun::None || args.orphan {
        return Ok(Exit::Done);
    }
    finish(app, &cluster, &shims, args).await
}

async fn chosen(cluster: &Cluster, args: &UninstallArgs) -> Result<Vec<Shim>, Failure> {
    if args.all {
        return cluster.all_shims().await;
    }
    let mut shims = Vec::new();
    for name in &args.names {
        shims.push(cluster.shim(name).await?.ok_or_else(|| not_found(name).then(Next::status()))?);
    }
    Ok(shims)
}

/// Only what can hurt running pods is asked about.
async fn confirm(app: &App<'_>, cluster: &Cluster, shims: &[Shim], args: &UninstallArgs) -> Result<(), Failure> {
    let classes: Vec<_> = shims.iter().map(|shim| shim.spec.runtime_class.name.clone()).collect();
    let Some(users) = cluster.pods_with(&classes).await? else {
        app.console.warn("pods may not be listed; whether some use the runtime was not checked");
        return Ok(());
    };
    if users.is_empty() {
        return Ok(());
    }
    app.console.note(&warning(app, &users));
    if args.yes {
        return Ok(());
    }
    match app.console.ask("Uninstall?") {
        Answer::Yes => Ok(()),
        Answer::No => Err(Failure::error("not confirmed; nothing was changed")),
        Answer::NoTerminal => {
            let failure = Failure::error("refusing to uninstall without confirmation; pass --yes");
            Err(if let [name] = args.names.as_slice() { failure.then(Next::uninstall_yes(name)) } else { failure })
        }
    }
}

fn warning(app: &App<'_>, users: &[PodUse]) -> String {
    let mut table = Table::new(&["NAMESPACE", "POD", "NODE", "RUNTIMECLASS"]);
    for pod in users.iter().take(ROWS) {
        table.row(vec![
            Cell::new(&pod.namespace),
            Cell::new(&pod.name),
            Cell::or(pod.node.as_ref(), "<none>"),
            Cell::new(&pod.class),
        ]);
    }
    let count = u32::try_from(users.len()).unwrap_or(u32::MAX);
    let rest = users.len().saturating_sub(ROWS);
    let rest = if rest > 0 { format!("… {rest} more\n") } else { String::new() };
    format!(
        "{}{rest}{} of this runtime: they go on running, and their nodes wait for them; no new one can start.",
        table.render(&app.console.side_screen()),
        pods(count)
    )
}

async fn remove(app: &App<'_>, cluster: &Cluster, shim: &Shim, args: &UninstallArgs) -> Result<(), Failure> {
    let object = reference(shim);
    match (args.change.dry_run, args.orphan) {
        (DryRun::Client, _) => {}
        (DryRun::None, true) => let_go(cluster, &shim.name_any()).await?,
        (dry_run, _) => {
            let params = DeleteParams {
                dry_run: dry_run == DryRun::Server,
                // A Shim that was made anew meanwhile is another one.
                preconditions: Some(Preconditions { uid: shim.uid(), resource_version: None }),
                ..DeleteParams::default()
            };
            cluster.delete(&object, &params).await?;
        }
    }
    let verb = if args.orphan { "orphaned" } else { "deleted" };
    app.report(&object, verb, args.change.dry_run, args.change.output.filter(|format| *format == ObjectFormat::Name))?;
    if args.orphan && args.change.dry_run == DryRun::None {
        let class = &shim.spec.runtime_class.name;
        app.console.note(&format!("its nodes and RuntimeClass {class} were left as they are"));
    }
    Ok(())
}

fn reference(shim: &Shim) -> Value {
    json!({"apiVersion": "shim.dev/v1alpha1", "kind": "Shim", "metadata": {"name": shim.name_any()}})
}

async fn finish(app: &App<'_>, cluster: &Cluster, shims: &[Shim], args: &UninstallArgs) -> Result<Exit, Failure> {
    let names: Vec<_> = shims.iter().map(kube::ResourceExt::name_any).collect();
    if args.wait.wait {
        return follow(
            app,
            cluster,
            Follow { names, goal: Goal::Gone, timeout: args.wait.timeout, voice: Voice::Aside },
        )
        .await;
    }
    for shim in shims {
        let count = shim.status.as_ref().map(|status| status.nodes).unwrap_or_default();
        app.console.note(&format!("{}: {} to clean", shim.name_any(), nodes(count as usize)));
    }
    let mut next = doubt_controller(app, cluster, &names, &Goal::Gone).await?;
    next.push(if let [name] = names.as_slice() { Next::watch(name) } else { Next::status() });
    app.console.next(&next);
    Ok(Exit::Done)
}
