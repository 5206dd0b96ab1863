//! The `Shim` resource: schema, rules, status.
//!
//! Rules stand in CEL rather than in schema keywords wherever CEL can say them: the API server and
//! [`Shim::validate_cel`] then refuse the same objects with the same words.
use std::collections::BTreeMap;

use k8s_openapi::{
    api::{core::v1::Toleration, node::v1::Overhead},
    apimachinery::pkg::{apis::meta::v1::Condition, util::intstr::IntOrString},
};
use kube::{CustomResource, KubeSchema};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Which shim, on which nodes, how fast.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "shim.dev",
    version = "v1alpha1",
    kind = "Shim",
    plural = "shims",
    status = "ShimStatus",
    derive = "PartialEq",
    cel,
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version"),
    printcolumn(name = "State", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].reason"#),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.nodesReady"),
    printcolumn(name = "Updated", type_ = "integer", json_path = ".status.nodesUpdated"),
    printcolumn(name = "Failed", type_ = "integer", json_path = ".status.nodesFailed"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "RuntimeClass", type_ = "string", json_path = ".spec.runtimeClass.name", priority = 1),
    printcolumn(name = "Handler", type_ = "string", json_path = ".status.handler", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].message"#, priority = 1),
    validation = Rule::new("size(self.metadata.name) <= 40 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')")
        .message("metadata.name must be a DNS label of at most 40 characters: it becomes part of label keys and file names"),
    validation = Rule::new("has(self.spec.runtimeClass.handler) || !self.metadata.name.matches('^(runc|shim-[0-9]+)$')")
        .message("the names runc and shim-N are reserved for handlers: choose another metadata.name or set spec.runtimeClass.handler"),
)]
#[serde(rename_all = "camelCase")]
pub struct ShimSpec {
    /// Shown to people and kept in the history; it does not decide anything.
    #[x_kube(validation = Rule::new("size(self) > 0").message("version must not be empty"))]
    #[schemars(length(max = 128))]
    pub version: String,
    /// Labels that a node must have. Absent: every Linux node that runs containerd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Where the shim's artifact comes from.
    pub fetch_strategy: FetchStrategy,
    /// File name of the binary in the artifact. Absent: its only containerd-shim-* file.
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9][A-Za-z0-9._-]*$')")
        .message("binary must be a file name, without a directory"))]
    #[schemars(length(max = 128))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binary: Option<String>,
    /// The RuntimeClass that pods ask for; made and deleted with the Shim.
    pub runtime_class: RuntimeClassSpec,
    /// The runtime's `options` table in containerd's configuration. Absent: SystemdCgroup as the node's default runtime has it.
    #[schemars(schema_with = "any_table")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containerd_runtime_options: Option<BTreeMap<String, serde_json::Value>>,
    /// A node with a NoSchedule or NoExecute taint that is not tolerated here is skipped. Taints of node.kubernetes.io do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerations: Option<Vec<Toleration>>,
    /// How fast, and when to stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout_strategy: Option<RolloutStrategy>,
    /// How many old revisions are kept, beside the current one and the last that completed. Default 10.
    #[schemars(with = "Option<i32>")]
    #[x_kube(validation = Rule::new("self >= 0 && self <= 100").message("revisionHistoryLimit must be from 0 to 100"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision_history_limit: Option<u32>,
}

/// Exactly one way to the artifact. A digest is always required.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[has(self.anonHttp), has(self.platforms), has(self.image)].filter(set, set).size() == 1")
        .message("exactly one of anonHttp, platforms and image must be set"),
)]
pub struct FetchStrategy {
    /// One artifact for all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anon_http: Option<HttpArtifact>,
    /// One artifact for each platform.
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new("self.size() > 0").message("platforms must not be empty"))]
    #[x_kube(validation = Rule::new("self.all(a, self.exists_one(b, a.os == b.os && a.arch == b.arch))")
        .message("platforms must not name an os and arch twice"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platforms: Option<Vec<PlatformArtifact>>,
    /// An image with shims baked in.
    #[x_kube(validation = Rule::new("false").message("image is not supported yet"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// A Secret with credentials for the download.
    #[x_kube(validation = Rule::new("false").message("secretName is not supported yet"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_name: Option<String>,
}

/// An artifact behind http or https.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct HttpArtifact {
    /// http or https URL of a tar.gz, a tar.zst or the bare binary.
    #[schemars(length(max = 2048))]
    #[x_kube(validation = Rule::new("self.matches('^https?://[^/ ]+/[^ ]+$')")
        .message("location must be an http or https URL with a path"))]
    pub location: String,
    /// SHA-256 of the artifact as it is downloaded.
    #[schemars(length(max = 128))]
    #[x_kube(validation = Rule::new("self.matches('^[0-9a-f]{64}$')")
        .message("sha256 must be the artifact's SHA-256: 64 lower-case hex digits"))]
    pub sha256: String,
}

/// An artifact for one platform.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PlatformArtifact {
    /// Operating system, as Go names it.
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new("self == 'linux'").message("os must be linux"))]
    pub os: String,
    /// Architecture, as Go names it: amd64, arm64, …
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new("self in ['amd64', 'arm', 'arm64', 'ppc64le', 'riscv64', 's390x']")
        .message("arch must be one of amd64, arm, arm64, ppc64le, riscv64 and s390x"))]
    pub arch: String,
    /// http or https URL of a tar.gz, a tar.zst or the bare binary.
    #[schemars(length(max = 2048))]
    #[x_kube(validation = Rule::new("!self.startsWith('oci://')").message("oci:// locations are not supported yet"))]
    #[x_kube(validation = Rule::new("self.matches('^(https?|oci)://[^/ ]+/[^ ]+$')")
        .message("location must be an http or https URL with a path"))]
    pub location: String,
    /// SHA-256 of the artifact as it is downloaded.
    #[schemars(length(max = 128))]
    #[x_kube(validation = Rule::new("self.matches('^[0-9a-f]{64}$')")
        .message("sha256 must be the artifact's SHA-256: 64 lower-case hex digits"))]
    pub sha256: String,
}

/// The RuntimeClass of a Shim.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.handler) == has(oldSelf.handler) && (!has(self.handler) || self.handler == oldSelf.handler)")
        .message("runtimeClass.handler is immutable: uninstall the Shim and install it with the other handler"),
)]
pub struct RuntimeClassSpec {
    /// Name that pods ask for in runtimeClassName.
    #[schemars(length(max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')")
        .message("runtimeClass.name must be a DNS subdomain"))]
    #[x_kube(validation = Rule::new("self == oldSelf")
        .message("runtimeClass.name is immutable: uninstall the Shim and install it with the other name"))]
    pub name: String,
    /// containerd's name for the runtime. Absent: the Shim's name.
    #[schemars(length(max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')")
        .message("runtimeClass.handler must be a DNS label"))]
    #[x_kube(validation = Rule::new("!self.matches('^(runc|shim-[0-9]+)$')")
        .message("the handlers runc and shim-N are reserved"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<String>,
    /// What a pod of this class costs beside its containers; copied into the RuntimeClass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead: Option<Overhead>,
    /// Tolerations that pods of this class get; copied into RuntimeClass.scheduling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerations: Option<Vec<Toleration>>,
}

/// How a rollout goes over the nodes.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.type) || self.type != 'recreate' || !has(self.rolling) && !has(self.canary)")
        .message("type recreate takes all nodes at once: rolling and canary must not be set with it"),
)]
pub struct RolloutStrategy {
    /// rolling: node by node, as the budget allows; the default. recreate: all nodes at once, without a canary.
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new("self in ['rolling', 'recreate']").message("type must be rolling or recreate"))]
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolling: Option<Rolling>,
    /// Nodes that must succeed with a revision before the rest start: a number, or a percentage of the selected, not
    /// skipped nodes, rounded up. More than there are: all. 0: none. Default 1.
    #[schemars(schema_with = "int_or_percent")]
    #[x_kube(validation = Rule::new("string(self).matches('^(0|[1-9][0-9]{0,8}|(0|[1-9][0-9]?|100)%)$')")
        .message("canary must be a number or a percentage from 0% to 100%"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<IntOrString>,
    /// No untouched node starts once that many have failed: a number, or a percentage of the selected, not skipped
    /// nodes, rounded up. 100%: nothing stops it. Default 1.
    #[schemars(schema_with = "int_or_percent")]
    #[x_kube(validation = Rule::new("string(self).matches('^([1-9][0-9]{0,8}|([1-9][0-9]?|100)%)$')")
        .message("maxFailures must be a number of at least 1 or a percentage from 1% to 100%"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_failures: Option<IntOrString>,
    /// No further node starts; those in progress finish.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

/// Budget of a rolling update.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Rolling {
    /// Nodes in progress at the same time: a number, or a percentage of the selected, not skipped nodes, rounded up. Default 10%.
    #[schemars(schema_with = "int_or_percent")]
    #[x_kube(validation = Rule::new("string(self).matches('^([1-9][0-9]{0,8}|([1-9][0-9]?|100)%)$')")
        .message("maxUpdate must be a number of at least 1 or a percentage from 1% to 100%"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_update: Option<IntOrString>,
}

/// What the controller has seen and done.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ShimStatus {
    /// `metadata.generation` that the rest speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, Reconciling, Stalled and Paused, as kstatus reads them.
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// containerd's name for the runtime; never changes once assigned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<String>,
    /// The revision that is rolled out, or has been.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<RevisionStatus>,
    /// Nodes that are selected, or have been and are not cleaned up yet.
    #[schemars(with = "i32")]
    #[serde(default)]
    pub nodes: u32,
    /// Nodes that serve the handler, verified, whatever the build.
    #[schemars(with = "i32")]
    #[serde(default)]
    pub nodes_ready: u32,
    /// Nodes that serve the current build.
    #[schemars(with = "i32")]
    #[serde(default)]
    pub nodes_updated: u32,
    /// Nodes with an installer Job under way.
    #[schemars(with = "i32")]
    #[serde(default)]
    pub nodes_updating: u32,
    /// Nodes that count as failed, also while they are tried again.
    #[schemars(with = "i32")]
    #[serde(default)]
    pub nodes_failed: u32,
    /// Nodes that should serve the handler, can be served, and do not.
    #[schemars(with = "i32")]
    #[serde(default)]
    pub nodes_unavailable: u32,
    /// Selected nodes that can't be served; see the problems.
    #[schemars(with = "i32")]
    #[serde(default)]
    pub nodes_skipped: u32,
    /// Pods of others that restarts for this Shim have ended.
    #[schemars(with = "i32")]
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pods_disrupted: u32,
    /// Worst first, at most 10; the rest is counted above.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
}

/// A revision, in short.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RevisionStatus {
    /// Its number, from 1.
    pub number: i64,
    /// Its spec.version.
    pub version: String,
}

/// Why a node is not as it should be.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// The Node.
    pub node: String,
    /// Failed, Retrying, Updating, Removing, Unknown, Waiting or Skipped.
    pub state: String,
    /// Step of the installer that ended it, where one ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// A word for programs.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
    /// Tries so far.
    #[schemars(with = "i32")]
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: u32,
    /// When the last try ended, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Last lines of the installer's log.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub log: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn int_or_percent(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-int-or-string": true, "maxLength": 8 })
}

fn any_table(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "additionalProperties": { "x-kubernetes-preserve-unknown-fields": true } })
}
