//! `wait`
use super::{
    App,
    follow::{Follow, Voice, follow},
    step::live,
};
use crate::{
    cli::{WaitArgs, goal::Goal},
    exit::{Exit, Failure},
    spec::TYPE,
};

/// Waits, with the news beside.
pub async fn run(app: &App<'_>, args: &WaitArgs) -> Result<Exit, Failure> {
    let cluster = app.cluster().await?;
    // What is gone or going reaches nothing else any more.
    if args.goal != Goal::Gone {
        for name in &args.names {
            live(&cluster, name).await?;
        }
    }
    let what =
        Follow { names: args.names.clone(), goal: args.goal.clone(), timeout: Some(args.timeout), voice: Voice::Aside };
    let exit = follow(app, &cluster, what).await?;
    if exit == Exit::Done {
        args.names.iter().try_for_each(|name| app.console.line(&format!("{TYPE}/{name} condition met")))?;
    }
    Ok(exit)
}
