//! A played node: its files are a directory; its containerd merges configuration files as each style does, loads them
//! when it is restarted, and runs a sandbox if the file behind the handler's path is one that runs.
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::symlink,
    rc::Rc,
    time::Duration,
};

use shim_core::containerd::{effective::Effective, runtime::Runtime};

use super::super::context::{Context, Limits};
use crate::{
    cri::{Container, Cri, CriError, Life, Origin, Readiness, Sandbox, Status},
    deadline::{Deadline, Ended, Interrupt},
    host::Host,
    machine::Machine,
    process::{Output, RunError},
    systemd::SystemdError,
};

pub(super) const CONFIG: &str = "/etc/containerd/config.toml";
const UNIT: &str = "containerd.service";

/// What the daemon does when it is started with a configuration that has a runtime of ours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum WithOurs {
    #[default]
    Works,
    Dies,
    DiesOnAFullDisk,
    NotReady,
    LosesOthers,
    IgnoresOurs,
    SystemdRefuses,
}

/// Who does not answer any more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Silent {
    #[default]
    Nobody,
    Bus,
    /// To the first question after the next restart.
    BusOnce,
    /// Until the daemon is restarted.
    Cri,
}

#[derive(Debug, Default)]
pub(super) struct Inner {
    pub(super) version: &'static str,
    pub(super) with_ours: WithOurs,
    pub(super) restarts: u32,
    pid: u32,
    running: bool,
    readiness_lost: bool,
    pub(super) loaded: BTreeMap<String, Runtime>,
    pub(super) sandboxes: Vec<Sandbox>,
    pub(super) containers: Vec<(Container, i32)>,
    /// Containers that end when the daemon is restarted.
    pub(super) fragile: BTreeSet<String>,
    pub(super) probes: Vec<String>,
    pub(super) units: BTreeSet<&'static str>,
    pub(super) kill_mode: &'static str,
    pub(super) silent: Silent,
    /// A program with this argument takes too long.
    pub(super) slow_at: Option<&'static str>,
    /// Somebody ends the installer while it starts this program.
    pub(super) interrupt_at: Option<(&'static str, Interrupt)>,
}

pub(super) struct Node {
    _directory: tempfile::TempDir,
    pub(super) host: Host,
    pub(super) inner: Rc<RefCell<Inner>>,
}

impl Node {
    /// A node with containerd of `version` and, if given, a configuration.
    pub(super) fn new(version: &'static str, config: Option<&str>) -> Self {
        // Every write is synced; in memory that costs nothing.
        let memory = std::path::Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let directory = tempfile::tempdir_in(parent).unwrap();
        let host = Host::new(directory.path());
        for path in ["/etc/containerd", "/opt", "/proc", "/usr/bin", "/run"] {
            host.make_directory(path).unwrap();
        }
        host.write("/etc/machine-id", b"0123456789abcdef\n").unwrap();
        host.write("/usr/bin/containerd", b"").unwrap();
        if let Some(config) = config {
            host.write(CONFIG, config.as_bytes()).unwrap();
        }
        let inner = Inner { version, units: BTreeSet::from([UNIT]), kill_mode: "process", ..Inner::default() };
        let node = Self { _directory: directory, host, inner: Rc::new(RefCell::new(inner)) };
        node.start();
        node.add_pod("system", "runc");
        node
    }

    pub(super) fn context(&self) -> Context<'_> {
        let limits = Limits {
            verify: Duration::from_millis(120),
            stable: Duration::ZERO,
            lock: Duration::from_millis(200),
            ..Limits::default()
        };
        Context { host: &self.host, machine: self, limits, interrupt: Interrupt::default(), own_pod: None }
    }

    pub(super) fn add_pod(&self, name: &str, handler: &str) {
        let mut inner = self.inner.borrow_mut();
        inner.sandboxes.push(Sandbox {
            id: name.to_owned(),
            pod_uid: format!("uid-{name}"),
            life: Life::Up,
            handler: handler.to_owned(),
            origin: Origin::Pod,
        });
        let container = Container { id: format!("{name}-c"), sandbox: name.to_owned(), life: Life::Up };
        inner.containers.push((container, 0));
    }

    pub(super) fn config(&self) -> Option<String> {
        self.host.read(CONFIG).unwrap()
    }

    pub(super) fn restarts(&self) -> u32 {
        self.inner.borrow().restarts
    }

    pub(super) fn serves(&self, handler: &str) -> bool {
        self.inner.borrow().loaded.contains_key(handler)
    }

    /// Every file and link of the node with its content, except what a reboot clears.
    pub(super) fn tree(&self) -> BTreeMap<String, String> {
        let mut tree = BTreeMap::new();
        self.walk("", &mut tree);
        tree.retain(|path, _| !path.starts_with("/proc") && !path.starts_with("/run"));
        tree
    }

    fn walk(&self, directory: &str, tree: &mut BTreeMap<String, String>) {
        for name in self.host.list(&format!("{directory}/")).unwrap() {
            let path = format!("{directory}/{name}");
            let real = self.host.path(&path);
            if let Ok(target) = fs::read_link(&real) {
                tree.insert(path, format!("-> {}", target.display()));
            } else if real.is_dir() {
                tree.insert(path.clone(), "directory".to_owned());
                self.walk(&path, tree);
            } else {
                tree.insert(path, fs::read_to_string(&real).unwrap());
            }
        }
    }

    /// As a power failure does: everything that ran is started again.
    pub(super) fn start(&self) {
        let loaded = self.effective(CONFIG).map(|text| loaded(&text));
        let mut inner = self.inner.borrow_mut();
        let before = std::mem::take(&mut inner.loaded);
        inner.pid += 1;
        if inner.silent == Silent::Cri {
            inner.silent = Silent::Nobody;
        }
        let process = format!("/proc/{}", 100 + inner.pid);
        fs::create_dir_all(self.host.path(&process)).unwrap();
        symlink("/usr/bin/containerd", self.host.path(&format!("{process}/exe"))).unwrap();
        fs::write(self.host.path(&format!("{process}/cmdline")), "/usr/bin/containerd\0").unwrap();
        let mut loaded = loaded.unwrap_or_default();
        let ours = loaded.values().any(|runtime| runtime.runtime_type.starts_with("/opt/shim"));
        let effect = if ours { inner.with_ours } else { WithOurs::Works };
        inner.running = !matches!(effect, WithOurs::Dies | WithOurs::DiesOnAFullDisk) && !loaded.is_empty();
        inner.readiness_lost = effect == WithOurs::NotReady;
        match effect {
            WithOurs::LosesOthers => loaded.retain(|_, runtime| runtime.runtime_type.starts_with("/opt/shim")),
            WithOurs::IgnoresOurs => loaded = before,
            _ => {}
        }
        inner.loaded = loaded;
    }

    fn ask_bus(&self) -> Result<(), SystemdError> {
        let mut inner = self.inner.borrow_mut();
        if inner.silent == Silent::BusOnce && inner.restarts > 0 {
            inner.silent = Silent::Nobody;
        } else if inner.silent != Silent::Bus {
            return Ok(());
        }
        Err(SystemdError::Unreachable("no answer in 10 s".to_owned()))
    }

    fn effective(&self, root: &str) -> Result<String, String> {
        let one = self.inner.borrow().version.contains(" 1.");
        super::recipe::effective(&self.host, root, one)
    }

    fn program(&self, program: &str, args: &[&str]) -> Result<String, String> {
        match args {
            ["--version"] => Ok(self.inner.borrow().version.to_owned()),
            ["-c", root, "config", _] => self.effective(root),
            ["-v"] => match self.host.read(program).unwrap() {
                Some(text) if text.contains("does not run") => Err("GLIBC_2.99 not found".to_owned()),
                Some(_) => Ok("shim v1".to_owned()),
                None => Err("no such file".to_owned()),
            },
            _ if program.ends_with("journalctl") => Ok("the daemon's last words\n".to_owned()),
            _ => panic!("{program} {args:?}"),
        }
    }
}

fn loaded(effective: &str) -> BTreeMap<String, Runtime> {
    let effective = Effective::parse(effective).unwrap();
    effective.handlers().into_iter().map(|name| (name.clone(), effective.runtime(&name).unwrap())).collect()
}

impl Machine for Node {
    fn main_pid(&self, unit: &str) -> Result<Option<u32>, SystemdError> {
        self.ask_bus()?;
        let inner = self.inner.borrow();
        Ok((inner.units.contains(unit) && (unit != UNIT || inner.running)).then_some(100 + inner.pid))
    }

    fn kill_mode(&self, unit: &str) -> Result<Option<String>, SystemdError> {
        assert_eq!(unit, UNIT);
        self.ask_bus().map(|()| Some(self.inner.borrow().kill_mode.to_owned()))
    }

    fn restart(&self, unit: &str, _: &Deadline) -> Result<(), SystemdError> {
        assert_eq!(unit, UNIT);
        self.ask_bus()?;
        self.host.faults.step();
        match self.inner.borrow().with_ours {
            WithOurs::SystemdRefuses => return Err(SystemdError::Refused("it does not like it".to_owned())),
            WithOurs::DiesOnAFullDisk => self.host.faults.fill_disk(true),
            _ => {}
        }
        self.start();
        let mut inner = self.inner.borrow_mut();
        inner.restarts += 1;
        let fragile = inner.fragile.clone();
        for (container, code) in &mut inner.containers {
            if fragile.contains(&container.id) && container.life == Life::Up {
                (container.life, *code) = (Life::Down, 255);
            }
        }
        drop(inner);
        self.host.faults.step();
        Ok(())
    }

    fn run(&self, program: &str, args: &[&str], deadline: &Deadline) -> Result<Output, RunError> {
        let name = || program.to_owned();
        let interrupt_at = self.inner.borrow().interrupt_at.clone();
        if let Some((_, interrupt)) = interrupt_at.filter(|(at, _)| args.contains(at)) {
            interrupt.flag().store(true, std::sync::atomic::Ordering::Relaxed);
        }
        deadline.check().map_err(|why| RunError::Killed { program: name(), why })?;
        if self.inner.borrow().slow_at.is_some_and(|at| args.contains(&at)) {
            return Err(RunError::Killed { program: name(), why: Ended::TooLong(deadline.left()) });
        }
        match self.program(program, args) {
            Ok(stdout) => Ok(Output { stdout, stderr: String::new() }),
            Err(last_line) => Err(RunError::Failed { program: name(), how: "ended with code 1".to_owned(), last_line }),
        }
    }

    fn cri(&self, socket: &str) -> Result<Box<dyn Cri>, CriError> {
        assert_eq!(socket, "/run/containerd/containerd.sock");
        Ok(Box::new(PlayedCri { host: self.host.clone(), inner: Rc::clone(&self.inner) }))
    }
}

struct PlayedCri {
    host: Host,
    inner: Rc<RefCell<Inner>>,
}

impl Cri for PlayedCri {
    fn version(&self) -> Result<String, CriError> {
        let inner = self.inner.borrow();
        match (inner.running, inner.silent) {
            (false, _) => Err(CriError::Unreachable("connection refused".to_owned())),
            (true, Silent::Cri) => Err(CriError::Unreachable("no answer in 10 s".to_owned())),
            (true, _) => Ok(inner.version.to_owned()),
        }
    }

    fn status(&self) -> Result<Status, CriError> {
        self.version()?;
        let inner = self.inner.borrow();
        let not_ready = || Readiness::NotReady("the shim table made it unwell".to_owned());
        let readiness = if inner.readiness_lost { not_ready() } else { Readiness::Ready };
        Ok(Status { readiness, handlers: inner.loaded.keys().cloned().collect(), loaded: Some(inner.loaded.clone()) })
    }

    fn sandboxes(&self) -> Result<Vec<Sandbox>, CriError> {
        Ok(self.inner.borrow().sandboxes.clone())
    }

    fn containers(&self) -> Result<Vec<Container>, CriError> {
        Ok(self.inner.borrow().containers.iter().map(|(container, _)| container.clone()).collect())
    }

    fn exit_code(&self, id: &str) -> Result<i32, CriError> {
        let inner = self.inner.borrow();
        Ok(inner.containers.iter().find(|(container, _)| container.id == id).map(|(_, code)| *code).unwrap())
    }

    fn cgroup_parent(&self, _: &str) -> Result<Option<String>, CriError> {
        Ok(Some("/kubepods/besteffort/pod1".to_owned()))
    }

    fn run_probe(&self, handler: &str, cgroup_parent: &str, _: Duration) -> Result<String, CriError> {
        assert_eq!(cgroup_parent, "/kubepods/besteffort");
        let refused = |message: &str| CriError::Refused { call: "RunPodSandbox", message: message.to_owned() };
        let runtime = self.inner.borrow().loaded.get(handler).cloned();
        let runtime = runtime.ok_or_else(|| refused("no runtime is configured"))?;
        let program = self.host.read(&runtime.runtime_type).unwrap().ok_or_else(|| refused("no such file"))?;
        if program.contains("ends containerd") {
            self.inner.borrow_mut().running = false;
            return Err(CriError::Unreachable("transport error".to_owned()));
        }
        if program.contains("hangs containerd") {
            self.inner.borrow_mut().silent = Silent::Cri;
            return Err(CriError::Unreachable("no answer to RunPodSandbox in 30 s".to_owned()));
        }
        if program.contains("while the bus is silent") {
            self.inner.borrow_mut().silent = Silent::Bus;
        }
        if program.contains("fails in a sandbox") {
            return Err(refused("the shim ended at once"));
        }
        self.host.faults.fill_disk(program.contains("fills the disk"));
        self.inner.borrow_mut().probes.push(handler.to_owned());
        Ok("probe".to_owned())
    }

    fn remove_sandbox(&self, sandbox: &str) -> Result<(), CriError> {
        self.inner.borrow_mut().sandboxes.retain(|known| known.id != sandbox);
        Ok(())
    }
}
