//! What containerd makes of its files, as its own binary prints it.
use std::collections::BTreeMap;

use super::{
    ConfigError,
    runtime::{Others, Runtime, Runtimes, runtimes_in},
    schema::{CriTable, parse},
};
use crate::{names::Handler, task::OptionValue};

/// The effective configuration, but for its `imports`.
#[derive(Debug, Clone, PartialEq)]
pub struct Effective {
    file: toml::Table,
}

/// Why containerd would not do with an edit what we mean by it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// Our runtime is not there, or not as we wrote it.
    #[error("containerd would not have the handler {0} as it is written")]
    NotEffective(Handler),
    /// A setting of others would change.
    #[error("it would change {0}")]
    Changed(String),
    /// The default runtime would be gone.
    #[error("the default runtime {0} would be gone")]
    DefaultLost(String),
}

impl Effective {
    /// Reads the output of `containerd config dump` or `migrate`.
    pub fn parse(output: &str) -> Result<Self, ConfigError> {
        let mut file = parse("containerd's effective configuration", output)?;
        // An edit may change them, and containerd's candidates have others than the live files.
        file.remove("imports");
        Ok(Self { file })
    }

    /// The runtime of `handler`.
    pub fn runtime(&self, handler: &str) -> Option<Runtime> {
        self.runtimes()?.get(handler)?.clone().try_into().ok()
    }

    /// Every runtime, whole.
    pub fn all(&self) -> Others {
        let runtimes = self.runtimes().into_iter().flatten();
        runtimes.filter_map(|(handler, runtime)| Some((handler.clone(), runtime.clone().try_into().ok()?))).collect()
    }

    /// Every handler.
    pub fn handlers(&self) -> Vec<String> {
        self.runtimes().into_iter().flat_map(toml::Table::keys).cloned().collect()
    }

    /// `SystemdCgroup` of the default runtime.
    pub fn systemd_cgroup(&self) -> bool {
        let options = self.default_name().and_then(|name| self.runtime(name)).unwrap_or_default().options;
        options.get("SystemdCgroup") == Some(&OptionValue::Bool(true))
    }

    /// Where the daemon listens, unless its command line says otherwise.
    pub fn address(&self) -> Option<&str> {
        let server = |key: &str| self.file.get("plugins")?.get(key)?.get("address")?.as_str();
        let grpc = || self.file.get("grpc")?.get("address")?.as_str();
        server("io.containerd.server.v1.grpc").or_else(grpc).filter(|address| !address.is_empty())
    }

    /// The daemon's state directory, with a bundle for each running shim.
    pub fn state(&self) -> Option<&str> {
        self.file.get("state")?.as_str()
    }

    fn table(&self) -> Option<CriTable> {
        CriTable::ALL.into_iter().find(|table| runtimes_in(&self.file, *table).is_some())
    }

    fn runtimes(&self) -> Option<&toml::Table> {
        runtimes_in(&self.file, self.table()?)?.as_table()
    }

    fn default_name(&self) -> Option<&str> {
        let plugin = self.file.get("plugins")?.get(self.table()?.key())?;
        plugin.get("containerd")?.get("default_runtime_name")?.as_str()
    }

    /// Every setting as path and value, without the runtimes in `ours`.
    fn settings(&self, ours: &Runtimes) -> BTreeMap<Vec<String>, toml::Value> {
        let mut file = self.file.clone();
        if let Some(runtimes) = self.table().and_then(|table| runtimes_mut(&mut file, table)) {
            runtimes.retain(|handler, _| !ours.keys().any(|own| own.as_str() == handler));
        }
        let mut settings = BTreeMap::new();
        flatten(&file, &mut Vec::new(), &mut settings);
        settings
    }
}

/// Accepts the step from `before`, without anything of ours, to `after` if it adds exactly `ours`.
pub fn judge(before: &Effective, after: &Effective, ours: &Runtimes) -> Result<(), Rejection> {
    if let Some((handler, _)) = ours.iter().find(|(name, want)| after.runtime(name.as_str()).as_ref() != Some(want)) {
        return Err(Rejection::NotEffective(handler.clone()));
    }
    let (old, new) = (before.settings(ours), after.settings(ours));
    let gone_or_changed = old.iter().find(|(path, value)| new.get(*path) != Some(value));
    if let Some((path, _)) = gone_or_changed.or_else(|| new.iter().find(|(path, _)| !old.contains_key(*path))) {
        return Err(Rejection::Changed(path.join(".")));
    }
    match after.default_name() {
        Some(name) if after.runtime(name).is_none() => Err(Rejection::DefaultLost(name.to_owned())),
        _ => Ok(()),
    }
}

fn runtimes_mut(file: &mut toml::Table, table: CriTable) -> Option<&mut toml::Table> {
    let plugin = file.get_mut("plugins")?.get_mut(table.key())?;
    plugin.get_mut("containerd")?.get_mut("runtimes")?.as_table_mut()
}

fn flatten(table: &toml::Table, path: &mut Vec<String>, into: &mut BTreeMap<Vec<String>, toml::Value>) {
    for (key, value) in table {
        path.push(key.clone());
        match value {
            // An empty table says as much as none.
            toml::Value::Table(inner) => flatten(inner, path, into),
            _ => drop(into.insert(path.clone(), value.clone())),
        }
        path.pop();
    }
}
