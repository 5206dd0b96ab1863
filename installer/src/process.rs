//! Programs of the node: each with a deadline, killed by its own id when that is over.
use std::{
    io::{self, Read},
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::deadline::{Deadline, Ended};

/// Most bytes that are kept of each output.
const OUTPUT_LIMIT: u64 = 4 << 20;
/// Programs get this and nothing else of our environment.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What a program left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Why a program did not end well.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It could not be started.
    #[error("{program} cannot be run: {source}")]
    Start {
        /// Path of the program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// It ended with an error.
    #[error("{program} {how}: {last_line}")]
    Failed {
        /// Path of the program.
        program: String,
        /// Exit code or signal.
        how: String,
        /// Last line of its standard error.
        last_line: String,
    },
    /// It was killed because the wait for it had to end.
    #[error("{program} was ended: {why}")]
    Killed {
        /// Path of the program.
        program: String,
        /// Why.
        why: Ended,
    },
}

/// Runs `program` with `args` to its end.
pub fn run(program: &str, args: &[&str], deadline: &Deadline) -> Result<Output, RunError> {
    let mut command = Command::new(program);
    command.args(args).env_clear().env("PATH", PATH).current_dir("/");
    capture(command, program, deadline)
}

/// Runs a prepared command in a process group of its own, so that nothing that it starts outlives the deadline.
pub fn capture(mut command: Command, program: &str, deadline: &Deadline) -> Result<Output, RunError> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(|source| RunError::Start { program: program.to_owned(), source })?;
    let readers = (child.stdout.take().map(read_all), child.stderr.take().map(read_all));
    let ended = deadline.poll(|| child.try_wait().transpose());
    // Also after a normal end: a background process that keeps a pipe open would make the readers wait for ever.
    kill_group(&mut child);
    let [stdout, stderr] = [readers.0, readers.1].map(|reader| reader.and_then(|r| r.join().ok()).unwrap_or_default());
    let status = ended.map_err(|why| RunError::Killed { program: program.to_owned(), why })?;
    match status {
        Ok(status) if status.success() => Ok(Output { stdout, stderr }),
        Ok(status) => Err(failed(program, status, &stderr)),
        Err(source) => Err(RunError::Start { program: program.to_owned(), source }),
    }
}

fn kill_group(child: &mut Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
    let _ = child.wait();
}

fn read_all(pipe: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let mut pipe = pipe.take(OUTPUT_LIMIT);
        let _ = pipe.read_to_end(&mut bytes);
        // The program must not block on a full pipe.
        let _ = io::copy(&mut pipe.into_inner(), &mut io::sink());
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn failed(program: &str, status: ExitStatus, stderr: &str) -> RunError {
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with code {code}"),
        (None, signal) => format!("ended by signal {}", signal.unwrap_or_default()),
    };
    let last_line = stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no message").trim();
    RunError::Failed { program: program.to_owned(), how, last_line: last_line.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::deadline::Interrupt;

    fn deadline(limit: Duration) -> Deadline {
        Deadline::new(limit, &Interrupt::default())
    }

    fn shell(script: &str, limit: Duration) -> Result<Output, RunError> {
        run("/bin/sh", &["-c", script], &deadline(limit))
    }

    #[test]
    fn outputs_and_errors_come_back() {
        let output = shell("echo out; echo err >&2", Duration::from_secs(20)).unwrap();
        assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("out\n", "err\n"));
        let error = shell("echo first >&2; echo why >&2; exit 3", Duration::from_secs(20)).unwrap_err();
        assert_eq!(error.to_string(), "/bin/sh ended with code 3: why");
        assert!(matches!(run("/nonexistent", &[], &deadline(Duration::from_secs(1))), Err(RunError::Start { .. })));
    }

    #[test]
    fn what_hangs_is_killed_with_everything_that_it_started() {
        let start = Instant::now();
        let error = shell("sleep 600 & sleep 600", Duration::from_millis(200)).unwrap_err();
        assert!(matches!(error, RunError::Killed { .. }), "{error}");
        shell("sleep 600 & exit 0", Duration::from_secs(20)).unwrap();
        assert!(start.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn more_output_than_a_pipe_holds_is_no_dead_lock() {
        let output = shell("yes | head -c 6000000", Duration::from_secs(30)).unwrap();
        assert_eq!(output.stdout.len() as u64, OUTPUT_LIMIT);
    }
}
