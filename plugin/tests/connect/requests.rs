//! What happens to requests after the login: new logins, repeats, time-outs, compression, error texts.

use std::{
    io::Write as _,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};
use serde_json::json;

use crate::{
    api::{Reply, VERSION, version},
    case::{Case, Started, V1},
};

fn status(code: u16, reason: &str, message: &str) -> Reply {
    let body = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message });
    Reply::Json(code, body.to_string())
}

fn unauthorized() -> Reply {
    status(401, "Unauthorized", "Unauthorized")
}

async fn client(started: &Started) -> Client {
    started.connect().await.unwrap().client
}

/// Takes only the bearer token `second`.
fn takes_second(case: &mut Case) {
    case.behaviour = Arc::new(|seen| match seen.values("authorization")[..] {
        ["Bearer second"] => version(),
        _ => unauthorized(),
    });
}

/// Gives `first`, then `second`.
const TWO_TOKENS: &str = r#"if [ "$(wc -l < "$(dirname "$0")/runs")" -eq 1 ]; then t=first; else t=second; fi
printf '{"apiVersion":"client.authentication.k8s.io/v1","status":{"token":"%s"}}' $t"#;

#[tokio::test]
async fn a_refused_login_is_renewed_once_for_all_waiting_requests() {
    let mut case = Case::new();
    takes_second(&mut case);
    case.plugin(TWO_TOKENS, json!({}));
    let started = case.start().await;
    let client = client(&started).await;
    let (a, b, c) = tokio::join!(client.apiserver_version(), client.apiserver_version(), client.apiserver_version());
    assert!(a.is_ok() && b.is_ok() && c.is_ok());
    client.apiserver_version().await.unwrap();
    assert_eq!(started.runs(), 2);
}

#[tokio::test]
async fn a_login_that_stays_refused_is_renewed_once_per_request() {
    let mut case = Case::new();
    case.behaviour = Arc::new(|_| unauthorized());
    case.plugin(TWO_TOKENS, json!({}));
    let started = case.start().await;
    let connection = started.connect().await.unwrap();
    let error = connection.client.apiserver_version().await.unwrap_err();
    assert_eq!(connection.explain(&error), "error: You must be logged in to the server (Unauthorized)");
    assert_eq!((started.runs(), started.api.seen().len()), (2, 2));
}

#[tokio::test]
async fn a_write_is_not_repeated_after_a_new_login() {
    let mut case = Case::new();
    takes_second(&mut case);
    case.plugin(TWO_TOKENS, json!({}));
    let started = case.start().await;
    let client = client(&started).await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    maps.create(&PostParams::default(), &ConfigMap::default()).await.unwrap_err();
    assert_eq!(started.api.seen().len(), 1);
    client.apiserver_version().await.unwrap();
    assert_eq!(started.runs(), 2);
}

#[tokio::test]
async fn an_expired_login_is_renewed_before_the_request() {
    let mut case = Case::new();
    takes_second(&mut case);
    let script = TWO_TOKENS.replace("\"token\"", "\"expirationTimestamp\":\"2001-01-01T00:00:00Z\",\"token\"");
    case.plugin(&script, json!({}));
    let started = case.start().await;
    client(&started).await.apiserver_version().await.unwrap();
    assert_eq!((started.runs(), started.api.seen().len()), (2, 1));
}

#[tokio::test]
async fn a_renewed_certificate_is_used_on_a_new_connection() {
    let mut case = Case::new();
    let (first, second) = (case.authority.client("first"), case.authority.client("second"));
    for (name, pair) in [("1", &first), ("2", &second)] {
        let status = json!({ "clientCertificateData": pair.certificate, "clientKeyData": pair.key });
        case.write(name, &json!({ "apiVersion": V1, "status": status }).to_string());
    }
    case.plugin("cd \"$(dirname \"$0\")\" && cat $(wc -l < runs)", json!({}));
    let certificate = Arc::new(std::sync::Mutex::new(None));
    let refused = certificate.clone();
    case.behaviour = Arc::new(move |seen| {
        let mut refused = refused.lock().unwrap();
        let first = refused.get_or_insert_with(|| seen.client_certificate.clone());
        if *first == seen.client_certificate { unauthorized() } else { version() }
    });
    let started = case.start().await;
    client(&started).await.apiserver_version().await.unwrap();
    assert_eq!(started.runs(), 2);
}

#[tokio::test]
async fn a_token_file_is_read_again_after_401() {
    let mut case = Case::new();
    takes_second(&mut case);
    case.write("token", "first\n");
    case.user = json!({ "tokenFile": "token" });
    let started = case.start().await;
    let client = client(&started).await;
    std::fs::write(started.dir.path().join("token"), "second\n").unwrap();
    client.apiserver_version().await.unwrap();
}

/// Answers 503 once, then the version.
fn busy_once(case: &mut Case) {
    let count = AtomicUsize::new(0);
    case.behaviour = Arc::new(move |_| match count.fetch_add(1, Ordering::SeqCst) {
        0 => status(503, "ServiceUnavailable", "busy"),
        _ => version(),
    });
}

#[tokio::test]
async fn reads_are_repeated_when_the_server_is_busy() {
    let mut case = Case::new();
    busy_once(&mut case);
    let started = case.start().await;
    client(&started).await.apiserver_version().await.unwrap();
    assert_eq!(started.api.seen().len(), 2);
    assert_eq!(started.api.seen()[1].values("user-agent").len(), 1);
}

#[tokio::test]
async fn writes_are_never_repeated() {
    let mut case = Case::new();
    busy_once(&mut case);
    let started = case.start().await;
    let connection = started.connect().await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(connection.client.clone(), "default");
    let error = maps.create(&PostParams::default(), &ConfigMap::default()).await.unwrap_err();
    assert_eq!(connection.explain(&error), "Error from server (ServiceUnavailable): busy");
    let methods: Vec<_> = started.api.seen().into_iter().map(|s| s.method).collect();
    assert_eq!(methods, ["POST"]);
}

#[tokio::test]
async fn the_request_timeout_covers_a_body_that_stops() {
    let mut case = Case::new();
    case.behaviour = Arc::new(|_| Reply::Stall);
    case.flags("--request-timeout 200ms");
    let started = case.start().await;
    let connection = started.connect().await.unwrap();
    let error = connection.client.apiserver_version().await.unwrap_err();
    assert_eq!(
        connection.explain(&error),
        "Unable to connect to the server: no answer within 200ms (--request-timeout)"
    );
}

#[tokio::test]
async fn the_request_timeout_does_not_end_a_watch() {
    let mut case = Case::new();
    case.behaviour = Arc::new(|_| Reply::Drip(8));
    case.flags("--request-timeout 100ms");
    let started = case.start().await;
    let client = client(&started).await;
    let request = http::Request::get("/api/v1/nodes?watch=true&resourceVersion=1").body(Vec::new()).unwrap();
    let began = Instant::now();
    let text = client.request_text(request).await.unwrap();
    assert_eq!(text.len(), 16);
    assert!(began.elapsed() > Duration::from_millis(200));
}

#[tokio::test]
async fn gzip_is_unpacked() {
    let mut case = Case::new();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(VERSION.as_bytes()).unwrap();
    let body = encoder.finish().unwrap();
    case.behaviour = Arc::new(move |_| Reply::Encoded("gzip", body.clone()));
    case.run().await.unwrap();
}

/// The text for a failed list of nodes.
async fn explained(reply: fn() -> Reply) -> String {
    let mut case = Case::new();
    case.behaviour = Arc::new(move |_| reply());
    let started = case.start().await;
    let connection = started.connect().await.unwrap();
    let nodes: Api<Node> = Api::all(connection.client.clone());
    let error = nodes.list(&ListParams::default()).await.unwrap_err();
    connection.explain(&error)
}

fn invalid(causes: &serde_json::Value) -> Reply {
    let details = json!({ "kind": "Shim", "name": "spin", "causes": causes });
    let body = json!({ "kind": "Status", "status": "Failure", "code": 422, "reason": "Invalid", "message": "m", "details": details });
    Reply::Json(422, body.to_string())
}

#[tokio::test]
async fn refusals_of_the_server_are_told_in_kubectls_words() {
    for (reply, text) in [
        (unauthorized as fn() -> Reply, "error: You must be logged in to the server (Unauthorized)"),
        (
            || status(404, "NotFound", "shims.shim.dev \"spin\" not found"),
            "Error from server (NotFound): shims.shim.dev \"spin\" not found",
        ),
        (|| status(403, "Forbidden", "nodes is forbidden"), "Error from server (Forbidden): nodes is forbidden"),
        (|| status(500, "", "broken"), "Error from server: broken"),
        (|| status(409, "Conflict", "a\u{1b}[31m\nb"), "Error from server (Conflict): a[31m b"),
        (|| Reply::Text(404, "404 page not found\n"), "error: the server doesn't have a resource type \"shims\""),
        (
            || status(404, "NotFound", "the server could not find the requested resource"),
            "error: the server doesn't have a resource type \"shims\"",
        ),
        (|| Reply::Text(502, "<html>\n  bad gateway</html>"), "Error from server: <html> bad gateway</html>"),
        (|| Reply::Text(200, "{}"), "error: the server's answer cannot be read: "),
        (
            || {
                invalid(
                    &json!([{ "field": "spec.a", "message": "bad" }, { "field": "spec.b", "message": "worse" }, { "field": "spec.b", "message": "worse" }]),
                )
            },
            "The Shim \"spin\" is invalid: \n* spec.a: bad\n* spec.b: worse",
        ),
        (|| invalid(&json!([{ "field": "spec.a", "message": "bad" }])), "The Shim \"spin\" is invalid: spec.a: bad"),
    ] {
        let got = explained(reply).await;
        assert!(got == text || (text.ends_with(' ') && got.starts_with(text)), "{got:?} instead of {text:?}");
        assert!(!got.contains("Status {"), "{got:?} is Debug output");
    }
}

#[tokio::test]
async fn a_refused_connection_names_host_and_port() {
    let mut case = Case::new();
    case.cluster["server"] = json!("https://127.0.0.1:1");
    assert_eq!(
        case.run().await.err().unwrap(),
        "The connection to the server 127.0.0.1:1 was refused - did you specify the right host or port?"
    );
}

#[tokio::test]
async fn an_unknown_host_is_named() {
    let mut case = Case::new();
    case.cluster["server"] = json!("https://nope.invalid:6443");
    let text = case.run().await.err().unwrap();
    assert!(text.starts_with("Unable to connect to the server: dial tcp: lookup nope.invalid:6443: "), "{text}");
}
