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
            Some((reason, loss)) => Outcome::Failed(Failure::new(Step::Verify, reason, loss)),
        }
    }

    fn find_loss(&self, shim: &ShimName, check: &Check) -> Option<(Reason, String)> {
        let known = self.state.shims.get(shim).and_then(|known| Some((known, known.applied.as_ref()?)));
        let Some((known, build)) = known else {
            return Some((Reason::Drifted, format!("the node does not know of the shim {shim}")));
        };
        let binary = place::runtime_type(shim);
        if !self.context.host.exists(&binary) {
            return Some((Reason::Drifted, format!("{binary} is missing")));
        }
        let lost = self.find_lost_handler(shim, known).map(|loss| (Reason::Drifted, loss));
        let other = || format!("the node serves build {build}, not {}", check.build);
        lost.or_else(|| (*build != check.build).then(|| (Reason::BuildMismatch, other())))
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
