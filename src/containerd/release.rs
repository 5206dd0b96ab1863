//! Releases of containerd, as far as its configuration depends on them.
use std::fmt;

/// A release that we know how to configure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    major: u32,
    minor: u32,
}

/// Where our runtimes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// A marked block in the file that supplies the CRI table: on 1.x an import replaces a plugin's whole table, so that
    /// a drop-in would erase runc.
    InPlace,
    /// A file of our own, merged into the others since 2.0.
    DropIn,
}

impl Release {
    /// Reads the output of `containerd --version`; absent when it names no release that is supported.
    pub fn parse(output: &str) -> Option<Self> {
        let release = output.split_whitespace().find_map(numbers)?;
        let known = matches!((release.major, release.minor), (1, 6 | 7)) || (2..=9).contains(&release.major);
        known.then_some(release)
    }

    /// How this release is configured.
    pub fn style(self) -> Style {
        if self.major == 1 { Style::InPlace } else { Style::DropIn }
    }

    /// The subcommand of `containerd config` that prints the effective configuration: in 2.0 `dump` does not migrate
    /// version 2 files, `migrate` does; 1.x has only `dump`.
    pub fn effective_command(self) -> &'static str {
        match self.style() {
            Style::InPlace => "dump",
            Style::DropIn => "migrate",
        }
    }
}

/// `v2.1.9+unknown` → 2.1; nothing for words that are not versions.
fn numbers(word: &str) -> Option<Release> {
    let mut parts = word.strip_prefix('v').unwrap_or(word).splitn(3, '.');
    let (major, minor) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next().map(|_| Release { major, minor })
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn supported_releases_are_told_from_others() {
        for (output, release) in [
            ("containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3", Some("1.6")),
            (
                "containerd github.com/containerd/containerd v1.7.24-k3s1 88bf19b2105c8b17560993bee28a01ddc2f97182",
                Some("1.7"),
            ),
            ("containerd github.com/containerd/containerd/v2 2.1.9+unknown ", Some("2.1")),
            ("containerd github.com/containerd/containerd/v2 v2.4.0-beta.0 abc", Some("2.4")),
            ("containerd github.com/containerd/containerd 1.5.13 abc", None),
            ("containerd github.com/containerd/containerd 1.8.0 abc", None),
            ("containerd github.com/containerd/containerd (devel)", None),
            ("", None),
        ] {
            assert_eq!(Release::parse(output).map(|r| r.to_string()).as_deref(), release, "{output}");
        }
    }

    #[test]
    fn only_2_0_and_later_merge_drop_ins() {
        let style = |text: &str| Release::parse(text).unwrap().style();
        assert_eq!([style("1.6.20"), style("1.7.0"), style("2.0.0")], [Style::InPlace, Style::InPlace, Style::DropIn]);
    }
}
