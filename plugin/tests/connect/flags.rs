//! kubectl's connection flags, parsed and applied.

use serde_json::json;

use crate::{
    case::{Expect, check, parse, row, works},
    pki::Authority,
};

#[tokio::test]
async fn names_have_to_exist() {
    check(vec![
        row(
            "--context of another name",
            "error",
            |c| c.flags("--context nope"),
            Expect::Fails("error: context \"nope\" does not exist"),
        ),
        row(
            "--cluster of another name",
            "error",
            |c| c.flags("--cluster nope"),
            Expect::Fails("error: cluster \"nope\" does not exist"),
        ),
        row(
            "--user of another name",
            "error",
            |c| c.flags("--user nope"),
            Expect::Fails("error: auth info \"nope\" does not exist"),
        ),
        row(
            "--context",
            "ok",
            |c| {
                c.kubeconfig = Some(json!({
                    "current-context": "x",
                    "clusters": [{ "name": "k", "cluster": c.cluster }],
                    "users": [{ "name": "u", "user": c.user }],
                    "contexts": [{ "name": "x", "context": { "cluster": "nope" } }, { "name": "c", "context": c.context }],
                }));
                c.flags("--context c");
            },
            works(),
        ),
    ])
    .await;
}

#[tokio::test]
async fn flags_make_up_for_the_kubeconfig() {
    check(vec![
        row(
            "--cluster and --user without a context",
            "ok",
            |c| {
                c.kubeconfig = Some(json!({
                    "clusters": [{ "name": "k", "cluster": c.cluster }],
                    "users": [{ "name": "u", "user": c.user }],
                }));
                c.flags("--cluster k --user u");
            },
            Expect::Works(|o| o.sent("authorization", "Bearer t")),
        ),
        row(
            "--server, --certificate-authority and --token without a kubeconfig",
            "ok",
            |c| {
                c.write("ca.pem", &c.authority.certificate);
                c.variables.clear();
                c.flags("-s $URL --certificate-authority $DIR/ca.pem --token mine -n ns");
            },
            Expect::Works(|o| o.sent("authorization", "Bearer mine") && o.namespace == "ns"),
        ),
        row(
            "--server wins",
            "ok",
            |c| {
                c.cluster["server"] = json!("https://127.0.0.1:1");
                c.flags("--server $URL");
            },
            works(),
        ),
        row(
            "--server clears tls-server-name",
            "ok",
            |c| {
                c.cluster["tls-server-name"] = json!("nope.example.test");
                c.flags("--server $URL");
            },
            works(),
        ),
    ])
    .await;
}

#[tokio::test]
async fn servers_without_a_scheme() {
    check(vec![
        row(
            "--server host:port means HTTP without credentials",
            "ok",
            |c| {
                c.server = None;
                c.flags("--server 127.0.0.1:$PORT");
            },
            Expect::Works(|o| o.lacks("authorization")),
        ),
        row(
            "--server host:port/path",
            "refused",
            |c| c.flags("--server 127.0.0.1:$PORT/x"),
            Expect::Fails("error: host must be a URL or a host:port pair: \"127.0.0.1:"),
        ),
        row(
            "--tls-server-name",
            "ok",
            |c| {
                c.server = Some(c.authority.server(&["api.example.test"]));
                c.flags("--tls-server-name api.example.test");
            },
            works(),
        ),
    ])
    .await;
}

#[tokio::test]
async fn logins_by_flag() {
    check(vec![
        row(
            "--token wins over tokenFile",
            "ok",
            |c| {
                c.user = json!({ "tokenFile": "nope" });
                c.flags("--token mine");
            },
            Expect::Works(|o| o.sent("authorization", "Bearer mine")),
        ),
        row(
            "--token '' counts as not given",
            "ok",
            |c| c.arguments = vec!["--token".into(), String::new()],
            Expect::Works(|o| o.sent("authorization", "Bearer t")),
        ),
        row(
            "--token wins over exec",
            "no run",
            |c| {
                c.plugin("exit 1", json!({}));
                c.flags("--token mine");
            },
            Expect::Works(|o| o.sent("authorization", "Bearer mine") && o.runs == 0),
        ),
        row(
            "--username and --password",
            "ok",
            |c| {
                c.user = json!({});
                c.flags("--username a --password b");
            },
            Expect::Works(|o| o.sent("authorization", "Basic YTpi")),
        ),
    ])
    .await;
}

#[tokio::test]
async fn certificates_by_flag() {
    check(vec![
        row(
            "--client-certificate and --client-key",
            "ok",
            |c| {
                let pair = c.authority.client("me");
                c.write("me.pem", &pair.certificate);
                c.write("me.key", &pair.key);
                c.user = json!({ "client-certificate-data": "bm8=", "client-key-data": "bm8=" });
                c.flags("--client-certificate $DIR/me.pem --client-key $DIR/me.key");
            },
            Expect::Works(|o| o.request.client_certificate.is_some()),
        ),
        row(
            "--certificate-authority wins over data",
            "ok",
            |c| {
                c.write("ca.pem", &c.authority.certificate);
                c.cluster["certificate-authority-data"] = json!("bm8=");
                c.flags("--certificate-authority $DIR/ca.pem");
            },
            works(),
        ),
        row(
            "--insecure-skip-tls-verify forgets the CA",
            "ok",
            |c| {
                c.server = Some(Authority::new("other").server(&[]));
                c.flags("--insecure-skip-tls-verify");
            },
            works(),
        ),
        row(
            "--insecure-skip-tls-verify with --certificate-authority",
            "refused",
            |c| {
                c.flags("--insecure-skip-tls-verify=true --certificate-authority x");
            },
            Expect::Fails("error: specifying a root certificates file with the insecure flag is not allowed"),
        ),
        row(
            "--insecure-skip-tls-verify=false on an insecure cluster",
            "ignored; here the check is done",
            |c| {
                c.server = Some(Authority::new("other").server(&["127.0.0.1"]));
                c.cluster = json!({ "server": "$URL", "insecure-skip-tls-verify": true });
                c.flags("--insecure-skip-tls-verify=false");
            },
            Expect::Fails("x509: certificate signed by unknown authority"),
        ),
    ])
    .await;
}

#[tokio::test]
async fn impersonation_by_flag() {
    check(vec![
        row(
            "--as, --as-group, --as-uid, --as-user-extra",
            "sent",
            |c| {
                c.flags("--as a --as-group g --as-group h --as-uid 7 --as-user-extra k=1 --as-user-extra k=2=3");
            },
            Expect::Works(|o| {
                o.sent("impersonate-user", "a")
                    && o.sent("impersonate-uid", "7")
                    && o.request.values("impersonate-group") == ["g", "h"]
                    && o.request.values("impersonate-extra-k") == ["1", "2=3"]
            }),
        ),
        row(
            "--as-group without --as",
            "refused",
            |c| c.flags("--as-group g"),
            Expect::Fails("error: requesting uid, groups or user-extra for u without impersonating a user"),
        ),
    ])
    .await;
}

#[tokio::test]
async fn compression() {
    check(vec![
        row("gzip is asked for", "asked", |_| {}, Expect::Works(|o| o.sent("accept-encoding", "gzip"))),
        row(
            "--disable-compression",
            "not asked",
            |c| c.flags("--disable-compression"),
            Expect::Works(|o| !o.request.values("accept-encoding").contains(&"gzip")),
        ),
        row(
            "disable-compression in the kubeconfig",
            "not asked",
            |c| c.cluster["disable-compression"] = json!(true),
            Expect::Works(|o| !o.request.values("accept-encoding").contains(&"gzip")),
        ),
    ])
    .await;
}

fn flags(line: &str) -> kubectl_shim::connect::ConnectionFlags {
    parse(line.split(' ').map(ToOwned::to_owned)).unwrap()
}

#[test]
fn the_last_of_repeated_flags_wins() {
    assert_eq!(flags("--context a --context b").context.as_deref(), Some("b"));
    assert_eq!(flags("-n a --namespace b").namespace.as_deref(), Some("b"));
    assert_eq!(flags("-s a -s b").server.as_deref(), Some("b"));
    assert_eq!(
        flags("--insecure-skip-tls-verify --insecure-skip-tls-verify=false").insecure_skip_tls_verify,
        Some(false)
    );
}

#[test]
fn flags_work_on_both_sides_of_the_subcommand() {
    assert_eq!(flags("--context a status").context.as_deref(), Some("a"));
    assert_eq!(flags("status --context a").context.as_deref(), Some("a"));
    assert_eq!(flags("--context a status --context b").context.as_deref(), Some("b"));
}

#[test]
fn booleans_take_what_go_takes_and_no_separate_word() {
    for (line, expected) in [
        ("--disable-compression", true),
        ("--disable-compression=1", true),
        ("--disable-compression=T", true),
        ("--disable-compression=false", false),
        ("--disable-compression=0", false),
        ("--disable-compression status", true),
    ] {
        assert_eq!(flags(line).disable_compression, Some(expected), "{line}");
    }
    assert!(parse(["--disable-compression=maybe".to_owned()]).is_err());
}

#[test]
fn wrong_values_are_refused() {
    for line in ["--request-timeout x", "--as-user-extra x", "--as-user-extra =x"] {
        assert!(parse(line.split(' ').map(ToOwned::to_owned)).is_err(), "{line}");
    }
}

/// kubectl's conventions: a capital first letter, no final full stop.
#[test]
fn help_texts_follow_the_conventions() {
    use clap::Args as _;
    let command = kubectl_shim::connect::ConnectionFlags::augment_args(clap::Command::new("x"));
    for argument in command.get_arguments() {
        let help = argument.get_help().unwrap().to_string();
        assert!(help.starts_with(char::is_uppercase) && !help.ends_with('.'), "{help}");
        assert!(argument.is_global_set(), "{help}");
    }
}
