//! A small API server: objects by path, a log of what was asked, and refusals on request.
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

use serde_json::{Value, json};

/// The Shims.
pub const SHIMS: &str = "/apis/shim.dev/v1alpha1/shims";
/// The controller.
pub const CONTROLLER: &str = "/apis/apps/v1/namespaces/shim-system/deployments/shim-controller";

/// Where one asks who one is.
pub const WHOAMI: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// The server; it ends with the test's process.
pub struct Stub {
    port: u16,
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    forbidden: BTreeSet<String>,
    conflicts: BTreeMap<String, String>,
    missing: Vec<String>,
    writes: Vec<(String, Value)>,
    version: u64,
    minor: String,
}

impl Stub {
    /// A cluster without anything.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state =
            Arc::new((Mutex::new(State { minor: "34".into(), version: 1, ..State::default() }), Condvar::new()));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream, &shared));
            }
        });
        Self { port, state }
    }

    /// A cluster with a controller and these nodes.
    pub fn with_nodes(nodes: &[(&str, &str)]) -> Self {
        let stub = Self::start();
        stub.put(CONTROLLER, deployment());
        for (name, arch) in nodes {
            stub.put(&format!("/api/v1/nodes/{name}"), node(name, arch));
        }
        stub
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.0.lock().unwrap();
        state.version += 1;
        let result = change(&mut state);
        self.state.1.notify_all();
        result
    }

    /// Puts an object at its path.
    pub fn put(&self, path: &str, mut object: Value) {
        self.change(|state| {
            object["metadata"]["resourceVersion"] = state.version.to_string().into();
            state.objects.insert(path.to_owned(), object);
        });
    }

    /// Takes it away.
    pub fn remove(&self, path: &str) {
        self.change(|state| state.objects.remove(path));
    }

    /// The object at this path.
    pub fn get(&self, path: &str) -> Option<Value> {
        self.state.0.lock().unwrap().objects.get(path).cloned()
    }

    /// Reads below this path are refused.
    pub fn forbid(&self, path: &str) {
        self.change(|state| state.forbidden.insert(path.to_owned()));
    }

    /// Applies to this path meet another manager.
    pub fn conflict(&self, path: &str, manager: &str) {
        self.change(|state| state.conflicts.insert(path.to_owned(), manager.to_owned()));
    }

    /// The group is not served.
    pub fn without(&self, group: &str) {
        self.change(|state| state.missing.push(group.to_owned()));
    }

    /// Minor version of Kubernetes.
    pub fn minor(&self, minor: &str) {
        self.change(|state| minor.clone_into(&mut state.minor));
    }

    /// `METHOD path?query` of each write, with its body.
    pub fn writes(&self) -> Vec<(String, Value)> {
        self.state.0.lock().unwrap().writes.clone()
    }

    /// Waits until a write to this path came.
    pub fn await_write(&self, path: &str) {
        let state = self.state.0.lock().unwrap();
        let waiting = |state: &mut State| !state.writes.iter().any(|(line, _)| line.contains(path));
        let late = self.state.1.wait_timeout_while(state, Duration::from_secs(20), waiting).unwrap().1.timed_out();
        assert!(!late, "no write to {path}");
    }
}

/// An available controller.
pub fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "shim-controller", "namespace": "shim-system", "generation": 1,
            "labels": {"app.kubernetes.io/version": concat!("v", env!("CARGO_PKG_VERSION")), "app.kubernetes.io/part-of": "kubectl-shim"}},
        "spec": {"replicas": 1, "selector": {}, "template": {}},
        "status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1},
    })
}

fn node(name: &str, arch: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name, "labels": {"spin": "true"}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"machineID": name,
            "operatingSystem": "linux", "architecture": arch, "containerRuntimeVersion": "containerd://1.7.27"}},
    })
}

struct Request {
    method: String,
    path: String,
    query: String,
    body: Value,
}

fn serve(mut stream: TcpStream, shared: &(Mutex<State>, Condvar)) {
    let Some(request) = read(&stream) else { return };
    if request.query.contains("watch=true") {
        watch(&mut stream, &request.path, shared);
        return;
    }
    let (code, body) = {
        let mut state = shared.0.lock().unwrap();
        let answer = answer(&mut state, &request);
        // A review is a question.
        if !["GET", "POST"].contains(&request.method.as_str()) {
            let line = format!("{} {}?{}", request.method, request.path, request.query);
            state.writes.push((line, request.body.clone()));
        }
        shared.1.notify_all();
        answer
    };
    let kind = if body.starts_with('{') { "application/json" } else { "text/plain" };
    let length = body.len();
    let _ = write!(
        stream,
        "HTTP/1.1 {code} X\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let header = header.trim().to_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    Some(Request {
        method,
        path: path.to_owned(),
        query: query.to_owned(),
        body: serde_json::from_slice(&body).unwrap_or_default(),
    })
}

/// Says that something changed, and ends: the client takes the watch up again.
fn watch(stream: &mut TcpStream, path: &str, shared: &(Mutex<State>, Condvar)) {
    let state = shared.0.lock().unwrap();
    let version = state.version;
    let state = shared.1.wait_timeout_while(state, Duration::from_mins(1), |state| state.version == version).unwrap().0;
    let events = state.objects.iter().filter(|(key, _)| key.starts_with(path));
    let lines: String =
        events.map(|(_, object)| json!({"type": "MODIFIED", "object": object}).to_string() + "\n").collect();
    drop(state);
    let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{lines}");
}

fn answer(state: &mut State, request: &Request) -> (u16, String) {
    let path = request.path.as_str();
    if path == "/version" {
        let info = json!({"major": "1", "minor": state.minor, "gitVersion": format!("v1.{}.0", state.minor), "gitCommit": "",
            "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": ""});
        return (200, info.to_string());
    }
    if state.missing.iter().any(|group| path.starts_with(group.as_str())) {
        return (404, "404 page not found\n".to_owned());
    }
    if state.forbidden.iter().any(|prefix| path.starts_with(prefix.as_str())) {
        return status(403, "Forbidden", &format!("{path} is forbidden"), &json!({}));
    }
    match request.method.as_str() {
        "GET" => read_object(state, path),
        "PATCH" => patch(state, request),
        "DELETE" => delete(state, request),
        "POST" if path == WHOAMI => {
            (201, json!({"metadata": {}, "status": {"userInfo": {"username": "alice"}}}).to_string())
        }
        _ => status(405, "MethodNotAllowed", "no such method", &json!({})),
    }
}

fn status(code: u16, reason: &str, message: &str, details: &Value) -> (u16, String) {
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message, "details": details});
    (code, body.to_string())
}

fn is_collection(path: &str) -> bool {
    const PLURALS: [&str; 6] = ["shims", "nodes", "jobs", "pods", "runtimeclasses", "controllerrevisions"];
    PLURALS.contains(&path.rsplit('/').next().unwrap_or_default())
}

fn read_object(state: &State, path: &str) -> (u16, String) {
    if let Some(object) = state.objects.get(path) {
        return (200, object.to_string());
    }
    if !is_collection(path) {
        return status(404, "NotFound", &format!("{path} not found"), &json!({}));
    }
    // Pods of all namespaces stand under each.
    let kind = path.rsplit('/').next().unwrap_or_default();
    let within =
        |key: &str| if path == "/api/v1/pods" { key.contains("/pods/") } else { key.starts_with(&format!("{path}/")) };
    let items: Vec<_> = state.objects.iter().filter(|(key, _)| within(key)).map(|(_, object)| object.clone()).collect();
    (200, json!({"kind": format!("{kind}List"), "apiVersion": "v1", "metadata": {"resourceVersion": state.version.to_string()}, "items": items}).to_string())
}

fn patch(state: &mut State, request: &Request) -> (u16, String) {
    if let Some(manager) = state.conflicts.get(&request.path).filter(|_| !request.query.contains("force=true")) {
        let cause = json!({"reason": "FieldManagerConflict", "field": ".spec.version", "message": format!("conflict with \"{manager}\" using shim.dev/v1alpha1")});
        return status(409, "Conflict", "Apply failed with 1 conflict", &json!({"causes": [cause]}));
    }
    let before = state.objects.get(&request.path).cloned();
    let mut after = before.clone().unwrap_or_else(|| json!({"metadata": {"uid": "new", "generation": 1}}));
    merge(&mut after, &request.body);
    if before.as_ref() != Some(&after) {
        state.version += 1;
        after["metadata"]["resourceVersion"] = state.version.to_string().into();
    }
    if !request.query.contains("dryRun") {
        state.objects.insert(request.path.clone(), after.clone());
    }
    (200, after.to_string())
}

fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}

fn delete(state: &mut State, request: &Request) -> (u16, String) {
    let Some(mut object) = state.objects.get(&request.path).cloned() else {
        return status(404, "NotFound", "not found", &json!({}));
    };
    if request.query.contains("dryRun") || request.body["dryRun"].is_array() {
        return (200, object.to_string());
    }
    state.version += 1;
    if object["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty()) {
        object["metadata"]["deletionTimestamp"] = "2026-11-30T12:00:00Z".into();
        state.objects.insert(request.path.clone(), object.clone());
    } else {
        state.objects.remove(&request.path);
    }
    (200, object.to_string())
}

/// A Shim as it is in the cluster, with a status that the controller has written.
pub fn shim(name: &str, version: &str, ready: &str, stalled: &str) -> Value {
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "Written", "message": "2 of 2 nodes ready", "lastTransitionTime": "2026-11-30T08:00:00Z"});
    json!({
        "apiVersion": "shim.dev/v1alpha1", "kind": "Shim",
        "metadata": {"name": name, "uid": name, "generation": 1, "creationTimestamp": "2026-11-30T08:00:00Z",
            "finalizers": ["shim.dev/nodes"]},
        "spec": {
            "version": version,
            "fetchStrategy": {"anonHttp": {"location": format!("https://example.com/{version}"), "sha256": crate::rig::SHA}},
            "runtimeClass": {"name": name},
        },
        "status": {"observedGeneration": 1, "conditions": [condition("Ready", ready), condition("Stalled", stalled)],
            "handler": name, "nodes": 2, "nodesReady": 2, "nodesUpdated": 2},
    })
}
