//! The kubectl plugin: kubectl shim
//!
//! | module | |
//! |---|---|
//! | [`cli`] | the command line, help, usage errors |
//! | [`commands`] | one file per command: what happens in which order |
//! | [`spec`] | from flags and files to Shim objects; pure |
//! | [`views`] | from what was read to text; pure |
//! | [`cluster`] | what is read from and written to the API server |
//! | [`connect`] | from kubectl's flags and the kubeconfig to a client |
//! | [`console`], [`output`], [`palette`], [`next`], [`exit`] | streams, documents, colour, hints, exit codes |

pub mod cli;
pub mod cluster;
pub mod commands;
pub mod connect;
pub mod console;
pub mod exit;
pub mod interrupt;
pub mod next;
pub mod output;
pub mod palette;
pub mod spec;
pub mod views;

use std::{ffi::OsString, process::ExitCode};

use clap::FromArgMatches as _;

use crate::{
    cli::Cli,
    commands::App,
    connect::Env,
    console::Console,
    exit::{Exit, Failure},
    next::Caller,
};

/// The whole program: `args` with the program's name first.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<_> = args.collect();
    let shown = cli::shown_name(&args.first().map(|name| name.to_string_lossy()).unwrap_or_default());
    let env = Env::of_process();
    let parsed = cli::command(&shown).try_get_matches_from(&args).and_then(|matches| Cli::from_arg_matches(&matches));
    match parsed {
        Ok(cli) => obey(cli, &shown, &cli::path_of(&args, &shown), &env).into(),
        Err(error) => refuse(&error, &args, &shown, &env).into(),
    }
}

fn obey(cli: Cli, shown: &str, path: &str, env: &Env) -> Exit {
    let console = Console::new(Caller::new(shown, &cli.connection), cli.color, env);
    let Some(command) = cli.command else {
        return console.print(&cli::root_help(shown)).map_or_else(|failure| tell(&console, &failure), |()| Exit::Done);
    };
    let app = App { console: &console, flags: &cli.connection, env };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(app.run(command)),
        Err(error) => Err(Failure::error(format!("the program can't start: {error}"))),
    };
    result.unwrap_or_else(|failure| match failure.exit {
        Exit::Usage => tell(&console, &cli::with_see(failure, path)),
        _ => tell(&console, &failure),
    })
}

/// Help is an answer; everything else that clap says is a usage error.
fn refuse(error: &clap::Error, args: &[OsString], shown: &str, env: &Env) -> Exit {
    let console =
        Console::new(Caller::new(shown, &connect::ConnectionFlags::default()), palette::ColorChoice::Auto, env);
    let path = cli::path_of(args, shown);
    let result = match error.kind() {
        clap::error::ErrorKind::DisplayHelp if path == shown => console.print(&cli::root_help(shown)),
        clap::error::ErrorKind::DisplayHelp => console.print(&error.render().to_string()),
        _ => Err(cli::usage_failure(error, &path)),
    };
    result.map_or_else(|failure| tell(&console, &failure), |()| Exit::Done)
}

fn tell(console: &Console, failure: &Failure) -> Exit {
    console.note(&failure.text);
    console.next(&failure.next);
    failure.exit
}
