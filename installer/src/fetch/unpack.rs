//! Reads an artifact, writes the one binary. Nothing is ever extracted under a path of the archive.
use std::{
    fs::File,
    io::{self, BufReader, Read},
    path::Path,
    time::Instant,
};

use flate2::bufread::MultiGzDecoder;
use shim_core::{
    names::Sha256Hex,
    report::{Failure, Reason},
};
use tar::{Archive, Entry};

use super::{
    Limits,
    content::{self, Content},
    download::{Size, head},
    elf, failure,
    listing::{Listing, Member, sparse},
    stream::{Allowance, Bounded, CopyError, Exceeded, copy},
    work::full,
};

/// Most bytes of an entry's headers. Long names are kept in memory whole, so they must not fill it.
const HEADER_BYTES: u64 = 1 << 20;

pub(super) struct Unpack<'a> {
    /// The binary's file name in an archive.
    wanted: Option<&'a str>,
    limits: &'a Limits,
    allowance: Allowance,
}

impl<'a> Unpack<'a> {
    /// `wanted`: the binary's file name in an archive; absent: the only `containerd-shim-*`.
    pub(super) fn new(wanted: Option<&'a str>, limits: &'a Limits, deadline: Instant) -> Self {
        Self { wanted, limits, allowance: Allowance::new(limits.unpacked_bytes, deadline) }
    }

    /// Fills `binary` and returns its digest.
    pub(super) fn run(&self, artifact: &Path, binary: &mut File) -> Result<Sha256Hex, Failure> {
        let mut packed = File::open(artifact).map_err(full)?;
        let content = Content::of(&head(&mut packed, content::HEAD).map_err(full)?);
        let packed = BufReader::new(packed);
        let (name, sha256) = match content {
            Content::Elf => ("the artifact".to_owned(), self.keep(&mut self.bounded(packed), binary)?),
            Content::Gzip => self.archive(MultiGzDecoder::new(packed), binary)?,
            Content::Zstd => self.archive(zstd::Decoder::with_buffer(packed).map_err(|e| self.explain(&e))?, binary)?,
            Content::Unreadable(what) => return Err(unreadable(what)),
        };
        let start = head(binary, elf::HEAD).map_err(full)?;
        elf::check(&start).map_err(|error| failure(Reason::WrongArchitecture, format!("{name}: {error}")))?;
        Ok(sha256)
    }

    /// Reads to the end although the binary may come first: a second candidate makes it ambiguous.
    fn archive(&self, packed: impl Read, binary: &mut File) -> Result<(String, Sha256Hex), Failure> {
        let mut archive = Archive::new(self.bounded(packed));
        let mut entries = archive.entries().map_err(|error| self.explain(&error))?;
        let mut listing = Listing::new(self.wanted);
        let mut sha256 = None;
        let mut left = self.limits.entries;
        while let Some(entry) = self.allowance.within(HEADER_BYTES, || entries.next()) {
            left = left.checked_sub(1).ok_or_else(|| self.too_many())?;
            let mut entry = entry.map_err(|error| self.explain(&error))?;
            sha256 = self.entry(&mut entry, &mut listing, binary)?.or(sha256);
        }
        // A tar archive has its own end; the checksum of what it is packed in comes later.
        io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(|error| self.explain(&error))?;
        let name = listing.binary()?.to_owned();
        sha256.map(|sha256| (name, sha256)).ok_or_else(|| failure(Reason::Internal, "the binary was not kept"))
    }

    /// The digest of the entry if it is the binary.
    fn entry(
        &self,
        entry: &mut Entry<'_, impl Read>,
        listing: &mut Listing<'_>,
        binary: &mut File,
    ) -> Result<Option<Sha256Hex>, Failure> {
        match listing.see(&entry.path_bytes(), entry.header().entry_type())? {
            Member::Binary => {
                self.refuse_sparse(entry)?;
                self.keep(entry, binary).map(Some)
            }
            Member::Other => {
                // Read here, so that the limit on what lies between two files does not count it.
                io::copy(entry, &mut io::sink()).map_err(|error| self.explain(&error))?;
                Ok(None)
            }
        }
    }

    /// GNU tar's own sparse format has a type; the three POSIX ones look like plain files with extensions.
    fn refuse_sparse(&self, entry: &mut Entry<'_, impl Read>) -> Result<(), Failure> {
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let Some(extensions) = entry.pax_extensions().map_err(|error| self.explain(&error))? else { return Ok(()) };
        let is_sparse = extensions.flatten().any(|extension| extension.key_bytes().starts_with(b"GNU.sparse."));
        if is_sparse { Err(sparse(&name)) } else { Ok(()) }
    }

    fn keep(&self, from: &mut impl Read, binary: &mut File) -> Result<Sha256Hex, Failure> {
        copy(from, binary).map(|copied| copied.sha256).map_err(|error| match error {
            CopyError::Read(error) => self.explain(&error),
            CopyError::Write(error) => full(error),
        })
    }

    fn bounded<R: Read>(&self, inner: R) -> Bounded<'_, R> {
        Bounded::new(inner, &self.allowance)
    }

    fn explain(&self, error: &io::Error) -> Failure {
        match self.allowance.exceeded() {
            Some(Exceeded::Bytes) => {
                let limit = Size(self.limits.unpacked_bytes);
                failure(Reason::ArtifactTooLarge, format!("the artifact unpacks to more than {limit}"))
            }
            Some(Exceeded::Headers) => failure(Reason::ArtifactTooLarge, "a name in the archive is far too long"),
            Some(Exceeded::Deadline) => failure(Reason::DeadlineExceeded, "unpacking the artifact took too long"),
            None => {
                failure(Reason::ArtifactUnreadable, format!("the artifact is damaged or not a tar archive: {error}"))
            }
        }
    }

    fn too_many(&self) -> Failure {
        let limit = self.limits.entries;
        failure(Reason::ArtifactTooLarge, format!("the archive has more than {limit} entries"))
    }
}

fn unreadable(what: &str) -> Failure {
    failure(
        Reason::ArtifactUnreadable,
        format!("the artifact is {what}; a tar.gz, a tar.zst or the program itself is needed"),
    )
}
