//! One operation: what it needs before containerd is touched, and how it is undone.
use std::collections::BTreeSet;

use shim_core::{
    containerd::runtime::Runtime,
    names::{Build, Handler, ShimName},
    report::{Failure, Outcome, Reason, Step},
    task::{Install, Op},
};

use super::{artifact::Artifacts, context::OrFail as _, place, prune::remove_build, session::Session};
use crate::{
    cri::{Life, Origin},
    state::{Condemned, Shim},
};

/// An operation that is ready for containerd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    /// Its Shim.
    pub shim: ShimName,
    /// What it does.
    pub kind: Kind,
}

/// What an operation does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// The binary is in place and the link points to it.
    Install {
        /// The build.
        build: Build,
        /// The handler.
        handler: Handler,
        /// What the handler has to be.
        runtime: Runtime,
    },
    /// No pod needs it any more.
    Remove {
        /// Handlers that have to go.
        handlers: BTreeSet<Handler>,
    },
}

impl Ready {
    /// Handlers that the operation is about.
    pub fn handlers(&self) -> BTreeSet<Handler> {
        match &self.kind {
            Kind::Install { handler, .. } => BTreeSet::from([handler.clone()]),
            Kind::Remove { handlers } => handlers.clone(),
        }
    }
}

impl Session<'_> {
    /// Makes an operation ready; or its outcome, if it ends here.
    pub fn prepare(&mut self, shim: &ShimName, op: &Op, artifacts: &Artifacts) -> Result<Ready, Outcome> {
        let kind = match op {
            Op::Install(install) => self.prepare_install(shim, install, artifacts).map_err(Outcome::Failed)?,
            Op::Check(check) => return Err(self.check(shim, check)),
            Op::Remove => self.prepare_removal(shim)?,
        };
        Ok(Ready { shim: shim.clone(), kind })
    }

    fn prepare_install(&mut self, shim: &ShimName, install: &Install, artifacts: &Artifacts) -> Result<Kind, Failure> {
        self.check_time(Step::Preflight)?;
        let artifact = match artifacts.get(shim) {
            Some(Ok(artifact)) => artifact,
            Some(Err(failure)) => return Err(failure.clone()),
            None => return Err(Failure::new(Step::Fetch, Reason::NoResult, "the container fetch has not run")),
        };
        self.check_harmless(shim, install)?;
        place::preflight(self.context.host, artifact)?;
        self.check_handler(shim, &install.handler)?;
        let runtime = self.runtime(shim, install);
        self.announce(shim, install, &runtime)?;
        let placed = place::place(self.context, shim, &install.build, artifact, &self.deadline).and_then(|()| {
            let switched = place::switch(self.context.host, shim, Some(&install.build));
            switched.or_fail(Step::Place, Reason::DirectoryUnusable)
        });
        match placed {
            Ok(()) => Ok(Kind::Install { build: install.build.clone(), handler: install.handler.clone(), runtime }),
            Err(failure) => Err(self.withdraw(shim, &install.build, failure)),
        }
    }

    /// On disk before anything else is: a node that may have been touched knows it.
    fn announce(&mut self, shim: &ShimName, install: &Install, runtime: &Runtime) -> Result<(), Failure> {
        let new = self.found(shim)?.unwrap_or_else(|| Shim {
            handler: install.handler.clone(),
            options: runtime.options.clone(),
            desired: install.build.clone(),
            applied: None,
            previous: None,
        });
        self.state.shims.entry(shim.clone()).or_insert(new).desired = install.build.clone();
        self.save()
    }

    /// A Shim as link and configuration tell of it: what serves where the state was lost must not be taken for new.
    fn found(&self, shim: &ShimName) -> Result<Option<Shim>, Failure> {
        let (host, own) = (self.context.host, place::runtime_type(shim));
        let target = host.read_link(&place::link(shim)).or_fail(Step::Place, Reason::DirectoryUnusable)?;
        let build = target.and_then(|target| target.parse::<Build>().ok()).filter(|_| host.exists(&own));
        let configured = self.config.ours().or_fail(Step::Configure, Reason::ConfigUnusable)?;
        let runtime = configured.into_iter().find(|(_, runtime)| runtime.runtime_type == own);
        Ok(build.zip(runtime).map(|(build, (handler, runtime))| Shim {
            handler,
            options: runtime.options,
            desired: build.clone(),
            applied: Some(build),
            previous: None,
        }))
    }

    fn prepare_removal(&self, shim: &ShimName) -> Result<Kind, Outcome> {
        self.check_time(Step::Remove).map_err(Outcome::Failed)?;
        let handlers = self.handlers_of(shim).map_err(Outcome::Failed)?;
        match self.pods_of(shim, &handlers).map_err(Outcome::Failed)? {
            0 => Ok(Kind::Remove { handlers }),
            pods => Err(Outcome::InUse { pods }),
        }
    }

    /// Pods that run with a handler of the Shim. A bundle without a sandbox that is ready belongs to a pod that is
    /// still ending.
    fn pods_of(&self, shim: &ShimName, handlers: &BTreeSet<Handler>) -> Result<u32, Failure> {
        let sandboxes = self.cri.sandboxes().or_fail(Step::Remove, Reason::RuntimeNotReady)?;
        let runs = sandboxes.iter().filter(|sandbox| sandbox.life == Life::Up && sandbox.origin == Origin::Pod);
        let pods = runs.filter(|sandbox| handlers.iter().any(|handler| handler.as_str() == sandbox.handler)).count();
        let pods = if pods == 0 { self.bundles(shim)?.min(1) } else { pods };
        Ok(u32::try_from(pods).unwrap_or(u32::MAX))
    }

    /// Remembers that containerd has ended of a build.
    pub fn condemn(&mut self, shim: &ShimName, build: &Build) {
        let condemned = Condemned { build: build.clone(), release: self.daemon.release.to_string() };
        self.state.condemned.insert(shim.clone(), condemned);
    }

    /// Undoes the placing of a build that did not work. What does not work is added to the failure.
    pub fn withdraw(&mut self, shim: &ShimName, build: &Build, failure: Failure) -> Failure {
        match self.take_back(shim, build) {
            Ok(()) => failure,
            Err(second) => {
                let message = format!("{}; and on the way back: {}", failure.message, second.message);
                Failure::new(failure.step, failure.reason, message)
            }
        }
    }

    fn take_back(&mut self, shim: &ShimName, build: &Build) -> Result<(), Failure> {
        let known = self.state.shims.get(shim);
        let applied = known.and_then(|known| known.applied.clone());
        let previous = known.and_then(|known| known.previous.clone());
        place::switch(self.context.host, shim, applied.as_ref()).or_fail(Step::RollBack, Reason::DirectoryUnusable)?;
        if applied.is_none() {
            self.state.shims.remove(shim);
        }
        self.save()?;
        if ![&applied, &previous].contains(&&Some(build.clone())) {
            let in_use = self.in_use()?;
            let removed = remove_build(self.context.host, shim, build, &in_use);
            removed.or_fail(Step::RollBack, Reason::DirectoryUnusable)?;
        }
        Ok(())
    }
}
