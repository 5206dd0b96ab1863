//! What a run that was killed has left: back to what was verified last.
//!
//! The rule is one for every moment at which a run can end: the configuration that was not yet seen to be good is
//! undone, and every link points to the build that was verified last, or does not exist. The task that follows then
//! finds a node as if the killed run had never begun, except that the daemon may have loaded the undone configuration;
//! whether that needs a restart is decided by what the daemon says it has loaded, and by the mark that stays.
use shim_core::report::{Failure, Reason, Step};

use super::{
    configuration::{clear_check, restore},
    context::{Context, OrFail as _, ended},
    discover::Layout,
    place::{build_directory, link, switch},
};
use crate::{
    cri::{Cri, Origin},
    state::State,
};

/// Undoes what is not verified.
pub fn recover(context: &Context<'_>, state: &mut State) -> Result<(), Failure> {
    let host = context.host;
    clear_check(host).or_fail(Step::RollBack, Reason::ConfigUnusable)?;
    if let Some(owed) = &mut state.restart_owed {
        restore(host, &owed.changes).or_fail(Step::RollBack, Reason::ConfigUnusable)?;
        owed.changes.clear();
        state.save(host).or_fail(Step::RollBack, Reason::ConfigUnusable)?;
    }
    for (shim, known) in &state.shims {
        host.remove_leftover(&link(shim)).or_fail(Step::RollBack, Reason::DirectoryUnusable)?;
        let build = known.applied.as_ref().filter(|build| host.exists(&build_directory(shim, build)));
        switch(host, shim, build).or_fail(Step::RollBack, Reason::DirectoryUnusable)?;
    }
    // What was never verified is not on the node; its files go with the strays at the end of this run.
    state.shims.retain(|_, known| known.applied.is_some());
    Ok(())
}

/// Restarts containerd and waits until it can be worked with.
pub fn revive<T>(context: &Context<'_>, mut open: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
    let deadline = context.patient(context.limits.verify);
    let restarted = context.machine.restart(Layout::Plain.unit(), &deadline);
    restarted.or_fail(Step::Restart, Reason::RestartFailed)?;
    let mut last = None;
    let opened = deadline.poll(|| open().map_err(|failure| last = Some(failure)).ok());
    opened.map_err(|why| last.unwrap_or_else(|| ended(Step::Verify)(why)))
}

/// Removes throw-away sandboxes that a killed run has left.
pub fn clear_probes(cri: &dyn Cri) {
    for sandbox in cri.sandboxes().unwrap_or_default().iter().filter(|sandbox| sandbox.origin == Origin::Probe) {
        if let Err(error) = cri.remove_sandbox(&sandbox.id) {
            tracing::warn!(%error, "an old throw-away sandbox could not be removed");
        }
    }
}
