//! What comes back from the installer, as JSON in the container's termination message (4,096 bytes at most).
use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::names::ShimName;

/// Version of the report's format.
pub const FORMAT: u32 = 1;
/// Longest message of one Shim, in bytes.
pub const MESSAGE_LIMIT: usize = 300;
/// Longest report that the kubelet passes on, in bytes.
pub const REPORT_LIMIT: usize = 4096;

/// Result of one task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// [`FORMAT`].
    pub format: u32,
    /// One outcome for each Shim of the task.
    pub outcomes: BTreeMap<ShimName, Outcome>,
    /// Whether the container runtime was restarted.
    #[serde(default)]
    pub restarted: bool,
    /// Last lines of the log that explain a failure.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub log: String,
}

/// How one operation ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "outcome")]
pub enum Outcome {
    /// Installed and verified, or removed and verified.
    Done {
        /// Pods of others that were running before the restart and are not any more.
        #[serde(default, skip_serializing_if = "is_zero")]
        disrupted: u32,
    },
    /// A removal that waits: pods still run with the handler. Nothing was changed.
    InUse {
        /// Sandboxes that CRI still has.
        pods: u32,
    },
    /// The node has what it had before.
    Failed(Failure),
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// Where.
    pub step: Step,
    /// What kind, for programs.
    pub reason: Reason,
    /// What exactly, for people; at most [`MESSAGE_LIMIT`] bytes.
    pub message: String,
}

impl Failure {
    /// A failure with its message cut to [`MESSAGE_LIMIT`] and brought to one line.
    pub fn new(step: Step, reason: Reason, message: impl fmt::Display) -> Self {
        let line = message.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        Self { step, reason, message: cut(&line, MESSAGE_LIMIT).to_owned() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.step, self.reason, self.message)
    }
}

/// The longest prefix of `text` of at most `limit` bytes that ends between characters.
pub fn cut(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

macro_rules! word_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// Every variant.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The word that is shown and stored.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant),)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

word_enum! {
    /// The steps of an operation, in order.
    Step {
        /// Job and Pod, before anything of ours ran.
        Start,
        /// Download, digest, unpack.
        Fetch,
        /// Is this the machine, the runtime, the platform that we can serve?
        Preflight,
        /// The binary into its directory, the link onto it.
        Place,
        /// The edit of containerd's configuration.
        Configure,
        /// The restart of containerd.
        Restart,
        /// What CRI says afterwards.
        Verify,
        /// The exact previous state back.
        RollBack,
        /// Taking the handler and files away.
        Remove,
    }
}

word_enum! {
    /// Why an operation failed; stable, documented in docs/reasons.md.
    Reason {
        /// The artifact's digest is another one.
        ChecksumMismatch,
        /// The server answered 404 or 410.
        ArtifactNotFound,
        /// The server refused: another 4xx.
        DownloadRefused,
        /// 5xx or a broken transfer, also after retries.
        DownloadFailed,
        /// Larger than allowed, packed or unpacked.
        ArtifactTooLarge,
        /// Not a tar.gz, tar.zst or ELF file, or damaged.
        ArtifactUnreadable,
        /// It holds a path that leaves the directory, or a link or device.
        ArtifactUnsafe,
        /// The binary is not in the artifact.
        BinaryNotFound,
        /// More than one binary could be meant.
        BinaryAmbiguous,
        /// The binary is for another architecture, or not ELF.
        WrongArchitecture,
        /// The binary does not run on this node.
        BinaryDoesNotRun,
        /// The node is another machine than the planned one.
        MachineMismatch,
        /// No containerd of a supported version and layout, or one that can't be restarted without harm.
        RuntimeUnsupported,
        /// Our directory is read-only, noexec or full.
        DirectoryUnusable,
        /// Somebody else has configured the handler.
        HandlerConflict,
        /// containerd's own binary rejects the edit, or it would change more than our table.
        ConfigRejected,
        /// The configuration could not be read or written.
        ConfigUnusable,
        /// systemd could not restart containerd.
        RestartFailed,
        /// containerd or systemd does not answer, or the runtime is not ready.
        RuntimeNotReady,
        /// The handler is not listed after the restart.
        HandlerMissing,
        /// A handler that was there before is not listed any more.
        HandlerLost,
        /// The node has lost what was verified on it: somebody has changed files or configuration.
        Drifted,
        /// The node serves another build than was known.
        BuildMismatch,
        /// A throw-away sandbox did not start with the handler.
        SandboxFailed,
        /// Another installer holds the lock on this node.
        Locked,
        /// The node's state was written by a newer version.
        StateTooNew,
        /// The installer was told to end.
        Interrupted,
        /// A step took longer than it may.
        DeadlineExceeded,
        /// The Pod did not start.
        PodNotStarted,
        /// The Pod ended without a report.
        NoResult,
        /// The Node went away while its Job ran.
        NodeLost,
        /// An error that has no code of its own.
        Internal,
    }
}

impl Reason {
    /// Whether the same try again can't end otherwise: the artifact or the node has to change first.
    pub fn is_certain(self) -> bool {
        matches!(
            self,
            Self::ChecksumMismatch
                | Self::ArtifactNotFound
                | Self::ArtifactTooLarge
                | Self::ArtifactUnreadable
                | Self::ArtifactUnsafe
                | Self::BinaryNotFound
                | Self::BinaryAmbiguous
                | Self::WrongArchitecture
                | Self::BinaryDoesNotRun
                | Self::RuntimeUnsupported
                | Self::HandlerConflict
                | Self::ConfigRejected
                | Self::StateTooNew
        )
    }
}

impl Report {
    /// The report without what succeeded.
    #[must_use]
    pub fn failures(&self) -> Self {
        let mut report = self.clone();
        report.outcomes.retain(|_, outcome| !matches!(outcome, Outcome::Done { .. }));
        report
    }

    /// The report as JSON of at most [`REPORT_LIMIT`] bytes: the log gives way first, then the messages.
    pub fn to_termination_message(&self) -> String {
        let mut report = self.clone();
        for limit in [usize::MAX, 200, 100, 40, 0] {
            if limit < usize::MAX {
                report.log = String::new();
                report.shorten(limit);
            }
            let text = serde_json::to_string(&report).unwrap_or_default();
            if text.len() <= REPORT_LIMIT {
                return report.with_log(&self.log, REPORT_LIMIT - text.len(), text);
            }
        }
        serde_json::to_string(&report).unwrap_or_default()
    }

    fn shorten(&mut self, limit: usize) {
        for outcome in self.outcomes.values_mut() {
            if let Outcome::Failed(failure) = outcome {
                failure.message = cut(&failure.message, limit).to_owned();
            }
        }
    }

    /// Puts the tail of `log` back where there is `room` bytes; JSON may need six bytes for one.
    fn with_log(mut self, log: &str, room: usize, text: String) -> String {
        if !self.log.is_empty() || log.is_empty() {
            return text;
        }
        let keep = log.len().saturating_sub(room.saturating_sub(12) / 6);
        log[log.ceil_char_boundary(keep)..].clone_into(&mut self.log);
        serde_json::to_string(&self).unwrap_or(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(message: &str) -> Outcome {
        Outcome::Failed(Failure::new(Step::Fetch, Reason::DownloadFailed, message))
    }

    fn report(shims: usize, message: &str, log: &str) -> Report {
        let outcomes = (0..shims).map(|n| (format!("shim-{n}").parse().unwrap(), failed(message))).collect();
        Report { format: FORMAT, outcomes, restarted: false, log: log.to_owned() }
    }

    #[test]
    fn a_report_survives_the_trip() {
        let sent = report(3, "expected a, got b", "line 1\nline 2");
        let got: Report = serde_json::from_str(&sent.to_termination_message()).unwrap();
        assert_eq!(got, sent);
    }

    #[test]
    fn a_long_report_keeps_every_outcome_and_fits() {
        for (shims, message, log) in
            [(10, "x".repeat(300), "l\u{1}".repeat(4000)), (40, "é".repeat(300), String::new())]
        {
            let text = report(shims, &message, &log).to_termination_message();
            assert!(text.len() <= REPORT_LIMIT, "{}", text.len());
            let got: Report = serde_json::from_str(&text).unwrap();
            assert_eq!(got.outcomes.len(), shims);
        }
    }

    #[test]
    fn every_reason_is_documented() {
        let text = include_str!("../docs/reasons.md");
        for reason in Reason::ALL {
            let star = if reason.is_certain() { " \\*" } else { "" };
            assert!(text.contains(&format!("| `{reason}`{star} |")), "{reason} is missing in docs/reasons.md");
        }
    }

    #[test]
    fn a_message_is_one_line_of_limited_length() {
        let failure = Failure::new(Step::Place, Reason::Internal, format!("a\n b{}", "é".repeat(400)));
        assert!(failure.message.starts_with("a bé"));
        assert!(failure.message.len() <= MESSAGE_LIMIT);
    }
}
