//! An API server on 127.0.0.1, and kubelets that end each Job at once.
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, Method, Response, Uri},
    serve::Listener,
};
use serde_json::{Value, json};
use shim_core::{
    names::{ShimName, TASK_ANNOTATION},
    report::{Failure, Outcome, Reason, Report, Step},
    task::Task,
};
use tokio::{net::TcpListener, sync::watch, time::timeout};

use crate::store::{Answer, Store, failure};

/// The Shims.
pub const SHIMS: &str = "/apis/shim.dev/v1alpha1/shims";
const NODES: &str = "/api/v1/nodes";
const JOBS: &str = "/apis/batch/v1/namespaces/shim-system/jobs";
const PODS: &str = "/api/v1/namespaces/shim-system/pods";
/// The RuntimeClasses.
pub const CLASSES: &str = "/apis/node.k8s.io/v1/runtimeclasses";
/// The node where every installation fails.
pub const BAD: &str = "bad";

/// The cluster; it ends with the test's process.
pub struct Cluster {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    store: Mutex<Store>,
    /// Writes below these paths are forbidden.
    forbidden: Mutex<Vec<String>>,
    /// Watches of this collection are answered with an error.
    broken: Mutex<Option<String>>,
    changed: watch::Sender<()>,
}

impl Cluster {
    /// A Shim, a node that works, and one where every installation fails.
    pub fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let address = serve(Router::new().fallback(answer).with_state(shared.clone()), |listener| listener);
        let cluster = Self { address, shared };
        for name in ["good", BAD] {
            cluster.put(&format!("{NODES}/{name}"), node(name));
        }
        cluster.put(&format!("{SHIMS}/wasmtime"), shim("wasmtime"));
        cluster
    }

    /// A kubeconfig for it.
    pub fn kubeconfig(&self) -> String {
        let server = format!("http://{}", self.address);
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}],
        })
        .to_string()
    }

    /// Puts an object at its path.
    pub fn put(&self, path: &str, object: Value) {
        self.shared.store.lock().unwrap().put(path, object);
        self.shared.changed.send_replace(());
    }

    /// Takes it away.
    pub fn remove(&self, path: &str) {
        self.shared.store.lock().unwrap().delete(path);
        self.shared.changed.send_replace(());
    }

    /// From now on writes below this path are forbidden.
    pub fn forbid(&self, path: &str) {
        self.shared.forbidden.lock().unwrap().push(path.to_owned());
    }

    /// From now on watches of this collection fail.
    pub fn break_watch(&self, path: &str) {
        *self.shared.broken.lock().unwrap() = Some(path.to_owned());
    }
}

/// Serves on a free port, on a thread that ends with the process; the address.
pub fn serve<L>(router: Router, wrap: impl FnOnce(TcpListener) -> L + Send + 'static) -> SocketAddr
where
    L: Listener<Addr = SocketAddr>,
{
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = wrap(TcpListener::from_std(listener).unwrap());
            axum::serve(listener, router).await.unwrap();
        });
    });
    address
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let query = uri.query().unwrap_or_default();
    if query.contains("watch=true") && shared.broken.lock().unwrap().as_deref() == Some(uri.path()) {
        let (code, body) = failure(500, "InternalError", uri.path());
        return json_response(code, body.to_string());
    }
    if query.contains("watch=true") {
        return json_response(200, events(&shared, uri.path(), query).await);
    }
    let kind = headers.get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let (code, body) = shared.answer(&method, uri.path(), kind, body);
    if method != Method::GET {
        shared.changed.send_replace(());
    }
    json_response(code, body.to_string())
}

fn json_response(code: u16, body: String) -> Response<Body> {
    Response::builder().status(code).header("content-type", "application/json").body(body.into()).unwrap()
}

impl Shared {
    fn answer(&self, method: &Method, path: &str, kind: &str, body: Value) -> Answer {
        let mut store = self.store.lock().unwrap();
        if *method != Method::GET && self.forbidden.lock().unwrap().iter().any(|prefix| path.starts_with(prefix)) {
            return failure(403, "Forbidden", path);
        }
        match method.as_str() {
            "POST" if path == JOBS => end_job(&mut store, body),
            "POST" => store.create(path, body),
            "PUT" => store.replace(path, body),
            "PATCH" => store.patch(path, kind, body),
            "DELETE" => store.delete(path),
            _ => store.get(path),
        }
    }
}

/// Waits for the next change, tells of it, and ends: the client takes the watch up again.
async fn events(shared: &Shared, path: &str, query: &str) -> String {
    let since = query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion=")).unwrap_or_default();
    let since = since.parse().unwrap_or_default();
    let mut changed = shared.changed.subscribe();
    loop {
        let events = shared.store.lock().unwrap().events(path, since);
        if !events.is_empty() {
            return events.iter().map(|event| event.to_string() + "\n").collect();
        }
        if timeout(Duration::from_secs(30), changed.changed()).await.is_err() {
            return String::new();
        }
    }
}

/// Makes a Job that has ended, with a Pod that tells how.
fn end_job(store: &mut Store, mut job: Value) -> Answer {
    let task: Task = serde_json::from_str(job["metadata"]["annotations"][TASK_ANNOTATION].as_str().unwrap()).unwrap();
    let name = job["metadata"]["name"].clone();
    job["status"] = json!({"conditions": [
        {"type": "Complete", "status": "True", "lastTransitionTime": jiff::Timestamp::now().to_string()}]});
    let (code, job) = store.create(JOBS, job);
    let message = report(&task).to_termination_message();
    let pod = json!({
        "metadata": {"name": name, "labels": {"batch.kubernetes.io/controller-uid": job["metadata"]["uid"]}},
        "spec": {"nodeName": task.node, "containers": []},
        "status": {"phase": "Succeeded", "containerStatuses": [{
            "name": "install", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 0, "message": message}}}]},
    });
    store.create(PODS, pod);
    (code, job)
}

fn report(task: &Task) -> Report {
    let outcome = |name: &ShimName| {
        let failure = Failure::new(Step::Fetch, Reason::ChecksumMismatch, "the artifact is another one");
        let failed = task.node.as_str() == BAD;
        (name.clone(), if failed { Outcome::Failed(failure) } else { Outcome::Done { disrupted: 0 } })
    };
    let outcomes: BTreeMap<_, _> = task.ops.keys().map(outcome).collect();
    Report { format: shim_core::report::FORMAT, outcomes, restarted: false, log: String::new() }
}

fn node(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "uid": name, "labels": {}, "annotations": {}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"machineID": name,
            "operatingSystem": "linux", "architecture": "amd64", "containerRuntimeVersion": "containerd://1.7.27"}},
    })
}

/// A Shim that was made long ago.
pub fn shim(name: &str) -> Value {
    json!({
        "apiVersion": "shim.dev/v1alpha1", "kind": "Shim",
        "metadata": {"name": name, "uid": name, "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"version": "v1", "runtimeClass": {"name": name},
            "rolloutStrategy": {"rolling": {"maxUpdate": "100%"}, "canary": 0, "maxFailures": "100%"},
            "fetchStrategy": {"anonHttp": {"location": "http://127.0.0.1/a.tar.gz", "sha256": "0".repeat(64)}}},
    })
}
