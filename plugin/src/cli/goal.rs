//! `--for`: what is waited for.

/// The end of a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Goal {
    /// Every node that can be served and answers has the current build.
    Ready,
    /// Every node that can be served has the current build, also those that do not answer.
    Updated,
    /// The rollout is paused, and no node is in progress.
    Paused,
    /// The Shim is gone.
    Gone,
    /// The controller has written this.
    Condition {
        /// Type of the condition.
        kind: String,
        /// Its status.
        status: String,
    },
    /// This revision is on every node.
    Revision(i64),
}

/// Conditions of a Shim: one that does not exist would be waited for in vain.
const CONDITIONS: [&str; 4] = ["Ready", "Reconciling", "Stalled", "Paused"];
const STATUSES: [&str; 3] = ["True", "False", "Unknown"];

impl Goal {
    /// Reads the flag.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            None => Self::word(text),
            Some(("condition", condition)) => Self::condition(condition),
            Some(("revision", number)) => match number.parse() {
                Ok(number) if number > 0 => Ok(Self::Revision(number)),
                _ => Err(format!("{number:?} is not the number of a revision")),
            },
            Some(_) => Err(unknown()),
        }
    }

    fn word(text: &str) -> Result<Self, String> {
        match text {
            "ready" => Ok(Self::Ready),
            "updated" => Ok(Self::Updated),
            "paused" => Ok(Self::Paused),
            // kubectl's word too.
            "deleted" | "delete" => Ok(Self::Gone),
            _ => Err(unknown()),
        }
    }

    fn condition(text: &str) -> Result<Self, String> {
        let (kind, status) = text.split_once('=').unwrap_or((text, "True"));
        Ok(Self::Condition { kind: one_of(&CONDITIONS, kind)?, status: one_of(&STATUSES, status)? })
    }
}

/// In any case, as kubectl compares.
fn one_of(words: &[&str], text: &str) -> Result<String, String> {
    let found = words.iter().find(|word| word.eq_ignore_ascii_case(text));
    found.map(|word| (*word).to_owned()).ok_or_else(|| format!("{text:?} is not one of {}", words.join(", ")))
}

fn unknown() -> String {
    "use ready, updated, paused, deleted, condition=TYPE[=VALUE] or revision=N".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_waited_for_is_a_word_a_condition_or_a_revision() {
        let condition = |kind: &str, status: &str| Goal::Condition { kind: kind.to_owned(), status: status.to_owned() };
        for (text, goal) in [
            ("ready", Goal::Ready),
            ("updated", Goal::Updated),
            ("paused", Goal::Paused),
            ("deleted", Goal::Gone),
            ("delete", Goal::Gone),
            ("condition=Stalled", condition("Stalled", "True")),
            ("condition=ready=false", condition("Ready", "False")),
            ("revision=7", Goal::Revision(7)),
        ] {
            assert_eq!(Goal::parse(text), Ok(goal), "{text}");
        }
        for text in
            ["", "Ready ", "condition=", "condition=Redy", "condition=Ready=yes", "revision=0", "revision=", "x=1"]
        {
            assert!(Goal::parse(text).is_err(), "{text:?}");
        }
    }
}
