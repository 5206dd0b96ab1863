//! https: whom we trust, and that nobody takes us back to http.
use std::{
    fs, io,
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    crypto::aws_lc_rs,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use shim_core::report::Reason;

use crate::{
    fetch_process::{command, is_child},
    pack::program,
    rig::{Rig, install, limits, task},
    stub::{Reply, Stub, request_head},
};

/// An https server whose certificate nobody has signed.
struct TlsStub {
    port: u16,
    certificate: String,
    connections: Arc<AtomicUsize>,
}

impl TlsStub {
    fn start(answer: impl Fn() -> Reply + Send + 'static) -> Self {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let stub = Self { port, certificate: cert.pem(), connections: Arc::default() };
        let (config, connections) = (Arc::new(config), stub.connections.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                connections.fetch_add(1, Ordering::SeqCst);
                // A client that does not trust us hangs up; the next one is served all the same.
                let _ = serve(stream.unwrap(), config.clone(), &answer());
            }
        });
        stub
    }

    fn url(&self) -> String {
        format!("https://localhost:{}/a", self.port)
    }
}

fn serve(stream: TcpStream, config: Arc<ServerConfig>, reply: &Reply) -> io::Result<()> {
    let mut tls = StreamOwned::new(ServerConnection::new(config).map_err(io::Error::other)?, stream);
    request_head(&mut tls)?;
    reply.send(&mut tls)?;
    tls.conn.send_close_notify();
    tls.conn.complete_io(&mut tls.sock).map(drop)
}

/// Fetches in a process that trusts the server's certificate.
fn fetch_trusting(test: &str, stub: &TlsStub) -> Rig {
    let rig = Rig::new();
    let ca = rig.path().join("ca.pem");
    fs::write(&ca, &stub.certificate).unwrap();
    let task = task(vec![("spin", install(&stub.url(), &program(b"tls"), None))]);
    assert!(command(test, &task, &rig).env("SSL_CERT_FILE", ca).status().unwrap().success());
    rig
}

#[test]
fn a_certificate_that_ssl_cert_file_names_is_trusted() {
    if is_child() {
        return;
    }
    let stub = TlsStub::start(|| Reply::ok(&program(b"tls")));
    let rig = fetch_trusting("fetch_tls::a_certificate_that_ssl_cert_file_names_is_trusted", &stub);
    rig.expect_binary("spin", &program(b"tls"));
}

#[test]
fn a_certificate_that_nobody_signed_is_refused_once_and_for_all() {
    let stub = TlsStub::start(|| Reply::ok(&program(b"tls")));
    let rig = Rig::new();
    rig.run(&task(vec![("spin", install(&stub.url(), &program(b"tls"), None))]), &limits());
    let failure = rig.expect_failure("spin", Reason::DownloadRefused);
    assert!(failure.message.contains("certificate"), "{failure}");
    assert_eq!(stub.connections.load(Ordering::SeqCst), 1);
}

#[test]
fn without_any_ca_the_message_says_so() {
    if is_child() {
        return;
    }
    let stub = TlsStub::start(|| Reply::ok(b""));
    let rig = Rig::new();
    let task = task(vec![("spin", install(&stub.url(), b"", None))]);
    let mut child = command("fetch_tls::without_any_ca_the_message_says_so", &task, &rig);
    assert!(child.env("SSL_CERT_FILE", "/dev/null").status().unwrap().success());
    let failure = rig.expect_failure("spin", Reason::DownloadRefused);
    assert!(failure.message.contains("No CA certificates"), "{failure}");
}

#[test]
fn a_redirect_to_http_is_not_followed() {
    if is_child() {
        return;
    }
    let plain = Stub::always(|| Reply::ok(&program(b"tls")));
    let target = plain.url("/a?token=hunter2");
    let stub = TlsStub::start(move || Reply::redirect(&target));
    let rig = fetch_trusting("fetch_tls::a_redirect_to_http_is_not_followed", &stub);
    let failure = rig.expect_failure("spin", Reason::DownloadRefused);
    assert!(failure.message.contains("https to http") && !failure.message.contains("hunter2"), "{failure}");
    assert!(plain.seen().is_empty());
}
