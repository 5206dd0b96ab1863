//! One run on one node: what was found at its start, and what every step works with.
use std::collections::BTreeSet;

use shim_core::{
    containerd::{
        edit::{Change, Config},
        effective::{Effective, judge},
        release::Style,
        runtime::{Runtime, Runtimes, mixed_array},
    },
    names::{Handler, ShimName},
    report::{Failure, Reason, Step},
    task::{Install, OptionValue, Options},
};

use super::{
    configuration,
    context::{Context, OrFail as _, ended},
    discover::{self, Daemon, Trouble},
    place::{directory, runtime_type},
    prune::InUse,
    recover::clear_probes,
    verify::Expected,
};
use crate::{
    cri::{Cri, Readiness, Status},
    deadline::Deadline,
    state::{Condemned, State},
};

/// Default of containerd.
const DEFAULT_SOCKET: &str = "/run/containerd/containerd.sock";
const DEFAULT_STATE: &str = "/run/containerd";

/// See the module.
pub struct Session<'a> {
    /// The node.
    pub context: &'a Context<'a>,
    /// What it remembers.
    pub state: State,
    /// Its containerd.
    pub daemon: Daemon,
    /// CRI of that containerd.
    pub cri: Box<dyn Cri>,
    /// What CRI said at the start.
    pub status: Status,
    /// The configuration at the start.
    pub config: Config,
    /// What containerd makes of it without anything of ours.
    pub base: Effective,
    /// What containerd makes of it.
    pub live: Effective,
    past: Past,
    /// Until when everything before a restart must be done.
    pub deadline: Deadline,
}

/// How the run before this one ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Past {
    /// With a verdict on the daemon.
    Settled,
    /// Between an edit and the verdict: what the daemon serves now may lack what it served before.
    CutShort,
}

/// The files that have to change, and what they will mean.
pub struct Plan {
    /// Every runtime of ours afterwards, those of other Shims too.
    pub runtimes: Runtimes,
    /// What has to be written.
    pub changes: Vec<Change>,
    /// What containerd will make of it.
    pub after: Effective,
}

impl<'a> Session<'a> {
    /// Looks at the node. Changes nothing.
    pub fn open(context: &'a Context<'a>, state: State, deadline: Deadline) -> Result<Self, Trouble> {
        let daemon = discover::find(context, &deadline)?;
        let config = configuration::load(context.host, &daemon.config)?;
        let live = configuration::effective_now(context, &daemon, &config, &deadline).map_err(rejects_its_own)?;
        let clean = config.without_ours().or_fail(Step::Configure, Reason::ConfigUnusable)?;
        let base = configuration::effective(context, &daemon, &config, &clean, &deadline).map_err(rejects_its_own)?;
        let socket = daemon.address.as_deref().or(base.address()).unwrap_or(DEFAULT_SOCKET);
        let cri = context.machine.cri(socket).or_fail(Step::Preflight, Reason::RuntimeUnsupported)?;
        let version = cri.version().map_err(Trouble::unwell)?;
        tracing::info!(version, release = %daemon.release, config = daemon.config, "found containerd");
        let status = cri.status().map_err(Trouble::unwell)?;
        let past = if state.restart_owed.is_some() { Past::CutShort } else { Past::Settled };
        let session = Self { context, state, daemon, cri, status, config, base, live, past, deadline };
        session.check_ready()?;
        session.check_own_pod()?;
        clear_probes(session.cri.as_ref());
        Ok(session)
    }

    /// One that is unwell already could not be told from one that we made unwell.
    fn check_ready(&self) -> Result<(), Trouble> {
        match &self.status.readiness {
            Readiness::Ready => Ok(()),
            Readiness::NotReady(why) => {
                Err(Trouble::unwell(format!("containerd was not ready before anything was changed: {why}")))
            }
        }
    }

    /// Another containerd than the one that runs this Pod is not the one that runs the node's pods.
    fn check_own_pod(&self) -> Result<(), Trouble> {
        let Some(own) = &self.context.own_pod else { return Ok(()) };
        let sandboxes = self.cri.sandboxes().map_err(Trouble::unwell)?;
        if sandboxes.iter().any(|sandbox| sandbox.pod_uid == *own) {
            return Ok(());
        }
        let message = format!("{} does not run this node's pods", self.daemon.layout.unit());
        Err(Failure::new(Step::Preflight, Reason::RuntimeUnsupported, message).into())
    }

    /// An error once the run should not begin anything new.
    pub fn check_time(&self, step: Step) -> Result<(), Failure> {
        self.deadline.check().map_err(ended(step))
    }

    /// What the handler of a Shim has to be.
    pub fn runtime(&self, shim: &ShimName, install: &Install) -> Runtime {
        // False is every shim's own default.
        let copied = self.base.systemd_cgroup().then(|| ("SystemdCgroup".to_owned(), OptionValue::Bool(true)));
        let options = install.options.clone().unwrap_or_else(|| Options::from_iter(copied));
        Runtime { runtime_type: runtime_type(shim), options }
    }

    /// Refuses what is known to make containerd end.
    pub fn check_harmless(&self, shim: &ShimName, install: &Install) -> Result<(), Failure> {
        let refuse = |message: String| Err(Failure::new(Step::Preflight, Reason::ConfigRejected, message));
        let release = self.daemon.release;
        let known = Condemned { build: install.build.clone(), release: release.to_string() };
        if self.state.condemned.get(shim) == Some(&known) {
            return refuse(format!(
                "containerd {release} ended when this build was tried; change the Shim or remove it"
            ));
        }
        let mixed = install.options.as_ref().and_then(mixed_array);
        match mixed.filter(|_| release.style() == Style::InPlace) {
            Some(name) => {
                refuse(format!("containerd {release} ends of arrays of different types, as in the option {name}"))
            }
            None => Ok(()),
        }
    }

    /// The daemon's process, as far as systemd tells.
    pub fn pid(&self) -> Option<u32> {
        self.context.machine.main_pid(self.daemon.layout.unit()).ok().flatten()
    }

    /// Refuses a handler that others have defined, or another Shim of ours.
    pub fn check_handler(&self, shim: &ShimName, handler: &Handler) -> Result<(), Failure> {
        let own = runtime_type(shim);
        let foreign = self.base.runtime(handler.as_str()).map(|runtime| runtime.runtime_type);
        let ours = self.ours()?.remove(handler).map(|runtime| runtime.runtime_type);
        match foreign.into_iter().chain(ours).find(|other| *other != own) {
            Some(other) => {
                let message = format!("the handler {handler} is configured already, for {other}; choose another name");
                Err(Failure::new(Step::Preflight, Reason::HandlerConflict, message))
            }
            None => Ok(()),
        }
    }

    /// Our runtimes as they should be at the start: what is configured, and what was verified even if somebody has
    /// written the configuration anew since.
    fn ours(&self) -> Result<Runtimes, Failure> {
        let mut ours = self.config.ours().or_fail(Step::Configure, Reason::ConfigUnusable)?;
        for (shim, known) in &self.state.shims {
            let runtime = Runtime { runtime_type: runtime_type(shim), options: known.options.clone() };
            ours.insert(known.handler.clone(), runtime);
        }
        Ok(ours)
    }

    /// Handlers of ours that belong to `shim`.
    pub fn handlers_of(&self, shim: &ShimName) -> Result<BTreeSet<Handler>, Failure> {
        let own = runtime_type(shim);
        Ok(self
            .ours()?
            .into_iter()
            .filter(|(_, runtime)| runtime.runtime_type == own)
            .map(|(handler, _)| handler)
            .collect())
    }

    /// Our runtimes once the Shims in `gone` have left and those in `wanted` are there.
    pub fn target(&self, gone: &BTreeSet<ShimName>, wanted: &Runtimes) -> Result<Runtimes, Failure> {
        let mut target = self.ours()?;
        let left: BTreeSet<_> = gone.iter().map(runtime_type).collect();
        let replaced: BTreeSet<_> = wanted.values().map(|runtime| &runtime.runtime_type).collect();
        target.retain(|_, own| !left.contains(&own.runtime_type) && !replaced.contains(&own.runtime_type));
        target.extend(wanted.clone());
        Ok(target)
    }

    /// The edit for `runtimes`, accepted by containerd's own binary.
    pub fn plan(&self, runtimes: Runtimes) -> Result<Plan, Failure> {
        // Somebody's copy of a whole CRI section may hold our table: it is there, and must not be written twice.
        let mut written = runtimes.clone();
        written.retain(|handler, runtime| self.base.runtime(handler.as_str()).as_ref() != Some(runtime));
        let changes = self
            .config
            .edit(self.daemon.release.style(), &written, &self.base.all())
            .or_fail(Step::Configure, Reason::ConfigUnusable)?;
        let after = configuration::effective(self.context, &self.daemon, &self.config, &changes, &self.deadline)?;
        judge(&self.base, &after, &runtimes).or_fail(Step::Configure, Reason::ConfigRejected)?;
        // The same meaning in other words is no reason to write; without ours, the bytes must be those from before us.
        let changes = if after == self.live && !written.is_empty() { Vec::new() } else { changes };
        Ok(Plan { runtimes, changes, after })
    }

    /// Whether the daemon has loaded something else for `handlers` than `plan` says.
    pub fn restart_due(&self, plan: &Plan, handlers: &BTreeSet<Handler>) -> bool {
        if self.lost_by_a_killed_run(plan) {
            return true;
        }
        let Some(loaded) = &self.status.loaded else {
            return !plan.changes.is_empty() || self.past == Past::CutShort;
        };
        handlers.iter().any(|handler| {
            // Who does not configure it is not asked: it may be somebody else's after all.
            let wanted = plan.runtimes.get(handler).cloned().or_else(|| plan.after.runtime(handler.as_str()));
            match (wanted, loaded.get(handler.as_str())) {
                (Some(wanted), Some(loaded)) => !wanted.is_loaded_as(loaded),
                (wanted, loaded) => wanted.is_some() || loaded.is_some(),
            }
        })
    }

    /// A run that ended between its restart and its verdict may have cost handlers of others.
    fn lost_by_a_killed_run(&self, plan: &Plan) -> bool {
        let lost = || plan.after.handlers().iter().any(|handler| !self.status.handlers.contains(handler));
        self.past == Past::CutShort && lost()
    }

    /// The handlers that must not be lost. After a run that was killed the daemon's word is worth nothing.
    fn to_keep(&self) -> BTreeSet<String> {
        let configured: BTreeSet<_> = self.live.handlers().into_iter().collect();
        if self.past == Past::CutShort {
            configured
        } else {
            self.status.handlers.intersection(&configured).cloned().collect()
        }
    }

    /// What has to be true after a restart with `plan`.
    pub fn expected(&self, plan: &Plan) -> Expected {
        let served: BTreeSet<_> = plan.runtimes.keys().map(ToString::to_string).collect();
        let configured: BTreeSet<_> = plan.after.handlers().into_iter().collect();
        let kept =
            self.to_keep().into_iter().filter(|name| configured.contains(name) && !served.contains(name)).collect();
        let gone = self.live.handlers().into_iter().filter(|handler| !configured.contains(handler)).collect();
        Expected { served, kept, gone }
    }

    /// What has to be true after a restart with the configuration of the start.
    pub fn expected_before(&self) -> Expected {
        Expected { kept: self.to_keep(), ..Expected::default() }
    }

    /// What running shims need.
    pub fn in_use(&self) -> Result<InUse, Failure> {
        let state_directory = self.base.state().unwrap_or(DEFAULT_STATE);
        InUse::look(self.context.host, state_directory).or_fail(Step::Remove, Reason::Internal)
    }

    /// Whether anything below a Shim's directory is recorded by a sandbox or container.
    pub fn bundles(&self, shim: &ShimName) -> Result<usize, Failure> {
        Ok(self.in_use()?.bundles(&directory(shim)))
    }

    /// Puts the state on disk.
    pub fn save(&self) -> Result<(), Failure> {
        self.state.save(self.context.host).or_fail(Step::Configure, Reason::DirectoryUnusable)
    }
}

/// Before any edit of ours: the daemon would not start again with what it has.
fn rejects_its_own(failure: Failure) -> Failure {
    match failure.reason {
        Reason::ConfigRejected => {
            let message =
                format!("containerd rejects its configuration as it is; repair it first: {}", failure.message);
            Failure::new(Step::Configure, Reason::ConfigUnusable, message)
        }
        _ => failure,
    }
}
