//! Certificates that real clusters have.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::{
    case::{Case, Expect, check, merge, row, works},
    pki::{self, Authority, Dates, Pair},
};

fn trust(case: &mut Case, pem: &str) {
    case.cluster["certificate-authority-data"] = json!(STANDARD.encode(pem));
}

fn show(case: &mut Case, pair: &Pair) {
    case.user = json!({
        "client-certificate-data": STANDARD.encode(&pair.certificate),
        "client-key-data": STANDARD.encode(&pair.key),
    });
}

fn serve_own_ca(case: &mut Case, names: &[&str], dates: Dates) {
    let pair = pki::server_that_is_its_own_ca(names, dates);
    trust(case, &pair.certificate);
    case.server = Some(pair);
}

fn trust_only_the_leaf(case: &mut Case, names: &[&str], dates: Dates) {
    let pair = case.authority.server_with(names, &rcgen::PKCS_ECDSA_P256_SHA256, dates);
    trust(case, &pair.certificate);
    case.server = Some(pair);
}

/// A PEM block that is well-formed, but no certificate.
fn unreadable() -> String {
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode("no certificate"))
}

#[tokio::test]
async fn servers_kubectl_reaches() {
    check(vec![
        row("server by IPv4 SAN", "ok", |_| {}, works()),
        row(
            "server by IPv6 SAN",
            "ok",
            |c| {
                c.listen = "[::1]:0";
                c.server = Some(c.authority.server(&["::1"]));
            },
            works(),
        ),
        row(
            "DNS-only certificate with tls-server-name",
            "ok",
            |c| {
                c.server = Some(c.authority.server(&["api.example.test"]));
                c.cluster["tls-server-name"] = json!("api.example.test");
            },
            works(),
        ),
        row(
            "path prefix",
            "ok",
            |c| c.cluster["server"] = json!("$URL/k8s/clusters/c-x"),
            Expect::Works(|o| o.request.path == "/k8s/clusters/c-x/version"),
        ),
        row(
            "P-521 server certificate",
            "ok",
            |c| {
                c.server = Some(c.authority.server_with(&["127.0.0.1"], &rcgen::PKCS_ECDSA_P521_SHA512, Dates::Valid));
            },
            works(),
        ),
    ])
    .await;
}

#[tokio::test]
async fn servers_kubectl_refuses() {
    check(vec![
        row(
            "no SAN",
            "refused",
            |c| c.server = Some(c.authority.server(&[])),
            Expect::Fails(
                "Unable to connect to the server: tls: failed to verify certificate: x509: certificate is not valid for any names, but wanted to match 127.0.0.1",
            ),
        ),
        row(
            "wrong name",
            "refused",
            |c| c.server = Some(c.authority.server(&["10.0.0.1"])),
            Expect::Fails(
                "Unable to connect to the server: tls: failed to verify certificate: x509: certificate is valid for 10.0.0.1, not 127.0.0.1",
            ),
        ),
        row(
            "expired",
            "refused",
            |c| {
                c.server =
                    Some(c.authority.server_with(&["127.0.0.1"], &rcgen::PKCS_ECDSA_P256_SHA256, Dates::Expired));
            },
            Expect::Fails("x509: certificate has expired or is not yet valid: current time "),
        ),
        row(
            "unknown authority",
            "refused",
            |c| c.server = Some(Authority::new("other").server(&["127.0.0.1"])),
            Expect::Fails(
                "Unable to connect to the server: tls: failed to verify certificate: x509: certificate signed by unknown authority",
            ),
        ),
        row(
            "server without TLS",
            "refused",
            |c| {
                c.server = None;
                c.cluster["server"] = json!("https://127.0.0.1:$PORT");
            },
            Expect::Fails("Unable to connect to the server: tls: the server does not speak TLS"),
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_server_that_is_its_own_ca() {
    check(vec![
        row("server certificate is its own CA", "ok", |c| serve_own_ca(c, &["127.0.0.1"], Dates::Valid), works()),
        row(
            "own CA, wrong name",
            "refused",
            |c| serve_own_ca(c, &["10.0.0.1"], Dates::Valid),
            Expect::Fails("x509: certificate is valid for 10.0.0.1, not 127.0.0.1"),
        ),
        row(
            "own CA, expired",
            "refused",
            |c| serve_own_ca(c, &["127.0.0.1"], Dates::Expired),
            Expect::Fails("x509: certificate has expired or is not yet valid: current time "),
        ),
        row(
            "own CA, not yet valid",
            "refused",
            |c| serve_own_ca(c, &["127.0.0.1"], Dates::NotYet),
            Expect::Fails("x509: certificate has expired or is not yet valid: current time "),
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_bundle_that_holds_the_leaf() {
    check(vec![
        row(
            "certificate-authority holds the leaf",
            "ok",
            |c| trust_only_the_leaf(c, &["127.0.0.1"], Dates::Valid),
            works(),
        ),
        row(
            "leaf in bundle, wrong name",
            "refused",
            |c| trust_only_the_leaf(c, &["10.0.0.1"], Dates::Valid),
            Expect::Fails("x509: certificate is valid for 10.0.0.1, not 127.0.0.1"),
        ),
        row(
            "leaf in bundle, expired",
            "refused",
            |c| trust_only_the_leaf(c, &["127.0.0.1"], Dates::Expired),
            Expect::Fails("x509: certificate has expired or is not yet valid: current time "),
        ),
        row(
            "leaf in bundle, not yet valid",
            "refused",
            |c| trust_only_the_leaf(c, &["127.0.0.1"], Dates::NotYet),
            Expect::Fails("x509: certificate has expired or is not yet valid: current time "),
        ),
    ])
    .await;
}

#[tokio::test]
async fn only_the_very_certificate_is_trusted() {
    check(vec![
        row(
            "leaf of the same name in bundle, another served",
            "refused",
            |c| {
                trust_only_the_leaf(c, &["127.0.0.1"], Dates::Valid);
                c.server = Some(c.authority.server(&["127.0.0.1"]));
            },
            Expect::Fails("x509: certificate signed by unknown authority"),
        ),
        row(
            "own CA in bundle, another of the same name served",
            "refused",
            |c| {
                serve_own_ca(c, &["127.0.0.1"], Dates::Valid);
                c.server = Some(pki::server_that_is_its_own_ca(&["127.0.0.1"], Dates::Valid));
            },
            Expect::Fails("x509: the server shows the certificate of an authority"),
        ),
    ])
    .await;
}

#[tokio::test]
async fn bundles() {
    check(vec![
        row(
            "bundle with one unreadable certificate",
            "ok",
            |c| {
                let bundle = format!("{}{}", unreadable(), c.authority.certificate);
                trust(c, &bundle);
            },
            works(),
        ),
        row(
            "bundle with one broken block",
            "ok",
            |c| {
                let broken = "-----BEGIN CERTIFICATE-----\n***\n-----END CERTIFICATE-----\n";
                let bundle = format!("{broken}{}", c.authority.certificate);
                trust(c, &bundle);
            },
            works(),
        ),
        row(
            "bundle without certificates",
            "refused",
            |c| trust(c, "nothing"),
            Expect::Fails("error: unable to load root certificates: unable to parse bytes as PEM block"),
        ),
    ])
    .await;
}

#[tokio::test]
async fn authority_files() {
    check(vec![
        row(
            "certificate-authority file, relative",
            "ok",
            |c| {
                c.write("ca.pem", &c.authority.certificate);
                c.cluster = json!({ "server": "$URL", "certificate-authority": "ca.pem" });
            },
            works(),
        ),
        row(
            "certificate-authority file missing",
            "refused",
            |c| {
                c.cluster = json!({ "server": "$URL", "certificate-authority": "ca.pem" });
            },
            Expect::Fails("ca.pem: no such file or directory"),
        ),
        row(
            "certificate-authority and data",
            "refused",
            |c| c.cluster["certificate-authority"] = json!("ca.pem"),
            Expect::Fails("error: certificate-authority-data and certificate-authority are both specified for k."),
        ),
    ])
    .await;
}

#[tokio::test]
async fn system_roots_and_no_check_at_all() {
    check(vec![
        row(
            "system roots when there is no CA",
            "ok",
            |c| {
                c.write("roots.pem", &c.authority.certificate);
                c.variable("SSL_CERT_FILE", "$DIR/roots.pem");
                c.cluster = json!({ "server": "$URL" });
            },
            works(),
        ),
        row(
            "CA and insecure-skip-tls-verify",
            "refused",
            |c| c.cluster["insecure-skip-tls-verify"] = json!(true),
            Expect::Fails("error: specifying a root certificates file with the insecure flag is not allowed"),
        ),
        row(
            "insecure-skip-tls-verify",
            "ok",
            |c| {
                c.cluster = json!({ "server": "$URL", "insecure-skip-tls-verify": true });
                c.server =
                    Some(Authority::new("other").server_with(&[], &rcgen::PKCS_ECDSA_P256_SHA256, Dates::Expired));
            },
            works(),
        ),
    ])
    .await;
}

#[tokio::test]
async fn client_certificates() {
    check(vec![
        row(
            "client certificate",
            "ok",
            |c| {
                let pair = c.authority.client("me");
                show(c, &pair);
            },
            Expect::Works(|o| o.request.client_certificate.is_some() && o.lacks("authorization")),
        ),
        row(
            "X.509 v1 client certificate",
            "ok",
            |c| show(c, &pki::version_1_client()),
            Expect::Works(|o| o.request.client_certificate.is_some()),
        ),
        row(
            "client certificate and token",
            "ok",
            |c| {
                let pair = c.authority.client("me");
                show(c, &pair);
                c.user["token"] = json!("t");
            },
            Expect::Works(|o| o.request.client_certificate.is_some() && o.sent("authorization", "Bearer t")),
        ),
    ])
    .await;
}

#[tokio::test]
async fn client_keys_have_to_match() {
    check(vec![
        row(
            "client certificate without key",
            "refused",
            |c| {
                let pair = c.authority.client("me");
                show(c, &pair);
                merge(&mut c.user, json!({ "client-key-data": Value::Null }));
            },
            Expect::Fails(
                "error: client-key-data or client-key must be specified for u to use the clientCert authentication method.",
            ),
        ),
        row(
            "client key without certificate",
            "ok",
            |c| {
                let pair = c.authority.client("me");
                show(c, &pair);
                merge(&mut c.user, json!({ "client-certificate-data": Value::Null, "token": "t" }));
            },
            Expect::Works(|o| o.request.client_certificate.is_none()),
        ),
        row(
            "client certificate of another key",
            "refused",
            |c| {
                let pair = c.authority.client("me");
                let other = c.authority.client("me");
                show(c, &Pair { key: other.key, ..pair });
            },
            Expect::Fails("error: tls: private key does not match public key"),
        ),
    ])
    .await;
}

#[tokio::test]
async fn client_certificate_files() {
    check(vec![
        row(
            "client certificate file and data",
            "refused",
            |c| {
                let pair = c.authority.client("me");
                show(c, &pair);
                c.user["client-certificate"] = json!("me.pem");
            },
            Expect::Fails("error: client-cert-data and client-cert are both specified for u."),
        ),
        row(
            "client certificate file missing",
            "refused",
            |c| {
                c.user = json!({ "client-certificate": "me.pem", "client-key": "me.key" });
            },
            Expect::Fails("error: unable to read client-cert "),
        ),
    ])
    .await;
}

/// kubectl accepts it; rustls cannot, so the text has to say why.
#[tokio::test]
async fn short_rsa_keys_are_refused_with_the_reason() {
    let mut case = Case::new();
    let certificate = pki::rsa_1024(case.dir.path());
    trust(&mut case, &certificate);
    let server = WeakServer::start(case.dir.path());
    case.cluster["server"] = json!(format!("https://127.0.0.1:{}", server.port));
    let text = case.run().await.err().unwrap();
    assert_eq!(
        text,
        "Unable to connect to the server: tls: the server's certificate uses an RSA key shorter than 2048 bits, which this program refuses"
    );
}

/// `openssl s_server`, because rustls cannot serve such a key either.
struct WeakServer {
    child: Child,
    port: u16,
}

impl WeakServer {
    fn start(dir: &std::path::Path) -> Self {
        let mut child = Command::new("openssl")
            .args([
                "s_server",
                "-accept",
                "127.0.0.1:0",
                "-www",
                "-cipher",
                "DEFAULT@SECLEVEL=0",
                "-cert",
                "weak.crt",
                "-key",
                "weak.key",
            ])
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the openssl program");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let accept = lines.find(|l| l.starts_with("ACCEPT")).expect("a port");
        let port = accept.rsplit(':').next().unwrap().trim().parse().unwrap();
        Self { child, port }
    }
}

impl Drop for WeakServer {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
