//! Proxies by Go's rules. `0.0.0.0` reaches the stub, but is not a loopback address, so the rules apply to it.

use serde_json::json;

use crate::{
    case::{Case, Expect, check, row, works},
    proxy::Kind,
};

const NAME: &str = "https://api.example.test:$PORT";

fn named(case: &mut Case) {
    case.server = Some(case.authority.server(&["api.example.test"]));
    case.cluster["server"] = json!(NAME);
}

fn unspecified(case: &mut Case) {
    case.server = Some(case.authority.server(&["0.0.0.0"]));
    case.cluster["server"] = json!("https://0.0.0.0:$PORT");
    case.variable("HTTPS_PROXY", "http://$PROXY");
}

fn proxied() -> Expect {
    Expect::Works(|o| o.proxy.len() == 1)
}

fn direct() -> Expect {
    Expect::Works(|o| o.proxy.is_empty())
}

#[tokio::test]
async fn https_proxy() {
    check(vec![
        row(
            "HTTPS_PROXY, server on 127.0.0.1",
            "never proxied",
            |c| c.variable("HTTPS_PROXY", "http://127.0.0.1:1"),
            direct(),
        ),
        row(
            "HTTPS_PROXY, server elsewhere",
            "proxied",
            |c| {
                named(c);
                c.variable("HTTPS_PROXY", "http://$PROXY");
            },
            Expect::Works(|o| o.proxy.len() == 1 && o.proxy[0].starts_with("api.example.test:")),
        ),
        row(
            "https_proxy",
            "proxied",
            |c| {
                named(c);
                c.variable("https_proxy", "http://$PROXY");
            },
            proxied(),
        ),
        row(
            "HTTPS_PROXY=host:port",
            "proxied",
            |c| {
                named(c);
                c.variable("HTTPS_PROXY", "$PROXY");
            },
            proxied(),
        ),
        row(
            "proxy with a password",
            "sent, decoded",
            |c| {
                named(c);
                c.variable("HTTPS_PROXY", "http://user:p%40ss@$PROXY");
            },
            Expect::Works(|o| o.proxy[0].ends_with("basic dxnlcjpwqhnz")),
        ),
    ])
    .await;
}

#[tokio::test]
async fn no_proxy() {
    check(vec![
        row(
            "not matched by NO_PROXY",
            "proxied",
            |c| {
                unspecified(c);
                c.variable("NO_PROXY", "10.0.0.0/8,example.test,0.0.0.0:1");
            },
            proxied(),
        ),
        row(
            "NO_PROXY address",
            "direct",
            |c| {
                unspecified(c);
                c.variable("NO_PROXY", "10.0.0.1, 0.0.0.0");
            },
            direct(),
        ),
        row(
            "NO_PROXY CIDR",
            "direct",
            |c| {
                unspecified(c);
                c.variable("NO_PROXY", "0.0.0.0/8");
            },
            direct(),
        ),
        row(
            "NO_PROXY host:port",
            "direct",
            |c| {
                unspecified(c);
                c.variable("no_proxy", "0.0.0.0:$PORT");
            },
            direct(),
        ),
        row(
            "NO_PROXY *",
            "direct",
            |c| {
                unspecified(c);
                c.variable("NO_PROXY", "*");
            },
            direct(),
        ),
    ])
    .await;
}

#[tokio::test]
async fn other_variables_are_ignored() {
    check(vec![row(
        "HTTP_PROXY, ALL_PROXY",
        "ignored",
        |c| {
            unspecified(c);
            c.variables.remove("HTTPS_PROXY");
            c.variable("HTTP_PROXY", "http://127.0.0.1:1");
            c.variable("ALL_PROXY", "http://127.0.0.1:1");
        },
        direct(),
    )])
    .await;
}

#[tokio::test]
async fn proxy_url_of_the_cluster() {
    check(vec![
        row(
            "proxy-url, server on 127.0.0.1",
            "proxied",
            |c| {
                c.cluster["proxy-url"] = json!("http://$PROXY");
                c.variable("NO_PROXY", "*");
            },
            proxied(),
        ),
        row(
            "proxy-url wins over HTTPS_PROXY",
            "ok",
            |c| {
                named(c);
                c.cluster["proxy-url"] = json!("http://$PROXY");
                c.variable("HTTPS_PROXY", "http://127.0.0.1:1");
            },
            proxied(),
        ),
    ])
    .await;
}

#[tokio::test]
async fn socks() {
    check(vec![
        row(
            "proxy-url socks5",
            "proxied, name resolved there",
            |c| {
                named(c);
                c.proxy = Kind::Socks5;
                c.cluster["proxy-url"] = json!("socks5://$PROXY");
            },
            Expect::Works(|o| o.proxy.len() == 1 && o.proxy[0].starts_with("api.example.test:")),
        ),
        row(
            "HTTPS_PROXY socks5",
            "proxied",
            |c| {
                named(c);
                c.proxy = Kind::Socks5;
                c.variable("HTTPS_PROXY", "socks5://$PROXY");
            },
            proxied(),
        ),
    ])
    .await;
}

#[tokio::test]
async fn proxies_that_cannot_be_used() {
    check(vec![
        row(
            "proxy-url of another scheme",
            "refused",
            |c| c.cluster["proxy-url"] = json!("ftp://x"),
            Expect::Fails(
                "error: invalid 'proxy-url' \"ftp://x\" for cluster \"k\": unsupported scheme \"ftp\", must be http, https, or socks5",
            ),
        ),
        row(
            "HTTPS_PROXY of another scheme",
            "refused",
            |c| {
                named(c);
                c.variable("HTTPS_PROXY", "ftp://x");
            },
            Expect::Fails("error: invalid proxy address \"ftp://x\""),
        ),
        row(
            "proxy refuses connections",
            "refused",
            |c| {
                named(c);
                c.variable("HTTPS_PROXY", "http://127.0.0.1:1");
            },
            Expect::Fails(
                "Unable to connect to the server: tunnel error: failed to create underlying connection: tcp connect error: connection refused",
            ),
        ),
        row(
            "tls-server-name through a proxy",
            "ok",
            |c| {
                named(c);
                c.cluster["server"] = json!("https://10.9.8.7:$PORT");
                c.cluster["tls-server-name"] = json!("api.example.test");
                c.cluster["proxy-url"] = json!("http://$PROXY");
            },
            works(),
        ),
    ])
    .await;
}
