//! The edit, the restart, and the way back.
use shim_core::{
    containerd::effective::judge,
    report::{Failure, Reason, Step},
};

use super::{
    configuration::{self, apply, restore},
    context::OrFail as _,
    session::{Plan, Session},
    verify::{self, Expected},
};
use crate::state::Owed;

/// Whether a restart is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// The daemon has loaded something else than it should.
    Due,
    /// It has loaded what it should, or that does not matter.
    NotDue,
}

/// What has been done to the node, for the way back and for the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Files at most.
    Written,
    /// The daemon was told to restart.
    Restarted,
}

/// A failure, and how far the node had come by then.
pub struct Stopped {
    /// What went wrong.
    pub failure: Failure,
    /// How far it had come.
    pub progress: Progress,
}

impl Session<'_> {
    /// Brings `plan` into force. After an error the node still has it: see [`Self::roll_back`].
    pub fn change(&mut self, plan: &Plan, restart: Restart) -> Result<Progress, Stopped> {
        let written = self.write(plan);
        written.map_err(|failure| Stopped { failure, progress: Progress::Written })?;
        if restart == Restart::NotDue {
            return Ok(Progress::Written);
        }
        let expected = self.expected(plan);
        self.restart(&expected).map_err(|failure| Stopped { failure, progress: Progress::Restarted })?;
        Ok(Progress::Restarted)
    }

    /// Puts an edit on disk. The daemon does not know of it yet.
    pub fn write(&mut self, plan: &Plan) -> Result<(), Failure> {
        if plan.changes.is_empty() {
            return Ok(());
        }
        let (host, known) = (self.context.host, self.state.made.clone());
        let made = configuration::directories_to_make(host, &plan.changes);
        self.state.made.extend(made.into_iter().filter(|directory| !known.contains(directory)));
        // On disk before the edit is: whatever ends this run, the next one knows how to undo it.
        self.state.restart_owed = Some(Owed { changes: plan.changes.clone() });
        self.save()?;
        configuration::keep(host, &self.daemon.config, &plan.changes);
        apply(host, &plan.changes)?;
        self.check_live(plan)
    }

    /// The candidate was checked with its imports spelled out; this is what the daemon will read.
    fn check_live(&self, plan: &Plan) -> Result<(), Failure> {
        let config = configuration::load(self.context.host, &self.daemon.config)?;
        let deadline = self.context.patient(self.context.limits.probe);
        let live = configuration::effective_now(self.context, &self.daemon, &config, &deadline)?;
        judge(&self.base, &live, &plan.runtimes).or_fail(Step::Configure, Reason::ConfigRejected)
    }

    fn restart(&self, expected: &Expected) -> Result<(), Failure> {
        tracing::info!("restarting containerd");
        let deadline = self.context.patient(self.context.limits.verify);
        let restarted = self.context.machine.restart(self.daemon.layout.unit(), &deadline);
        restarted.or_fail(Step::Restart, Reason::RestartFailed)?;
        verify::wait(self.context, &self.daemon, self.cri.as_ref(), expected)
    }

    /// The exact previous bytes back; the way back stays noted.
    pub fn put_back(&self) -> Result<(), Failure> {
        let changes = self.state.restart_owed.iter().flat_map(|owed| &owed.changes).cloned().collect::<Vec<_>>();
        restore(self.context.host, &changes).or_fail(Step::RollBack, Reason::ConfigUnusable)
    }

    /// Restarts the daemon, and waits until it is as `plan` says.
    pub fn restart_for(&self, plan: &Plan) -> Result<(), Failure> {
        self.restart(&self.expected(plan))
    }

    /// The edit was seen to be good: nobody needs a way back any more.
    pub fn accept(&mut self) {
        let owed = self.state.restart_owed.take().unwrap_or_default();
        configuration::forget(self.context.host, &owed.changes);
    }

    /// The exact previous bytes back, and one restart if the daemon may have seen others. What went wrong on the way
    /// back is added to the failure. Never tried twice: the next run finds the mark and decides anew.
    pub fn roll_back(&mut self, stopped: Stopped) -> Failure {
        let Stopped { failure, progress } = stopped;
        if self.state.restart_owed.as_ref().is_none_or(|owed| owed.changes.is_empty()) {
            return failure;
        }
        tracing::warn!(%failure, "rolling back");
        match self.restore(progress) {
            Ok(()) => failure,
            Err(second) => {
                let message = format!("{}; and after the roll back: {}", failure.message, second.message);
                Failure::new(failure.step, failure.reason, message)
            }
        }
    }

    /// A daemon that is down is started also with what could not be put back.
    fn restore(&mut self, progress: Progress) -> Result<(), Failure> {
        let put_back = self.put_back();
        if put_back.is_ok() {
            self.state.restart_owed = Some(Owed::default());
        }
        if let Err(failure) = self.save() {
            // What is on disk instead tells how to undo what may be undone already, and that does no harm.
            tracing::warn!(%failure, "the way back could not be noted");
        }
        let restarted = match progress {
            Progress::Written => Ok(()),
            Progress::Restarted => self.restart(&self.expected_before()),
        };
        put_back.and(restarted)?;
        self.state.restart_owed = None;
        self.save()
    }

    /// The daemon's last words, for people: what it complained about, if it did.
    pub fn daemon_log(&self) -> String {
        let deadline = self.context.patient(self.context.limits.probe);
        let arguments = ["-u", self.daemon.layout.unit(), "-n", "200", "--no-pager", "-o", "cat"];
        let output = self.context.machine.run("/usr/bin/journalctl", &arguments, &deadline);
        complaints(&output.map(|output| output.stdout).unwrap_or_default())
    }
}

/// Lines of a log that are kept.
const LOG_LINES: usize = 12;

fn complaints(log: &str) -> String {
    let harmless = |line: &&str| ["level=info", "level=debug"].iter().any(|level| line.contains(level));
    let (rest, complaints): (Vec<_>, Vec<_>) = log.lines().partition(harmless);
    let lines = if complaints.is_empty() { rest } else { complaints };
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_come_before_the_rest() {
        let info = "level=info msg=x\n".repeat(50);
        assert_eq!(complaints(&format!("{info}level=error msg=y\n{info}")), "level=error msg=y");
        assert_eq!(complaints(&info).lines().count(), LOG_LINES);
        assert_eq!(complaints(""), "");
    }
}
