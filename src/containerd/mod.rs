//! containerd's configuration: what has to be written where, and what it means. Text to text, no IO.
//!
//! | module | answers |
//! |---|---|
//! | [`release`] | how this release of containerd must be configured |
//! | [`schema`] | which version and which CRI table a file uses |
//! | [`runtime`] | our runtimes as TOML, and back |
//! | [`imports`], [`block`] | edits that can be taken out again byte for byte |
//! | [`edit`] | which files change for a set of runtimes |
//! | [`check`] | the files that containerd's own binary reads to judge an edit |
//! | [`effective`] | what containerd makes of its files, and whether an edit changed only our part |

pub mod block;
pub mod check;
pub mod edit;
pub mod effective;
pub mod imports;
pub mod release;
pub mod runtime;
pub mod schema;
#[cfg(test)]
mod tests;

/// Where containerd looks for its configuration when it is told nothing else.
pub const DEFAULT_CONFIG: &str = "/etc/containerd/config.toml";
/// File name of our drop-in.
pub const DROP_IN: &str = "kubectl-shim.toml";

/// Why a configuration cannot be edited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The file is not TOML.
    #[error("{path} is not valid TOML: {message}; repair it first")]
    NotToml {
        /// The file.
        path: String,
        /// What the parser says.
        message: String,
    },
    /// A key has another type than containerd defines.
    #[error("{key} is not {expected}; repair the configuration first")]
    WrongType {
        /// Name of the key.
        key: &'static str,
        /// What containerd expects there.
        expected: &'static str,
    },
    /// Our block has lost its last line.
    #[error("our block has no end line any more; remove it from its first line, \"{begin}\", to its end by hand")]
    BlockDamaged {
        /// The first line of the block.
        begin: &'static str,
    },
}
