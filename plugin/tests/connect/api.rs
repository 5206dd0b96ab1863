//! A stub of an API server on the loopback: records requests, answers `/version`.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject as _},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use crate::pki::Pair;

/// One request as it came.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    /// DER.
    pub client_certificate: Option<Vec<u8>>,
}

impl Seen {
    /// All values of a header, in order.
    pub fn values(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(n, _)| n == name).map(|(_, v)| v.as_str()).collect()
    }
}

/// What the stub does with a request.
pub enum Reply {
    Json(u16, String),
    /// Content encoding and body.
    Encoded(&'static str, Vec<u8>),
    Text(u16, &'static str),
    /// Headers and half of the body, then silence.
    Stall,
    /// One line of a watch every 50 ms, `n` times.
    Drip(u32),
}

pub fn version() -> Reply {
    Reply::Json(200, VERSION.to_owned())
}

pub const VERSION: &str = r#"{"major":"1","minor":"34","gitVersion":"v1.34.0","gitCommit":"","gitTreeState":"","buildDate":"","goVersion":"","compiler":"","platform":""}"#;

pub type Behaviour = Arc<dyn Fn(&Seen) -> Reply + Send + Sync>;

#[derive(Clone)]
pub struct Api {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Api {
    /// Serves until the test's runtime ends. Without a certificate it speaks plain HTTP.
    pub async fn start(address: &str, server: Option<&Pair>, behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let api = Self { address: listener.local_addr().unwrap(), seen: Arc::default() };
        let acceptor = server.map(|pair| TlsAcceptor::from(Arc::new(tls(pair))));
        let stub = api.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (api, acceptor, behaviour) = (stub.clone(), acceptor.clone(), behaviour.clone());
                tokio::spawn(async move {
                    match acceptor {
                        None => api.talk(stream, None, behaviour).await,
                        Some(acceptor) => {
                            let Ok(stream) = acceptor.accept(stream).await else { return };
                            let certificate = stream.get_ref().1.peer_certificates().map(|c| c[0].to_vec());
                            api.talk(stream, certificate, behaviour).await;
                        }
                    }
                });
            }
        });
        api
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    async fn talk(
        &self,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        certificate: Option<Vec<u8>>,
        behaviour: Behaviour,
    ) {
        while let Some(mut seen) = read_request(&mut stream).await {
            seen.client_certificate.clone_from(&certificate);
            self.seen.lock().unwrap().push(seen.clone());
            if answer(&mut stream, behaviour(&seen)).await.is_err() {
                return;
            }
        }
    }
}

/// How a TLS client begins.
const TLS_HANDSHAKE: [u8; 1] = [0x16];

async fn read_request(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Option<Seen> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
        if head == TLS_HANDSHAKE {
            stream.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n").await.ok()?;
            return None;
        }
    }
    let head = String::from_utf8(head).ok()?;
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let mut seen = Seen { method: first.next()?.to_owned(), path: first.next()?.to_owned(), ..Seen::default() };
    for (name, value) in lines.filter_map(|l| l.split_once(": ")) {
        seen.headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let length = seen.values("content-length").first().and_then(|l| l.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(seen)
}

async fn answer(stream: &mut (impl AsyncWrite + Unpin), reply: Reply) -> std::io::Result<()> {
    let head = |status: u16, kind: &str, length: usize, more: &str| {
        format!("HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n{more}\r\n")
    };
    match reply {
        Reply::Json(status, body) => {
            let more = if status == 503 || status == 429 { "retry-after: 0\r\n" } else { "" };
            stream.write_all((head(status, "application/json", body.len(), more) + &body).as_bytes()).await?;
        }
        Reply::Text(status, body) => {
            stream.write_all((head(status, "text/plain", body.len(), "") + body).as_bytes()).await?;
        }
        Reply::Encoded(encoding, body) => {
            let more = format!("content-encoding: {encoding}\r\n");
            stream.write_all(head(200, "application/json", body.len(), &more).as_bytes()).await?;
            stream.write_all(&body).await?;
        }
        Reply::Stall => {
            stream.write_all((head(200, "application/json", 100, "") + "{").as_bytes()).await?;
            stream.flush().await?;
            std::future::pending::<()>().await;
        }
        Reply::Drip(count) => drip(stream, count).await?,
    }
    stream.flush().await
}

async fn drip(stream: &mut (impl AsyncWrite + Unpin), count: u32) -> std::io::Result<()> {
    stream
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
        .await?;
    for _ in 0..count {
        stream.write_all(b"2\r\n{\n\r\n").await?;
        stream.flush().await?;
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    stream.write_all(b"0\r\n\r\n").await
}

fn tls(pair: &Pair) -> ServerConfig {
    let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes()).collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
    ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(Arc::new(AnyClient))
        .with_single_cert(chain, key)
        .unwrap()
}

/// Asks for a client certificate and takes whatever comes, even a version 1 certificate.
#[derive(Debug)]
struct AnyClient;

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }
    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }
    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
