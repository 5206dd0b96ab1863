//! Ordinary tools, run with errors that tell what failed and why.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result};

/// How many of the last lines of a failed tool's standard error an error repeats.
const LAST_LINES: usize = 8;

/// A tool that could not be started, or ended badly.
#[derive(Debug, thiserror::Error)]
#[error("`{line}` ended with {status}:\n{stderr}")]
pub struct CommandFailed {
    line: String,
    status: String,
    stderr: String,
}

/// Whether an error may repeat the host names that a tool printed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hosts {
    Shown,
    /// Package registries stay out of logs: they are this machine's business.
    Hidden,
}

/// A command line to be run.
pub(crate) struct Cmd {
    command: Command,
    stdin: Option<Vec<u8>>,
    hosts: Hosts,
}

impl Cmd {
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        Self { command: Command::new(program), stdin: None, hosts: Hosts::Shown }
    }

    /// A command inside a named network namespace. `nsenter`, not `ip netns exec`: the latter makes a mount namespace whose
    /// copies of our mounts would outlive their removal here.
    pub(crate) fn inside(netns: &str, program: impl AsRef<OsStr>) -> Self {
        Self::new("nsenter").arg(format!("--net=/run/netns/{netns}")).arg("--").arg(program)
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    pub(crate) fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.command.args(args);
        self
    }

    /// Arguments without spaces in them, as one text.
    pub(crate) fn words(self, words: &str) -> Self {
        self.args(words.split_whitespace())
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn dir(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }

    pub(crate) fn stdin(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(text.into());
        self
    }

    pub(crate) fn hide_hosts(mut self) -> Self {
        self.hosts = Hosts::Hidden;
        self
    }

    /// Runs it to its end, however that is.
    pub(crate) fn output(mut self) -> Result<Output> {
        let input = if self.stdin.is_some() { Stdio::piped() } else { Stdio::null() };
        let mut child = self
            .command
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start `{}`; is it installed?", self.line()))?;
        if let (Some(text), Some(mut pipe)) = (self.stdin.take(), child.stdin.take()) {
            // A tool that ends before it read everything tells why by its exit code.
            let _ = pipe.write_all(&text);
        }
        Ok(child.wait_with_output()?)
    }

    /// Runs it; its standard output if it succeeded.
    pub(crate) fn run(self) -> Result<String> {
        let (line, hosts) = (self.line(), self.hosts);
        let output = self.output()?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let shown = |text: &str| if hosts == Hosts::Hidden { without_hosts(text) } else { text.to_owned() };
        let stderr = last_lines(&shown(&String::from_utf8_lossy(&output.stderr)));
        Err(CommandFailed { line: shown(&line), status: output.status.to_string(), stderr }.into())
    }

    /// Starts it with its output in a file, and leaves it running; its process id. Its own session and a closed standard
    /// input, else whatever started this program waits for it.
    pub(crate) fn start(self, log: &Path) -> Result<u32> {
        let file = File::options().create(true).append(true).open(log).with_context(|| log.display().to_string())?;
        let line = self.line();
        let mut command = Command::new("setsid");
        command.arg(self.command.get_program()).args(self.command.get_args());
        for (name, value) in self.command.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        if let Some(dir) = self.command.get_current_dir() {
            command.current_dir(dir);
        }
        let child = command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn();
        Ok(child.with_context(|| format!("cannot start `{line}`"))?.id())
    }

    fn line(&self) -> String {
        let words = std::iter::once(self.command.get_program()).chain(self.command.get_args());
        words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

/// `text` without the hosts of the addresses in it, which tools also repeat outside of addresses.
fn without_hosts(text: &str) -> String {
    let hosts = text.split("://").skip(1).filter_map(host);
    hosts.fold(text.to_owned(), |text, host| text.replace(host, "…"))
}

/// The host at the start of an address without its scheme; neither user nor port.
fn host(address: &str) -> Option<&str> {
    let end = address.find(|c: char| !(c.is_alphanumeric() || ".-_:@%".contains(c))).unwrap_or(address.len());
    let place = address[..end].rsplit('@').next()?;
    place.split(':').next().filter(|host| !host.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_left_out_and_paths_kept() {
        let text = "E: https://mirror.example:80/debian/x.deb 404: lookup mirror.example failed, see http://user@other";
        assert_eq!(without_hosts(text), "E: https://…:80/debian/x.deb 404: lookup … failed, see http://user@…");
        assert_eq!(without_hosts("nothing here"), "nothing here");
    }

    #[test]
    fn an_error_shows_the_last_lines_only() {
        let text = (1..=20).fold(String::new(), |text, n| text + &format!("line {n}\n"));
        assert!(last_lines(&text).starts_with("line 13\n") && last_lines(&text).ends_with("line 20"));
        assert_eq!(last_lines(""), "");
    }

    #[test]
    fn a_failure_tells_command_status_and_words() {
        let error = Cmd::new("sh").args(["-c", "echo why >&2; exit 3"]).run().unwrap_err().to_string();
        assert!(error.contains("sh -c") && error.contains("exit status: 3") && error.ends_with("why"), "{error}");
    }

    #[test]
    fn standard_input_reaches_the_tool() {
        assert_eq!(Cmd::new("cat").stdin("hello").run().unwrap(), "hello");
    }
}
