//! The objects that put kubectl-shim into a cluster: what `kubectl shim init` applies and what lies in `deploy/`.
use std::collections::BTreeMap;

use k8s_openapi::{
    Metadata,
    api::{
        apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy},
        core::v1::{
            Capabilities, Container, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction, LocalObjectReference,
            Namespace, ObjectFieldSelector, PodSecurityContext, PodSpec, PodTemplateSpec, Probe, ResourceRequirements,
            SeccompProfile, SecurityContext, ServiceAccount, Toleration,
        },
        rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject},
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{LabelSelector, ObjectMeta},
        util::intstr::IntOrString,
    },
};
use kube::CustomResourceExt;
use serde::Serialize;
use serde_json::Value;

use crate::{api::Shim, job::Settings, names::MANAGER};

/// Label on the CRD and the Deployment: the version of kubectl-shim that wrote them.
pub const VERSION_LABEL: &str = "app.kubernetes.io/version";
/// Our version, as objects are labelled with it.
pub const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));
/// Label on everything of an installation.
pub const PART_OF_LABEL: &str = "app.kubernetes.io/part-of";
/// Value of [`PART_OF_LABEL`].
pub const PART_OF: &str = "kubectl-shim";
/// Name of the Deployment, its ServiceAccount, roles and Lease.
pub const CONTROLLER: &str = MANAGER;
/// Name of the CustomResourceDefinition.
pub const CRD: &str = "shims.shim.dev";
/// Port of /healthz, /readyz and /metrics.
pub const HTTP_PORT: i32 = 8080;

/// Everything, in the order in which it is applied: the CRD first.
pub fn all(settings: &Settings) -> Result<Vec<Value>, serde_json::Error> {
    let mut all = vec![crd()?];
    all.extend(rbac(&settings.namespace)?);
    all.push(object(&deployment(settings))?);
    Ok(all)
}

/// The CustomResourceDefinition.
pub fn crd() -> Result<Value, serde_json::Error> {
    let mut crd = Shim::crd();
    crd.metadata.labels = Some(labels(None));
    serde_json::to_value(crd)
}

/// Namespace, ServiceAccount, what the controller may do, and roles for people.
pub fn rbac(namespace: &str) -> Result<Vec<Value>, serde_json::Error> {
    Ok(vec![
        object(&namespace_object(namespace))?,
        object(&ServiceAccount { metadata: meta(CONTROLLER, Some(namespace)), ..ServiceAccount::default() })?,
        object(&cluster_role(CONTROLLER, controller_cluster_rules()))?,
        object(&cluster_role_binding(namespace))?,
        object(&Role { metadata: meta(CONTROLLER, Some(namespace)), rules: Some(controller_namespace_rules()) })?,
        object(&role_binding(namespace))?,
        object(&cluster_role(
            "shim-viewer",
            vec![rule("shim.dev", &["shims", "shims/status"], &["get", "list", "watch"])],
        ))?,
        object(&cluster_role("shim-admin", vec![rule("shim.dev", &["shims"], &ADMIN_VERBS)]))?,
        // `history` and `rollback` of the plugin; other namespaces' revisions hold what is none of their business.
        object(&Role {
            metadata: meta("shim-history", Some(namespace)),
            rules: Some(vec![rule("apps", &["controllerrevisions"], &["get", "list", "watch"])]),
        })?,
    ])
}

/// Writing a Shim is root on its nodes, so these roles are aggregated into nothing.
const ADMIN_VERBS: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];

/// The controller.
pub fn deployment(settings: &Settings) -> Deployment {
    let selector = BTreeMap::from([("app.kubernetes.io/name".to_owned(), CONTROLLER.to_owned())]);
    let pod_labels = labels(Some(CONTROLLER));
    Deployment {
        metadata: meta(CONTROLLER, Some(&settings.namespace)),
        spec: Some(DeploymentSpec {
            // The second takes over when the first is gone: see the Lease.
            replicas: Some(2),
            strategy: Some(DeploymentStrategy { type_: Some("Recreate".to_owned()), rolling_update: None }),
            selector: LabelSelector { match_labels: Some(selector), ..LabelSelector::default() },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta { labels: Some(pod_labels), ..ObjectMeta::default() }),
                spec: Some(pod_spec(settings)),
            },
            ..DeploymentSpec::default()
        }),
        status: None,
    }
}

fn pod_spec(settings: &Settings) -> PodSpec {
    let secret = |name: &String| LocalObjectReference { name: name.clone() };
    let exists = |key: &str| Toleration {
        key: Some(key.to_owned()),
        operator: Some("Exists".to_owned()),
        ..Toleration::default()
    };
    PodSpec {
        service_account_name: Some(CONTROLLER.to_owned()),
        enable_service_links: Some(false),
        priority_class_name: Some("system-cluster-critical".to_owned()),
        node_selector: Some(BTreeMap::from([("kubernetes.io/os".to_owned(), "linux".to_owned())])),
        tolerations: Some(vec![exists("node-role.kubernetes.io/control-plane"), exists("CriticalAddonsOnly")]),
        image_pull_secrets: (!settings.pull_secrets.is_empty())
            .then(|| settings.pull_secrets.iter().map(secret).collect()),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(65532),
            run_as_group: Some(65532),
            seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }),
            ..PodSecurityContext::default()
        }),
        containers: vec![container(settings)],
        ..PodSpec::default()
    }
}

fn container(settings: &Settings) -> Container {
    let mut args = vec!["--log-format=json".to_owned()];
    args.extend(settings.pull_secrets.iter().map(|name| format!("--pull-secret={name}")));
    Container {
        name: "controller".to_owned(),
        image: Some(settings.image.clone()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: Some(vec!["/usr/bin/shim-controller".to_owned()]),
        args: Some(args),
        env: Some(vec![
            field_env("POD_NAME", "metadata.name"),
            field_env("POD_NAMESPACE", "metadata.namespace"),
            EnvVar { name: "SHIM_IMAGE".to_owned(), value: Some(settings.image.clone()), ..EnvVar::default() },
        ]),
        ports: Some(vec![ContainerPort {
            name: Some("http".to_owned()),
            container_port: HTTP_PORT,
            ..ContainerPort::default()
        }]),
        liveness_probe: Some(probe("/healthz")),
        readiness_probe: Some(probe("/readyz")),
        resources: Some(ResourceRequirements {
            requests: Some(BTreeMap::from([
                ("cpu".to_owned(), Quantity("10m".to_owned())),
                ("memory".to_owned(), Quantity("32Mi".to_owned())),
            ])),
            ..ResourceRequirements::default()
        }),
        security_context: Some(SecurityContext {
            privileged: Some(false),
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities { add: None, drop: Some(vec!["ALL".to_owned()]) }),
            ..SecurityContext::default()
        }),
        ..Container::default()
    }
}

fn field_env(name: &str, path: &str) -> EnvVar {
    let field = ObjectFieldSelector { field_path: path.to_owned(), api_version: None };
    let source = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
    EnvVar { name: name.to_owned(), value: None, value_from: Some(source) }
}

fn probe(path: &str) -> Probe {
    let get = HTTPGetAction {
        path: Some(path.to_owned()),
        port: IntOrString::String("http".to_owned()),
        ..HTTPGetAction::default()
    };
    Probe { http_get: Some(get), period_seconds: Some(5), ..Probe::default() }
}

fn controller_cluster_rules() -> Vec<PolicyRule> {
    vec![
        rule("shim.dev", &["shims"], &["get", "list", "watch", "patch"]),
        rule("shim.dev", &["shims/status", "shims/finalizers"], &["patch", "update"]),
        rule("", &["nodes"], &["get", "list", "watch", "patch"]),
        // Events about Shims and Nodes go to the namespace default: they have none of their own.
        rule("events.k8s.io", &["events"], &["create", "patch"]),
        rule("node.k8s.io", &["runtimeclasses"], &["get", "list", "watch", "create", "patch", "delete"]),
    ]
}

fn controller_namespace_rules() -> Vec<PolicyRule> {
    vec![
        rule("batch", &["jobs"], &["get", "list", "watch", "create", "patch", "delete"]),
        rule("apps", &["controllerrevisions"], &["get", "list", "watch", "create", "patch", "delete"]),
        rule("", &["pods", "events"], &["get", "list", "watch"]),
        rule("coordination.k8s.io", &["leases"], &["get", "create", "update", "patch"]),
    ]
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}

/// The installer's Pods mount the node's root: Pod Security has to allow it here and nowhere else.
fn namespace_object(name: &str) -> Namespace {
    let mut metadata = meta(name, None);
    let labels = metadata.labels.get_or_insert_default();
    for mode in ["enforce", "audit", "warn"] {
        labels.insert(format!("pod-security.kubernetes.io/{mode}"), "privileged".to_owned());
    }
    Namespace { metadata, ..Namespace::default() }
}

fn cluster_role(name: &str, rules: Vec<PolicyRule>) -> ClusterRole {
    ClusterRole { metadata: meta(name, None), rules: Some(rules), aggregation_rule: None }
}

fn cluster_role_binding(namespace: &str) -> ClusterRoleBinding {
    ClusterRoleBinding {
        metadata: meta(CONTROLLER, None),
        role_ref: role_ref("ClusterRole"),
        subjects: Some(vec![subject(namespace)]),
    }
}

fn role_binding(namespace: &str) -> RoleBinding {
    RoleBinding {
        metadata: meta(CONTROLLER, Some(namespace)),
        role_ref: role_ref("Role"),
        subjects: Some(vec![subject(namespace)]),
    }
}

fn role_ref(kind: &str) -> RoleRef {
    RoleRef { api_group: "rbac.authorization.k8s.io".to_owned(), kind: kind.to_owned(), name: CONTROLLER.to_owned() }
}

fn subject(namespace: &str) -> Subject {
    Subject {
        kind: "ServiceAccount".to_owned(),
        name: CONTROLLER.to_owned(),
        namespace: Some(namespace.to_owned()),
        api_group: None,
    }
}

fn meta(name: &str, namespace: Option<&str>) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: namespace.map(str::to_owned),
        labels: Some(labels(Some(name))),
        ..ObjectMeta::default()
    }
}

fn labels(name: Option<&str>) -> BTreeMap<String, String> {
    let fixed = [(PART_OF_LABEL, PART_OF), (VERSION_LABEL, VERSION)];
    let name = name.map(|name| ("app.kubernetes.io/name", name));
    fixed.into_iter().chain(name).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn object<K: Serialize + Metadata<Ty = ObjectMeta>>(object: &K) -> Result<Value, serde_json::Error> {
    let mut value = serde_json::to_value(object)?;
    if let Some(fields) = value.as_object_mut() {
        fields.entry("apiVersion").or_insert_with(|| K::API_VERSION.into());
        fields.entry("kind").or_insert_with(|| K::KIND.into());
    }
    Ok(value)
}
