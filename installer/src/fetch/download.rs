//! Downloads an artifact into a file: tries until it is there and its digest is right, or there is no point in more.
use std::{
    fmt,
    fs::File,
    io::{self, Read, Seek as _, Write},
    thread,
    time::{Duration, Instant},
};

use shim_core::{
    names::Sha256Hex,
    report::{Failure, Reason},
};
use tempfile::NamedTempFile;
use ureq::http::{HeaderMap, header};

use super::{
    Limits,
    answer::{self, Miss},
    client::Client,
    content::{self, Content},
    failure,
    location::Location,
    stream::{Allowance, Bounded, Copied, CopyError, Exceeded, copy},
    work::full,
};

pub(super) struct Download<'a> {
    pub(super) client: &'a Client,
    pub(super) limits: &'a Limits,
    pub(super) location: Location,
    pub(super) sha256: &'a Sha256Hex,
    pub(super) deadline: Instant,
}

impl Download<'_> {
    /// Fills `file`.
    pub(super) fn run(&self, mut file: NamedTempFile) -> Result<NamedTempFile, Failure> {
        let start = Instant::now();
        tracing::info!(location = %self.location, "download starts");
        let mut tries = 1;
        loop {
            match self.attempt(file.as_file_mut()) {
                Ok(bytes) => {
                    tracing::info!(location = %self.location, bytes, took = ?start.elapsed(), "download done");
                    return Ok(file);
                }
                Err(Miss::Over(failure)) => return Err(failure),
                Err(Miss::Late) => return Err(self.late(start)),
                Err(Miss::Again { failure, wait }) => self.pause(tries, &failure, wait)?,
            }
            tries += 1;
        }
    }

    fn attempt(&self, file: &mut File) -> Result<u64, Miss> {
        empty(file).map_err(|error| Miss::Over(full(error)))?;
        let remaining = self.deadline.saturating_duration_since(Instant::now());
        let response =
            self.client.get(&self.location, remaining).map_err(|error| answer::error(&error, &self.location))?;
        let headers = response.headers();
        answer::status(response.status(), text(headers, header::RETRY_AFTER), &self.location)?;
        self.fits(headers)?;
        let copied = self.receive(response.into_body().into_reader(), file)?;
        self.verify(&copied, file)?;
        Ok(copied.bytes)
    }

    /// An artifact that says it is too large is not downloaded to find out.
    fn fits(&self, headers: &HeaderMap) -> Result<(), Miss> {
        match text(headers, header::CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok()) {
            Some(length) if length > self.limits.artifact_bytes => Err(self.too_large()),
            _ => Ok(()),
        }
    }

    fn receive(&self, body: impl Read, file: &mut impl Write) -> Result<Copied, Miss> {
        let allowance = Allowance::new(self.limits.artifact_bytes, self.deadline);
        copy(&mut Bounded::new(body, &allowance), file).map_err(|error| match (error, allowance.exceeded()) {
            (CopyError::Write(error), _) => Miss::Over(full(error)),
            (CopyError::Read(_), Some(Exceeded::Bytes | Exceeded::Headers)) => self.too_large(),
            (CopyError::Read(_), Some(Exceeded::Deadline)) => Miss::Late,
            (CopyError::Read(error), None) => answer::error(&error.into(), &self.location),
        })
    }

    fn verify(&self, copied: &Copied, file: &mut File) -> Result<(), Miss> {
        if copied.sha256 == *self.sha256 {
            return Ok(());
        }
        let head = head(file, content::HEAD).map_err(|error| Miss::Over(full(error)))?;
        let hint = match Content::of(&head) {
            Content::Unreadable(what) => format!(" ({what})"),
            _ => String::new(),
        };
        let (expected, got) = (&self.sha256.as_str()[..12], &copied.sha256.as_str()[..12]);
        Err(Miss::over(
            Reason::ChecksumMismatch,
            format!(
                "expected {expected}…, got {got}…{hint}; the download's sha256 is {}; {}",
                copied.sha256, self.location
            ),
        ))
    }

    /// Waits for the next try, unless there is none.
    fn pause(&self, tries: u32, last: &Failure, asked: Option<Duration>) -> Result<(), Failure> {
        let pause = answer::pause(self.limits, tries, asked, fastrand::f64());
        if tries >= self.limits.tries {
            return Err(failure(last.reason, format!("{}; tried {tries} times", last.message)));
        }
        if pause >= self.deadline.saturating_duration_since(Instant::now()) {
            return Err(failure(last.reason, format!("{}; no time for another try in {pause:.0?}", last.message)));
        }
        tracing::warn!(location = %self.location, tries, ?pause, "{}; trying again", last.message);
        thread::sleep(pause);
        Ok(())
    }

    fn too_large(&self) -> Miss {
        let limit = Size(self.limits.artifact_bytes);
        Miss::over(Reason::ArtifactTooLarge, format!("more than {limit} to download; {}", self.location))
    }

    fn late(&self, start: Instant) -> Failure {
        let after = start.elapsed();
        failure(Reason::DeadlineExceeded, format!("not downloaded within {after:.0?}; {}", self.location))
    }
}

/// A broken transfer's bytes must not stay before those of the next try.
fn empty(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// The first `length` bytes of a file, fewer if it is shorter; leaves it at its start.
pub(super) fn head(file: &mut File, length: usize) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(length);
    file.rewind()?;
    file.take(length as u64).read_to_end(&mut head)?;
    file.rewind()?;
    Ok(head)
}

/// A number of bytes as people read it.
pub(super) struct Size(pub(super) u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes < 1 << 20 => write!(f, "{bytes} bytes"),
            bytes => write!(f, "{} MiB", bytes >> 20),
        }
    }
}
