//! Help in kubectl's form, and clap brought to pflag's manners.
use std::{ffi::OsString, path::Path};

use clap::{ArgAction, CommandFactory as _, builder::ValueParser};

use super::{Cli, values};
use crate::exit::EXIT_CODES;

/// The commands by purpose; a test checks that none is missing.
const GROUPS: [(&str, &[&str]); 3] = [
    ("Basic commands", &["status", "install", "upgrade", "uninstall"]),
    ("Rollout commands", &["history", "rollback", "pause", "resume", "retry", "wait"]),
    ("Setup commands", &["init", "teardown", "version"]),
];

macro_rules! examples {
    ($($name:ident = $text:literal;)*) => {
        $(pub(super) const $name: &str = concat!("Examples:\n", $text, "\n\nExit codes: see kubectl shim --help");)*
        /// Every text with examples, for the test that parses them.
        #[cfg(test)]
        const ALL: &[&str] = &[$($name),*];
    };
}

examples! {
    STATUS = "  # All shims, then what is wrong with them
  kubectl shim status

  # One shim with its nodes, worst first
  kubectl shim status spin

  # One node with every shim on it and the log of the last failure
  kubectl shim status --node worker-7

  # Follow a rollout until it has ended
  kubectl shim status spin -w --timeout 10m";
    INSTALL = "  # On every Linux node that runs containerd
  kubectl shim install spin --version v0.23.0 --url https://example.com/spin.tar.gz --sha256 DIGEST

  # On some nodes, two artifacts, two nodes at a time
  kubectl shim install spin --version v0.23.0 --node-selector spin=true --max-update 2 \\
    --platform linux/amd64=https://example.com/amd64.tar.gz,sha256=DIGEST \\
    --platform linux/arm64=https://example.com/arm64.tar.gz,sha256=DIGEST

  # From a file; the manifest alone, without a cluster
  kubectl shim install -f shims.yaml
  kubectl shim install spin --version v1 --url https://example.com/spin --sha256 DIGEST --dry-run=client -o yaml";
    UPGRADE = "  # To another version, and wait for the nodes
  kubectl shim upgrade spin --version v0.24.0 --url https://example.com/spin.tar.gz --sha256 DIGEST --wait

  # Faster; three nodes first; stop at two failures
  kubectl shim upgrade spin --max-update 20%
  kubectl shim upgrade spin --canary 3
  kubectl shim upgrade spin --max-failures 2";
    UNINSTALL = "  # Take a shim off its nodes and wait for it
  kubectl shim uninstall spin --wait

  # Forget a shim and leave the nodes as they are
  kubectl shim uninstall spin --orphan";
    HISTORY = "  # All revisions, newest first
  kubectl shim history spin

  # One of them, with all that it was made of
  kubectl shim history spin --revision 6

  # The shim as it was then, as a file that upgrade -f takes
  kubectl shim history spin --revision 6 -o yaml";
    ROLLBACK = "  # To the last revision that completed, and wait for the nodes
  kubectl shim rollback spin --wait

  # To a certain one
  kubectl shim rollback spin --to-revision 6
  kubectl shim rollback spin --to-version v0.22.0 --dry-run=server";
    PAUSE = "  # Start on no further node
  kubectl shim pause spin

  # The same, and wait until the nodes in progress are done
  kubectl shim pause spin --wait --timeout 5m";
    RESUME = "  # Go on, and wait for the nodes
  kubectl shim resume spin --wait";
    RETRY = "  # All nodes that failed, or that wait for their next try
  kubectl shim retry spin

  # Two of them
  kubectl shim retry spin --node worker-7 --node worker-8 --wait";
    WAIT = "  # Until every node is ready
  kubectl shim wait spin

  # Two shims, for as long as it takes
  kubectl shim wait spin wasmtime --for=updated --timeout 0

  # Other ends
  kubectl shim wait spin --for=revision=8
  kubectl shim wait spin --for=condition=Stalled
  kubectl shim wait spin --for=deleted --timeout 5m";
    INIT = "  # Into the cluster, and wait until the controller is available
  kubectl shim init --image registry.example.com/kubectl-shim:v0.1.0 --wait

  # Again, after an upgrade of the plugin; the pull secrets stay
  kubectl shim init --wait

  # The manifests alone, without a cluster
  kubectl shim init --image registry.example.com/kubectl-shim:v0.1.0 --dry-run=client -o yaml";
    TEARDOWN = "  # Remove the controller, then also the resource type
  kubectl shim teardown
  kubectl shim teardown --crds --yes";
    VERSION = "  kubectl shim version
  kubectl shim version --client -o json";
}

/// clap's command tree as it is used: named as the user called it, with pflag's manners.
pub fn command(shown: &str) -> clap::Command {
    let command = Cli::command()
        .bin_name(shown)
        .disable_help_subcommand(true)
        .args_override_self(true)
        .after_help(EXIT_CODES)
        .mut_args(only_in_long_help)
        .mut_subcommands(|sub| sub.disable_version_flag(true).mut_args(takes_a_value));
    command.disable_version_flag(true)
}

/// Twenty connection flags would bury the rest.
fn only_in_long_help(arg: clap::Arg) -> clap::Arg {
    let connection = arg.get_help_heading() == Some("Connection");
    arg.hide_short_help(connection)
}

/// `--wait=false` is how kubectl's users switch off what an alias switches on.
fn takes_a_value(arg: clap::Arg) -> clap::Arg {
    if !matches!(arg.get_action(), ArgAction::SetTrue) {
        return arg;
    }
    arg.action(ArgAction::Set)
        .num_args(0..=1)
        .require_equals(true)
        .value_name("BOOL")
        .default_missing_value("true")
        .default_value("false")
        .hide_default_value(true)
        .value_parser(ValueParser::from(values::boolean))
}

/// What a bare call prints.
pub fn root_help(shown: &str) -> String {
    let root = command(shown);
    let about = |name: &str| root.find_subcommand(name).and_then(clap::Command::get_about).map(ToString::to_string);
    let line = |name: &&str| format!("  {name:<12} {}\n", about(name).unwrap_or_default());
    let group = |(heading, names): &(&str, &[&str])| {
        format!("\n{heading}:\n{}", names.iter().map(line).collect::<Vec<_>>().concat())
    };
    let groups = GROUPS.iter().map(group).collect::<Vec<_>>().concat();
    let what = root.get_about().map(ToString::to_string).unwrap_or_default();
    format!(
        "{what}\n\nUsage:\n  {shown} COMMAND [flags]\n{groups}\n{EXIT_CODES}\n\n\
        Use \"{shown} COMMAND --help\" for flags and examples.\n"
    )
}

/// The name to show: kubectl finds `kubectl-foo_bar` for `kubectl foo-bar`.
pub fn shown_name(argv0: &str) -> String {
    let file = Path::new(argv0).file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match file.strip_prefix("kubectl-") {
        Some(name) => format!("kubectl {}", name.replace('_', "-")),
        None if file.is_empty() => "kubectl shim".to_owned(),
        None => file,
    }
}

/// The command that the words mean, such as `kubectl shim status`.
pub fn path_of(args: &[OsString], shown: &str) -> String {
    let root = Cli::command();
    let mut words = args.iter().skip(1).map(|word| word.to_string_lossy());
    match words.find(|word| root.find_subcommand(word.as_ref()).is_some()) {
        Some(name) => format!("{shown} {name}"),
        None => shown.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_finds_no_contradiction() {
        command("kubectl shim").debug_assert();
    }

    #[test]
    fn every_command_stands_in_a_group() {
        let mut grouped: Vec<_> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        grouped.sort_unstable();
        let root = command("kubectl shim");
        let mut all: Vec<_> = root.get_subcommands().map(clap::Command::get_name).collect();
        all.sort_unstable();
        assert_eq!(grouped, all);
    }

    #[test]
    fn clap_accepts_every_example() {
        let text = ALL.join("\n").replace(" \\\n", " ");
        let lines: Vec<_> = text.lines().filter_map(|line| line.trim().strip_prefix("kubectl shim")).collect();
        assert!(lines.len() > 12, "{lines:?}");
        for line in lines {
            let words = std::iter::once("kubectl-shim").chain(line.split_whitespace());
            let parsed = command("kubectl shim").try_get_matches_from(words);
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
    }

    #[test]
    fn the_name_shown_is_the_one_that_kubectl_was_given() {
        for (argv0, shown) in [
            ("/usr/local/bin/kubectl-shim", "kubectl shim"),
            ("kubectl-shim.exe", "kubectl shim"),
            ("kubectl-my_shim", "kubectl my-shim"),
            ("ks", "ks"),
            ("", "kubectl shim"),
        ] {
            assert_eq!(shown_name(argv0), shown, "{argv0}");
        }
    }

    #[test]
    fn a_flag_can_be_switched_off_and_the_last_one_counts() {
        let matches = command("kubectl shim")
            .try_get_matches_from(["kubectl-shim", "status", "-w", "--watch=false", "--context", "a", "--context=b"])
            .unwrap();
        let (_, status) = matches.subcommand().unwrap();
        assert_eq!(status.get_one::<bool>("watch"), Some(&false));
        assert_eq!(status.get_one::<String>("context").map(String::as_str), Some("b"));
    }
}
