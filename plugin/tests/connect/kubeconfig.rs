//! Files, contexts and users.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::case::{Case, Expect, check, merge, row, works};

/// A second file for `KUBECONFIG`.
fn second_file(case: &mut Case, text: &str) {
    case.write("other", text);
    case.variable("KUBECONFIG", "$DIR/other:$DIR/config");
}

/// A second context with another cluster and user that must not matter.
fn with_other_entries(case: &mut Case, cluster: &Value, user: &Value) {
    case.kubeconfig = Some(json!({
        "current-context": "c",
        "clusters": [{ "name": "a", "cluster": cluster }, { "name": "k", "cluster": case.cluster }],
        "users": [{ "name": "a", "user": user }, { "name": "u", "user": case.user }],
        "contexts": [
            { "name": "a", "context": { "cluster": "a", "user": "a" } },
            { "name": "c", "context": case.context },
            { "name": "no-cluster", "context": { "user": "u" } },
        ],
    }));
}

#[tokio::test]
async fn lists_of_files() {
    check(vec![
        row("KUBECONFIG lists a missing file", "ok", |c| c.variable("KUBECONFIG", "$DIR/nope::$DIR/config"), works()),
        row("first file says current-context: \"\"", "ok", |c| second_file(c, "current-context: ''\n"), works()),
        row("an empty file", "ok", |c| second_file(c, ""), works()),
        row(
            "the first file's current-context wins",
            "error",
            |c| second_file(c, "current-context: nope\n"),
            Expect::Fails("Error in configuration: context was not found for specified context: nope"),
        ),
        row(
            "the first file's user wins",
            "ok",
            |c| second_file(c, "users: [{name: u, user: {token: first}}]\n"),
            Expect::Works(|o| o.sent("authorization", "Bearer first")),
        ),
    ])
    .await;
}

#[tokio::test]
async fn files_that_cannot_be_used() {
    check(vec![
        row("a broken file", "error", |c| second_file(c, "x: ["), Expect::Fails("error: error loading config file \"")),
        row(
            "a directory",
            "error",
            |c| c.variable("KUBECONFIG", "$DIR"),
            Expect::Fails("error: error loading config file \""),
        ),
        row(
            "all files missing",
            "localhost:8080",
            |c| c.variable("KUBECONFIG", "/nope/a:/nope/b"),
            Expect::Fails("error: no kubeconfig: none of /nope/a, /nope/b names a cluster"),
        ),
        row(
            "no variable, no home",
            "localhost:8080",
            |c| c.variables.clear(),
            Expect::Fails("error: no kubeconfig: there is no home directory"),
        ),
    ])
    .await;
}

#[tokio::test]
async fn nothing_to_connect_to() {
    check(vec![
        row(
            "no current context",
            "localhost:8080",
            |c| {
                with_other_entries(c, &json!({}), &json!({}));
                c.kubeconfig.as_mut().unwrap()["current-context"] = json!("");
            },
            Expect::Fails(
                "error: no context is chosen; pass --context or run 'kubectl config use-context NAME' (contexts: a, c, no-cluster)",
            ),
        ),
    ])
    .await;
}

#[tokio::test]
async fn the_kubeconfig_flag() {
    check(vec![
        row(
            "--kubeconfig missing",
            "error",
            |c| c.flags("--kubeconfig /nope/config"),
            Expect::Fails("error: stat /nope/config: no such file or directory"),
        ),
        row(
            "--kubeconfig alone counts",
            "ok",
            |c| {
                second_file(c, "current-context: nope\n");
                c.flags("--kubeconfig $DIR/config");
            },
            works(),
        ),
        row(
            "KUBECONFIG empty",
            "home is used",
            |c| c.variable("KUBECONFIG", ""),
            Expect::Fails("error: no kubeconfig: there is no home directory"),
        ),
        row(
            "context without the cluster it names",
            "localhost:8080",
            |c| c.context["cluster"] = json!("gone"),
            Expect::Fails("error: no server found for cluster \"gone\""),
        ),
        row(
            "unknown fields and extensions",
            "ok",
            |c| {
                merge(
                    &mut c.cluster,
                    json!({ "future": 1, "extensions": [{ "name": "x", "extension": { "a": "" } }] }),
                );
            },
            works(),
        ),
    ])
    .await;
}

#[tokio::test]
async fn empty_strings_count_as_unset() {
    check(vec![
        row(
            "namespace: \"\"",
            "default",
            |c| c.context["namespace"] = json!(""),
            Expect::Works(|o| o.namespace == "default"),
        ),
        row("namespace", "taken", |c| c.context["namespace"] = json!("n"), Expect::Works(|o| o.namespace == "n")),
        row(
            "token: \"\" with a client certificate",
            "ok",
            |c| {
                let pair = c.authority.client("me");
                c.user = json!({
                    "token": "",
                    "client-certificate-data": STANDARD.encode(&pair.certificate),
                    "client-key-data": STANDARD.encode(&pair.key),
                });
            },
            Expect::Works(|o| o.lacks("authorization") && o.request.client_certificate.is_some()),
        ),
        row(
            "username: \"\", password: \"\" with a token",
            "ok",
            |c| {
                merge(&mut c.user, json!({ "username": "", "password": "" }));
            },
            Expect::Works(|o| o.sent("authorization", "Bearer t")),
        ),
    ])
    .await;
}

#[tokio::test]
async fn empty_paths_and_data_count_as_unset() {
    check(vec![
        row(
            "client-certificate: \"\"",
            "ok",
            |c| {
                merge(&mut c.user, json!({ "client-certificate": "", "client-key": "", "tokenFile": "" }));
            },
            works(),
        ),
        row("certificate-authority: \"\"", "ok", |c| c.cluster["certificate-authority"] = json!(""), works()),
        row(
            "client-certificate-data: \"\"",
            "ok",
            |c| {
                merge(&mut c.user, json!({ "client-certificate-data": "", "client-key-data": "" }));
            },
            works(),
        ),
        row("tls-server-name: \"\"", "ok", |c| c.cluster["tls-server-name"] = json!(""), works()),
        row("proxy-url: \"\"", "ok", |c| c.cluster["proxy-url"] = json!(""), works()),
    ])
    .await;
}

#[tokio::test]
async fn token_files() {
    check(vec![
        row(
            "tokenFile with a final newline",
            "ok",
            |c| {
                c.write("token", "from-file\n");
                c.user = json!({ "tokenFile": "token" });
            },
            Expect::Works(|o| o.sent("authorization", "Bearer from-file")),
        ),
        row(
            "token and tokenFile",
            "file wins",
            |c| {
                c.write("token", "from-file\n");
                c.user = json!({ "token": "inline", "tokenFile": "token" });
            },
            Expect::Works(|o| o.sent("authorization", "Bearer from-file")),
        ),
        row(
            "token and a missing tokenFile",
            "token",
            |c| c.user = json!({ "token": "inline", "tokenFile": "token" }),
            Expect::Works(|o| o.sent("authorization", "Bearer inline")),
        ),
        row(
            "tokenFile missing",
            "error",
            |c| c.user = json!({ "tokenFile": "token" }),
            Expect::Fails("/token: no such file or directory"),
        ),
    ])
    .await;
}

#[tokio::test]
async fn passwords() {
    check(vec![
        row(
            "username and password",
            "ok",
            |c| c.user = json!({ "username": "a", "password": "b:c" }),
            Expect::Works(|o| o.sent("authorization", "Basic YTpiOmM=")),
        ),
        row(
            "token and username",
            "refused",
            |c| c.user = json!({ "token": "t", "username": "a", "password": "b" }),
            Expect::Fails(
                "error: more than one authentication method found for u; found [token basicAuth], only one is allowed",
            ),
        ),
    ])
    .await;
}

#[tokio::test]
async fn impersonation() {
    check(vec![
        row(
            "as, as-groups, as-uid, as-user-extra",
            "sent",
            |c| {
                merge(
                    &mut c.user,
                    json!({
                        "as": "jane", "as-groups": ["a", "b"], "as-uid": "7", "as-user-extra": { "Scopes/x%": ["1", "2"] },
                    }),
                );
            },
            Expect::Works(|o| {
                o.sent("impersonate-user", "jane")
                    && o.sent("impersonate-uid", "7")
                    && o.request.values("impersonate-group") == ["a", "b"]
                    && o.request.values("impersonate-extra-scopes%2fx%25") == ["1", "2"]
            }),
        ),
        row(
            "as-uid without as",
            "refused",
            |c| c.user["as-uid"] = json!("7"),
            Expect::Fails("error: requesting uid, groups or user-extra for u without impersonating a user"),
        ),
    ])
    .await;
}

#[tokio::test]
async fn auth_providers() {
    check(vec![
        row(
            "auth-provider azure",
            "refused with advice",
            |c| c.user = json!({ "auth-provider": { "name": "azure" } }),
            Expect::Fails(
                "error: The azure auth plugin has been removed.\nPlease use the https://github.com/Azure/kubelogin ",
            ),
        ),
        row(
            "auth-provider gcp",
            "refused with advice",
            |c| c.user = json!({ "auth-provider": { "name": "gcp" } }),
            Expect::Fails("error: The gcp auth plugin has been removed.\nPlease use the \"gke-gcloud-auth-plugin\" "),
        ),
        row(
            "auth-provider of another name",
            "refused",
            |c| c.user = json!({ "auth-provider": { "name": "x" } }),
            Expect::Fails("error: no Auth Provider found for name \"x\""),
        ),
        row(
            "auth-provider oidc, expired",
            "error",
            |c| {
                c.user = json!({ "auth-provider": { "name": "oidc", "config": {
            "idp-issuer-url": "https://127.0.0.1:1", "client-id": "y", "id-token": "eyJhbGciOiJub25lIn0.eyJleHAiOjF9.x",
        } } });
            },
            Expect::Fails("Unable to connect to the server: failed OIDC: ID token expired"),
        ),
    ])
    .await;
}

#[tokio::test]
async fn what_every_request_carries() {
    check(vec![
        row("no user", "asks for one", |c| c.user = json!({}), Expect::Works(|o| o.lacks("authorization"))),
        row(
            "http server",
            "sends no credential",
            |c| {
                c.server = None;
                c.cluster = json!({ "server": "$URL" });
            },
            Expect::Works(|o| o.lacks("authorization")),
        ),
        row(
            "User-Agent",
            "its own",
            |_| {},
            Expect::Works(|o| {
                let values = o.request.values("user-agent");
                let [agent] = values[..] else { return false };
                agent.starts_with(concat!("kubectl-shim/v", env!("CARGO_PKG_VERSION"), " ("))
                    && !agent.contains("x86_64")
                    && !agent.contains("aarch64")
                    && !agent.contains("macos")
            }),
        ),
    ])
    .await;
}

#[tokio::test]
async fn entries_of_other_contexts_do_not_matter() {
    check(vec![
        row(
            "another cluster's proxy-url",
            "ignored",
            |c| {
                with_other_entries(c, &json!({ "server": "https://x", "proxy-url": "http://127.0.0.1:1" }), &json!({}));
            },
            Expect::Works(|o| o.proxy.is_empty()),
        ),
        row(
            "another cluster is insecure and has a CA",
            "ignored",
            |c| {
                with_other_entries(
                    c,
                    &json!({ "server": "https://x", "insecure-skip-tls-verify": true, "certificate-authority": "x" }),
                    &json!({}),
                );
            },
            works(),
        ),
        row(
            "another user impersonates",
            "ignored",
            |c| {
                with_other_entries(
                    c,
                    &json!({}),
                    &json!({ "as": "root", "as-uid": "0", "as-user-extra": { "a": ["b"] } }),
                );
            },
            Expect::Works(|o| {
                o.lacks("impersonate-user") && o.lacks("impersonate-uid") && o.lacks("impersonate-extra-a")
            }),
        ),
        row(
            "another user's token file is missing",
            "ignored",
            |c| with_other_entries(c, &json!({}), &json!({ "tokenFile": "nope" })),
            works(),
        ),
        row(
            "another user's plugin is broken",
            "ignored",
            |c| with_other_entries(c, &json!({}), &json!({ "exec": { "command": "nope" } })),
            works(),
        ),
    ])
    .await;
}

fn in_a_pod(case: &mut Case) {
    let pod = case.dir.path().join("pod");
    std::fs::create_dir(&pod).unwrap();
    case.write("pod/token", "pod-token\n");
    case.write("pod/ca.crt", &case.authority.certificate);
    case.write("pod/namespace", "shims\n");
    case.variables.clear();
    case.variable("KUBERNETES_SERVICE_HOST", "127.0.0.1");
    case.variable("KUBERNETES_SERVICE_PORT", "$PORT");
}

#[tokio::test]
async fn a_pod_without_kubeconfig_uses_its_service_account() {
    check(vec![
        row(
            "in a Pod",
            "ok",
            in_a_pod,
            Expect::Works(|o| o.sent("authorization", "Bearer pod-token") && o.namespace == "shims"),
        ),
        row(
            "in a Pod with a kubeconfig",
            "kubeconfig",
            |c| {
                in_a_pod(c);
                c.variable("KUBECONFIG", "$DIR/config");
            },
            Expect::Works(|o| o.sent("authorization", "Bearer t") && o.namespace == "default"),
        ),
        row(
            "in a Pod with --token",
            "ok",
            |c| {
                in_a_pod(c);
                c.flags("--token mine --namespace n");
            },
            Expect::Works(|o| o.sent("authorization", "Bearer mine") && o.namespace == "n"),
        ),
    ])
    .await;
}

#[tokio::test]
async fn the_default_file_is_in_the_home_directory() {
    let mut case = Case::new();
    case.behaviour = Arc::new(|_| crate::api::version());
    case.variables.clear();
    let mut started = case.start().await;
    let kube = started.dir.path().join(".kube");
    std::fs::create_dir(&kube).unwrap();
    std::fs::rename(started.dir.path().join("config"), kube.join("config")).unwrap();
    started.env.home = Some(started.dir.path().to_owned());
    let connection = started.connect().await.unwrap();
    connection.client.apiserver_version().await.unwrap();
}
