//! The command line: one struct per command, read by clap.
//!
//! | file | |
//! |---|---|
//! | `rollout` | the rollout commands |
//! | `values`, `goal` | how the value of a flag is read |
//! | `help` | grouped help, pflag's manners |
//! | `usage` | usage errors in kubectl's words |

pub mod goal;
mod help;
mod rollout;
mod usage;
pub mod values;

use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use k8s_openapi::{api::core::v1::Toleration, apimachinery::pkg::util::intstr::IntOrString};
use shim_core::api::PlatformArtifact;

pub use help::{command, path_of, root_help, shown_name};
pub use rollout::{HistoryArgs, PauseArgs, RetryArgs, RollbackArgs, Strategy, WaitArgs};
pub use usage::{usage_failure, with_see};
use values::{Details, DryRun, ObjectFormat, StatusFormat, StructFormat};

use crate::{connect::ConnectionFlags, palette::ColorChoice};

/// kubectl shim
#[derive(Parser, Debug)]
#[command(
    name = "kubectl-shim",
    about = "Kubectl shim installs and rolls out containerd shims on the nodes of a cluster."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Use colour: auto, always or never
    #[arg(
        long,
        global = true,
        display_order = 900,
        value_enum,
        default_value_t,
        value_name = "WHEN",
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub color: ColorChoice,
    /// Which cluster.
    #[command(flatten)]
    pub connection: ConnectionFlags,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Show shims, rollouts and nodes
    #[command(after_long_help = help::STATUS)]
    Status(StatusArgs),
    /// Install a shim on the nodes
    #[command(after_long_help = help::INSTALL)]
    Install(InstallArgs),
    /// Roll a shim to another version
    #[command(after_long_help = help::UPGRADE)]
    Upgrade(UpgradeArgs),
    /// Remove a shim from the nodes
    #[command(after_long_help = help::UNINSTALL)]
    Uninstall(UninstallArgs),
    /// Show the revisions of a shim
    #[command(after_long_help = help::HISTORY)]
    History(HistoryArgs),
    /// Return to an earlier revision
    #[command(after_long_help = help::ROLLBACK, visible_alias = "undo")]
    Rollback(RollbackArgs),
    /// Stop a rollout after the nodes in progress
    #[command(after_long_help = help::PAUSE)]
    Pause(PauseArgs),
    /// Continue a paused rollout
    #[command(after_long_help = help::RESUME)]
    Resume(PauseArgs),
    /// Try failed nodes again at once
    #[command(after_long_help = help::RETRY)]
    Retry(RetryArgs),
    /// Wait until shims reach a state
    #[command(after_long_help = help::WAIT)]
    Wait(WaitArgs),
    /// Install or upgrade the controller
    #[command(after_long_help = help::INIT)]
    Init(InitArgs),
    /// Remove the controller
    #[command(after_long_help = help::TEARDOWN)]
    Teardown(TeardownArgs),
    /// Print the plugin, controller and server versions
    #[command(after_long_help = help::VERSION)]
    Version(VersionArgs),
}

/// `status`
#[derive(Args, Debug)]
pub struct StatusArgs {
    /// Shims to show; all without a name
    #[arg(value_name = "NAME", value_parser = values::shim_name)]
    pub names: Vec<String>,
    /// Show this node, with every shim on it
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// Output format: table, wide, json, yaml or name
    #[arg(
        short,
        long,
        value_enum,
        default_value_t,
        value_name = "FORMAT",
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub output: StatusFormat,
    /// Show what is left out otherwise: nodes
    #[arg(long, value_enum, value_name = "WHAT", hide_possible_values = true)]
    pub details: Option<Details>,
    /// Follow until the rollout has ended
    #[arg(short, long, conflicts_with = "node")]
    pub watch: bool,
    /// Stop following after this time, such as 90s or 10m; 0 means never (default 0)
    #[arg(long, value_name = "DURATION", value_parser = values::duration, requires = "watch")]
    pub timeout: Option<Duration>,
    /// Exit with 4 if a shim failed on a node
    #[arg(long)]
    pub exit_status: bool,
}

/// The artifact, as `install` and `upgrade` take it.
#[derive(Args, Debug, Default)]
pub struct ArtifactFlags {
    /// Version of the shim, for people; what is installed is decided by the digest
    #[arg(long, value_name = "VERSION")]
    pub version: Option<String>,
    /// Artifact for all nodes: http or https URL of a tar.gz, a tar.zst or the bare binary
    #[arg(long, value_name = "URL", requires = "sha256", requires = "version", conflicts_with = "platforms")]
    pub url: Option<String>,
    /// SHA-256 of that artifact
    #[arg(long, value_name = "HEX", requires = "url")]
    pub sha256: Option<String>,
    /// Artifact for one platform, repeatable: os/arch=URL,sha256=HEX
    #[arg(long = "platform", value_name = "PLATFORM", value_parser = values::platform, requires = "version")]
    pub platforms: Vec<PlatformArtifact>,
    /// File name of the binary in the artifact (default: its only containerd-shim-* file)
    #[arg(long, value_name = "FILE")]
    pub binary: Option<String>,
}

/// Where and how fast, as `install` and `upgrade` take it.
#[derive(Args, Debug, Default)]
pub struct RolloutFlags {
    /// Nodes with this label only, repeatable: key=value
    #[arg(long = "node-selector", value_name = "LABEL", value_parser = values::key_value)]
    pub node_selector: Vec<(String, String)>,
    /// Entry of the runtime's options table, repeatable: KEY=VALUE, the value as TOML
    #[arg(long = "option", value_name = "OPTION", value_parser = values::option)]
    pub options: Vec<(String, serde_json::Value)>,
    /// Taint that does not matter, repeatable: key[=value][:effect]
    #[arg(long = "toleration", value_name = "TAINT", value_parser = values::toleration)]
    pub tolerations: Vec<Toleration>,
    /// Nodes in progress at the same time: a number or a percentage (default 10%)
    #[arg(long, value_name = "N|P%", value_parser = values::max_update)]
    pub max_update: Option<IntOrString>,
    /// Nodes that must succeed before the rest start: a number or a percentage, 0 for none (default 1)
    #[arg(long, value_name = "N|P%", value_parser = values::canary)]
    pub canary: Option<IntOrString>,
    /// Failed nodes that stop the rollout: a number or a percentage, 100% for never (default 1)
    #[arg(long, value_name = "N|P%", value_parser = values::max_failures)]
    pub max_failures: Option<IntOrString>,
    /// Order of the nodes: rolling, or recreate for all at once without a canary (default rolling)
    #[arg(long, value_enum, value_name = "TYPE", hide_possible_values = true)]
    pub strategy: Option<Strategy>,
}

/// What follows a change.
#[derive(Args, Debug)]
pub struct ChangeFlags {
    /// Only print what would be done: none, client or server
    #[arg(long, value_enum, value_name = "STRATEGY", default_value_t, num_args = 0..=1, require_equals = true,
        default_missing_value = "client", hide_default_value = true, hide_possible_values = true)]
    pub dry_run: DryRun,
    /// Output format: name, yaml or json
    #[arg(short, long, value_enum, value_name = "FORMAT", hide_possible_values = true)]
    pub output: Option<ObjectFormat>,
}

/// How a change of a Shim that exists is sent.
#[derive(Args, Debug)]
pub struct SendFlags {
    /// Exit with 3 if nothing has to be changed
    #[arg(long)]
    pub error_unchanged: bool,
    /// Overwrite what another field manager has set
    #[arg(long)]
    pub force_conflicts: bool,
    /// What follows.
    #[command(flatten)]
    pub change: ChangeFlags,
}

/// Waiting for the nodes.
#[derive(Args, Debug)]
pub struct WaitFlags {
    /// Wait until the nodes are done, for ever without --timeout
    #[arg(long)]
    pub wait: bool,
    /// Stop waiting after this time, such as 90s or 10m; 0 means never (default 0)
    #[arg(long, value_name = "DURATION", value_parser = values::duration, requires = "wait")]
    pub timeout: Option<Duration>,
}

/// `install`
#[derive(Args, Debug)]
pub struct InstallArgs {
    /// Name of the shim
    #[arg(value_parser = values::shim_name, required_unless_present = "filename")]
    pub name: Option<String>,
    /// File with Shim documents, or - for standard input
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["name", "version", "url", "sha256", "platforms",
        "binary", "node_selector", "options", "tolerations", "max_update", "canary", "max_failures",
        "strategy", "paused", "runtime_class", "handler"])]
    pub filename: Vec<String>,
    /// The artifact.
    #[command(flatten)]
    pub artifact: ArtifactFlags,
    /// RuntimeClass that pods ask for (default: the name)
    #[arg(long, value_name = "NAME")]
    pub runtime_class: Option<String>,
    /// Name of the runtime in containerd's configuration (default: the name)
    #[arg(long, value_name = "NAME")]
    pub handler: Option<String>,
    /// Where and how fast.
    #[command(flatten)]
    pub rollout: RolloutFlags,
    /// Start on no node yet
    #[arg(long)]
    pub paused: bool,
    /// What follows.
    #[command(flatten)]
    pub change: ChangeFlags,
    /// Waiting.
    #[command(flatten)]
    pub wait: WaitFlags,
}

/// `upgrade`
#[derive(Args, Debug)]
pub struct UpgradeArgs {
    /// Name of the shim
    #[arg(value_parser = values::shim_name, required_unless_present = "filename")]
    pub name: Option<String>,
    /// File with Shim documents, or - for standard input
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["name", "version", "url", "sha256", "platforms",
        "binary", "node_selector", "options", "tolerations", "max_update", "canary", "max_failures",
        "strategy", "paused"])]
    pub filename: Vec<String>,
    /// The artifact.
    #[command(flatten)]
    pub artifact: ArtifactFlags,
    /// Where and how fast.
    #[command(flatten)]
    pub rollout: RolloutFlags,
    /// Start on no further node; --paused=false goes on
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        value_parser = values::boolean)]
    pub paused: Option<bool>,
    /// How it is sent.
    #[command(flatten)]
    pub send: SendFlags,
    /// Waiting.
    #[command(flatten)]
    pub wait: WaitFlags,
}

/// `uninstall`
#[derive(Args, Debug)]
pub struct UninstallArgs {
    /// Shims to remove
    #[arg(value_name = "NAME", value_parser = values::shim_name, required_unless_present = "all")]
    pub names: Vec<String>,
    /// Remove all shims
    #[arg(long, conflicts_with = "names")]
    pub all: bool,
    /// Ask no question; one is asked with --all, and where pods use the shim or may not be listed
    #[arg(short, long)]
    pub yes: bool,
    /// Forget the shim and leave the nodes as they are; works without a controller
    #[arg(long)]
    pub orphan: bool,
    /// What follows.
    #[command(flatten)]
    pub change: ChangeFlags,
    /// Waiting.
    #[command(flatten)]
    pub wait: WaitFlags,
}

/// `init`
#[derive(Args, Debug)]
pub struct InitArgs {
    /// Image of the controller and the installer (default: that of this plugin's build; the controller's own if that is
    /// from another repository, or the build has none, and the versions are the same)
    #[arg(long, value_name = "REF")]
    pub image: Option<String>,
    /// Secret to pull the image with, repeatable (default: those of the controller; an empty name for none)
    #[arg(long = "image-pull-secret", value_name = "NAME")]
    pub pull_secrets: Vec<String>,
    /// Overwrite what another field manager has set
    #[arg(long)]
    pub force_conflicts: bool,
    /// What follows.
    #[command(flatten)]
    pub change: ChangeFlags,
    /// Wait until the controller is available, for ever without --timeout
    #[arg(long)]
    pub wait: bool,
    /// Stop waiting after this time, such as 90s or 10m; 0 means never (default 0)
    #[arg(long, value_name = "DURATION", value_parser = values::duration, requires = "wait")]
    pub timeout: Option<Duration>,
}

/// `teardown`
#[derive(Args, Debug)]
pub struct TeardownArgs {
    /// Remove the CustomResourceDefinition too
    #[arg(long)]
    pub crds: bool,
    /// Ask no question
    #[arg(short, long)]
    pub yes: bool,
    /// Forget the shims that still exist and leave their nodes as they are
    #[arg(long)]
    pub force: bool,
}

/// `version`
#[derive(Args, Debug)]
pub struct VersionArgs {
    /// Do not ask the cluster
    #[arg(long)]
    pub client: bool,
    /// Output format: json or yaml
    #[arg(short, long, value_enum, value_name = "FORMAT", hide_possible_values = true)]
    pub output: Option<StructFormat>,
}
