//! Checks of the server's certificate that accept what Go accepts.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, Error, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};

/// `rsaEncryption` (1.2.840.113549.1.1.1) in DER.
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
/// A 2048-bit RSA key takes 294 bytes in DER; rustls verifies none that is smaller.
const RSA_2048_LENGTH: usize = 294;

/// webpki, and what Go trusts beyond it: a server certificate that is itself in the bundle.
#[derive(Debug)]
pub(super) struct GoLike {
    inner: Arc<WebPkiServerVerifier>,
    trusted: Vec<CertificateDer<'static>>,
}

impl GoLike {
    pub(super) fn new(inner: Arc<WebPkiServerVerifier>, trusted: Vec<CertificateDer<'static>>) -> Self {
        Self { inner, trusted }
    }

    /// Self-signed servers and bundles that hold the leaf are common in small clusters.
    ///
    /// webpki checks the dates before it looks at the CA flag or the issuer, so an expired certificate never comes
    /// here with one of these two errors; the name is checked after them, so it is checked here.
    fn pinned(
        &self,
        leaf: &CertificateDer<'_>,
        name: &ServerName<'_>,
        error: Error,
    ) -> Result<ServerCertVerified, Error> {
        let is_listed = self.trusted.iter().any(|t| t.as_ref() == leaf.as_ref());
        if !(is_listed && is_about_the_issuer(&error)) {
            return Err(explained(error, leaf, &self.trusted));
        }
        verify_server_name(&ParsedCertificate::try_from(leaf)?, name)?;
        Ok(ServerCertVerified::assertion())
    }
}

/// rustls has no variant for webpki's `CaUsedAsEndEntity`; only its text tells.
fn is_about_the_issuer(error: &Error) -> bool {
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => true,
        Error::InvalidCertificate(CertificateError::Other(other)) => other.to_string().contains("CaUsedAsEndEntity"),
        _ => false,
    }
}

/// "BadSignature" hides that the key is too short for this program.
fn explained(error: Error, leaf: &CertificateDer<'_>, trusted: &[CertificateDer<'_>]) -> Error {
    let short = || has_short_rsa_key(leaf) || trusted.iter().any(has_short_rsa_key);
    match error {
        Error::InvalidCertificate(CertificateError::BadSignature) if short() => Error::General(
            "the server's certificate uses an RSA key shorter than 2048 bits, which this program refuses".to_owned(),
        ),
        other => other,
    }
}

fn has_short_rsa_key(certificate: &CertificateDer<'_>) -> bool {
    let Ok(parsed) = ParsedCertificate::try_from(certificate) else { return false };
    let key = parsed.subject_public_key_info();
    key.len() < RSA_2048_LENGTH && key.windows(RSA.len()).any(|w| w == RSA)
}

impl ServerCertVerifier for GoLike {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verdict = self.inner.verify_server_cert(leaf, intermediates, name, ocsp, now);
        verdict.or_else(|error| self.pinned(leaf, name, error))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let verdict = self.inner.verify_tls12_signature(message, leaf, signature);
        verdict.map_err(|e| explained(e, leaf, &[]))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let verdict = self.inner.verify_tls13_signature(message, leaf, signature);
        verdict.map_err(|e| explained(e, leaf, &[]))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// `insecure-skip-tls-verify`. Whoever sits in between can show a certificate of their own, so checking that the
/// handshake was signed with it would protect nobody, and would refuse certificates Go accepts.
#[derive(Debug)]
pub(super) struct AcceptAnything(Arc<CryptoProvider>);

impl AcceptAnything {
    pub(super) fn new(provider: Arc<CryptoProvider>) -> Self {
        Self(provider)
    }
}

impl ServerCertVerifier for AcceptAnything {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
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
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
