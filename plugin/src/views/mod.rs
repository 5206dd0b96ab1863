//! From what was read of the cluster to text; pure.
//!
//! | file | |
//! |---|---|
//! | `picture` | what was read, digested: the one input of all views |
//! | `overview`, `detail`, `node` | the screens of `status` |
//! | `revisions`, `history` | what became of each revision and what it changed; the screens of `history` |
//! | `problems` | why a Shim is not as it should be, and what to do next |
//! | `events` | one line per change, for `-w` and `--wait` |
//! | `list` | the same for programs |
//! | `table`, `text` | columns, ages, control characters |

mod detail;
mod events;
mod history;
mod list;
mod node;
mod overview;
mod picture;
mod problems;
mod revisions;
mod table;
mod text;

use jiff::Timestamp;

pub use detail::detail;
pub use events::{Tracker, heartbeat};
pub use history::{RevisionList, history, revision, revision_list};
pub use list::{ApiList, list};
pub use node::node;
pub use overview::overview;
pub use picture::{Facts, Picture, RowPicture, Settled, ShimPicture, Snapshot};
pub use problems::{Trouble, troubles};
pub use revisions::{Entry, entries};
pub use table::{Cell, Table};
pub use text::{age, clean, one_line};

use crate::palette::{Palette, Tone};

/// What a view has to know of the stream that it is for.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    /// Colour or none.
    pub palette: Palette,
    /// Columns of the terminal; none: nothing is cut.
    pub width: Option<usize>,
    /// For ages.
    pub now: Timestamp,
}

/// Narrow tables, or all columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Columns {
    /// About 80 characters.
    Narrow,
    /// Everything.
    Wide,
}

/// Which nodes a table shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nodes {
    /// The worst ten; the rest is counted.
    Worst,
    /// All.
    All,
}

/// How the word for a state is painted: of nodes, of Shims and of revisions.
fn tone_of(state: &str) -> Tone {
    match state {
        "Failed" | "Conflict" | "InvalidSpec" => Tone::Bad,
        "Unknown" | "Paused" | "Retrying" => Tone::Warning,
        "Updating" | "Removing" | "Progressing" => Tone::Busy,
        "Ready" | "NoNodes" | "Complete" => Tone::Good,
        "Superseded" => Tone::Faint,
        _ => Tone::Plain,
    }
}
