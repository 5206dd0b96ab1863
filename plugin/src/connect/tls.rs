//! Whom we trust and which certificate we show, with Go's leniency where rustls has none.

use std::{path::Path, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::config::{AuthInfo, Cluster};
use rustls::{
    ClientConfig, ConfigBuilder, Error, InconsistentKeys, RootCertStore,
    client::{ResolvesClientCert, WantsClientCert, WebPkiServerVerifier},
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    sign::{CertifiedKey, SingleCertAndKey},
};
use secrecy::ExposeSecret;

use super::{
    ConnectError, Env,
    target::{Named, Target},
    verify::{AcceptAnything, GoLike},
};

type Pem = Vec<u8>;

/// The TLS set-up for a target; `pair` is what a credential plugin gave.
pub(super) fn client_config(target: &Target, pair: Option<&(Pem, Pem)>) -> Result<ClientConfig, ConnectError> {
    // Named, not the process default: a second provider in the binary must not make this panic.
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| refused(&e))?;
    // Without TLS there is nobody to check, and a small container may have no certificate store at all.
    if target.url.scheme_str() != Some("https") {
        return Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth());
    }
    let builder = trusting(builder, target, &provider)?;
    match own_pair(&target.user, pair)? {
        Some((certificate, key)) => Ok(builder.with_client_cert_resolver(shown(&certificate, &key, &provider)?)),
        None => Ok(builder.with_no_client_auth()),
    }
}

fn refused(cause: &dyn std::fmt::Display) -> ConnectError {
    ConnectError::Refused(cause.to_string())
}

fn trusting(
    builder: ConfigBuilder<ClientConfig, rustls::WantsVerifier>,
    target: &Target,
    provider: &Arc<CryptoProvider>,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, ConnectError> {
    if target.cluster.entry.insecure_skip_tls_verify == Some(true) {
        let verifier = AcceptAnything::new(provider.clone());
        return Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)));
    }
    let trusted = match authority(&target.cluster)? {
        Some(pem) => bundle(&pem)?,
        None => system_roots(&target.env),
    };
    let mut roots = RootCertStore::empty();
    // Like Go: one certificate that cannot be read does not make the others useless.
    roots.add_parsable_certificates(trusted.iter().cloned());
    let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map_err(|e| ConnectError::Refused(format!("unable to load root certificates: {e}")))?;
    let verifier = GoLike::new(inner, trusted);
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)))
}

fn authority(Named { name, entry }: &Named<Cluster>) -> Result<Option<Pem>, ConnectError> {
    let (data, file) = (entry.certificate_authority_data.as_deref(), entry.certificate_authority.as_deref());
    data_or_file(data, file, "certificate-authority", name)
}

fn bundle(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, ConnectError> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect();
    if certificates.is_empty() {
        let text = "unable to load root certificates: unable to parse bytes as PEM block";
        return Err(ConnectError::Refused(text.to_owned()));
    }
    Ok(certificates)
}

/// The store kubectl uses, with the two variables Go knows.
fn system_roots(env: &Env) -> Vec<CertificateDer<'static>> {
    match (env.var("SSL_CERT_FILE"), env.var("SSL_CERT_DIR")) {
        (None, None) => rustls_native_certs::load_native_certs().certs,
        (file, dir) => rustls_native_certs::load_certs_from_paths(file.map(Path::new), dir.map(Path::new)).certs,
    }
}

/// A plugin's pair wins over the kubeconfig's.
fn own_pair(user: &Named<AuthInfo>, pair: Option<&(Pem, Pem)>) -> Result<Option<(Pem, Pem)>, ConnectError> {
    if let Some(pair) = pair {
        return Ok(Some(pair.clone()));
    }
    let Named { name, entry } = user;
    let (data, file) = (entry.client_certificate_data.as_deref(), entry.client_certificate.as_deref());
    let certificate = data_or_file(data, file, "client-cert", name)?;
    let Some(certificate) = certificate else { return Ok(None) };
    let (data, file) = (entry.client_key_data.as_ref(), entry.client_key.as_deref());
    let key = data_or_file(data.map(ExposeSecret::expose_secret), file, "client-key", name)?;
    Ok(key.map(|key| (certificate, key)))
}

fn data_or_file(data: Option<&str>, file: Option<&str>, what: &str, owner: &str) -> Result<Option<Pem>, ConnectError> {
    match (data, file) {
        (Some(data), _) => {
            let data: String = data.split_ascii_whitespace().collect();
            let bad = |e| ConnectError::Refused(format!("{what}-data of {owner} is no base64 text: {e}"));
            STANDARD.decode(data).map(Some).map_err(bad)
        }
        (None, Some(file)) => std::fs::read(file).map(Some).map_err(|e| {
            let cause = super::explain::plain(&e);
            ConnectError::Refused(format!("unable to read {what} {file} for {owner} due to open {file}: {cause}"))
        }),
        (None, None) => Ok(None),
    }
}

/// The certificate is not parsed here, so X.509 v1 client certificates (plain `openssl x509 -req`) work.
fn shown(
    certificate: &[u8],
    key: &[u8],
    provider: &CryptoProvider,
) -> Result<Arc<dyn ResolvesClientCert>, ConnectError> {
    let bad =
        |what: &str, e: &dyn std::fmt::Display| ConnectError::Refused(format!("the client {what} cannot be used: {e}"));
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    let chain = chain.map_err(|e| bad("certificate", &e))?;
    if chain.is_empty() {
        return Err(bad("certificate", &"it holds no PEM certificate"));
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| bad("key", &e))?;
    let key = provider.key_provider.load_private_key(key).map_err(|e| bad("key", &e))?;
    let pair = CertifiedKey::new(chain, key);
    match pair.keys_match() {
        Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            Err(ConnectError::Refused("tls: private key does not match public key".to_owned()))
        }
        _ => Ok(Arc::new(SingleCertAndKey::from(pair))),
    }
}
