//! Nodes as they come over the wire, without what we do not read.
use k8s_openapi::api::core::v1::Taint;
use kube::{Resource, core::ObjectMeta};
use serde::{Deserialize, Serialize};

/// A Node without what we do not read: decoding skips images, volumes and managedFields, most of its bytes.
#[derive(Resource, Serialize, Deserialize, Clone, Debug, Default)]
#[resource(inherit = "k8s_openapi::api::core::v1::Node")]
pub struct LeanNode {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// Its spec.
    #[serde(default)]
    pub spec: LeanSpec,
    /// Its status.
    #[serde(default)]
    pub status: LeanStatus,
}

/// Part of `Node.spec`.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub struct LeanSpec {
    /// Cordoned.
    #[serde(default)]
    pub unschedulable: bool,
    /// Taints.
    #[serde(default)]
    pub taints: Vec<Taint>,
}

/// Part of `Node.status`.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase")]
pub struct LeanStatus {
    /// Conditions.
    #[serde(default)]
    pub conditions: Vec<LeanCondition>,
    /// What the kubelet says of its machine.
    #[serde(default)]
    pub node_info: LeanInfo,
    /// Handlers that the runtime reports; containerd does from 2.0 on.
    #[serde(default)]
    pub runtime_handlers: Vec<LeanHandler>,
}

/// Part of a Node's condition.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub struct LeanCondition {
    /// Its type.
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    pub status: String,
}

/// Part of `Node.status.nodeInfo`.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase")]
pub struct LeanInfo {
    /// /etc/machine-id
    #[serde(default, rename = "machineID")]
    pub machine_id: String,
    /// As Go names it.
    #[serde(default)]
    pub operating_system: String,
    /// As Go names it.
    #[serde(default)]
    pub architecture: String,
    /// `containerd://1.7.24` and the like.
    #[serde(default)]
    pub container_runtime_version: String,
}

/// A handler that the kubelet reports.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub struct LeanHandler {
    /// Its name; empty for the default.
    #[serde(default)]
    pub name: String,
}
