//! One Shim and what it becomes: checked as a whole, then sent. All commands that change a Shim go through here.
use kube::ResourceExt as _;
use serde_json::Value;
use shim_core::{api::Shim, revision::Inputs, status::nodes};

use super::{App, Sent, install::check_nodes, not_found, preflight::Preflight};
use crate::{
    cli::{SendFlags, values::DryRun},
    cluster::{Applied, Cluster, Force},
    exit::Failure,
    next::Next,
    spec::{self, Change},
    views::one_line,
};

/// One Shim and what it becomes.
pub struct Step {
    /// As it is.
    pub live: Shim,
    /// As it will be.
    pub after: Shim,
    /// What is applied.
    body: Value,
    /// What sending it comes to.
    pub applied: Applied,
}

impl Step {
    /// The live Shim with some changes. Errors: the server would refuse it, or fields that have to go are held by others.
    pub fn of_changes(live: Shim, changes: &[Change]) -> Result<Self, Failure> {
        if let Some(text) = spec::held_by_others(&live, changes) {
            return Err(Failure::error(text));
        }
        let after = spec::changed(&live, changes)?;
        let body = spec::apply_body(&live, changes)?;
        Self::new(live.spec == after.spec, live, after, body)
    }

    /// A Shim of which all is known. Errors: the server would refuse it.
    pub fn new(unchanged: bool, live: Shim, after: Shim, body: Value) -> Result<Self, Failure> {
        spec::check_update(&after, &live)?;
        let applied = if unchanged { Applied::Unchanged } else { Applied::Configured };
        Ok(Self { live, after, body, applied })
    }

    /// Sends it and says what became of it; `verb`: what it is called where something changes.
    pub async fn send(&self, app: &App<'_>, cluster: &Cluster, flags: &SendFlags, verb: &str) -> Result<Sent, Failure> {
        let force = if flags.force_conflicts { Force::Conflicts } else { Force::Never };
        let (applied, object) = match (self.applied, flags.change.dry_run) {
            (Applied::Unchanged, _) | (_, DryRun::Client) => (self.applied, shown(&self.after)?),
            (_, dry_run) => {
                let mut body = self.body.clone();
                spec::sign(&mut body, cluster.user().await?.as_deref());
                let outcome = cluster.apply(&body, force, dry_run).await?;
                (outcome.applied, outcome.object)
            }
        };
        let said = if applied == Applied::Unchanged { applied.to_string() } else { verb.to_owned() };
        app.report(&object, said, flags.change.dry_run, flags.change.output)?;
        Ok(Sent { name: self.live.name_any(), applied })
    }
}

/// The Shim as it is. Errors: it is not there, or on its way out.
pub async fn live(cluster: &Cluster, name: &str) -> Result<Shim, Failure> {
    let live = cluster.shim(name).await?.ok_or_else(|| not_found(name).then(Next::status()))?;
    match live.metadata.deletion_timestamp {
        Some(_) => Err(Failure::error(format!("shim {name:?} is being uninstalled")).then(Next::watch(name))),
        None => Ok(live),
    }
}

/// `spin v1 -> v2 on 4 nodes, 1 at a time`. Errors: something stands in the way.
pub async fn announce(app: &App<'_>, cluster: &Cluster, steps: &[Step]) -> Result<(), Failure> {
    let changed: Vec<_> = steps.iter().filter(|step| step.applied == Applied::Configured).collect();
    if changed.is_empty() {
        return Ok(());
    }
    let candidates: Vec<_> = changed.iter().map(|step| step.after.clone()).collect();
    let found = check_nodes(app, cluster, &candidates).await?;
    for (n, step) in changed.iter().enumerate() {
        app.console.note(&announcement(step, found.get(n)));
        if let Some(warning) = paused(step) {
            app.console.warn(&warning);
        }
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

/// Who sends another build to a Shim that is paused may wait for it in vain.
fn paused(step: &Step) -> Option<String> {
    let is_paused = step.after.spec.rollout_strategy.as_ref().is_some_and(|strategy| strategy.paused == Some(true));
    let is_new = Inputs::from(&step.live.spec) != Inputs::from(&step.after.spec);
    (is_paused && is_new).then(|| format!("{} is paused: no node starts before it is resumed", step.live.name_any()))
}

/// The Shim as kubectl prints it.
pub fn shown(shim: &Shim) -> Result<Value, Failure> {
    let mut shim = shim.clone();
    shim.metadata.managed_fields = None;
    serde_json::to_value(shim).map_err(Failure::error)
}
