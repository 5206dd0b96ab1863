//! What kind of file an artifact is. Its first bytes decide, never its name or what the server says.

/// Bytes of a file that [`Content::of`] needs.
pub(super) const HEAD: usize = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    Gzip,
    Zstd,
    Elf,
    /// Nothing that we read; the text goes into messages.
    Unreadable(&'static str),
}

const MAGIC: [(&[u8], Content); 8] = [
    (b"\x1f\x8b", Content::Gzip),
    (b"\x28\xb5\x2f\xfd", Content::Zstd),
    (b"\x7fELF", Content::Elf),
    (b"PK", Content::Unreadable("a zip file")),
    (b"\xfd7zXZ\0", Content::Unreadable("an xz file")),
    (b"BZh", Content::Unreadable("a bzip2 file")),
    (b"#!", Content::Unreadable("a script")),
    (b"{", Content::Unreadable("a JSON text")),
];

impl Content {
    pub(super) fn of(head: &[u8]) -> Self {
        let known = MAGIC.iter().find(|(magic, _)| head.starts_with(magic));
        known.map_or_else(|| Self::Unreadable(describe(head)), |(_, content)| *content)
    }
}

fn describe(head: &[u8]) -> &'static str {
    if head.is_empty() {
        "an empty file"
    } else if head.trim_ascii_start().starts_with(b"<") {
        "an HTML or XML page"
    } else if head.get(257..262) == Some(b"ustar") {
        "a tar file that is not compressed"
    } else {
        "something else"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_decide() {
        assert_eq!(Content::of(b"\x1f\x8b\x08"), Content::Gzip);
        assert_eq!(Content::of(b"\x28\xb5\x2f\xfd\x04"), Content::Zstd);
        assert_eq!(Content::of(b"\x7fELF\x02"), Content::Elf);
    }

    #[test]
    fn what_cannot_be_read_is_described() {
        let tar = [&[0; 257][..], b"ustar"].concat();
        let cases: [(&[u8], &str); 7] = [
            (b"", "an empty file"),
            (b"\n <!DOCTYPE html>", "an HTML or XML page"),
            (b"PK\x03\x04", "a zip file"),
            (b"#!/bin/sh", "a script"),
            (b"{\"message\":\"Not Found\"}", "a JSON text"),
            (&tar, "a tar file that is not compressed"),
            (b"hello", "something else"),
        ];
        for (head, words) in cases {
            assert_eq!(Content::of(head), Content::Unreadable(words));
        }
    }
}
