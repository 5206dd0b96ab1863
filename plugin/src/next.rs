//! `Next:` lines: commands that can be pasted. All of ours stand in one table here, and a test has clap parse each.
use crate::connect::ConnectionFlags;

/// A command that helps from here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Words after `kubectl shim`.
    Shim(Vec<String>),
    /// Words after `kubectl`.
    Kubectl(Vec<String>),
}

macro_rules! commands {
    ($($(#[$doc:meta])* $name:ident($($arg:ident),*) = [$($word:expr),*];)*) => {
        impl Next {
            $($(#[$doc])* pub fn $name($($arg: &str),*) -> Self {
                Self::Shim(vec![$($word.to_owned()),*])
            })*

            /// One of each, for the test that parses them.
            #[cfg(test)]
            fn samples() -> Vec<Self> {
                $(fn $name() -> Next { $(let $arg = "x";)* Next::$name($($arg),*) })*
                vec![$($name()),*]
            }
        }
    };
}

commands! {
    /// Put the controller into the cluster.
    init() = ["init"];
    /// All Shims.
    status() = ["status"];
    /// One Shim, with its nodes.
    status_of(name) = ["status", name];
    /// One node, with the log of its last failure.
    node(name) = ["status", "--node", name];
    /// Follow a rollout.
    watch(name) = ["status", name, "-w"];
    /// Take a Shim off its nodes.
    uninstall(name) = ["uninstall", name];
    /// The same without a question.
    uninstall_yes(name) = ["uninstall", name, "--yes"];
    /// The same for all.
    uninstall_all_yes() = ["uninstall", "--all", "--yes"];
    /// Let go of all Shims, without a question.
    orphan_all_yes() = ["uninstall", "--all", "--orphan", "--yes"];
    /// Let go of a Shim that no controller takes care of.
    orphan(name) = ["uninstall", name, "--orphan"];
    /// Take all Shims off their nodes.
    uninstall_all() = ["uninstall", "--all"];
    /// Continue a paused rollout.
    resume(name) = ["resume", name];
    /// Try all failed nodes again.
    retry(name) = ["retry", name];
    /// Try one node again.
    retry_node(name, node) = ["retry", name, "--node", node];
    /// Return to what completed last.
    rollback(name) = ["rollback", name];
    /// The revisions of a Shim.
    history(name) = ["history", name];
    /// Overwrite what another manager has set.
    upgrade_file(file) = ["upgrade", "-f", file];
    /// Remove the controller.
    teardown_yes() = ["teardown", "--yes"];
}

impl Next {
    /// `upgrade` with the flags that `install` was called with.
    pub fn upgrade(name: &str, flags: &[String]) -> Self {
        let words = ["upgrade", name].map(str::to_owned);
        Self::Shim(words.into_iter().chain(flags.iter().cloned()).collect())
    }

    /// A command of kubectl itself.
    pub fn kubectl<const N: usize>(words: [&str; N]) -> Self {
        Self::Kubectl(words.map(str::to_owned).to_vec())
    }
}

/// How this process was called, so that a hint can be pasted into the same shell.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    /// `kubectl shim`, or what stands for it.
    pub shown: String,
    /// Connection flags that say which cluster is meant; no secrets.
    pub cluster: Vec<String>,
    /// `--namespace`, where given.
    pub namespace: Option<String>,
}

impl Caller {
    /// Keeps what hints have to repeat.
    pub fn new(shown: &str, flags: &ConnectionFlags) -> Self {
        let kubeconfig = flags.kubeconfig.as_ref().map(|path| path.display().to_string());
        let repeated = [
            ("--kubeconfig", kubeconfig.as_ref()),
            ("--context", flags.context.as_ref()),
            ("--cluster", flags.cluster.as_ref()),
            ("--user", flags.user.as_ref()),
            ("--server", flags.server.as_ref()),
            ("--as", flags.impersonate.as_ref()),
        ];
        let given = repeated.into_iter().filter_map(|(flag, value)| Some([flag.to_owned(), value?.clone()]));
        Self { shown: shown.to_owned(), cluster: given.flatten().collect(), namespace: flags.namespace.clone() }
    }

    /// The command as it can be pasted.
    pub fn line(&self, next: &Next) -> String {
        let (program, words, namespace) = match next {
            Next::Shim(words) => (self.shown.as_str(), words, self.namespace.as_ref()),
            Next::Kubectl(words) => ("kubectl", words, None),
        };
        let namespace = namespace.map(|name| ["--namespace".to_owned(), name.clone()]);
        let words = words.iter().chain(&self.cluster).chain(namespace.iter().flatten());
        words.fold(program.to_owned(), |line, word| line + " " + &quoted(word))
    }
}

/// As a POSIX shell needs it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The `Next:` block; empty without commands.
pub fn block(caller: &Caller, next: &[Next]) -> String {
    let lead = |n: usize| if n == 0 { "Next: " } else { "      " };
    let line = |(n, next): (usize, &Next)| format!("{}{}\n", lead(n), caller.line(next));
    next.iter().take(3).enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::Cli;

    fn parses(words: &[String]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("kubectl-shim").chain(words.iter().map(String::as_str)))
    }

    #[test]
    fn clap_accepts_every_command_that_is_suggested() {
        assert!(!Next::samples().is_empty());
        for next in Next::samples() {
            let Next::Shim(words) = &next else { panic!("{next:?} is not ours") };
            assert!(parses(words).is_ok(), "{words:?}");
        }
        assert!(parses(&["status".into(), "--no-such-flag".into()]).is_err(), "the parser refuses nothing");
    }

    #[test]
    fn a_line_repeats_the_cluster_and_quotes_for_the_shell() {
        let flags = ConnectionFlags {
            context: Some("my cluster".into()),
            namespace: Some("tools".into()),
            token: Some("secret".into()),
            ..ConnectionFlags::default()
        };
        let caller = Caller::new("kubectl shim", &flags);
        assert_eq!(
            caller.line(&Next::watch("it's")),
            r"kubectl shim status 'it'\''s' -w --context 'my cluster' --namespace tools"
        );
        assert_eq!(caller.line(&Next::kubectl(["get", "nodes"])), "kubectl get nodes --context 'my cluster'");
    }
}
