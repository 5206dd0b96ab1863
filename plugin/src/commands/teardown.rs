//! `teardown`
use kube::{
    ResourceExt as _,
    api::{DeleteParams, DynamicObject},
};
use serde_json::{Value, json};
use shim_core::{
    job::Settings,
    manifests::{self, PART_OF, PART_OF_LABEL},
};

use super::{App, orphan::let_go};
use crate::{
    cli::TeardownArgs,
    cluster::{Cluster, reference},
    console::Answer,
    exit::{Exit, Failure},
    next::Next,
};

/// Removes what `init` made, in the reverse order.
pub async fn run(app: &App<'_>, args: &TeardownArgs) -> Result<Exit, Failure> {
    let cluster = app.cluster().await?;
    let shims = shims(&cluster).await?;
    if !shims.is_empty() && !args.force {
        let text =
            format!("{} still there: {}", if shims.len() == 1 { "a shim is" } else { "shims are" }, shims.join(", "));
        let failure = Failure::error(text + "; uninstall first, or pass --force to leave the nodes as they are");
        return Err(failure.then(Next::uninstall_all()));
    }
    confirm(app, &cluster, args).await?;
    for name in &shims {
        let_go(&cluster, name).await?;
        app.console.line(&format!("{}/{name} orphaned", crate::spec::TYPE))?;
    }
    let mut removed = Vec::new();
    for object in objects(&cluster, args)? {
        if remove(app, &cluster, &object).await? == Removed::Yes {
            removed.push(object);
        }
    }
    for object in &removed {
        cluster.wait_gone(object).await?;
    }
    Ok(Exit::Done)
}

/// A cluster without the resource type has no Shims.
async fn shims(cluster: &Cluster) -> Result<Vec<String>, Failure> {
    match cluster.all_shims().await {
        Ok(shims) => Ok(shims.iter().map(kube::ResourceExt::name_any).collect()),
        Err(failure) if failure.next.contains(&Next::init()) => Ok(Vec::new()),
        Err(failure) => Err(failure),
    }
}

async fn confirm(app: &App<'_>, cluster: &Cluster, args: &TeardownArgs) -> Result<(), Failure> {
    if args.yes {
        return Ok(());
    }
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": cluster.namespace}});
    let fate = match cluster.find(&namespace).await? {
        Some(live) if is_ours(&live) => Fate::Deleted,
        _ => Fate::Stays,
    };
    match app.console.ask(&question(&cluster.namespace, fate, args.crds)) {
        Answer::Yes => Ok(()),
        Answer::No => Err(Failure::error("not confirmed; nothing was changed")),
        Answer::NoTerminal => Err(Failure::error("refusing to remove the controller without confirmation; pass --yes")
            .then(Next::teardown_yes())),
    }
}

/// What becomes of the controller's namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Deleted,
    /// It was there before us.
    Stays,
}

fn question(namespace: &str, fate: Fate, crds: bool) -> String {
    let what = if crds { "the controller and the resource type shims" } else { "the controller" };
    match fate {
        Fate::Deleted => format!("Remove {what}, and delete namespace {namespace} with everything in it?"),
        Fate::Stays => format!("Remove {what}? Namespace {namespace} stays."),
    }
}

/// What `init` makes, last first; the CRD, which all Shims go with, only if asked for.
fn objects(cluster: &Cluster, args: &TeardownArgs) -> Result<Vec<Value>, Failure> {
    let settings = Settings { namespace: cluster.namespace.clone(), image: String::new(), pull_secrets: Vec::new() };
    let mut all = manifests::all(&settings).map_err(Failure::error)?;
    all.retain(|object| args.crds || object["kind"] != "CustomResourceDefinition");
    all.reverse();
    Ok(all)
}

/// Whether an object was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Removed {
    Yes,
    No,
}

/// Only what carries our label; somebody else's object of that name stays.
async fn remove(app: &App<'_>, cluster: &Cluster, object: &Value) -> Result<Removed, Failure> {
    let Some(live) = cluster.find(object).await? else { return Ok(Removed::No) };
    if !is_ours(&live) {
        app.console.note(&format!("{} was not made by kubectl-shim and stays", reference(object)));
        return Ok(Removed::No);
    }
    if cluster.delete(object, &DeleteParams::background()).await? {
        app.console.line(&format!("{} deleted", reference(object)))?;
    }
    Ok(Removed::Yes)
}

fn is_ours(object: &DynamicObject) -> bool {
    object.labels().get(PART_OF_LABEL).is_some_and(|value| value == PART_OF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_says_what_becomes_of_the_namespace() {
        let deleted = "Remove the controller, and delete namespace tools with everything in it?";
        assert_eq!(question("tools", Fate::Deleted, false), deleted);
        let stays = "Remove the controller and the resource type shims? Namespace tools stays.";
        assert_eq!(question("tools", Fate::Stays, true), stays);
    }
}
