//! The same for programs: fields are only ever added.
use serde::Serialize;
use shim_core::{api::ShimStatus, names::Build, report::Step, status::NodeState};

use super::{RowPicture, ShimPicture};

/// `ShimStatusList` of `cli.shim.dev/v1alpha1`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiList<'p> {
    api_version: &'static str,
    kind: &'static str,
    items: Vec<Item<'p>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Item<'p> {
    name: &'p str,
    version: &'p str,
    runtime_class: &'p str,
    state: &'p str,
    message: &'p str,
    status: &'p ShimStatus,
    /// Absent where Nodes may not be read; the rest is then as the controller wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<Vec<NodeItem<'p>>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeItem<'p> {
    node: &'p str,
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<Step>,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'p str,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'p str,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'p str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    build: Option<&'p str>,
    attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<&'p str>,
    pods_disrupted: u32,
    arch: &'p str,
    runtime: &'p str,
    #[serde(skip_serializing_if = "str::is_empty")]
    log: &'p str,
}

/// The list; with `node`, only what is on that node.
pub fn list<'p>(shims: &[&'p ShimPicture], node: Option<&str>) -> ApiList<'p> {
    let items = shims.iter().map(|shim| item(shim, node)).collect();
    ApiList { api_version: "cli.shim.dev/v1alpha1", kind: "ShimStatusList", items }
}

fn item<'p>(shim: &'p ShimPicture, node: Option<&str>) -> Item<'p> {
    let shown = |row: &&RowPicture| node.is_none_or(|node| row.row.node.as_str() == node);
    Item {
        name: &shim.name,
        version: &shim.version,
        runtime_class: &shim.runtime_class,
        state: shim.state(),
        message: shim.message(),
        status: &shim.status,
        nodes: shim.rows.as_ref().map(|rows| rows.iter().filter(shown).map(node_item).collect()),
    }
}

fn node_item(picture: &RowPicture) -> NodeItem<'_> {
    let row = &picture.row;
    NodeItem {
        node: row.node.as_str(),
        state: row.state.to_string(),
        step: row.step.filter(|_| matches!(row.state, NodeState::Failed | NodeState::Retrying)),
        reason: &row.reason,
        message: &row.message,
        version: picture.version.as_deref(),
        build: row.build.as_ref().map(Build::as_str),
        attempts: row.attempts,
        since: row.since.map(|time| time.to_string()),
        job: row.job.as_deref(),
        pods_disrupted: row.disrupted,
        arch: &picture.arch,
        runtime: &picture.runtime,
        log: &row.log,
    }
}
