//! Why no connection came about, in kubectl's words.

use std::{path::PathBuf, time::Duration};

const PLUGIN_HELP: &str = "\n\nIt looks like you are trying to use a client-go credential plugin that is not installed.\n\n\
    To learn more about this feature, consult the documentation available at:\n      \
    https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins";

/// Everything that can go wrong before the first answer. `Display` is the complete text for the user.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No file names a cluster and the process is not in a Pod.
    #[error("error: no kubeconfig: {tried}; set KUBECONFIG or pass --kubeconfig or --server")]
    NoKubeconfig {
        /// Where it was looked for.
        tried: String,
    },
    /// There are contexts, but none is current.
    #[error(
        "error: no context is chosen; pass --context or run 'kubectl config use-context NAME' (contexts: {})",
        contexts.join(", ")
    )]
    NoContext {
        /// What could be chosen.
        contexts: Vec<String>,
    },
    /// The file's `current-context` does not exist.
    #[error("Error in configuration: context was not found for specified context: {0}")]
    ContextNotFound(String),
    /// A name given by flag does not exist.
    #[error("error: {kind} {name:?} does not exist")]
    DoesNotExist {
        /// `context`, `cluster` or `auth info`, as kubectl says it.
        kind: &'static str,
        /// The name that was asked for.
        name: String,
    },
    /// The file of `--kubeconfig` is not there.
    #[error("error: stat {}: no such file or directory", .0.display())]
    NoSuchFile(PathBuf),
    /// A kubeconfig file cannot be read or understood.
    #[error("error: error loading config file \"{}\": {cause}", path.display())]
    Load {
        /// The file.
        path: PathBuf,
        /// Reason, one line.
        cause: String,
    },
    /// The chosen cluster or user contradicts itself.
    #[error("{}", invalid(.0))]
    Invalid(Vec<String>),
    /// Anything else that kubectl refuses with one sentence.
    #[error("error: {0}")]
    Refused(String),
    /// The credential plugin failed.
    #[error("Unable to connect to the server: getting credentials: {0}")]
    Exec(#[from] ExecError),
    /// `--request-timeout` passed.
    #[error("Unable to connect to the server: no answer within {0:?} (--request-timeout)")]
    Timeout(Duration),
}

/// kubectl prints one problem as a sentence and several as a list.
fn invalid(problems: &[String]) -> String {
    match problems {
        [one] => format!("error: {one}"),
        many => format!("Error in configuration: \n* {}", many.join("\n* ")),
    }
}

/// Why a credential plugin gave no credential.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The program is not in `PATH`, or not at its path.
    #[error("exec: executable {command} not found{PLUGIN_HELP}{}", hint(install_hint.as_deref()))]
    NotFound {
        /// The program.
        command: String,
        /// `installHint` of the kubeconfig.
        install_hint: Option<String>,
    },
    /// The program could not be started for another reason.
    #[error("exec: {command}: {cause}")]
    Start {
        /// The program.
        command: String,
        /// The system's reason.
        cause: String,
    },
    /// The program ended with an error; what it had to say went to standard error.
    #[error("exec: executable {command} failed with exit code {code}")]
    Failed {
        /// The program.
        command: String,
        /// Exit code; -1 after a signal.
        code: i32,
    },
    /// `interactiveMode: Always` without a terminal.
    #[error("exec plugin cannot support interactive mode: standard input is not a terminal")]
    NoTerminal,
    /// What it printed is no ExecCredential.
    #[error("decoding stdout: {0}")]
    Decode(String),
    /// The answer has another version than the kubeconfig asked for.
    #[error("exec plugin is configured to use API version {wanted}, plugin returned version {got}")]
    Version {
        /// Version in the kubeconfig.
        wanted: String,
        /// Version of the answer.
        got: String,
    },
    /// The answer has no `status`.
    #[error("exec plugin didn't return a status field")]
    NoStatus,
    /// The answer has neither a token nor a certificate.
    #[error("exec plugin didn't return a token or cert/key pair")]
    NoCredential,
    /// A certificate without a key, or the reverse.
    #[error("exec plugin returned only certificate or key, not both")]
    HalfPair,
}

fn hint(text: Option<&str>) -> String {
    // The hint comes from a file and goes to a terminal.
    let clean = |hint: &str| hint.chars().filter(|c| !c.is_control() || *c == '\n').collect::<String>();
    text.map_or_else(String::new, |hint| format!("\n\n{}", clean(hint)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_problem_is_a_sentence_and_several_are_a_list() {
        let error =
            |problems: &[&str]| ConnectError::Invalid(problems.iter().map(ToString::to_string).collect()).to_string();
        assert_eq!(error(&["a"]), "error: a");
        assert_eq!(error(&["a", "b"]), "Error in configuration: \n* a\n* b");
    }
}
