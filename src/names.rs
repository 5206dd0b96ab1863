//! Names: newtypes that cannot hold an illegal value, and every label and annotation key.
use std::{borrow::Borrow, fmt, str::FromStr, sync::Arc};

use compact_str::CompactString;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// API group of the `Shim` resource, and prefix of every label and annotation of ours.
pub const GROUP: &str = "shim.dev";
/// Node annotation that holds the node's marks, see `mark`.
pub const STATE_ANNOTATION: &str = "shim.dev/state";
/// Job annotation: the [`Task`](crate::task::Task) as JSON.
pub const TASK_ANNOTATION: &str = "shim.dev/task";
/// Job annotation: the [`Report`](crate::report::Report) of a Job that failed, as JSON; it outlives the Pod.
pub const RESULT_ANNOTATION: &str = "shim.dev/result";
/// Job annotation: why its Pod does not start, as JSON; it outlives the Pod.
pub const START_ANNOTATION: &str = "shim.dev/start";
/// Shim annotation: let go of the nodes on deletion, see `uninstall --orphan`.
pub const ORPHAN_ANNOTATION: &str = "shim.dev/orphan";
/// Shim annotation: failures that ended before this time are tried again at once, see `Retry`.
pub const RETRY_ANNOTATION: &str = "shim.dev/retry";
/// Shim annotation: who changed the spec last, as the plugin was told by the API server; a claim, not a proof.
pub const CHANGED_BY_ANNOTATION: &str = "shim.dev/changed-by";
/// ControllerRevision annotation: what became of it, as JSON, see `revision`.
pub const ROLLOUT_ANNOTATION: &str = "shim.dev/rollout";
/// ControllerRevision annotation: who asked for it.
pub const AUTHOR_ANNOTATION: &str = "shim.dev/author";
/// ControllerRevision annotation: the Shim's `metadata.generation` that it was made from.
pub const GENERATION_ANNOTATION: &str = "shim.dev/generation";
/// Finalizer of a Shim: it goes only when no node carries a mark of it.
pub const FINALIZER: &str = "shim.dev/nodes";
/// Label on everything that we create, with [`MANAGER`] as its value.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// Field manager of the controller and value of [`MANAGED_BY_LABEL`].
pub const MANAGER: &str = "shim-controller";
/// Field manager of the plugin.
pub const PLUGIN_MANAGER: &str = "kubectl-shim";
/// Label on a RuntimeClass or ControllerRevision: the Shim that it belongs to.
pub const SHIM_LABEL: &str = "shim.dev/shim";
/// Namespace of the controller and its Jobs where none is given.
pub const DEFAULT_NAMESPACE: &str = "shim-system";

/// Why a text is not a legal name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a valid {kind}: {rule}")]
pub struct NameError {
    kind: &'static str,
    text: String,
    rule: &'static str,
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident($text:ty), $kind:literal, $rule:literal, $ok:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name($text);

        impl $name {
            /// The text of the name.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                let legal: fn(&str) -> bool = $ok;
                if legal(&text) { Ok(Self(text.into())) } else { Err(NameError { kind: $kind, text, rule: $rule }) }
            }
        }

        impl FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::try_from(text.to_owned())
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.as_str().to_owned()
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    };
}

name_type!(
    /// Name of a Shim: part of label keys, Job names and paths on nodes.
    ShimName(CompactString), "Shim name", "a DNS label of at most 40 characters is needed", |t| t.len() <= 40 && is_dns_label(t)
);
name_type!(
    /// Handler: the name by which a RuntimeClass asks containerd for a runtime.
    Handler(CompactString), "handler", "a DNS label is needed", |t| t.len() <= 63 && is_dns_label(t)
);
name_type!(
    /// Name of a Node.
    NodeName(CompactString), "Node name", "a DNS subdomain of at most 253 characters is needed",
    is_dns_subdomain
);
name_type!(
    /// SHA-256 of an artifact: 64 lower-case hex digits.
    Sha256Hex(String), "SHA-256 digest", "64 lower-case hex digits are needed", |t| t.len() == 64 && is_lower_hex(t)
);
name_type!(
    /// What a node has or lacks of a Shim: a hash of the artifact's digest, binary, handler and options, per platform.
    /// 12 lower-case hex digits; names the directory on the node too.
    Build(CompactString), "build", "12 lower-case hex digits are needed", |t| t.len() == 12 && is_lower_hex(t)
);
name_type!(
    /// Content of a machine's `/etc/machine-id`; names the installation, not the Node object.
    MachineId(Arc<str>), "machine id", "1 to 64 letters, digits or dashes are needed",
    |t| (1..=64).contains(&t.len()) && t.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
);

impl ShimName {
    /// Key of the Node label that says whether the Shim may be used there: `ready` or `removing`.
    pub fn node_label(&self) -> String {
        format!("{GROUP}/{self}")
    }
}

impl Build {
    /// Hashes `parts`, each with its length before it, so that no two lists of parts look alike.
    pub fn of_parts<'a>(parts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update(part.len().to_be_bytes());
            hash.update(part.as_bytes());
        }
        Self(hex(&hash.finalize())[..12].into())
    }

    /// Whatever an installer left that ended without a word: it equals no build that is asked for.
    pub fn unknown() -> Self {
        Self("0".repeat(12).into())
    }
}

/// `bytes` as lower-case hex digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
        }
        text
    })
}

/// As Kubernetes names most objects.
pub(crate) fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_dns_label)
}

fn is_dns_label(text: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
}

fn is_lower_hex(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shim_name_is_a_dns_label_of_at_most_40_characters() {
        for legal in ["a", "spin-v2", "0", &"x".repeat(40)] {
            assert!(legal.parse::<ShimName>().is_ok(), "{legal}");
        }
        for illegal in ["", "-a", "a-", "A", "a.b", "a_b", "a/b", "..", &"x".repeat(41)] {
            assert!(illegal.parse::<ShimName>().is_err(), "{illegal}");
        }
    }

    #[test]
    fn a_digest_is_64_lower_case_hex_digits() {
        assert!("a".repeat(64).parse::<Sha256Hex>().is_ok());
        for illegal in ["A".repeat(64), "a".repeat(63), "g".repeat(64)] {
            assert!(illegal.parse::<Sha256Hex>().is_err(), "{illegal}");
        }
    }

    #[test]
    fn builds_differ_where_parts_are_cut_differently() {
        assert_ne!(Build::of_parts(["ab", "c"]), Build::of_parts(["a", "bc"]));
        assert_eq!(Build::of_parts(["ab", "c"]), Build::of_parts(["ab", "c"]));
    }

    #[test]
    fn an_error_names_the_text_and_the_rule() {
        let error = "Spin".parse::<ShimName>().unwrap_err().to_string();
        assert_eq!(error, "\"Spin\" is not a valid Shim name: a DNS label of at most 40 characters is needed");
    }
}
