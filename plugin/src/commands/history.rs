//! `history`
use shim_core::{api::Shim, revision::RevisionView};

use super::{App, not_found};
use crate::{
    cli::{HistoryArgs, values::StatusFormat},
    exit::{Exit, Failure},
    next::Next,
    output,
    views::{self, Columns, Entry},
};

/// Shows the revisions, or one of them.
pub async fn run(app: &App<'_>, args: &HistoryArgs) -> Result<Exit, Failure> {
    let cluster = app.cluster().await?;
    let shim = cluster.shim(&args.name).await?.ok_or_else(|| not_found(&args.name).then(Next::status()))?;
    let revisions = cluster.revisions(&shim).await?;
    let entries = views::entries(&revisions, &shim);
    match args.revision {
        Some(number) => show_one(app, args, &shim, find(&entries, number, &args.name)?)?,
        None if entries.is_empty() => {
            app.console.note(&format!("No revision of shim {:?} is on record yet", args.name));
        }
        None => show(app, args, &entries)?,
    }
    Ok(Exit::Done)
}

fn find<'e, 'r>(entries: &'e [Entry<'r>], number: i64, name: &str) -> Result<&'e Entry<'r>, Failure> {
    let found = entries.iter().find(|entry| entry.revision.number == number);
    found.ok_or_else(|| {
        Failure::error(format!("shim {name:?} has no revision {number} on record")).then(Next::history(name))
    })
}

fn show(app: &App<'_>, args: &HistoryArgs, entries: &[Entry<'_>]) -> Result<(), Failure> {
    let screen = app.console.screen();
    match args.output {
        StatusFormat::Table => app.console.print(&views::history(entries, Columns::Narrow, &screen)),
        StatusFormat::Wide => app.console.print(&views::history(entries, Columns::Wide, &screen)),
        StatusFormat::Json => app.console.print(&output::json(&views::revision_list(entries))?),
        StatusFormat::Yaml => app.console.print(&output::yaml(&views::revision_list(entries))?),
        StatusFormat::Name => entries.iter().try_for_each(|entry| app.console.line(&reference(entry.revision))),
    }
}

fn show_one(app: &App<'_>, args: &HistoryArgs, shim: &Shim, entry: &Entry<'_>) -> Result<(), Failure> {
    match args.output {
        StatusFormat::Table | StatusFormat::Wide => {
            let inputs = output::yaml(&entry.revision.inputs)?;
            app.console.print(&views::revision(entry, &inputs, &app.console.screen()))
        }
        StatusFormat::Json => app.console.print(&output::json(&restored(shim, entry.revision))?),
        StatusFormat::Yaml => app.console.print(&output::yaml(&restored(shim, entry.revision))?),
        StatusFormat::Name => app.console.line(&reference(entry.revision)),
    }
}

/// A document that `upgrade -f` and `kubectl apply` take: the Shim of today, made of what it was made of then.
fn restored(shim: &Shim, revision: &RevisionView) -> Shim {
    let mut spec = shim.spec.clone();
    revision.inputs.restore(&mut spec);
    Shim::new(revision.shim.as_str(), spec)
}

fn reference(revision: &RevisionView) -> String {
    format!("controllerrevision.apps/{}", RevisionView::object_name(&revision.shim, revision.number))
}
