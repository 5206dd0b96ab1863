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
    views::{Cell, Table, one_line},
};

/// Rows of pods that are shown; the rest is counted.
const ROWS: usize = 10;

/// Asks where it may hurt, then deletes.
pub async fn run(app: &App<'_>, args: &UninstallArgs) -> Result<Exit, Failure> {
    let cluster = app.cluster().await?;
    let shims = chosen(&cluster, args).await?;
    if shims.is_empty() {
        app.console.note("No resources found");
        return Ok(Exit::Done);
    }
    if args.change.dry_run == DryRun::None {
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

/// Asked is about all Shims at once, and about what pods use or may use.
async fn confirm(app: &App<'_>, cluster: &Cluster, shims: &[Shim], args: &UninstallArgs) -> Result<(), Failure> {
    let in_use = !args.orphan && may_be_in_use(app, cluster, shims).await?;
    if args.yes || !(args.all || in_use) {
        return Ok(());
    }
    match app.console.ask(&question(shims, args.orphan)) {
        Answer::Yes => Ok(()),
        Answer::No => Err(Failure::error("not confirmed; nothing was changed")),
        Answer::NoTerminal => {
            let failure = Failure::error("refusing to uninstall without confirmation; pass --yes");
            Err(Failure { next: without_question(args), ..failure })
        }
    }
}

/// Says so, too.
async fn may_be_in_use(app: &App<'_>, cluster: &Cluster, shims: &[Shim]) -> Result<bool, Failure> {
    let classes: Vec<_> = shims.iter().map(|shim| shim.spec.runtime_class.name.clone()).collect();
    match cluster.pods_with(&classes).await? {
        Some(users) if users.is_empty() => return Ok(false),
        Some(users) => app.console.note(&warning(app, &users)),
        None => app.console.warn("pods may not be listed; whether some use the runtime was not checked"),
    }
    Ok(true)
}

fn question(shims: &[Shim], orphan: bool) -> String {
    let names = shims.iter().map(kube::ResourceExt::name_any).collect::<Vec<_>>().join(", ");
    one_line(&if orphan {
        format!("Forget {names} and leave the nodes as they are?")
    } else {
        format!("Uninstall {names}? containerd is restarted once on each of their nodes.")
    })
}

fn without_question(args: &UninstallArgs) -> Vec<Next> {
    match (args.names.as_slice(), args.orphan) {
        ([], true) => vec![Next::orphan_all_yes()],
        ([], false) => vec![Next::uninstall_all_yes()],
        ([name], _) => vec![Next::uninstall_yes(name)],
        _ => Vec::new(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_says_what_it_comes_to() {
        let shim = |name: &str| {
            let spec = json!({"version": "v1", "fetchStrategy": {}, "runtimeClass": {"name": name}});
            Shim::new(name, serde_json::from_value(spec).unwrap())
        };
        let shims = [shim("a"), shim("b")];
        let removal = "Uninstall a, b? containerd is restarted once on each of their nodes.";
        assert_eq!(question(&shims, false), removal);
        assert_eq!(question(&shims, true), "Forget a, b and leave the nodes as they are?");
    }
}
