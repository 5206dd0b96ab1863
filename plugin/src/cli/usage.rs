//! Usage errors in kubectl's words.
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::exit::Failure;

/// What clap refused, as kubectl would say it. `path` is the command that was meant, such as `kubectl shim status`.
pub fn usage_failure(error: &clap::Error, path: &str) -> Failure {
    let text = sentence(error, path) + &suggestion(error);
    with_see(Failure::usage(text), path)
}

/// kubectl's last line of a usage error.
pub fn with_see(failure: Failure, path: &str) -> Failure {
    Failure { text: format!("{}\nSee '{path} --help' for usage.", failure.text), ..failure }
}

fn sentence(error: &clap::Error, path: &str) -> String {
    let (arg, value) = (context(error, ContextKind::InvalidArg), context(error, ContextKind::InvalidValue));
    match error.kind() {
        ErrorKind::UnknownArgument => unknown(&arg),
        ErrorKind::InvalidSubcommand => {
            format!("unknown command {:?} for {path:?}", context(error, ContextKind::InvalidSubcommand))
        }
        ErrorKind::MissingRequiredArgument => missing(error),
        ErrorKind::InvalidValue if value.is_empty() => format!("flag needs an argument: {}", flag(&arg)),
        ErrorKind::InvalidValue if flag(&arg) == "--output" => format!(
            "unable to match a printer suitable for the output format {value:?}, allowed formats are: {}",
            list(error, ContextKind::ValidValue).join(",")
        ),
        ErrorKind::InvalidValue => {
            let valid = list(error, ContextKind::ValidValue).join(", ");
            format!("invalid argument {value:?} for {:?} flag: use one of {valid}", flag(&arg))
        }
        ErrorKind::ValueValidation => {
            let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
            format!("invalid argument {value:?} for {:?} flag: {cause}", flag(&arg))
        }
        ErrorKind::ArgumentConflict => {
            format!("{} can't be used together with {}", flag(&arg), flags(&list(error, ContextKind::PriorArg)))
        }
        _ => first_line(error),
    }
}

fn unknown(arg: &str) -> String {
    match arg.strip_prefix('-') {
        Some(short) if !short.starts_with('-') => format!("unknown shorthand flag: {short:?}"),
        Some(_) => format!("unknown flag: {arg}"),
        None => format!("unexpected argument {arg:?}"),
    }
}

fn missing(error: &clap::Error) -> String {
    let (flags, names): (Vec<_>, Vec<_>) =
        list(error, ContextKind::InvalidArg).into_iter().partition(|arg| arg.starts_with('-'));
    let quoted: Vec<_> = flags.iter().map(|arg| format!("{:?}", flag(arg).trim_start_matches('-'))).collect();
    match names.first() {
        Some(name) => format!("required argument {} not set", flag(name)),
        None => format!("required flag(s) {} not set", quoted.join(", ")),
    }
}

/// `--url` of `--url <URL>`, `NAME` of `[NAME]...`.
fn flag(arg: &str) -> &str {
    match arg.strip_prefix('-') {
        Some(_) => arg.split([' ', '[', '=']).next().unwrap_or(arg),
        None => arg.trim_matches(['<', '>', '[', ']', '.']),
    }
}

fn flags(args: &[String]) -> String {
    args.iter().map(|arg| flag(arg)).collect::<Vec<_>>().join(", ")
}

fn suggestion(error: &clap::Error) -> String {
    let kinds = [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    // The nearest comes last.
    let near = kinds.into_iter().find_map(|kind| list(error, kind).pop());
    near.map(|near| format!("\nDid you mean {near}?")).unwrap_or_default()
}

fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

fn context(error: &clap::Error, kind: ContextKind) -> String {
    list(error, kind).into_iter().next().unwrap_or_default()
}

fn list(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    }
}
