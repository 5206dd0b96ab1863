//! Which entry of an archive is the binary. Decides from names and types, does no IO.
use std::fmt;

use shim_core::report::{Failure, Reason, cut};
use tar::EntryType;

use super::failure;

/// What a shim's binary is called where the Shim does not say.
const PREFIX: &str = "containerd-shim-";
/// Names that a message shows.
const SHOWN: usize = 5;
/// Longest name that a message shows, in bytes.
const NAME: usize = 80;

/// What to do with an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Member {
    /// The first that could be the binary: to be kept.
    Binary,
    /// To be passed over.
    Other,
}

/// What an archive holds, as far as it matters.
#[derive(Debug)]
pub(super) struct Listing<'a> {
    wanted: Option<&'a str>,
    binaries: Names,
    links: Names,
    others: Names,
}

impl<'a> Listing<'a> {
    /// `wanted`: the binary's file name; absent: the only `containerd-shim-*`.
    pub(super) fn new(wanted: Option<&'a str>) -> Self {
        Self { wanted, binaries: Names::default(), links: Names::default(), others: Names::default() }
    }

    /// Takes note of one entry.
    pub(super) fn see(&mut self, path: &[u8], kind: EntryType) -> Result<Member, Failure> {
        let shown = show(path);
        if leaves(path) {
            return Err(failure(
                Reason::ArtifactUnsafe,
                format!("the archive holds the path {shown}, which leaves it"),
            ));
        }
        if kind.is_gnu_sparse() {
            return Err(sparse(&shown));
        }
        match (self.is_wanted(path), form(kind)) {
            (_, Form::None) => {}
            (true, Form::File) => {
                self.binaries.add(shown);
                if self.binaries.total == 1 {
                    return Ok(Member::Binary);
                }
            }
            (true, Form::Special) => self.links.add(shown),
            (false, _) => self.others.add(shown),
        }
        Ok(Member::Other)
    }

    /// Once every entry was seen: the path of the binary.
    pub(super) fn binary(&self) -> Result<&str, Failure> {
        match (self.binaries.shown.as_slice(), self.links.total) {
            ([only], _) if self.binaries.total == 1 => Ok(only),
            ([], 0) => Err(failure(Reason::BinaryNotFound, self.not_found())),
            ([], _) => Err(failure(
                Reason::ArtifactUnsafe,
                format!("{} is a link or a device; the archive must hold the file itself", self.links),
            )),
            _ => Err(failure(Reason::BinaryAmbiguous, self.ambiguous())),
        }
    }

    fn is_wanted(&self, path: &[u8]) -> bool {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        match self.wanted {
            Some(wanted) => name == wanted.as_bytes(),
            None => name.starts_with(PREFIX.as_bytes()),
        }
    }

    fn not_found(&self) -> String {
        let wanted = self.wanted.map_or_else(|| format!("{PREFIX}*"), str::to_owned);
        match self.others.total {
            0 => format!("there is no {wanted} in the archive, which holds no files"),
            _ => format!("there is no {wanted} in the archive, only {}; set spec.binary", self.others),
        }
    }

    fn ambiguous(&self) -> String {
        match self.wanted {
            Some(wanted) => format!("the archive holds {wanted} more than once: {}", self.binaries),
            None => format!("more than one file could be meant: {}; set spec.binary to its name", self.binaries),
        }
    }
}

/// A sparse file's bytes are not in the archive as they are in the file.
pub(super) fn sparse(name: &str) -> Failure {
    failure(Reason::ArtifactUnreadable, format!("{name} is packed as a sparse file; pack it without --sparse"))
}

enum Form {
    File,
    /// Anything with a name that is neither a file nor a directory.
    Special,
    None,
}

fn form(kind: EntryType) -> Form {
    match kind {
        EntryType::Regular | EntryType::Continuous => Form::File,
        EntryType::Directory | EntryType::XGlobalHeader => Form::None,
        _ => Form::Special,
    }
}

/// We write no path of an archive, but one that holds such paths was made to harm or by mistake.
fn leaves(path: &[u8]) -> bool {
    path.starts_with(b"/") || path.split(|byte| *byte == b'/').any(|part| part == b"..")
}

/// A name from an archive as it may appear in a log: without control characters, not too long.
fn show(path: &[u8]) -> String {
    let printable = String::from_utf8_lossy(path).escape_debug().to_string();
    cut(&printable, NAME).to_owned()
}

/// The first few names of many.
#[derive(Debug, Default)]
struct Names {
    shown: Vec<String>,
    total: usize,
}

impl Names {
    fn add(&mut self, name: String) {
        self.total += 1;
        if self.shown.len() < SHOWN {
            self.shown.push(name);
        }
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown.join(", "))?;
        match self.total - self.shown.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHIM: &str = "containerd-shim-spin-v2";

    fn listing<'a>(wanted: Option<&'a str>, entries: &[(&str, EntryType)]) -> Listing<'a> {
        let mut listing = Listing::new(wanted);
        for (path, kind) in entries {
            listing.see(path.as_bytes(), *kind).unwrap();
        }
        listing
    }

    fn files(wanted: Option<&str>, paths: &[&str]) -> Result<String, Failure> {
        let entries: Vec<_> = paths.iter().map(|path| (*path, EntryType::Regular)).collect();
        listing(wanted, &entries).binary().map(str::to_owned)
    }

    #[test]
    fn the_only_shim_is_the_binary_at_any_depth() {
        assert_eq!(files(None, &["README.md", SHIM]).unwrap(), SHIM);
        assert_eq!(files(None, &["./a/b/containerd-shim-x-v1", "LICENSE"]).unwrap(), "./a/b/containerd-shim-x-v1");
        assert_eq!(files(Some("my-shim"), &[SHIM, "bin/my-shim"]).unwrap(), "bin/my-shim");
    }

    #[test]
    fn a_missing_binary_names_what_is_there() {
        let failure = files(None, &["a", "b", "c", "d", "e", "f", "g"]).unwrap_err();
        assert_eq!(failure.reason, Reason::BinaryNotFound);
        assert!(failure.message.contains("only a, b, c, d, e and 2 more; set spec.binary"), "{}", failure.message);
        let failure = files(Some("x"), &[]).unwrap_err();
        assert_eq!(failure.message, "there is no x in the archive, which holds no files");
    }

    #[test]
    fn two_candidates_are_named() {
        let failure = files(None, &[SHIM, "containerd-shim-slight-v1"]).unwrap_err();
        assert_eq!(failure.reason, Reason::BinaryAmbiguous);
        assert!(failure.message.contains("containerd-shim-spin-v2, containerd-shim-slight-v1; set spec.binary"));
        let failure = files(Some("x"), &["a/x", "b/x"]).unwrap_err();
        assert_eq!(failure.message, "the archive holds x more than once: a/x, b/x");
    }

    #[test]
    fn a_link_is_never_the_binary() {
        for kind in [EntryType::Symlink, EntryType::Link, EntryType::Char, EntryType::Block, EntryType::Fifo] {
            let failure = listing(None, &[(SHIM, kind)]).binary().unwrap_err();
            assert_eq!(failure.reason, Reason::ArtifactUnsafe, "{kind:?}");
            let both = [("containerd-shim-spin", kind), (SHIM, EntryType::Regular)];
            assert_eq!(listing(None, &both).binary().unwrap(), SHIM);
        }
    }

    #[test]
    fn a_directory_is_not_a_candidate() {
        let entries = [
            ("containerd-shim-spin-v2/", EntryType::Directory),
            ("containerd-shim-spin-v2/containerd-shim-spin-v2", EntryType::Regular),
        ];
        assert_eq!(listing(None, &entries).binary().unwrap(), "containerd-shim-spin-v2/containerd-shim-spin-v2");
    }

    #[test]
    fn paths_that_leave_the_archive_are_refused_whatever_they_are() {
        for path in ["/bin/x", "../x", "a/../../x", "a/..", ".."] {
            for kind in [EntryType::Regular, EntryType::Directory, EntryType::Symlink] {
                let failure = Listing::new(None).see(path.as_bytes(), kind).unwrap_err();
                assert_eq!(failure.reason, Reason::ArtifactUnsafe, "{path}");
            }
        }
        for path in ["./x", "a..b", "...", "a/..b/c"] {
            assert!(Listing::new(None).see(path.as_bytes(), EntryType::Regular).is_ok(), "{path}");
        }
    }

    #[test]
    fn a_name_cannot_write_to_the_log() {
        assert_eq!(show(b"a\nERROR \x1b[31m"), "a\\nERROR \\u{1b}[31m");
        assert_eq!(show(&[b'x'; 500]).len(), NAME);
    }
}
