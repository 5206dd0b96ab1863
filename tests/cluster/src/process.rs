//! Processes that outlive the program that started them, known by id and start time: an id alone is given again to a stranger.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use rustix::process::{Pid, Signal, kill_process};

use crate::wait::until;

/// A process that no other can be mistaken for until the machine boots again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) pid: u32,
    /// In clock ticks since the machine's boot (field 22 of /proc/PID/stat).
    started: u64,
}

/// What a process does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Running,
    /// Gone, or a zombie that waits for its parent: it holds nothing any more.
    Ended,
}

/// What /proc/PID/stat says that we need.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    parent: u32,
    started: u64,
}

impl Identity {
    /// Of a process that runs now.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        stat(pid).map(|stat| Self { pid, started: stat.started })
    }

    pub(crate) fn life(self) -> Life {
        match stat(self.pid) {
            Some(stat) if stat.started == self.started && !matches!(stat.state, 'Z' | 'X') => Life::Running,
            _ => Life::Ended,
        }
    }

    /// Ends it at once and waits until it is gone.
    pub(crate) fn kill(self) -> Result<()> {
        self.signal(Signal::KILL);
        until(&format!("the end of process {}", self.pid), Duration::from_secs(20), || {
            Ok((self.life() == Life::Ended).then_some(()))
        })
    }

    pub(crate) fn signal(self, signal: Signal) {
        if let (Life::Running, Some(pid)) = (self.life(), i32::try_from(self.pid).ok().and_then(Pid::from_raw)) {
            // It may end between the look and the signal; then there is nothing left to do.
            let _ = kill_process(pid, signal);
        }
    }

    fn text(self) -> String {
        format!("{} {}\n", self.pid, self.started)
    }

    fn parse(text: &str) -> Option<Self> {
        let (pid, started) = text.trim().split_once(' ')?;
        Some(Self { pid: pid.parse().ok()?, started: started.parse().ok()? })
    }
}

fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The command's name, in brackets, may itself have spaces and brackets: fields are counted from the last one.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    Some(Stat { state, parent, started: fields.nth(17)?.parse().ok()? })
}

/// This process, its parent, and so on up to the first.
pub(crate) fn own_line() -> Vec<u32> {
    let parent = |&pid: &u32| stat(pid).map(|stat| stat.parent).filter(|&parent| parent != 0);
    std::iter::successors(Some(std::process::id()), parent).collect()
}

/// The processes that were started by exactly these words.
pub(crate) fn started_by(words: &[String]) -> Vec<u32> {
    let line: Vec<u8> = words.iter().flat_map(|word| word.bytes().chain([0])).collect();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|found| found == line)).collect()
}

/// The direct children of a process.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

/// The processes that we started, by name, one file each.
#[derive(Clone, Debug)]
pub(crate) struct Processes {
    dir: PathBuf,
}

impl Processes {
    pub(crate) fn at(dir: PathBuf) -> Self {
        Self { dir }
    }

    pub(crate) fn record(&self, name: &str, pid: u32) -> Result<()> {
        let Some(identity) = Identity::of(pid) else {
            anyhow::bail!("{name} ended as soon as it was started; its log tells why");
        };
        fs::create_dir_all(&self.dir)?;
        Ok(fs::write(self.dir.join(name), identity.text())?)
    }

    pub(crate) fn get(&self, name: &str) -> Option<Identity> {
        Identity::parse(&fs::read_to_string(self.dir.join(name)).ok()?)
    }

    pub(crate) fn forget(&self, name: &str) {
        // Already forgotten is as good.
        let _ = fs::remove_file(self.dir.join(name));
    }

    /// Names and identities of all that were recorded and not forgotten.
    pub(crate) fn all(&self) -> Vec<(String, Identity)> {
        let Ok(entries) = fs::read_dir(&self.dir) else { return Vec::new() };
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter_map(|name| self.get(&name).map(|identity| (name, identity))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, id};
    use std::time::Duration;

    use super::*;
    use crate::wait::until;

    #[test]
    fn a_command_name_with_brackets_does_not_shift_the_fields() {
        let text = "42 (a) b (c)) S 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 987654 1000 1";
        assert_eq!(parse_stat(text), Some(Stat { state: 'S', parent: 1, started: 987_654 }));
        assert_eq!(parse_stat("42 (a) S 1"), None);
    }

    #[test]
    fn a_record_survives_being_written() {
        let identity = Identity::of(id()).unwrap();
        assert_eq!(Identity::parse(&identity.text()), Some(identity));
        assert_eq!(Identity::parse("12"), None);
    }

    #[test]
    fn the_own_line_starts_here() {
        let line = own_line();
        assert_eq!(line[0], id());
        assert!(line.contains(&std::os::unix::process::parent_id()));
    }

    #[test]
    fn the_same_id_with_another_start_is_a_stranger() {
        let me = Identity::of(id()).unwrap();
        assert_eq!(me.life(), Life::Running);
        assert_eq!(Identity { started: me.started + 1, ..me }.life(), Life::Ended);
    }

    #[test]
    fn a_killed_child_counts_as_ended_before_it_is_reaped() {
        let mut child = Command::new("sleep").arg("61.5").spawn().unwrap();
        let identity = Identity::of(child.id()).unwrap();
        assert!(children(id()).contains(&child.id()));
        // The parent may go on a moment before the new program's words can be read.
        let found = || Ok(started_by(&["sleep".to_owned(), "61.5".to_owned()]).contains(&child.id()).then_some(()));
        until("the words of the child", Duration::from_secs(10), found).unwrap();
        identity.kill().unwrap();
        assert_eq!(identity.life(), Life::Ended);
        child.wait().unwrap();
    }
}
