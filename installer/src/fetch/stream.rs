//! Reading with limits, copying with a digest.
use std::{
    cell::Cell,
    io::{self, Read, Write},
    time::Instant,
};

use sha2::{Digest as _, Sha256};
use shim_core::names::{Sha256Hex, hex};

/// Which limit a reader ran into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Exceeded {
    #[error("too many bytes")]
    Bytes,
    #[error("too many bytes before the next file")]
    Headers,
    #[error("too late")]
    Deadline,
}

/// What a [`Bounded`] reader may still deliver. Its owner can look at it while libraries hold the reader, and need not
/// search their errors for ours.
#[derive(Debug)]
pub(super) struct Allowance {
    bytes: Cell<u64>,
    headers: Cell<u64>,
    deadline: Instant,
    exceeded: Cell<Option<Exceeded>>,
}

impl Allowance {
    pub(super) fn new(bytes: u64, deadline: Instant) -> Self {
        Self { bytes: Cell::new(bytes), headers: Cell::new(u64::MAX), deadline, exceeded: Cell::new(None) }
    }

    /// Runs `step`, in which at most `bytes` may be read.
    pub(super) fn within<T>(&self, bytes: u64, step: impl FnOnce() -> T) -> T {
        self.headers.set(bytes);
        let result = step();
        self.headers.set(u64::MAX);
        result
    }

    pub(super) fn exceeded(&self) -> Option<Exceeded> {
        self.exceeded.get()
    }

    fn spend(&self, bytes: u64) -> Result<(), Exceeded> {
        let verdict = take(&self.bytes, bytes, Exceeded::Bytes)
            .and_then(|()| take(&self.headers, bytes, Exceeded::Headers))
            .and_then(|()| if Instant::now() > self.deadline { Err(Exceeded::Deadline) } else { Ok(()) });
        self.exceeded.set(verdict.err());
        verdict
    }
}

fn take(from: &Cell<u64>, bytes: u64, otherwise: Exceeded) -> Result<(), Exceeded> {
    from.set(from.get().checked_sub(bytes).ok_or(otherwise)?);
    Ok(())
}

/// A reader that ends with an error where its [`Allowance`] does.
pub(super) struct Bounded<'a, R> {
    inner: R,
    allowance: &'a Allowance,
}

impl<'a, R> Bounded<'a, R> {
    pub(super) fn new(inner: R, allowance: &'a Allowance) -> Self {
        Self { inner, allowance }
    }
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.allowance.spend(read as u64).map_err(io::Error::other)?;
        Ok(read)
    }
}

/// Which side of [`copy`] failed: a broken source is the artifact's fault, a full disk is ours.
#[derive(Debug)]
pub(super) enum CopyError {
    Read(io::Error),
    Write(io::Error),
}

/// What [`copy`] has copied.
#[derive(Debug)]
pub(super) struct Copied {
    pub(super) bytes: u64,
    pub(super) sha256: Sha256Hex,
}

/// Copies until the end of `from`.
pub(super) fn copy(from: &mut impl Read, to: &mut impl Write) -> Result<Copied, CopyError> {
    let mut hash = Sha256::new();
    let mut bytes = 0;
    let mut buffer = vec![0; 64 << 10];
    loop {
        let part = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => &buffer[..read],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(CopyError::Read(error)),
        };
        hash.update(part);
        to.write_all(part).map_err(CopyError::Write)?;
        bytes += part.len() as u64;
    }
    // 32 bytes are always 64 hex digits; the type only has no constructor that says so.
    let sha256 = hex(&hash.finalize()).parse().map_err(|error| CopyError::Read(io::Error::other(error)))?;
    Ok(Copied { bytes, sha256 })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    fn read_all(allowance: &Allowance, length: usize) -> io::Result<usize> {
        Bounded::new(&vec![7; length][..], allowance).read_to_end(&mut Vec::new())
    }

    #[test]
    fn the_last_allowed_byte_is_read_and_not_one_more() {
        let allowance = Allowance::new(100, soon());
        assert_eq!(read_all(&allowance, 100).unwrap(), 100);
        assert_eq!(allowance.exceeded(), None);
        assert!(read_all(&allowance, 1).is_err());
        assert_eq!(allowance.exceeded(), Some(Exceeded::Bytes));
    }

    #[test]
    fn a_step_has_its_own_limit() {
        let allowance = Allowance::new(100, soon());
        assert!(allowance.within(10, || read_all(&allowance, 10)).is_ok());
        assert!(allowance.within(10, || read_all(&allowance, 11)).is_err());
        assert_eq!(allowance.exceeded(), Some(Exceeded::Headers));
        assert!(read_all(&Allowance::new(100, soon()), 50).is_ok());
    }

    #[test]
    fn nothing_is_read_after_the_deadline() {
        let allowance = Allowance::new(100, Instant::now());
        assert!(read_all(&allowance, 1).is_err());
        assert_eq!(allowance.exceeded(), Some(Exceeded::Deadline));
    }

    #[test]
    fn a_copy_has_the_digest_of_what_was_copied() {
        let mut to = Vec::new();
        let copied = copy(&mut &b"abc"[..], &mut to).unwrap();
        assert_eq!((copied.bytes, &to[..]), (3, &b"abc"[..]));
        // FIPS 180-2, appendix B.1.
        assert_eq!(copied.sha256.as_str(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn a_full_disk_is_not_the_sources_fault() {
        let mut full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        assert!(matches!(copy(&mut &b"abc"[..], &mut full), Err(CopyError::Write(_))));
    }
}
