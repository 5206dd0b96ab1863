//! Whether a Shim is where somebody waits for it to be; pure.
use shim_core::{api::ShimStatus, status::NodeState, world::Life};

use crate::{
    cli::goal::Goal,
    views::{Settled, ShimPicture},
};

/// How far a Shim is from a goal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// It is there.
    Yes,
    /// It may still get there by itself.
    Open,
    /// It won't without a person. Why, where its problems do not tell.
    Never(Option<String>),
}

/// Judges by what the controller has written for the spec as it is now.
pub fn reach(goal: &Goal, shim: &ShimPicture) -> Reach {
    match (goal, shim.life) {
        (_, Life::Deleting | Life::Orphaned) if has_only_failures(shim) => Reach::Never(None),
        (_, Life::Deleting | Life::Orphaned) | (Goal::Gone, Life::Active) => Reach::Open,
        (_, Life::Active) if !shim.is_observed() => Reach::Open,
        (Goal::Ready, _) => settled(shim, shim.settled == Settled::Ready),
        (Goal::Updated, _) => settled(shim, is_updated(&shim.written)),
        (Goal::Paused, _) => when(shim.has_written("Paused", "True") && shim.written.nodes_updating == 0),
        (Goal::Condition { kind, status }, _) => condition(shim, kind, status),
        (Goal::Revision(number), _) => revision(shim, *number),
    }
}

fn is_updated(status: &ShimStatus) -> bool {
    status.nodes_updated >= status.nodes.saturating_sub(status.nodes_skipped)
}

fn when(there: bool) -> Reach {
    if there { Reach::Yes } else { Reach::Open }
}

/// What only a rollout that goes on can bring about.
fn settled(shim: &ShimPicture, there: bool) -> Reach {
    match (there, shim.settled) {
        (true, _) => Reach::Yes,
        (false, Settled::Stalled) => Reach::Never(None),
        (false, Settled::Open | Settled::Ready) => Reach::Open,
    }
}

fn condition(shim: &ShimPicture, kind: &str, status: &str) -> Reach {
    let there = shim.has_written(kind, status);
    if kind == "Ready" && status == "True" { settled(shim, there) } else { when(there) }
}

fn revision(shim: &ShimPicture, number: i64) -> Reach {
    match &shim.written.revision {
        Some(current) if current.number > number => {
            Reach::Never(Some(format!("{}: revision {number} was replaced by revision {}", shim.name, current.number)))
        }
        Some(current) if current.number == number => settled(shim, shim.settled == Settled::Ready),
        _ => Reach::Open,
    }
}

/// A removal that can't go on by itself: every node that is left has failed.
fn has_only_failures(shim: &ShimPicture) -> bool {
    let mut rows = shim.rows.iter().flatten().peekable();
    rows.peek().is_some() && rows.all(|row| row.row.state == NodeState::Failed)
}
