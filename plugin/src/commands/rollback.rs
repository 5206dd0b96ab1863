//! `rollback`
use shim_core::revision::{Fate, Inputs, RevisionView};

use super::{
    App,
    install::finish,
    step::{Step, announce, live},
};
use crate::{
    cli::RollbackArgs,
    cluster::Applied,
    exit::{Exit, Failure},
    next::Next,
    spec,
    views::one_line,
};

/// Puts what an earlier revision was made of into the spec; the controller makes a new revision of it.
pub async fn run(app: &App<'_>, args: &RollbackArgs) -> Result<Exit, Failure> {
    let cluster = app.cluster().await?;
    let live = live(&cluster, &args.name).await?;
    let revisions = cluster.revisions(&live).await?;
    let target = target(&revisions, &Inputs::from(&live.spec), args)?;
    let step = [Step::of_changes(live, &spec::restoring(&target.inputs)?)?];
    announce(app, &cluster, &step).await?;
    let what = one_line(&format!("revision {} ({})", target.number, target.inputs.version));
    let sent = step[0].send(app, &cluster, &args.send, &format!("rolled back to {what}")).await?;
    if sent.applied == Applied::Unchanged {
        app.console.note(&format!("{} asks for what {what} was made of already", args.name));
        if args.send.error_unchanged {
            return Ok(Exit::Unchanged);
        }
    } else if let Some(newest) = revisions.first() {
        app.console.note(&format!("{}: {what} comes back as revision {}", args.name, newest.number + 1));
    }
    finish(app, &cluster, &[sent], &args.send.change, &args.wait).await
}

/// The revision that is meant. `revisions`: newest first. `now`: what the spec asks for.
fn target<'r>(revisions: &'r [RevisionView], now: &Inputs, args: &RollbackArgs) -> Result<&'r RevisionView, Failure> {
    let current = revisions.first().filter(|newest| newest.inputs == *now);
    match (args.to_revision, &args.to_version) {
        (Some(number), _) => by_number(revisions, current, number, &args.name),
        (None, Some(version)) => by_version(revisions, current, version, &args.name),
        (None, None) => last_good(revisions, current, &args.name),
    }
}

fn by_number<'r>(
    revisions: &'r [RevisionView],
    current: Option<&RevisionView>,
    number: i64,
    name: &str,
) -> Result<&'r RevisionView, Failure> {
    if current.is_some_and(|current| current.number == number) {
        let text = format!("revision {number} is the current one of shim {name:?}; nothing was changed");
        return Err(Failure::error(text).then(Next::history(name)));
    }
    let numbers: Vec<_> = revisions.iter().map(|revision| revision.number.to_string()).collect();
    let found = revisions.iter().find(|revision| revision.number == number);
    found.ok_or_else(|| unknown(name, &format!("revision {number}"), &numbers))
}

/// Of several with this version the current one, else the newest that completed, else the newest.
fn by_version<'r>(
    revisions: &'r [RevisionView],
    current: Option<&'r RevisionView>,
    version: &str,
    name: &str,
) -> Result<&'r RevisionView, Failure> {
    let of_version = || revisions.iter().filter(|revision| revision.inputs.version == version);
    let good = || of_version().find(|revision| revision.fate() == Fate::Complete);
    let found = current.filter(|current| current.inputs.version == version).or_else(good);
    let mut versions: Vec<_> = revisions.iter().map(|revision| one_line(&revision.inputs.version)).collect();
    versions.dedup();
    found.or_else(|| of_version().next()).ok_or_else(|| unknown(name, &format!("revision of {version:?}"), &versions))
}

fn last_good<'r>(
    revisions: &'r [RevisionView],
    current: Option<&RevisionView>,
    name: &str,
) -> Result<&'r RevisionView, Failure> {
    let before = |revision: &&RevisionView| current.is_none_or(|current| revision.number < current.number);
    let good = revisions.iter().filter(before).find(|revision| revision.fate() == Fate::Complete);
    good.ok_or_else(|| {
        let failure = Failure::error(format!("shim {name:?} has no earlier revision that completed"));
        failure.then(Next::history(name))
    })
}

fn unknown(name: &str, what: &str, known: &[String]) -> Failure {
    let known = if known.is_empty() { "nothing yet".to_owned() } else { known.join(", ") };
    Failure::error(format!("shim {name:?} has no {what} on record, only {known}")).then(Next::history(name))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use jiff::Timestamp;
    use shim_core::revision::Record;

    use super::*;
    use crate::cli::{Cli, Command};

    fn revision(number: i64, version: &str, fate: Fate) -> RevisionView {
        let inputs = serde_json::json!({"version": version, "fetchStrategy": {}});
        RevisionView {
            shim: "spin".parse().unwrap(),
            number,
            inputs: serde_json::from_value(inputs).unwrap(),
            created: Timestamp::UNIX_EPOCH,
            generation: number,
            author: String::new(),
            record: (fate != Fate::Progressing).then_some(Record {
                fate,
                updated: 1,
                nodes: 1,
                at: Timestamp::UNIX_EPOCH,
            }),
        }
    }

    fn revisions() -> Vec<RevisionView> {
        vec![
            revision(5, "v3", Fate::Failed),
            revision(4, "v2", Fate::Superseded),
            revision(3, "v2", Fate::Complete),
            revision(2, "v1", Fate::Failed),
            revision(1, "v0", Fate::Complete),
        ]
    }

    fn asked(now: &str, words: &str) -> Result<i64, String> {
        let words = ["kubectl-shim", "rollback", "spin"].into_iter().chain(words.split_whitespace());
        let Some(Command::Rollback(args)) = Cli::try_parse_from(words).unwrap().command else { panic!() };
        let now = revision(0, now, Fate::Progressing).inputs;
        target(&revisions(), &now, &args).map(|found| found.number).map_err(|failure| failure.text)
    }

    #[test]
    fn the_last_that_completed_is_the_default() {
        assert_eq!(asked("v3", ""), Ok(3));
        // The controller has not put the spec on record yet: all revisions are earlier ones.
        assert_eq!(asked("v4", ""), Ok(3));
        let only = [revision(1, "v3", Fate::Complete)];
        let error = last_good(&only, only.first(), "spin").unwrap_err();
        assert_eq!(error.text, "error: shim \"spin\" has no earlier revision that completed");
        assert_eq!(error.next, [Next::history("spin")]);
    }

    #[test]
    fn a_revision_is_named_by_number_or_version() {
        assert_eq!(asked("v3", "--to-revision 2"), Ok(2));
        assert_eq!(asked("v3", "--to-version v2"), Ok(3));
        assert_eq!(asked("v3", "--to-version v1"), Ok(2));
        assert_eq!(asked("v3", "--to-version v3"), Ok(5));
        let unknown = "error: shim \"spin\" has no revision 9 on record, only 5, 4, 3, 2, 1";
        assert_eq!(asked("v3", "--to-revision 9").unwrap_err(), unknown);
        let unknown = "error: shim \"spin\" has no revision of \"v9\" on record, only v3, v2, v1, v0";
        assert_eq!(asked("v3", "--to-version v9").unwrap_err(), unknown);
    }

    #[test]
    fn the_current_one_is_no_target() {
        let error = asked("v3", "--to-revision 5").unwrap_err();
        assert_eq!(error, "error: revision 5 is the current one of shim \"spin\"; nothing was changed");
        // The spec has moved on since.
        assert_eq!(asked("v4", "--to-revision 5"), Ok(5));
    }
}
