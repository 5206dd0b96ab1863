//! What the node remembers: `/opt/shim/state.json`.
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shim_core::{
    containerd::edit::Change,
    names::{Build, Handler, ShimName},
    task::{Options, SHIM_DIR},
};

use crate::host::{Host, HostError};

/// Version of the file.
const FORMAT: u32 = 1;

/// Everything that a run must know of the runs before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    format: u32,
    /// Every Shim of which anything may be on the node.
    #[serde(default)]
    pub shims: BTreeMap<ShimName, Shim>,
    /// Set before containerd's configuration is changed, cleared after containerd was seen to be well with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_owed: Option<Owed>,
    /// Builds that made containerd end when they were tried: trying them again would end it again.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub condemned: BTreeMap<ShimName, Condemned>,
    /// Directories outside of ours that we created, outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub made: Vec<String>,
}

/// One Shim on the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shim {
    /// The handler of what is applied, or wanted if nothing is.
    pub handler: Handler,
    /// The options of what is applied, or wanted if nothing is.
    #[serde(default)]
    pub options: Options,
    /// What was asked for last.
    pub desired: Build,
    /// What was verified last: what the link has to point to. Absent: nothing yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<Build>,
    /// What was applied before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Build>,
}

/// A build that made containerd end. A build's name covers its handler and options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condemned {
    /// The build.
    pub build: Build,
    /// The release of containerd that ended.
    pub release: String,
}

/// An edit that was not yet seen to be good.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Owed {
    /// How to undo it.
    #[serde(default)]
    pub changes: Vec<Change>,
}

/// Why the state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// A newer installer was here.
    #[error("{path} has format {0}, this installer knows {FORMAT}; use a newer kubectl-shim", path = path())]
    TooNew(u32),
    /// Not our JSON.
    #[error("{path} is damaged: {0}; the handlers in containerd's configuration are still known if you delete it", path = path())]
    Damaged(#[from] serde_json::Error),
    /// It cannot be read or written.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl Default for State {
    fn default() -> Self {
        Self {
            format: FORMAT,
            shims: BTreeMap::new(),
            restart_owed: None,
            condemned: BTreeMap::new(),
            made: Vec::new(),
        }
    }
}

impl State {
    /// Reads the state; a node without one has nothing of ours.
    pub fn load(host: &Host) -> Result<Self, StateError> {
        #[derive(Deserialize)]
        struct Head {
            format: u32,
        }
        host.remove_leftover(&path())?;
        let Some(text) = host.read(&path())? else { return Ok(Self::default()) };
        match serde_json::from_str::<Head>(&text)?.format {
            newer if newer > FORMAT => Err(StateError::TooNew(newer)),
            _ => Ok(serde_json::from_str(&text)?),
        }
    }

    /// Puts the state on disk.
    pub fn save(&self, host: &Host) -> Result<(), StateError> {
        host.make_directory(SHIM_DIR)?;
        let text = serde_json::to_string_pretty(self)?;
        // An edit that can be undone holds the whole configuration.
        Ok(host.write_private(&path(), format!("{text}\n").as_bytes())?)
    }

    /// Whether nothing of ours is on the node.
    pub fn is_empty(&self) -> bool {
        self.shims.is_empty() && self.restart_owed.is_none() && self.condemned.is_empty()
    }
}

/// Where the state is.
pub fn path() -> String {
    format!("{SHIM_DIR}/state.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_survives_the_trip_and_a_newer_one_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::new(dir.path());
        assert_eq!(State::load(&host).unwrap(), State::default());
        let change = Change { path: "/etc/x".to_owned(), before: None, after: Some("a\n".to_owned()) };
        let state = State { restart_owed: Some(Owed { changes: vec![change] }), ..State::default() };
        state.save(&host).unwrap();
        assert_eq!(State::load(&host).unwrap(), state);
        host.write(&path(), br#"{"format": 2, "shims": 1}"#).unwrap();
        assert!(matches!(State::load(&host), Err(StateError::TooNew(2))));
        host.write(&path(), b"{").unwrap();
        assert!(matches!(State::load(&host), Err(StateError::Damaged(_))));
    }
}
