//! From flags and files to Shim objects, and what may be sent of them; pure.

mod build;
mod change;
mod check;
mod compare;
mod documents;

pub use build::{shim_of, upgrade_flags};
pub use change::{Change, apply_body, changed, changes_of, held_by_others, pausing, restoring, sign};
pub use check::{check, check_update};
pub use compare::{Difference, differences};
pub use documents::{Document, documents};

/// Field manager of everything that this plugin applies.
pub const FIELD_MANAGER: &str = shim_core::names::PLUGIN_MANAGER;
/// Type as kubectl writes it before a name.
pub const TYPE: &str = "shim.shim.dev";
