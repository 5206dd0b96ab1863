//! Certificates of a cluster, new with every cluster.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::DirBuilderExt;

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};

use crate::paths::Paths;
use crate::plan::{GATEWAY, NodePlan, SERVICE};

/// Who a certificate is for, in the terms of Kubernetes' authentication.
struct Subject {
    file: String,
    user: String,
    group: String,
    addresses: Vec<IpAddr>,
    names: Vec<String>,
}

impl Subject {
    fn new(file: &str, user: &str, group: &str) -> Self {
        Self { file: file.into(), user: user.into(), group: group.into(), addresses: Vec::new(), names: Vec::new() }
    }

    fn at(mut self, addresses: &[Ipv4Addr], names: &[&str]) -> Self {
        self.addresses = addresses.iter().copied().map(IpAddr::V4).collect();
        self.names = names.iter().map(|&name| name.to_owned()).collect();
        self
    }
}

type Issuer = CertifiedIssuer<'static, KeyPair>;

/// Writes the certificates of the control plane and of all nodes.
pub(crate) fn make(paths: &Paths, nodes: &[NodePlan]) -> Result<()> {
    // Whoever reads the keys is root on this machine, by way of a privileged pod.
    fs::DirBuilder::new().mode(0o700).create(paths.run().join("pki"))?;
    let ca = authority()?;
    write(paths, "ca", &ca.pem(), ca.key())?;
    let accounts = KeyPair::generate()?;
    fs::write(paths.pki("sa.key"), accounts.serialize_pem())?;
    fs::write(paths.pki("sa.pub"), accounts.public_key_pem())?;
    for subject in subjects(nodes) {
        issue(paths, &ca, &subject)?;
    }
    Ok(())
}

fn subjects(nodes: &[NodePlan]) -> Vec<Subject> {
    // The door on loopback leads to the same API server: its certificate names that address too.
    let names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
    let apiserver =
        Subject::new("apiserver", "kube-apiserver", "shim-test").at(&[GATEWAY, Ipv4Addr::LOCALHOST, SERVICE], &names);
    let admin = Subject::new("admin", "admin", "system:masters");
    let parts =
        ["controller-manager", "scheduler"].map(|part| Subject::new(part, &format!("system:kube-{part}"), "shim-test"));
    let kubelets = nodes.iter().map(|node| {
        Subject::new(&node.name, &format!("system:node:{}", node.name), "system:nodes")
            .at(&[node.address()], &[&node.name])
    });
    [apiserver, admin].into_iter().chain(parts).chain(kubelets).collect()
}

fn authority() -> Result<Issuer> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "shim-test-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
}

fn issue(paths: &Paths, ca: &Issuer, subject: &Subject) -> Result<()> {
    let mut params = CertificateParams::new(subject.names.clone())?;
    params.subject_alt_names.extend(subject.addresses.iter().copied().map(SanType::IpAddress));
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, &subject.group);
    params.distinguished_name.push(DnType::CommonName, &subject.user);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate()?;
    write(paths, &subject.file, &params.signed_by(&key, ca)?.pem(), &key)
}

fn write(paths: &Paths, file: &str, certificate: &str, key: &KeyPair) -> Result<()> {
    fs::write(paths.pki(&format!("{file}.crt")), certificate)?;
    Ok(fs::write(paths.pki(&format!("{file}.key")), key.serialize_pem())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pins::Containerd;
    use crate::plan::plan;

    #[test]
    fn a_kubelet_is_a_node_to_the_api_server() {
        let subjects = subjects(&plan(2, &Containerd::ALL).unwrap());
        let kubelet = subjects.last().unwrap();
        assert_eq!((kubelet.user.as_str(), kubelet.group.as_str()), ("system:node:node-2", "system:nodes"));
        assert_eq!(kubelet.addresses, [IpAddr::V4(Ipv4Addr::new(10, 77, 0, 12))]);
        assert_eq!(subjects.len(), 6);
    }
}
