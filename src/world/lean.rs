//! Nodes as they come over the wire, without what we do not read.
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use kube::{Resource, core::ObjectMeta};
use serde::{Deserialize, Deserializer, Serialize};

use crate::names::GROUP;

/// A Node without what we do not read: decoding skips images, volumes and managedFields, most of its bytes.
#[derive(Resource, Serialize, Deserialize, Clone, Debug, Default)]
#[resource(inherit = "k8s_openapi::api::core::v1::Node")]
pub struct LeanNode {
    /// Its metadata, without what we do not read.
    #[serde(deserialize_with = "lean_metadata")]
    pub metadata: ObjectMeta,
    /// Its spec.
    #[serde(default)]
    pub spec: LeanSpec,
    /// Its status.
    #[serde(default)]
    pub status: LeanStatus,
}

/// Part of `Node.metadata`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeanMetadata {
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// Every kubelet reports every few minutes. Reading its managedFields, only to forget them, was most of what a controller
/// with nothing to do had to do.
fn lean_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let LeanMetadata { name, uid, resource_version, labels, mut annotations } =
        LeanMetadata::deserialize(deserializer)?;
    annotations.retain(|key, _| key.starts_with(GROUP));
    let (labels, annotations) = (Some(labels), Some(annotations));
    Ok(ObjectMeta { name, uid, resource_version, labels, annotations, ..ObjectMeta::default() })
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
    /// The condition `Ready`; the others come and go, and nobody reads them.
    #[serde(default, deserialize_with = "only_ready")]
    pub conditions: Vec<LeanCondition>,
    /// What the kubelet says of its machine.
    #[serde(default)]
    pub node_info: LeanInfo,
    /// Handlers that the runtime reports; containerd does from 2.0 on.
    #[serde(default)]
    pub runtime_handlers: Vec<LeanHandler>,
}

fn only_ready<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<LeanCondition>, D::Error> {
    let mut conditions = Vec::<LeanCondition>::deserialize(deserializer)?;
    conditions.retain(|condition| condition.type_ == "Ready");
    Ok(conditions)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_metadata_only_what_is_read_is_kept() {
        let node: LeanNode = serde_json::from_str(
            r#"{"kind": "Node", "metadata": {"name": "n", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"},
                "annotations": {"shim.dev/state": "v1", "other": "x"}, "managedFields": [{"manager": "kubelet"}],
                "creationTimestamp": "2026-11-30T08:00:00Z"}}"#,
        )
        .unwrap();
        let wanted = ObjectMeta {
            name: Some("n".to_owned()),
            uid: Some("u".to_owned()),
            resource_version: Some("7".to_owned()),
            labels: Some(BTreeMap::from([("a".to_owned(), "b".to_owned())])),
            annotations: Some(BTreeMap::from([("shim.dev/state".to_owned(), "v1".to_owned())])),
            ..ObjectMeta::default()
        };
        assert_eq!(node.metadata, wanted);
    }
}
