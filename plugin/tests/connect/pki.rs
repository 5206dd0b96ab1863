//! Certificates for one test case.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SignatureAlgorithm,
    date_time_ymd,
};

/// A certificate and its key, PEM.
#[derive(Clone)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

/// A certificate authority.
pub struct Authority {
    pub certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// Whether a certificate's dates cover today.
#[derive(Clone, Copy, PartialEq)]
pub enum Dates {
    Valid,
    Expired,
    NotYet,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = named(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap().pem();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    pub fn server(&self, names: &[&str]) -> Pair {
        self.server_with(names, &rcgen::PKCS_ECDSA_P256_SHA256, Dates::Valid)
    }

    pub fn server_with(&self, names: &[&str], algorithm: &'static SignatureAlgorithm, dates: Dates) -> Pair {
        let mut params = named("server", names);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        set_dates(&mut params, dates);
        let key = KeyPair::generate_for(algorithm).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }

    pub fn client(&self, name: &str) -> Pair {
        let mut params = named(name, &[]);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }
}

/// A server certificate that says it is an authority, as small clusters make them.
pub fn server_that_is_its_own_ca(names: &[&str], dates: Dates) -> Pair {
    let mut params = named("own-ca", names);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    set_dates(&mut params, dates);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    Pair { certificate, key: key.serialize_pem() }
}

fn named(name: &str, alternatives: &[&str]) -> CertificateParams {
    let names: Vec<String> = alternatives.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn set_dates(params: &mut CertificateParams, dates: Dates) {
    match dates {
        Dates::Valid => {}
        Dates::Expired => params.not_after = date_time_ymd(2001, 1, 1),
        Dates::NotYet => params.not_before = date_time_ymd(3000, 1, 1),
    }
}

/// What `openssl x509 -req` made before OpenSSL 3.2: a version 1 certificate, which rcgen cannot make.
pub fn version_1_client() -> Pair {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    openssl(&[
        "req",
        "-new",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-subj",
        "/CN=v1",
        "-keyout",
        &path("key"),
        "-out",
        &path("csr"),
    ]);
    openssl(&["x509", "-req", "-in", &path("csr"), "-signkey", &path("key"), "-days", "30", "-out", &path("crt")]);
    let certificate = std::fs::read_to_string(path("crt")).unwrap();
    Pair { certificate, key: std::fs::read_to_string(path("key")).unwrap() }
}

/// A self-signed RSA-1024 server certificate, in a directory for `openssl s_server`.
pub fn rsa_1024(dir: &std::path::Path) -> String {
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    openssl(&[
        "req",
        "-x509",
        "-newkey",
        "rsa:1024",
        "-nodes",
        "-subj",
        "/CN=weak",
        "-days",
        "30",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-addext",
        "basicConstraints=critical,CA:FALSE",
        "-keyout",
        &path("weak.key"),
        "-out",
        &path("weak.crt"),
    ]);
    std::fs::read_to_string(path("weak.crt")).unwrap()
}

fn openssl(arguments: &[&str]) {
    let output = std::process::Command::new("openssl").args(arguments).output().expect("the openssl program");
    assert!(output.status.success(), "openssl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}
