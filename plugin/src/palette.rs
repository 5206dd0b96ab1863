//! Colour, decided once per stream. It is never the only carrier of meaning: the word is always there.
use clap::ValueEnum;
use owo_colors::Style;

use crate::connect::Env;

/// `--color`
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColorChoice {
    /// On a terminal, unless the environment says no.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// How a word is painted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Not at all.
    Plain,
    /// As it should be.
    Good,
    /// Under way.
    Busy,
    /// Needs a look.
    Warning,
    /// Wrong.
    Bad,
    /// Of less interest.
    Faint,
}

/// Paints, or does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Palette {
    /// With escape sequences.
    Colour,
    /// Plain text.
    Plain,
}

impl Palette {
    /// kubectl's rule, with the variables that other tools know: the first that speaks decides.
    pub fn decide(choice: ColorChoice, env: &Env, terminal: bool) -> Self {
        let set = |name: &str| env.variables.get(name).is_some_and(|value| value != "0" && !value.is_empty());
        let is = |name: &str, wanted: &str| env.variables.get(name).is_some_and(|value| value == wanted);
        let on = match choice {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            // Present is enough, even empty or 0.
            ColorChoice::Auto if env.variables.contains_key("NO_COLOR") => false,
            ColorChoice::Auto if set("FORCE_COLOR") || set("CLICOLOR_FORCE") => true,
            ColorChoice::Auto if is("CLICOLOR", "0") || is("TERM", "dumb") => false,
            ColorChoice::Auto => terminal,
        };
        if on { Self::Colour } else { Self::Plain }
    }

    /// The text in this tone.
    pub fn paint(self, tone: Tone, text: &str) -> String {
        let style = match tone {
            _ if self == Self::Plain => return text.to_owned(),
            Tone::Plain => return text.to_owned(),
            Tone::Good => Style::new().green(),
            Tone::Busy => Style::new().cyan(),
            Tone::Warning => Style::new().yellow(),
            Tone::Bad => Style::new().red(),
            Tone::Faint => Style::new().dimmed(),
        };
        style.style(text).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(choice: ColorChoice, variables: &[(&str, &str)], terminal: bool) -> Palette {
        let variables = variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let env = Env { variables, home: None, terminal, service_account: "/nowhere".into() };
        Palette::decide(choice, &env, terminal)
    }

    #[test]
    fn the_first_that_speaks_decides() {
        use ColorChoice::{Always, Auto, Never};
        use Palette::{Colour, Plain};
        // What stands left and right: on a pipe, on a terminal.
        for (choice, variables, pipe, terminal) in [
            (Auto, &[][..], Plain, Colour),
            (Auto, &[("CI", "true")], Plain, Colour),
            (Auto, &[("NO_COLOR", "1")], Plain, Plain),
            (Auto, &[("NO_COLOR", "")], Plain, Plain),
            (Auto, &[("NO_COLOR", "0")], Plain, Plain),
            (Auto, &[("CLICOLOR", "0")], Plain, Plain),
            (Auto, &[("FORCE_COLOR", "1")], Colour, Colour),
            (Auto, &[("FORCE_COLOR", "0")], Plain, Colour),
            (Auto, &[("CLICOLOR_FORCE", "1")], Colour, Colour),
            (Auto, &[("NO_COLOR", ""), ("FORCE_COLOR", "1")], Plain, Plain),
            (Auto, &[("TERM", "dumb")], Plain, Plain),
            (Always, &[("NO_COLOR", "1"), ("TERM", "dumb")], Colour, Colour),
            (Never, &[("FORCE_COLOR", "1")], Plain, Plain),
        ] {
            assert_eq!(decide(choice, variables, false), pipe, "pipe {choice:?} {variables:?}");
            assert_eq!(decide(choice, variables, true), terminal, "terminal {choice:?} {variables:?}");
        }
    }

    #[test]
    fn plain_text_has_no_escape_sequence() {
        assert_eq!(Palette::Plain.paint(Tone::Bad, "Failed"), "Failed");
        assert_eq!(Palette::Colour.paint(Tone::Bad, "Failed"), "\x1b[31mFailed\x1b[0m");
        assert_eq!(Palette::Colour.paint(Tone::Plain, "x"), "x");
    }
}
