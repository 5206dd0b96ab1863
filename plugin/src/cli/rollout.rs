//! The rollout commands.
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{SendFlags, WaitFlags, goal::Goal, values};
use crate::cli::{ChangeFlags, values::StatusFormat};

/// `history`
#[derive(Args, Debug)]
pub struct HistoryArgs {
    /// Name of the shim
    #[arg(value_name = "NAME", value_parser = values::shim_name)]
    pub name: String,
    /// Show this revision with all that it was made of; as yaml or json it is the shim as it was then
    #[arg(long, value_name = "N")]
    pub revision: Option<i64>,
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
}

/// `rollback`
#[derive(Args, Debug)]
pub struct RollbackArgs {
    /// Name of the shim
    #[arg(value_name = "NAME", value_parser = values::shim_name)]
    pub name: String,
    /// Return to this revision (default: the last one that completed before the current one)
    #[arg(long, value_name = "N", conflicts_with = "to_version")]
    pub to_revision: Option<i64>,
    /// Return to the last revision of this version
    #[arg(long, value_name = "VERSION")]
    pub to_version: Option<String>,
    /// How it is sent.
    #[command(flatten)]
    pub send: SendFlags,
    /// Waiting.
    #[command(flatten)]
    pub wait: WaitFlags,
}

/// `pause` and `resume`
#[derive(Args, Debug)]
pub struct PauseArgs {
    /// Names of shims
    #[arg(value_name = "NAME", value_parser = values::shim_name, required = true)]
    pub names: Vec<String>,
    /// How it is sent.
    #[command(flatten)]
    pub send: SendFlags,
    /// Waiting.
    #[command(flatten)]
    pub wait: WaitFlags,
}

/// `retry`
#[derive(Args, Debug)]
pub struct RetryArgs {
    /// Name of the shim
    #[arg(value_name = "NAME", value_parser = values::shim_name)]
    pub name: String,
    /// Try this node only, repeatable (default: all that failed or wait for their next try)
    #[arg(long = "node", value_name = "NODE")]
    pub nodes: Vec<String>,
    /// Exit with 3 if there is nothing to try again
    #[arg(long)]
    pub error_unchanged: bool,
    /// What follows.
    #[command(flatten)]
    pub change: ChangeFlags,
    /// Waiting.
    #[command(flatten)]
    pub wait: WaitFlags,
}

/// `wait`
#[derive(Args, Debug)]
pub struct WaitArgs {
    /// Names of shims
    #[arg(value_name = "NAME", value_parser = values::shim_name, required = true)]
    pub names: Vec<String>,
    /// State to wait for: ready, updated, paused, deleted, condition=TYPE[=VALUE] or revision=N (default ready)
    #[arg(long = "for", value_name = "STATE", value_parser = Goal::parse, default_value = "ready", hide_default_value = true)]
    pub goal: Goal,
    /// Stop waiting after this time, such as 90s or 1h; 0 means never (default 10m)
    #[arg(long, value_name = "DURATION", value_parser = values::duration, default_value = "10m", hide_default_value = true)]
    pub timeout: Duration,
}

/// `--strategy`
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Node by node.
    Rolling,
    /// All nodes at once.
    Recreate,
}

impl Strategy {
    /// `spec.rolloutStrategy.type`
    pub fn field(self) -> &'static str {
        match self {
            Self::Rolling => "rolling",
            Self::Recreate => "recreate",
        }
    }
}
