//! Credential plugins, as shell scripts.

use serde_json::{Value, json};

use crate::case::{Expect, V1, check, row};

const BETA: &str = "client.authentication.k8s.io/v1beta1";

/// A script that prints an ExecCredential.
fn printing(version: &str, status: &Value) -> String {
    format!("echo '{}'", json!({ "kind": "ExecCredential", "apiVersion": version, "status": status }))
}

fn token() -> String {
    printing(V1, &json!({ "token": "from-plugin" }))
}

/// A script that gives the plugin's own input back as the token, with spaces made visible.
const ECHO_INFO: &str = r#"printf '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"%s"}}' "$(printf %s "$KUBERNETES_EXEC_INFO" | base64 -w0)""#;

fn info(authorization: &str) -> Value {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let text = authorization.strip_prefix("Bearer ").unwrap();
    serde_json::from_slice(&STANDARD.decode(text).unwrap()).unwrap()
}

#[tokio::test]
async fn plugins_that_give_a_credential() {
    check(vec![
        row(
            "token, one run",
            "1 run",
            |c| c.plugin(&token(), json!({})),
            Expect::Works(|o| o.sent("authorization", "Bearer from-plugin") && o.runs == 1),
        ),
        row(
            "v1beta1 without interactiveMode",
            "ok",
            |c| {
                c.plugin(
                    &printing(BETA, &json!({ "token": "b" })),
                    json!({ "apiVersion": BETA, "interactiveMode": null }),
                );
            },
            Expect::Works(|o| o.sent("authorization", "Bearer b")),
        ),
        row(
            "certificate",
            "ok",
            |c| {
                let pair = c.authority.client("me");
                let status = json!({ "clientCertificateData": pair.certificate, "clientKeyData": pair.key });
                c.write("answer", &json!({ "apiVersion": V1, "status": status }).to_string());
                c.plugin("cat \"$(dirname \"$0\")/answer\"", json!({}));
            },
            Expect::Works(|o| o.request.client_certificate.is_some() && o.lacks("authorization") && o.runs == 1),
        ),
        row(
            "arguments and variables",
            "passed",
            |c| {
                c.plugin(r#"printf '{"apiVersion":"client.authentication.k8s.io/v1","status":{"token":"%s-%s-%s"}}' "$1" "$A" "${B-unset}""#,
                json!({ "args": ["x"], "env": [{ "name": "A", "value": "y" }, { "name": "B", "value": "" }] }));
            },
            Expect::Works(|o| o.sent("authorization", "Bearer x-y-")),
        ),
    ])
    .await;
}

#[tokio::test]
async fn what_a_plugin_is_told() {
    check(vec![
        row(
            "IfAvailable without a terminal",
            "interactive: false",
            |c| c.plugin(ECHO_INFO, json!({ "interactiveMode": "IfAvailable" })),
            Expect::Works(|o| {
                info(o.request.values("authorization")[0])
                    == json!({ "kind": "ExecCredential", "apiVersion": V1, "spec": { "interactive": false } })
            }),
        ),
        row(
            "IfAvailable with a terminal",
            "interactive: true",
            |c| {
                c.plugin(ECHO_INFO, json!({ "interactiveMode": "IfAvailable" }));
                c.terminal = true;
            },
            Expect::Works(|o| info(o.request.values("authorization")[0])["spec"]["interactive"] == true),
        ),
        row(
            "Never with a terminal",
            "interactive: false",
            |c| {
                c.plugin(ECHO_INFO, json!({}));
                c.terminal = true;
            },
            Expect::Works(|o| info(o.request.values("authorization")[0])["spec"]["interactive"] == false),
        ),
        row(
            "provideClusterInfo",
            "the chosen cluster",
            |c| {
                c.plugin(ECHO_INFO, json!({ "provideClusterInfo": true }));
                c.cluster["extensions"] =
                    json!([{ "name": "client.authentication.k8s.io/exec", "extension": { "a": 1 } }]);
            },
            Expect::Works(|o| {
                let cluster = &info(o.request.values("authorization")[0])["spec"]["cluster"];
                cluster["server"].as_str().unwrap().starts_with("https://127.0.0.1:")
                    && cluster["config"] == json!({ "a": 1 })
                    && cluster["certificate-authority-data"].is_string()
            }),
        ),
        row(
            "--user chooses the plugin's user",
            "ok",
            |c| {
                c.plugin(&token(), json!({}));
                c.context["user"] = json!("other");
                c.flags("--user u");
            },
            Expect::Works(|o| o.sent("authorization", "Bearer from-plugin")),
        ),
    ])
    .await;
}

#[tokio::test]
async fn settings_that_are_refused() {
    check(vec![
        row(
            "v1alpha1",
            "refused",
            |c| c.plugin(&token(), json!({ "apiVersion": "client.authentication.k8s.io/v1alpha1" })),
            Expect::Fails("error: exec plugin: invalid apiVersion \"client.authentication.k8s.io/v1alpha1\""),
        ),
        row(
            "v1 without interactiveMode",
            "refused",
            |c| c.plugin(&token(), json!({ "interactiveMode": null })),
            Expect::Fails("error: interactiveMode must be specified for u to use exec authentication plugin"),
        ),
        row(
            "without command and version",
            "refused",
            |c| c.plugin(&token(), json!({ "command": null, "apiVersion": null })),
            Expect::Fails(
                "Error in configuration: \n* command must be specified for u to use exec authentication plugin\n* apiVersion must",
            ),
        ),
        row(
            "interactiveMode Always without a terminal",
            "refused",
            |c| c.plugin(&token(), json!({ "interactiveMode": "Always" })),
            Expect::Fails(
                "Unable to connect to the server: getting credentials: exec plugin cannot support interactive mode: standard input is not a terminal",
            ),
        ),
    ])
    .await;
}

#[tokio::test]
async fn programs_that_do_not_run() {
    check(vec![
        row(
            "program missing",
            "named, with installHint",
            |c| {
                c.plugin("", json!({ "command": "no-such-plugin", "installHint": "brew install it" }));
            },
            Expect::Fails(
                "Unable to connect to the server: getting credentials: exec: executable no-such-plugin not found\n\nIt looks like you are trying",
            ),
        ),
        row(
            "program missing: installHint",
            "last line",
            |c| {
                c.plugin("", json!({ "command": "no-such-plugin", "installHint": "brew install it" }));
            },
            Expect::Fails("#client-go-credential-plugins\n\nbrew install it"),
        ),
        row(
            "program fails",
            "exit code",
            |c| c.plugin("exit 3", json!({})),
            Expect::Fails("/plugin failed with exit code 3"),
        ),
    ])
    .await;
}

#[tokio::test]
async fn answers_that_are_refused() {
    check(vec![
        row(
            "prints no document",
            "decoding",
            |c| c.plugin("echo s3cret", json!({})),
            Expect::Fails("getting credentials: decoding stdout: no ExecCredential document (line 1, column 1)"),
        ),
        row(
            "answers another version",
            "refused",
            |c| c.plugin(&printing(BETA, &json!({ "token": "b" })), json!({})),
            Expect::Fails(
                "exec plugin is configured to use API version client.authentication.k8s.io/v1, plugin returned version client.authentication.k8s.io/v1beta1",
            ),
        ),
        row(
            "no status",
            "refused",
            |c| c.plugin(&format!("echo '{}'", json!({ "apiVersion": V1 })), json!({})),
            Expect::Fails("exec plugin didn't return a status field"),
        ),
        row(
            "empty status",
            "refused",
            |c| c.plugin(&printing(V1, &json!({})), json!({})),
            Expect::Fails("exec plugin didn't return a token or cert/key pair"),
        ),
        row(
            "certificate without key",
            "refused",
            |c| c.plugin(&printing(V1, &json!({ "clientCertificateData": "x" })), json!({})),
            Expect::Fails("exec plugin returned only certificate or key, not both"),
        ),
        row(
            "exec and auth-provider",
            "refused",
            |c| {
                c.plugin(&token(), json!({}));
                c.user["auth-provider"] = json!({ "name": "oidc" });
            },
            Expect::Fails("error: authProvider cannot be provided in combination with an exec plugin for u"),
        ),
    ])
    .await;
}

/// Set in the process that runs the plugin for this test.
const CHILD: &str = "CONNECT_TEST_CHILD";

#[test]
fn standard_error_of_a_plugin_reaches_the_user() {
    if std::env::var_os(CHILD).is_some() {
        return run_talking_plugin();
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "exec::standard_error_of_a_plugin_reaches_the_user", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("open https://login.example.test"), "{text}");
}

fn run_talking_plugin() {
    let mut case = crate::case::Case::new();
    case.plugin(&format!("echo open https://login.example.test >&2\n{}", token()), json!({}));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(case.run()).unwrap();
}
