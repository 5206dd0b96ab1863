//! One installer at a time on a node, also while a Job that somebody deleted still ends.
use std::fs::{File, TryLockError};

use crate::{
    deadline::{Deadline, Ended},
    host::{Host, HostError},
};

const DIRECTORY: &str = "/run";
/// Not in /run/lock, where everybody may write: whoever opens the file can hold it.
const PATH: &str = "/run/kubectl-shim.lock";

/// Held until it is dropped, or the process ends in whatever way.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "the open file is the lock")] File);

/// Why there is no lock.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody else has it.
    #[error("another installer works on this node: {0}")]
    Busy(Ended),
    /// The file cannot be opened or locked.
    #[error("cannot lock {PATH}: {0}")]
    Io(#[from] std::io::Error),
    /// The directory or file cannot be created.
    #[error(transparent)]
    Host(#[from] HostError),
}

/// Waits for the lock.
pub fn acquire(host: &Host, deadline: &Deadline) -> Result<Lock, LockError> {
    host.make_directory(DIRECTORY)?;
    let file = host.open(PATH)?;
    let locked = deadline.poll(|| match file.try_lock() {
        Ok(()) => Some(Ok(())),
        Err(TryLockError::WouldBlock) => None,
        Err(TryLockError::Error(error)) => Some(Err(error)),
    });
    locked.map_err(LockError::Busy)??;
    Ok(Lock(file))
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::MetadataExt as _, time::Duration};

    use super::*;
    use crate::deadline::Interrupt;

    #[test]
    fn nobody_but_root_can_hold_it() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::new(dir.path());
        acquire(&host, &deadline(Duration::from_secs(1))).unwrap();
        assert_eq!(
            (host.list("/").unwrap(), host.list("/run").unwrap()),
            (vec!["run".into()], vec!["kubectl-shim.lock".into()])
        );
        assert_eq!(host.path(PATH).metadata().unwrap().mode() & 0o777, 0o600);
    }

    fn deadline(limit: Duration) -> Deadline {
        Deadline::new(limit, &Interrupt::default())
    }

    #[test]
    fn the_second_waits_until_the_first_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::new(dir.path());
        let short = || deadline(Duration::from_millis(100));
        let first = acquire(&host, &short()).unwrap();
        assert!(matches!(acquire(&host, &short()), Err(LockError::Busy(Ended::TooLong(_)))));
        drop(first);
        acquire(&host, &short()).unwrap();
    }
}
