//! Whether a node still has what was verified on it. Changes nothing.
use shim_core::{
    containerd::runtime::Runtime,
    names::ShimName,
    report::{Failure, Outcome, Reason, Step},
    task::Check,
};

use super::{place, session::Session};
use crate::state::Shim;

impl Session<'_> {
    /// The outcome of a check: done, or what the node has lost.
    pub(super) fn check(&self, shim: &ShimName, check: &Check) -> Outcome {
        match self.find_loss(shim, check) {
            None => Outcome::Done { disrupted: 0 },
            Some(loss) => Outcome::Failed(Failure::new(Step::Verify, Reason::Drifted, loss)),
        }
    }

    fn find_loss(&self, shim: &ShimName, check: &Check) -> Option<String> {
        let Some(known) = self.state.shims.get(shim).filter(|known| known.applied.as_ref() == Some(&check.build))
        else {
            return Some(format!("the node does not know of build {}", check.build));
        };
        let binary = place::runtime_type(shim);
        if !self.context.host.exists(&binary) {
            return Some(format!("{binary} is missing"));
        }
        self.find_lost_handler(shim, known)
    }

    fn find_lost_handler(&self, shim: &ShimName, known: &Shim) -> Option<String> {
        let handler = known.handler.as_str();
        let wanted = Runtime { runtime_type: place::runtime_type(shim), options: known.options.clone() };
        match self.live.runtime(handler) {
            None => Some(format!("the handler {handler} is not in containerd's configuration any more")),
            Some(found) if found != wanted => {
                Some(format!("the handler {handler} was changed in containerd's configuration"))
            }
            Some(_) if !self.status.handlers.contains(handler) => {
                Some(format!("the handler {handler} is configured, and containerd does not serve it"))
            }
            Some(_) => None,
        }
    }
}
