//! The command line of every part.

use crate::paths::Paths;
use crate::plan::{API_PORT, ClusterPlan, Controllers, DOOR_PORT, FakeNodes, GATEWAY, NETNS, SERVICE_RANGE};

const ETCD: &str = "http://127.0.0.1:23790";
/// 8 GiB, the most that etcd advises: thousands of nodes write more than its default between two compactions.
const ETCD_QUOTA: u64 = 8 << 30;
/// Seconds without a heartbeat after which a node is not Ready, as the controller manager has it.
const GRACE_SECONDS: usize = 50;

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
    /// The kubelets of fake nodes.
    Kwok,
}

impl Part {
    /// The parts of a cluster whose nodes are machines.
    pub(crate) const REAL: [Self; 6] =
        [Self::Etcd, Self::ApiServer, Self::Door, Self::ControllerManager, Self::Scheduler, Self::Registry];
    /// The parts of a cluster whose nodes are objects. Nothing is scheduled there, and nothing pulled.
    pub(crate) const FAKE: [Self; 5] = [Self::Etcd, Self::ApiServer, Self::Door, Self::ControllerManager, Self::Kwok];

    /// The part's name; also the name of its log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "apiserver",
            Self::ControllerManager => "controller-manager",
            Self::Scheduler => "scheduler",
            Self::Registry => "registry",
            Self::Door => "door",
            Self::Kwok => "kwok",
        }
    }
}

/// Program and arguments, run in the folder of the running cluster.
pub(super) fn command(part: Part, paths: &Paths, plan: &ClusterPlan) -> Vec<String> {
    let kube = paths.kube().display().to_string();
    let fake = plan.fake.as_ref();
    match part {
        Part::Etcd => words(&[&kube, "etcd"], &etcd()),
        Part::ApiServer => words(&[&kube, "kube-apiserver"], &api_server(fake)),
        Part::ControllerManager => {
            words(&[&kube, "kube-controller-manager"], &controller_manager(plan.controllers, fake))
        }
        Part::Scheduler => words(&[&kube, "kube-scheduler"], "--kubeconfig scheduler.kubeconfig --leader-elect=false"),
        Part::Registry => words(&["docker-registry"], "serve registry.yaml"),
        Part::Door => door(),
        Part::Kwok => words(&[&paths.kwok().display().to_string()], &kwok(fake)),
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
         --initial-advertise-peer-urls {peer} --initial-cluster default={peer} --unsafe-no-fsync --log-level warn
         --quota-backend-bytes {ETCD_QUOTA}"
    )
}

fn api_server(fake: Option<&FakeNodes>) -> String {
    // What thousands of nodes have written is of no use to anybody here a minute later.
    let lean = fake.map_or("", |_| "--event-ttl 5m --etcd-compaction-interval 1m");
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
         --audit-policy-file audit-policy.yaml --audit-log-path log/audit.log --audit-log-maxsize 100000
         {lean}"
    )
}

fn controller_manager(controllers: Controllers, fake: Option<&FakeNodes>) -> String {
    let rate = match controllers {
        Controllers::Default => "",
        Controllers::Raised => "--kube-api-qps 300 --kube-api-burst 600 --concurrent-job-syncs 20",
    };
    let grace = GRACE_SECONDS.max(fake.map_or(0, |fake| fake.lease_seconds() + 10));
    format!(
        "--kubeconfig controller-manager.kubeconfig
         --service-account-private-key-file pki/sa.key --root-ca-file pki/ca.crt --use-service-account-credentials
         --leader-elect=false --allocate-node-cidrs=false
         --cluster-signing-cert-file pki/ca.crt --cluster-signing-key-file pki/ca.key
         --node-monitor-grace-period {grace}s {rate}"
    )
}

fn kwok(fake: Option<&FakeNodes>) -> String {
    let lease = fake.map_or(0, FakeNodes::lease_seconds);
    // A line for each patch would be most of its log.
    format!(
        "--kubeconfig admin.kubeconfig --config stages.yaml --manage-all-nodes --node-lease-duration-seconds {lease} -v WARN"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(count: usize) -> ClusterPlan {
        let fake = Some(FakeNodes { count, stages: String::new() });
        ClusterPlan { nodes: Vec::new(), fake, controllers: Controllers::Raised }
    }

    #[test]
    fn the_door_quotes_the_inner_address_for_socat() {
        assert_eq!(door()[2], r"EXEC:nsenter --net=/run/netns/shim-net socat STDIO TCP\:10.77.0.1\:6443");
    }

    #[test]
    fn every_part_has_a_program_and_flags_without_gaps() {
        for part in Part::REAL.into_iter().chain(Part::FAKE) {
            let words = command(part, &Paths::new("/t"), &plan(1));
            assert!(words.len() >= 3 && words.iter().all(|word| !word.is_empty()), "{part:?}: {words:?}");
        }
    }

    #[test]
    fn no_node_counts_as_lost_before_its_lease_ends() {
        let grace = |count| {
            let words = command(Part::ControllerManager, &Paths::new("/t"), &plan(count));
            words[words.iter().position(|word| word == "--node-monitor-grace-period").unwrap() + 1].clone()
        };
        assert_eq!([grace(100), grace(15_000)], ["50s", "610s"]);
    }
}
