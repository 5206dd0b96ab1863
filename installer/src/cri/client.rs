//! The client: gRPC over the daemon's socket. Blocking; its runtime lives in here and nowhere else.
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use prost::Message;
use serde::Deserialize;
use shim_core::{containerd::runtime::Runtime as Entry, names::DEFAULT_NAMESPACE};
use tokio::runtime::{Builder, Runtime};
use tonic::{Code, client::Grpc, codegen::http::uri::PathAndQuery, transport::Channel, transport::Endpoint};
use tonic_prost::ProstCodec;

use super::{Container, Cri, CriError, Life, Origin, PROBE_LABEL, Readiness, Sandbox, Status, messages as m};

/// One answer, except where a sandbox is started.
const ANSWER: Duration = Duration::from_secs(10);
/// Start or end of a sandbox.
const SANDBOX: Duration = Duration::from_secs(30);

/// A connection to one daemon. It outlives restarts of the daemon.
#[derive(Debug)]
pub struct Client {
    runtime: Runtime,
    channel: Channel,
}

impl Client {
    /// A client of the socket at `path`; connects when it is used, and again after a restart.
    pub fn new(path: &Path) -> Result<Self, CriError> {
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(|e| CriError::Unreachable(e.to_string()))?;
        let endpoint = Endpoint::from_shared(format!("unix://{}", path.display())).map_err(unreachable_because)?;
        let channel = runtime.block_on(async { endpoint.connect_timeout(ANSWER).connect_lazy() });
        Ok(Self { runtime, channel })
    }

    fn call<Q, A>(&self, call: &'static str, limit: Duration, request: Q) -> Result<A, CriError>
    where
        Q: Message + Default + 'static,
        A: Message + Default + 'static,
    {
        let path = PathAndQuery::try_from(format!("/runtime.v1.RuntimeService/{call}"));
        let path = path.map_err(|error| CriError::Unreachable(error.to_string()))?;
        // A node with many pods answers a list with more than the default of 4 MiB.
        let mut client = Grpc::new(self.channel.clone()).max_decoding_message_size(64 << 20);
        let exchange = async {
            client.ready().await.map_err(unreachable_because)?;
            let answer = client.unary(tonic::Request::new(request), path, ProstCodec::<Q, A>::default()).await;
            answer.map(tonic::Response::into_inner).map_err(|status| refused(call, &status))
        };
        self.runtime.block_on(async {
            let timed = tokio::time::timeout(limit, exchange).await;
            timed
                .unwrap_or_else(|_| Err(CriError::Unreachable(format!("no answer to {call} in {} s", limit.as_secs()))))
        })
    }
}

impl Cri for Client {
    fn version(&self) -> Result<String, CriError> {
        let answer: m::VersionResponse = self.call("Version", ANSWER, m::VersionRequest {})?;
        Ok(format!("{} {}", answer.runtime_name, answer.runtime_version))
    }

    fn status(&self) -> Result<Status, CriError> {
        self.call("Status", ANSWER, m::StatusRequest { verbose: true }).map(status)
    }

    fn sandboxes(&self) -> Result<Vec<Sandbox>, CriError> {
        let answer: m::ListPodSandboxResponse = self.call("ListPodSandbox", ANSWER, m::ListPodSandboxRequest {})?;
        Ok(answer.items.into_iter().map(sandbox).collect())
    }

    fn containers(&self) -> Result<Vec<Container>, CriError> {
        let answer: m::ListContainersResponse = self.call("ListContainers", ANSWER, m::ListContainersRequest {})?;
        Ok(answer.containers.into_iter().map(container).collect())
    }

    fn exit_code(&self, container: &str) -> Result<i32, CriError> {
        let request = m::ContainerStatusRequest { container_id: container.to_owned() };
        let answer: m::ContainerStatusResponse = self.call("ContainerStatus", ANSWER, request)?;
        Ok(answer.status.unwrap_or_default().exit_code)
    }

    fn cgroup_parent(&self, sandbox: &str) -> Result<Option<String>, CriError> {
        let request = m::PodSandboxStatusRequest { pod_sandbox_id: sandbox.to_owned(), verbose: true };
        let answer: m::PodSandboxStatusResponse = self.call("PodSandboxStatus", ANSWER, request)?;
        Ok(answer.info.get("info").and_then(|info| cgroup_parent(info)))
    }

    fn run_probe(&self, handler: &str, cgroup_parent: &str, limit: Duration) -> Result<String, CriError> {
        let request = probe(handler, cgroup_parent);
        let answer: m::RunPodSandboxResponse = self.call("RunPodSandbox", SANDBOX.min(limit), request)?;
        Ok(answer.pod_sandbox_id)
    }

    fn remove_sandbox(&self, sandbox: &str) -> Result<(), CriError> {
        for call in ["StopPodSandbox", "RemovePodSandbox"] {
            let request = m::PodSandboxId { pod_sandbox_id: sandbox.to_owned() };
            let answer: Result<m::Empty, _> = self.call(call, SANDBOX, request);
            match answer {
                // The kubelet ends sandboxes that it does not know, often before we do.
                Err(CriError::Refused { message, .. }) if message.starts_with(NOT_FOUND) => {}
                other => {
                    other?;
                }
            }
        }
        Ok(())
    }
}

const NOT_FOUND: &str = "not found";

fn refused(call: &'static str, status: &tonic::Status) -> CriError {
    // A shim's garbage comes back in messages, NUL bytes too.
    let message = status.message().replace(char::is_control, " ");
    match status.code() {
        Code::Unavailable | Code::Cancelled => CriError::Unreachable(message),
        Code::NotFound => CriError::Refused { call, message: format!("{NOT_FOUND}: {message}") },
        // The daemon runs, its CRI plugin does not.
        Code::Unimplemented => CriError::Unreachable(format!("containerd runs without its CRI plugin ({message})")),
        _ => CriError::Refused { call, message },
    }
}

/// tonic's own text is "transport error"; the cause says more.
#[expect(clippy::needless_pass_by_value, reason = "used as a function of map_err")]
fn unreachable_because(error: tonic::transport::Error) -> CriError {
    let mut cause: &dyn std::error::Error = &error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    CriError::Unreachable(cause.to_string())
}

fn status(answer: m::StatusResponse) -> Status {
    let loaded = answer.info.get("config").and_then(|config| loaded(config));
    let mut handlers: BTreeSet<_> = answer.runtime_handlers.into_iter().map(|handler| handler.name).collect();
    // 1.x has no list of handlers, only what it has loaded.
    handlers.extend(loaded.iter().flat_map(BTreeMap::keys).cloned());
    // The default runtime, under no name.
    handlers.remove("");
    Status { readiness: readiness(&answer.status.unwrap_or_default()), handlers, loaded }
}

fn readiness(status: &m::RuntimeStatus) -> Readiness {
    match status.conditions.iter().find(|condition| condition.r#type == "RuntimeReady") {
        Some(condition) if condition.status => Readiness::Ready,
        Some(condition) => Readiness::NotReady(format!("{} {}", condition.reason, condition.message)),
        None => Readiness::NotReady("no RuntimeReady condition".to_owned()),
    }
}

/// The runtimes in the CRI plugin's configuration as the daemon prints it in a verbose status.
fn loaded(config: &str) -> Option<BTreeMap<String, Entry>> {
    #[derive(Deserialize)]
    struct Config {
        containerd: Containerd,
    }
    #[derive(Deserialize)]
    struct Containerd {
        runtimes: BTreeMap<String, Loaded>,
    }
    #[derive(Deserialize)]
    struct Loaded {
        #[serde(rename = "runtimeType")]
        runtime_type: String,
        // null where there are none
        options: Option<shim_core::task::Options>,
    }
    let config: Config = serde_json::from_str(config).ok()?;
    let entry =
        |loaded: Loaded| Entry { runtime_type: loaded.runtime_type, options: loaded.options.unwrap_or_default() };
    Some(config.containerd.runtimes.into_iter().map(|(handler, loaded)| (handler, entry(loaded))).collect())
}

fn sandbox(item: m::PodSandbox) -> Sandbox {
    Sandbox {
        id: item.id,
        pod_uid: item.metadata.unwrap_or_default().uid,
        life: if item.state == 0 { Life::Up } else { Life::Down },
        handler: item.runtime_handler,
        origin: if item.labels.contains_key(PROBE_LABEL) { Origin::Probe } else { Origin::Pod },
    }
}

fn container(item: m::Container) -> Container {
    let life = if item.state == 1 { Life::Up } else { Life::Down };
    Container { id: item.id, sandbox: item.pod_sandbox_id, life }
}

fn cgroup_parent(info: &str) -> Option<String> {
    let info: serde_json::Value = serde_json::from_str(info).ok()?;
    let parent = info.pointer("/config/linux/cgroup_parent")?.as_str()?;
    (!parent.is_empty()).then(|| parent.to_owned())
}

fn probe(handler: &str, cgroup_parent: &str) -> m::RunPodSandboxRequest {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    let name = format!("shim-probe-{handler}");
    let metadata =
        m::PodSandboxMetadata { uid: format!("{name}-{now}"), name, namespace: DEFAULT_NAMESPACE.to_owned() };
    // The node's network: the probe is of the shim, not of CNI.
    let namespaces = m::NamespaceOption { network: 2, pid: 1 };
    let security = m::LinuxSandboxSecurityContext { namespace_options: Some(namespaces) };
    let linux = m::LinuxPodSandboxConfig { cgroup_parent: cgroup_parent.to_owned(), security_context: Some(security) };
    let labels = HashMap::from([(PROBE_LABEL.to_owned(), handler.to_owned())]);
    let config = m::PodSandboxConfig { metadata: Some(metadata), labels, linux: Some(linux) };
    m::RunPodSandboxRequest { config: Some(config), runtime_handler: handler.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_are_read_from_a_verbose_status() {
        let config = r#"{"containerd":{"snapshotter":"overlayfs","runtimes":{
            "runc":{"runtimeType":"io.containerd.runc.v2","options":{"SystemdCgroup":true,"IoUid":0}},
            "spin":{"runtimeType":"/opt/shim/spin/current/containerd-shim-spin-v1","options":null}}},"cni":{}}"#;
        let info = HashMap::from([("config".to_owned(), config.to_owned())]);
        let condition = m::RuntimeCondition { r#type: "RuntimeReady".to_owned(), status: true, ..Default::default() };
        let answer = m::StatusResponse {
            status: Some(m::RuntimeStatus { conditions: vec![condition] }),
            info,
            ..Default::default()
        };
        let status = status(answer);
        assert_eq!(status.readiness, Readiness::Ready);
        assert_eq!(status.handlers, BTreeSet::from(["runc".to_owned(), "spin".to_owned()]));
        assert!(status.loaded.unwrap()["spin"].options.is_empty());
    }

    #[test]
    fn without_its_condition_a_runtime_is_not_ready() {
        let status = status(m::StatusResponse::default());
        assert!(matches!(status.readiness, Readiness::NotReady(_)));
        assert_eq!(status.loaded, None);
    }

    #[test]
    fn a_socket_that_nobody_listens_on_is_unreachable() {
        let dir = tempfile::tempdir().unwrap();
        let client = Client::new(&dir.path().join("none.sock")).unwrap();
        let error = client.version().unwrap_err();
        assert!(matches!(&error, CriError::Unreachable(why) if why.contains("No such file")), "{error}");
    }

    #[test]
    fn the_parent_of_a_pod_s_cgroup_is_read_from_its_status() {
        assert_eq!(
            cgroup_parent(r#"{"config":{"linux":{"cgroup_parent":"/kubepods/podx"}}}"#).as_deref(),
            Some("/kubepods/podx")
        );
        assert_eq!(cgroup_parent(r#"{"config":{"linux":{"cgroup_parent":""}}}"#), None);
        assert_eq!(cgroup_parent("x"), None);
    }
}
