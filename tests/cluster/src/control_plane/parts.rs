//! The command line of every part.

use crate::paths::Paths;
use crate::plan::{API_PORT, Controllers, DOOR_PORT, GATEWAY, NETNS, SERVICE_RANGE};

const ETCD: &str = "http://127.0.0.1:23790";

/// A process of the control plane, or beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The store of the API server.
    Etcd,
    /// The API server, with an audit log.
    ApiServer,
    /// The controllers of Kubernetes, Jobs among them.
    ControllerManager,
    /// The scheduler.
    Scheduler,
    /// The image registry that the nodes pull from.
    Registry,
    /// The way from the machine's loopback to the API server.
    Door,
}

impl Part {
    /// All parts.
    pub const ALL: [Self; 6] =
        [Self::Etcd, Self::ApiServer, Self::ControllerManager, Self::Scheduler, Self::Registry, Self::Door];

    /// The part's name; also the name of its log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "apiserver",
            Self::ControllerManager => "controller-manager",
            Self::Scheduler => "scheduler",
            Self::Registry => "registry",
            Self::Door => "door",
        }
    }
}

/// Program and arguments, run in the folder of the running cluster.
pub(super) fn command(part: Part, paths: &Paths, controllers: Controllers) -> Vec<String> {
    let kube = paths.kube().display().to_string();
    match part {
        Part::Etcd => words(&[&kube, "etcd"], &etcd()),
        Part::ApiServer => words(&[&kube, "kube-apiserver"], &api_server()),
        Part::ControllerManager => words(&[&kube, "kube-controller-manager"], &controller_manager(controllers)),
        Part::Scheduler => words(&[&kube, "kube-scheduler"], "--kubeconfig scheduler.kubeconfig --leader-elect=false"),
        Part::Registry => words(&["docker-registry"], "serve registry.yaml"),
        Part::Door => door(),
    }
}

/// The same from every checkout.
pub(super) fn door() -> Vec<String> {
    let inner = format!("EXEC:nsenter --net=/run/netns/{NETNS} socat STDIO TCP\\:{GATEWAY}\\:{API_PORT}");
    vec!["socat".to_owned(), format!("TCP-LISTEN:{DOOR_PORT},bind=127.0.0.1,fork,reuseaddr"), inner]
}

fn words(program: &[&str], flags: &str) -> Vec<String> {
    program.iter().copied().chain(flags.split_whitespace()).map(str::to_owned).collect()
}

fn etcd() -> String {
    let peer = "http://127.0.0.1:23800";
    // The data is gone with the cluster: waiting for the disk would only cost time.
    format!(
        "--data-dir etcd --listen-client-urls {ETCD} --advertise-client-urls {ETCD} --listen-peer-urls {peer}
         --initial-advertise-peer-urls {peer} --initial-cluster default={peer} --unsafe-no-fsync --log-level warn"
    )
}

fn api_server() -> String {
    // Without the address type, logs and exec would ask for the node's name, which nothing here resolves.
    // The audit log is never rotated: tests count its lines from the start of the cluster.
    format!(
        "--etcd-servers {ETCD} --bind-address 0.0.0.0 --advertise-address {GATEWAY} --secure-port {API_PORT}
         --tls-cert-file pki/apiserver.crt --tls-private-key-file pki/apiserver.key --client-ca-file pki/ca.crt
         --service-account-key-file pki/sa.pub --service-account-signing-key-file pki/sa.key
         --service-account-issuer https://kubernetes.default.svc --service-cluster-ip-range {SERVICE_RANGE}
         --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction --allow-privileged=true
         --kubelet-client-certificate pki/admin.crt --kubelet-client-key pki/admin.key
         --kubelet-certificate-authority pki/ca.crt --kubelet-preferred-address-types InternalIP
         --audit-policy-file audit-policy.yaml --audit-log-path log/audit.log --audit-log-maxsize 100000"
    )
}

fn controller_manager(controllers: Controllers) -> String {
    let rate = match controllers {
        Controllers::Default => "",
        Controllers::Raised => "--kube-api-qps 300 --kube-api-burst 600 --concurrent-job-syncs 20",
    };
    format!(
        "--kubeconfig controller-manager.kubeconfig
         --service-account-private-key-file pki/sa.key --root-ca-file pki/ca.crt --use-service-account-credentials
         --leader-elect=false --allocate-node-cidrs=false
         --cluster-signing-cert-file pki/ca.crt --cluster-signing-key-file pki/ca.key {rate}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_door_quotes_the_inner_address_for_socat() {
        assert_eq!(door()[2], r"EXEC:nsenter --net=/run/netns/shim-net socat STDIO TCP\:10.77.0.1\:6443");
    }

    #[test]
    fn every_part_has_a_program_and_flags_without_gaps() {
        for part in Part::ALL {
            let words = command(part, &Paths::new("/t"), Controllers::Raised);
            assert!(words.len() >= 3 && words.iter().all(|word| !word.is_empty()), "{part:?}: {words:?}");
        }
    }
}
