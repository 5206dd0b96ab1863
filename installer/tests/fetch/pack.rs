//! Artifacts as publishers and attackers pack them.
use std::{fs::File, io::Write as _};

use flate2::{Compression, write::GzEncoder};
use tar::{Builder, EntryType, Header};

/// A program for this machine, as far as its first bytes tell, with `payload` after them.
pub(crate) fn program(payload: &[u8]) -> Vec<u8> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    File::open(std::env::current_exe().unwrap()).unwrap().take(20).read_to_end(&mut bytes).unwrap();
    bytes.extend(payload);
    bytes
}

/// A tar archive under construction. Writes what the `tar` crate would refuse to.
pub(crate) struct Tar(Builder<Vec<u8>>);

impl Tar {
    pub(crate) fn new() -> Self {
        Self(Builder::new(Vec::new()))
    }

    pub(crate) fn of(files: &[(&str, &[u8])]) -> Self {
        files.iter().fold(Self::new(), |tar, (path, content)| tar.entry(path, EntryType::Regular, content))
    }

    /// Path and type go into the header as they are.
    pub(crate) fn entry(mut self, path: &str, kind: EntryType, content: &[u8]) -> Self {
        let mut header = Header::new_gnu();
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_mode(0o755);
        if matches!(kind, EntryType::Symlink | EntryType::Link) {
            header.set_link_name_literal("/etc/passwd").unwrap();
        }
        header.set_cksum();
        self.0.append(&header, content).unwrap();
        self
    }

    /// The next entry's path in GNU's format for long ones.
    pub(crate) fn long_name(self, path: &[u8]) -> Self {
        self.entry("././@LongLink", EntryType::GNULongName, path)
    }

    /// The next entry's POSIX extension.
    pub(crate) fn extension(mut self, key: &str, value: &str) -> Self {
        self.0.append_pax_extensions([(key, value.as_bytes())]).unwrap();
        self
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }

    pub(crate) fn gz(self) -> Vec<u8> {
        gz(&self.bytes())
    }

    pub(crate) fn zst(self) -> Vec<u8> {
        zstd::encode_all(&self.bytes()[..], 3).unwrap()
    }
}

pub(crate) fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}
