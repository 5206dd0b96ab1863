//! What is written on a node's disk before it boots. Pure text.

use crate::kubeconfig;
use crate::plan::{API_PORT, BUSYBOX_IMAGE, GATEWAY, NodePlan, REGISTRY_PORT};
use crate::text::fill;

/// Units that start with the machine, with the folder that they are in.
pub(super) const UNITS: [(&str, &str); 3] =
    [("prepare", "/etc/systemd/system"), ("containerd", "/lib/systemd/system"), ("kubelet", "/etc/systemd/system")];

/// Units that would fight over the network, wait for time, or want a terminal.
pub(super) const MASKED: [&str; 5] = [
    "systemd-networkd.service",
    "systemd-resolved.service",
    "systemd-timesyncd.service",
    "getty.target",
    "systemd-journald-audit.socket",
];

/// Path on the node and text of every file that depends on nothing but the plan.
pub(super) fn files(node: &NodePlan) -> Vec<(String, String)> {
    let (address, gateway, port) = (node.address().to_string(), GATEWAY.to_string(), API_PORT.to_string());
    let (pods, registry) = (node.pods(), registry());
    let values = [
        ("NAME", node.name.as_str()),
        ("ADDRESS", &address),
        ("GATEWAY", &gateway),
        ("PORT", &port),
        ("PODS", &pods),
        ("REGISTRY", &registry),
    ];
    let texts = [
        ("etc/hostname".to_owned(), "{{NAME}}\n"),
        ("etc/kubernetes/kubelet.yaml".to_owned(), include_str!("files/kubelet.yaml")),
        ("etc/cni/net.d/10-bridge.conflist".to_owned(), include_str!("files/cni.conflist")),
        (format!("etc/containerd/certs.d/{registry}/hosts.toml"), include_str!("files/hosts.toml")),
        ("etc/systemd/system/prepare.service".to_owned(), include_str!("files/prepare.service")),
        ("etc/systemd/system/kubelet.service".to_owned(), include_str!("files/kubelet.service")),
        ("etc/systemd/system/containerd.service.d/test.conf".to_owned(), include_str!("files/containerd.conf")),
    ];
    let filled = texts.into_iter().map(|(path, text)| (path, fill(text, &values)));
    filled.chain([("etc/kubernetes/kubeconfig".to_owned(), kubelet_access())]).collect()
}

fn kubelet_access() -> String {
    let own = |file: &str| format!("/etc/kubernetes/{file}");
    kubeconfig::text(&format!("{GATEWAY}:{API_PORT}"), &own("ca.crt"), &own("kubelet.crt"), &own("kubelet.key"))
}

fn registry() -> String {
    format!("{GATEWAY}:{REGISTRY_PORT}")
}

/// containerd's own default configuration, changed where this machine needs it.
pub(super) fn containerd(default: &str) -> String {
    default.lines().map(|line| containerd_line(line) + "\n").collect()
}

fn containerd_line(line: &str) -> String {
    let Some((key, value)) = line.split_once(" = ") else { return line.to_owned() };
    let certificates = "'/etc/containerd/certs.d'";
    match key.trim() {
        // Both need a privilege that a machine without CAP_SYS_RESOURCE has not.
        "restrict_oom_score_adj" => format!("{key} = true"),
        "enable_unprivileged_ports" | "enable_unprivileged_icmp" => format!("{key} = false"),
        // Debian's place for CNI plugins.
        "bin_dir" | "bin_dirs" => line.replace("/opt/cni/bin", "/usr/lib/cni"),
        // 1.x has the first name, 2.x the second. Other `sandbox…` keys are not images.
        "sandbox_image" => format!("{key} = '{BUSYBOX_IMAGE}'"),
        "sandbox" if value.contains("pause") => format!("{key} = '{BUSYBOX_IMAGE}'"),
        // Empty means that hosts.toml files are not read. 1.x writes "", 2.x ''. One that is set stays.
        "config_path" if matches!(value, "\"\"" | "''") => format!("{key} = {certificates}"),
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pins::Containerd;
    use crate::plan::plan;

    fn text_of(path: &str) -> String {
        let node = plan(2, &Containerd::ALL).unwrap().remove(1);
        files(&node).into_iter().find(|(name, _)| name == path).unwrap().1
    }

    #[test]
    fn no_place_stays_empty() {
        let node = plan(1, &Containerd::ALL).unwrap().remove(0);
        for (path, text) in files(&node) {
            assert!(!text.contains("{{"), "{path}: {text}");
        }
    }

    #[test]
    fn units_carry_the_nodes_name_and_address() {
        let kubelet = text_of("etc/systemd/system/kubelet.service");
        assert!(kubelet.contains("--hostname-override node-2 --node-ip 10.77.0.12"), "{kubelet}");
        assert!(kubelet.contains("/dev/tcp/10.77.0.1/6443"));
        let prepare = text_of("etc/systemd/system/prepare.service");
        assert!(prepare.contains("ip addr add 10.77.0.12/24 dev host0") && prepare.contains("default via 10.77.0.1;"));
    }

    #[test]
    fn pods_get_addresses_of_their_own_node() {
        let cni: serde_json::Value = serde_json::from_str(&text_of("etc/cni/net.d/10-bridge.conflist")).unwrap();
        assert_eq!(cni["plugins"][0]["ipam"]["ranges"][0][0]["subnet"], "10.78.2.0/24");
    }

    #[test]
    fn a_1x_default_is_adapted() {
        let default = "version = 2\n    restrict_oom_score_adj = false\n    sandbox_image = \"registry.example/pause:3.6\"\n      config_path = \"\"\n      bin_dir = \"/opt/cni/bin\"\n";
        assert_eq!(
            containerd(default),
            "version = 2\n    restrict_oom_score_adj = true\n    sandbox_image = '10.77.0.1:5000/busybox:1'\n      config_path = '/etc/containerd/certs.d'\n      bin_dir = \"/usr/lib/cni\"\n"
        );
    }

    #[test]
    fn a_2x_default_is_adapted() {
        let default = "version = 3\n      sandbox = 'registry.example/pause:3.10'\n      sandboxer = 'podsandbox'\n      config_path = ''\n  enable_unprivileged_ports = true\n  bin_dirs = ['/opt/cni/bin']\n";
        assert_eq!(
            containerd(default),
            "version = 3\n      sandbox = '10.77.0.1:5000/busybox:1'\n      sandboxer = 'podsandbox'\n      config_path = '/etc/containerd/certs.d'\n  enable_unprivileged_ports = false\n  bin_dirs = ['/usr/lib/cni']\n"
        );
    }

    #[test]
    fn a_certificate_folder_that_is_set_stays() {
        assert_eq!(containerd("config_path = '/own:/more'"), "config_path = '/own:/more'\n");
    }
}
