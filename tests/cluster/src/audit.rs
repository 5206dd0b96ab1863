//! The API server's audit log, read: who wrote what, and how often.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// A place in the log, between two events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Offset(u64);

/// Whether a request changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// `get`, `list`, `watch` and other requests that change nothing.
    Read,
    /// `create`, `update`, `patch`, `delete`, `deletecollection`.
    Write,
}

/// One finished request.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The verb, in lower case.
    pub verb: String,
    /// Plural name; empty for requests that are not about a resource.
    pub resource: String,
    /// API group; empty for the core group.
    pub group: String,
    /// For instance `status`; empty for none.
    pub subresource: String,
    /// Empty for what is not in a namespace.
    pub namespace: String,
    /// Empty for lists, and for names that the server made up.
    pub name: String,
    /// For instance `system:serviceaccount:NAMESPACE:NAME` or `system:node:NAME`.
    pub user: String,
    /// The pod that a service account's token was made for; empty for others.
    pub pod: String,
    /// The client program's own name for itself.
    pub user_agent: String,
    /// HTTP status.
    pub code: u16,
    /// When the request came in.
    pub time: Timestamp,
    /// What was sent, for writes to nodes, Jobs and shim.dev.
    pub request: Option<Value>,
}

impl Event {
    /// Whether the request changes something.
    pub fn access(&self) -> Access {
        match self.verb.as_str() {
            "create" | "update" | "patch" | "delete" | "deletecollection" => Access::Write,
            _ => Access::Read,
        }
    }
}

/// The audit log of a cluster.
#[derive(Clone, Debug)]
pub struct AuditLog {
    path: PathBuf,
}

impl AuditLog {
    /// The log at `path`.
    pub fn open(path: impl AsRef<Path>) -> Self {
        Self { path: path.as_ref().to_owned() }
    }

    /// The end of the log now. Requests that are answered just now may still be written after it.
    pub fn end(&self) -> Result<Offset> {
        let size = std::fs::metadata(&self.path).with_context(|| self.path.display().to_string())?.len();
        Ok(Offset(size))
    }

    /// All finished requests from `start` on, and where to go on from.
    pub fn since(&self, start: Offset) -> Result<(Vec<Event>, Offset)> {
        let mut file = File::open(&self.path).with_context(|| self.path.display().to_string())?;
        file.seek(SeekFrom::Start(start.0))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let (events, read) = parse(&bytes)?;
        Ok((events, Offset(start.0 + read as u64)))
    }

    /// All finished requests that came in at `start` or later.
    pub fn since_time(&self, start: Timestamp) -> Result<Vec<Event>> {
        let (mut events, _) = self.since(Offset::default())?;
        events.retain(|event| event.time >= start);
        Ok(events)
    }
}

/// The finished requests of a text, and how many bytes of it were whole lines.
fn parse(bytes: &[u8]) -> Result<(Vec<Event>, usize)> {
    // The server may be in the middle of writing the last line.
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    let lines = bytes[..whole].split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let lines = lines.map(|line| {
        serde_json::from_slice::<Line>(line).with_context(|| format!("audit event: {}", String::from_utf8_lossy(line)))
    });
    let lines: Vec<Line> = lines.collect::<Result<_>>()?;
    let finished = lines.into_iter().filter(|line| line.stage == "ResponseComplete");
    Ok((finished.map(Event::from).collect(), whole))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    stage: String,
    verb: String,
    user: User,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    object_ref: ObjectRef,
    #[serde(default)]
    response_status: ResponseStatus,
    request_received_timestamp: Timestamp,
    request_object: Option<Value>,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
    #[serde(default)]
    extra: BTreeMap<String, Vec<String>>,
}

impl User {
    fn pod(&self) -> String {
        let names = self.extra.get("authentication.kubernetes.io/pod-name");
        names.and_then(|names| names.first()).cloned().unwrap_or_default()
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ObjectRef {
    resource: String,
    api_group: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResponseStatus {
    code: u16,
}

impl From<Line> for Event {
    fn from(line: Line) -> Self {
        let object = line.object_ref;
        Self {
            verb: line.verb,
            resource: object.resource,
            group: object.api_group,
            subresource: object.subresource,
            namespace: object.namespace,
            name: object.name,
            pod: line.user.pod(),
            user: line.user.username,
            user_agent: line.user_agent,
            code: line.response_status.code,
            time: line.request_received_timestamp,
            request: line.request_object,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Request","auditID":"1","stage":"ResponseComplete","requestURI":"/api/v1/nodes/node-1/status?x=y","verb":"patch","user":{"username":"system:node:node-1","groups":["system:nodes"]},"sourceIPs":["10.77.0.11"],"userAgent":"kubelet/v1.37.2","objectRef":{"resource":"nodes","name":"node-1","apiVersion":"v1","subresource":"status"},"responseStatus":{"metadata":{},"code":200},"requestObject":{"metadata":{}},"requestReceivedTimestamp":"2026-11-30T08:00:00.123456Z","stageTimestamp":"2026-11-30T08:00:00.223456Z"}"#;
    const READY: &str = r#"{"stage":"ResponseComplete","verb":"get","user":{"username":"admin"},"requestReceivedTimestamp":"2026-11-30T08:00:01Z"}"#;

    #[test]
    fn a_write_is_read_with_all_that_tests_ask() {
        let (events, read) = parse(format!("{PATCH}\n").as_bytes()).unwrap();
        let event = &events[0];
        assert_eq!(read, PATCH.len() + 1);
        assert_eq!(
            (event.access(), event.resource.as_str(), event.subresource.as_str()),
            (Access::Write, "nodes", "status")
        );
        assert_eq!((event.user.as_str(), event.name.as_str(), event.code), ("system:node:node-1", "node-1", 200));
        assert_eq!(event.time.subsec_microsecond(), 123_456);
        assert!(event.request.is_some());
    }

    #[test]
    fn two_pods_of_one_account_are_told_apart() {
        let user =
            r#"{"username":"system:serviceaccount:ns:sa","extra":{"authentication.kubernetes.io/pod-name":["sa-1"]}}"#;
        let (events, _) = parse(format!("{}\n", READY.replace(r#"{"username":"admin"}"#, user)).as_bytes()).unwrap();
        assert_eq!((events[0].user.as_str(), events[0].pod.as_str()), ("system:serviceaccount:ns:sa", "sa-1"));
    }

    #[test]
    fn a_request_about_no_resource_is_a_read_of_nothing() {
        let (events, _) = parse(format!("{READY}\n").as_bytes()).unwrap();
        assert_eq!((events[0].access(), events[0].resource.as_str(), events[0].code), (Access::Read, "", 0));
    }

    #[test]
    fn unfinished_requests_and_lines_are_left_out() {
        let started = PATCH.replace("ResponseComplete", "ResponseStarted");
        let (events, read) = parse(format!("{started}\n{READY}\n{{\"stage\":\"Resp").as_bytes()).unwrap();
        assert_eq!(events.len(), 1);
        assert_eq!(read, started.len() + READY.len() + 2);
    }

    #[test]
    fn reading_goes_on_where_it_ended() {
        let path = std::env::temp_dir().join(format!("shim-audit-{}", std::process::id()));
        std::fs::write(&path, format!("{PATCH}\n{}", &READY[..10])).unwrap();
        let log = AuditLog::open(&path);
        let (events, next) = log.since(Offset::default()).unwrap();
        assert_eq!(events.len(), 1);
        std::fs::write(&path, format!("{PATCH}\n{READY}\n")).unwrap();
        let (events, next) = log.since(next).unwrap();
        assert_eq!((events.len(), next), (1, log.end().unwrap()));
        assert_eq!(log.since_time(events[0].time).unwrap().len(), 1);
        std::fs::remove_file(path).unwrap();
    }
}
